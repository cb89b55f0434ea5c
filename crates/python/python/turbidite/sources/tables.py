"""Formats that hold arrays: the columns are whole arrays, components of two-dimensional ones, and fields of structured ones.

Each file is one epoch, which the file's name or the option `epoch` states.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy

from turbidite.schema import Column
from turbidite.sources.catalogue import (
    MOST_COMPONENTS,
    Array,
    Catalogue,
    Epoch,
    Options,
    Source,
    block_rows,
    choose,
    component_names,
    in_order,
    in_words,
    packed,
    same_columns,
    type_of,
)
from turbidite.sources.errors import failed, usage
from turbidite.sources.patterns import epoch_of, files_of


@dataclass(frozen=True)
class Member:
    """An array of a file."""

    name: str
    dtype: numpy.dtype[Any]
    shape: tuple[int, ...]
    unit: str | None = None
    chunk_rows: int = 0
    compressed: bool = False
    problem: str | None = None
    """The reason why the array cannot be read, if its type in NumPy does not show it."""
    missing: str | None = None
    """Values that the file lacks, and that its library would invent."""


@dataclass(frozen=True)
class Part:
    """A column within an array."""

    column: Column
    member: str
    field: str | None = None
    component: int | None = None
    axis: str | None = None
    """Of complex numbers, ``real`` or ``imag``."""

    def of(self, rows: Array) -> Array:
        """Returns the column's values in rows of the array."""
        values = rows if self.field is None else rows[self.field]
        if self.component is not None:
            values = values[:, self.component]
        if self.axis is not None:
            values = getattr(values, self.axis)
        if values.dtype.kind == "f" and values.dtype.itemsize == 2:
            values = values.astype("f4")
        return packed(values.view(numpy.uint8) if values.dtype.kind == "b" else values)


@dataclass
class Table:
    """The columns of a file's arrays."""

    parts: dict[str, Part] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    """The reasons why other arrays cannot be read."""
    converted: dict[str, str] = field(default_factory=dict)
    """The columns of which the values are stored in another form."""

    def add(self, member: Member) -> None:
        """Adds the columns of an array."""
        shape = member.shape + member.dtype.shape
        if member.problem is not None:
            self.unreadable[member.name] = member.problem
        elif not shape:
            self.unreadable[member.name] = "is a single value (0 dimensions), not an array of rows"
        elif member.dtype.names is not None and len(shape) == 1:
            for name in member.dtype.names:
                dtype = member.dtype[name]
                self._add(member, name, dtype.base, dtype.shape, name)
        else:
            self._add(member, member.name, member.dtype.base, shape[1:], None)

    def _add(self, member: Member, name: str, dtype: numpy.dtype[Any], shape: tuple[int, ...], field: str | None) -> None:
        # The real and imaginary parts of complex numbers are columns.
        axes = {"real": f"{name}_re", "imag": f"{name}_im"} if dtype.kind == "c" else {None: name}
        stored = type_of(numpy.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype)
        if stored is None:
            self.unreadable[name] = f"has the unsupported type {in_words(dtype)}"
        elif len(shape) > 1 or (shape and not 1 <= shape[0] <= MOST_COMPONENTS):
            self.unreadable[name] = f"has rows of shape {shape}; rows have at most {MOST_COMPONENTS} components"
        else:
            for axis, own in axes.items():
                components = list(enumerate(component_names(own, shape[0]))) if shape else [(None, own)]
                self._add_parts(Part(Column(own, stored, member.unit), member.name, field, None, axis), components, dtype)

    def _add_parts(self, part: Part, components: Sequence[tuple[int | None, str]], dtype: numpy.dtype[Any]) -> None:
        for component, each in components:
            if each in self.parts:
                self.unreadable[each] = "is the name of several columns"
                continue
            self.parts[each] = replace(part, column=replace(part.column, name=each), component=component)
            if dtype.kind == "b":
                self.converted[each] = "booleans are stored as u8"
            elif dtype.kind == "c":
                self.converted[each] = "complex numbers are stored as two columns"
            elif dtype.kind == "f" and dtype.itemsize == 2:
                self.converted[each] = "16-bit floats are stored as f32"
            elif not dtype.isnative:
                self.converted[each] = "big-endian values are stored as little-endian"


class TableSource(Source):
    """A source of a format that holds arrays."""

    suffixes: ClassVar[tuple[str, ...]]
    strict: ClassVar[bool]
    """Whether an array that cannot be read is an error, unless other columns are chosen; otherwise it is left out."""

    @classmethod
    @abstractmethod
    def members(cls, path: str, options: Options) -> tuple[list[Member], Any]:
        """Returns the arrays of a file, and a JSON value to find them again."""

    @classmethod
    def prepare(cls, path: str, place: Any, members: Sequence[str]) -> Any:
        """Makes the chosen arrays of a file readable in any order. Returns the value to find them again."""
        return place

    @abstractmethod
    def rows(self, epoch: Epoch, place: Any, member: str, first: int, rows: int) -> Array:
        """Returns rows of an array."""

    @classmethod
    def scan(cls, options: Options) -> Catalogue:
        epochs, found = [], []
        notes: list[str] = []
        files = files_of(options.path, cls.suffixes, notes)
        for file in files:
            label = epoch_of(file, options.epoch, len(files))
            members, place = cls.members(file.path, options)
            parts, said = cls._chosen(file.path, members, options)
            used = {member.name: member for member in members if any(part.member == member.name for part in parts)}
            for member in used.values():
                if member.missing is not None:
                    others = ",".join(part.column.name for part in parts if used[part.member].missing is None)
                    raise failed(member.missing + (f"; or omit the column: --columns {others}" if others else ""), file.path)
            records = _records(file.path, used, parts, options)
            place = cls.prepare(file.path, place, list(used))
            row_bytes = sum(member.dtype.itemsize * int(numpy.prod(member.shape[1:])) for member in used.values())
            chunk = max(member.chunk_rows for member in used.values())
            size = block_rows(row_bytes, chunk, any(member.compressed for member in used.values()))
            details = {"place": place, "parts": [[part.member, part.field, part.component, part.axis] for part in parts]}
            epochs.append(Epoch(label, file.path, records, size, details))
            found.append((label, file.path, [part.column for part in parts]))
            notes += said
        epochs = in_order(epochs, options, notes)
        return Catalogue(cls.name, same_columns(sorted(found, key=lambda one: one[0]), options.columns), epochs, _unique(notes))

    def read(self, epoch: Epoch, first: int, rows: int) -> Sequence[Array]:
        held: dict[str, Array] = {}
        arrays = []
        for column, (member, *place) in zip(self.catalogue.columns, epoch.details["parts"], strict=True):
            if member not in held:
                held[member] = self.rows(epoch, epoch.details["place"], member, first, rows)
            arrays.append(Part(column, member, *place).of(held[member]))
        return arrays

    @classmethod
    def _chosen(cls, path: str, members: list[Member], options: Options) -> tuple[list[Part], list[str]]:
        """Returns the columns to read and the notes on them."""
        table = Table()
        for member in members:
            table.add(member)
        chosen = choose(table.parts, options.columns, table.unreadable, path)
        notes = []
        if options.columns is None:
            for name, why in table.unreadable.items():
                if cls.strict:
                    raise usage(f"'{name}' {why}; choose columns that can be read: --columns {','.join(chosen)}", path)
                notes.append(f"'{name}' {why}; it is left out")
        for why in dict.fromkeys(table.converted[name] for name in chosen if name in table.converted):
            names = [name for name in chosen if table.converted.get(name) == why]
            notes.append(f"{why}: {', '.join(names)}")
        return [table.parts[name] for name in chosen], notes


def _records(path: str, used: dict[str, Member], parts: list[Part], options: Options) -> int:
    """Returns the rows of the chosen arrays, which must agree."""
    lengths = {name: member.shape[0] for name, member in used.items()}
    counts = list(lengths.values())
    if len(set(counts)) > 1:
        usual = max(dict.fromkeys(counts), key=counts.count)
        fitting = [part.column.name for part in parts if lengths[part.member] == usual]
        ones = ", ".join(f"'{name}' has {length} rows" for name, length in lengths.items())
        raise failed(
            f"the lengths of the columns differ: {ones}; choose columns of one length: --columns {','.join(fitting)}", path
        )
    return counts[0]


def _unique(notes: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(notes))
