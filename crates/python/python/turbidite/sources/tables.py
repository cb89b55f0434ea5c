"""Formats that hold arrays: the columns are whole arrays, components of two-dimensional ones, and fields of structured ones.

A file has one epoch, or a part of one, which its name or the option `epoch` states, or several, which it states itself.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy

from turbidite.schema import Column
from turbidite.sources.attributes import Attributes
from turbidite.sources.epochs import Counts, Epochs
from turbidite.sources.errors import failed, listing, usage
from turbidite.sources.inventory import (
    MAX_COMPONENTS,
    Array,
    Epoch,
    Inventory,
    Options,
    Source,
    block_rows,
    choose,
    component_names,
    in_words,
    packed,
    type_of,
)
from turbidite.sources.patterns import File, epoch_of, files_of

_ABOUT_STEPS = re.compile(r"(time|step|timestep|iteration|cycle|count|size|edge)s?(_[xyz0-9]+)?")


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
    lacks: Callable[[], str | None] | None = None
    """Returns which values the file lacks, so that its library would invent them. Called for arrays that are read."""
    remark: str | None = None
    """A property of the values for the notes."""


@dataclass(frozen=True)
class Found:
    """The arrays of one epoch."""

    file: File
    members: list[Member]
    place: Any
    """A JSON value to find the arrays again."""
    epoch: int | None = None
    """The epoch, if the file states it."""
    named: str = "the file"
    """The object that states it."""
    attributes: Attributes = field(default_factory=dict)
    """Numbers that describe the epoch."""
    counts: Counts | None = None
    """The numbers of records that the file's header states, if it has one."""


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
    remarks: dict[str, list[str]] = field(default_factory=dict)
    """For the notes: how the values of a column are stored, if in another form, and the remarks on its array."""

    def add(self, member: Member) -> None:
        """Adds the columns of an array."""
        shape = member.shape + member.dtype.shape
        if member.problem is not None:
            has_components = len(shape) == 2 and 1 <= shape[1] <= MAX_COMPONENTS
            names = component_names(member.name, shape[1]) if has_components else [member.name]
            self.unreadable |= dict.fromkeys(names, member.problem)
        elif not member.shape:
            self.unreadable[member.name] = "is a single value (0 dimensions), not an array of rows"
        elif member.dtype.names is not None and len(shape) == 1:
            for name in member.dtype.names:
                dtype = member.dtype[name]
                self._add(member, name, dtype.base, dtype.shape, name)
        else:
            self._add(member, member.name, member.dtype.base, shape[1:], None)

    def _add(self, member: Member, name: str, dtype: numpy.dtype[Any], shape: tuple[int, ...], field: str | None) -> None:
        axes, stored = axes_of(name, dtype)
        if stored is None:
            self.unreadable[name] = f"has the unsupported type {in_words(dtype)}"
        elif len(shape) > 1 or (shape and not 1 <= shape[0] <= MAX_COMPONENTS):
            self.unreadable[name] = f"has rows of shape {shape}; rows have at most {MAX_COMPONENTS} components"
        else:
            for axis, own in axes.items():
                components = list(enumerate(component_names(own, shape[0]))) if shape else [(None, own)]
                part = Part(Column(own, stored, member.unit), member.name, field, None, axis)
                self._add_parts(part, components, [why for why in (_conversion(dtype), member.remark) if why is not None])

    def _add_parts(self, part: Part, components: Sequence[tuple[int | None, str]], remarks: list[str]) -> None:
        for component, each in components:
            if each in self.parts:
                self.unreadable[each] = "is the name of several columns"
                continue
            self.parts[each] = replace(part, column=replace(part.column, name=each), component=component)
            self.remarks[each] = remarks


def axes_of(name: str, dtype: numpy.dtype[Any]) -> tuple[dict[str | None, str], str | None]:
    """Returns the columns of an array by NumPy's name of a part, and their type: two columns for complex numbers."""
    if dtype.kind == "c":
        return {"real": f"{name}_re", "imag": f"{name}_im"}, type_of(numpy.dtype(f"f{dtype.itemsize // 2}"))
    return {None: name}, type_of(dtype)


def is_about_steps(name: str) -> bool:
    """Returns whether an array has steps, times or sizes by its name, and not records."""
    return _ABOUT_STEPS.fullmatch(name.lower()) is not None


def _conversion(dtype: numpy.dtype[Any]) -> str | None:
    """Returns a note on values that are stored in another form."""
    if dtype.kind == "b":
        return "booleans are stored as u8"
    if dtype.kind == "c":
        return "complex numbers are stored as two columns"
    if dtype.kind == "f" and dtype.itemsize == 2:
        return "16-bit floats are stored as f32"
    return None if dtype.isnative else "big-endian values are stored as little-endian"


class TableSource(Source):
    """A source of a format that holds arrays."""

    suffixes: ClassVar[tuple[str, ...]]
    strict: ClassVar[bool]
    """Whether an array that cannot be read is an error, unless other columns are chosen; otherwise it is left out."""
    may_state_epochs: ClassVar[bool] = False
    """Whether the content of a file may state its epochs."""

    @classmethod
    def survey(cls, files: list[File], options: Options, epochs: Epochs) -> Any:
        """Returns what `tables` has to know of all files."""
        return None

    @classmethod
    def no_records(cls, surveyed: Any) -> str:
        """Returns the message on a source without records."""
        return "no epoch of the source has records"

    @classmethod
    @abstractmethod
    def tables(cls, file: File, options: Options, notes: list[str], surveyed: Any) -> Iterator[Found]:
        """Yields the arrays of each epoch in a file: none of an epoch without records."""

    @classmethod
    def check_whole(cls, path: str) -> None:
        """Raises an error if a file is shorter than it is to be, which opening it does not show."""
        return

    @classmethod
    def prepare(cls, path: str, place: Any, members: Sequence[str]) -> Any:
        """Makes the chosen arrays of a file readable in any order. Returns the value to find them again."""
        return place

    @abstractmethod
    def rows(self, epoch: Epoch, place: Any, member: str, first: int, rows: int) -> Array:
        """Returns rows of an array."""

    @classmethod
    def scan(cls, options: Options) -> Inventory:
        notes: list[str] = []
        files = files_of(options.path, cls.suffixes, notes)
        epochs = Epochs(files, options, notes, files_have_steps=False)
        surveyed = cls.survey(files, options, epochs)
        unread: list[str] = []
        for file in files:
            named = named_epoch(file, options, files)
            if not cls.may_state_epochs and not epochs.selects(epoch_of(file, options.epoch, files)):
                continue
            is_read = False
            with epochs.judged(named, file.path):
                if options.complete_only:
                    cls.check_whole(file.path)
                for found in cls.tables(file, options, notes, surveyed):
                    cls._add(epochs, found, files, options, notes)
                is_read = True
            if not is_read and not file.states_epoch and named is not None and not options.selects(named):
                unread.append(file.path)
        for path in unread if epochs.files_have_steps else ():
            with epochs.judged(None, path):
                raise failed(
                    "cannot be read, and its epochs are not known: other files state their epochs in their content", path
                )
        ordered, columns = epochs.finish()
        if not columns:
            # Columns are known once an epoch has records.
            for epoch in ordered:
                with epochs.judged(epoch.epoch, options.path):
                    raise failed(cls.no_records(surveyed), options.path)
            ordered = []
        empty = {epoch.epoch for epoch in ordered} - {epoch.epoch for epoch in ordered if epoch.details["parts"]}
        if empty:
            notes.append(f"epochs without records: {listing(sorted(empty))}")
        return Inventory(cls.name, columns, ordered, _unique(notes), labels=epochs.labels, left_out=epochs.left_out)

    @classmethod
    def _add(cls, epochs: Epochs, found: Found, files: list[File], options: Options, notes: list[str]) -> None:
        """Adds an epoch of a file, if it is read."""
        path = found.file.path
        if found.epoch is not None:
            if options.epoch is not None:
                raise usage(f"--epoch: {found.named} states the epochs; omit the option", path)
            epochs.files_have_steps = True
        label = epoch_of(found.file, options.epoch, files) if found.epoch is None else found.epoch
        if not epochs.selects(label):
            return
        with epochs.judged(label, path):
            if found.members:
                columns, epoch = cls._epoch(found, label, options, notes)
            else:
                columns, epoch = [], Epoch(label, path, 0, 1, {"place": None, "parts": {}})
            epochs.add(found.file, replace(epoch, attributes=found.attributes), columns, found.counts)

    @classmethod
    def _epoch(cls, found: Found, label: int, options: Options, notes: list[str]) -> tuple[list[Column], Epoch]:
        """Returns the columns of an epoch that are read, and where they are."""
        path = found.file.path
        parts, said = cls._chosen(path, found.members, options)
        notes += said
        used = {member.name: member for member in found.members if any(part.member == member.name for part in parts)}
        lacking = {} if options.nulls else {name: member.lacks() for name, member in used.items() if member.lacks is not None}
        for why in (why for why in lacking.values() if why is not None):
            others = ",".join(part.column.name for part in parts if lacking.get(part.member) is None)
            raise failed(f"{why}; or omit the column: --columns {others}" if others else why, path)
        records = _records(path, used, parts)
        row_bytes = sum(member.dtype.itemsize * int(numpy.prod(member.shape[1:])) for member in used.values())
        chunk = max(member.chunk_rows for member in used.values())
        size = block_rows(row_bytes, chunk, any(member.compressed for member in used.values()))
        details = {
            "place": cls.prepare(path, found.place, list(used)),
            "parts": {part.column.name: [part.member, part.field, part.component, part.axis] for part in parts},
        }
        return [part.column for part in parts], Epoch(label, path, records, size, details)

    def read(self, epoch: Epoch, first: int, rows: int) -> Sequence[Array]:
        held: dict[str, Array] = {}
        arrays = []
        for column in self.inventory.columns:
            # By name: files may have the columns in another order.
            member, *place = epoch.details["parts"][column.name]
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
            if table.unreadable and all(is_about_steps(name) for name in chosen):
                others = "; ".join(f"'{name}' {why}" for name, why in table.unreadable.items())
                raise failed(f"only {', '.join(chosen)} can be read: {others}; --columns {','.join(chosen)} reads these", path)
        for why in dict.fromkeys(why for name in chosen for why in table.remarks[name]):
            names = [name for name in chosen if why in table.remarks[name]]
            notes.append(f"{why}: {', '.join(names)}")
        return [table.parts[name] for name in chosen], notes


def named_epoch(file: File, options: Options, files: list[File]) -> int | None:
    """Returns the epoch of a file whose content cannot be read, as far as it is known."""
    if options.epoch is not None:
        return epoch_of(file, options.epoch, files)
    return file.numbers[0] if len(file.numbers) == 1 else None


def _records(path: str, used: dict[str, Member], parts: list[Part]) -> int:
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
