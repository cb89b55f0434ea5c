"""The catalogue of a source, and the interface of a format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy
from numpy.typing import NDArray

from turbidite.schema import Column
from turbidite.sources.errors import failed, listing, usage

Array = NDArray[Any]

BLOCK_BYTES = 4 << 20
"""The size of a block of all columns."""
LARGEST_BLOCK_BYTES = 32 << 20
"""The size up to which a block follows the chunks of a compressed file, which are decompressed as a whole. Each rank of
the command holds a block."""
FEWEST_BLOCK_ROWS = 4096
LARGEST_EPOCH = 2**63 - 1
LARGEST_FIXED_BYTES = 65536
"""The largest payload of the core's `fixed_bytes`."""
MOST_COMPONENTS = 16
"""The largest number of columns of a two-dimensional array."""


@dataclass(frozen=True)
class Options:
    """The options that select a source's records."""

    path: str
    species: str | None = None
    columns: list[str] | None = None
    epoch: int | None = None
    if_repeated: str | None = None
    """Which of several occurrences of an epoch is read: ``first`` or ``last``. Otherwise they are an error."""
    nulls: str | None = None
    """Which values are read in place of absent ones: with ``nan``, NaN for nulls of Arrow's floats, and with ``fill``, HDF5's fill
    values for those that were never written. Otherwise they are an error."""


@dataclass(frozen=True)
class Epoch:
    """The records of one epoch."""

    epoch: int
    path: str
    records: int
    block_rows: int
    details: Any = None
    """A JSON value for the format's own use."""
    periods: dict[str, float | str] = field(default_factory=dict)
    """The periods of coordinates, by column, or the reason why one has none."""


@dataclass(frozen=True)
class Catalogue:
    """The columns and epochs of a source. As JSON it opens further readers without a scan."""

    format: str
    columns: list[Column]
    epochs: list[Epoch]
    notes: list[str] = field(default_factory=list)
    details: Any = None
    """A JSON value for the format's own use."""

    def answer(self) -> dict[str, Any]:
        """Returns the answer to a request that opens the source."""
        epochs = [{name: value for name, value in asdict(epoch).items() if name != "details"} for epoch in self.epochs]
        columns = [asdict(column) for column in self.columns]
        return {"format": self.format, "columns": columns, "epochs": epochs, "notes": self.notes, "index": asdict(self)}

    @classmethod
    def of_index(cls, index: Any) -> Catalogue:
        """Returns the catalogue that an answer's index holds."""
        try:
            columns = [Column(**column) for column in index["columns"]]
            epochs = [Epoch(**epoch) for epoch in index["epochs"]]
            return cls(index["format"], columns, epochs, list(index["notes"]), index["details"])
        except (KeyError, TypeError) as error:
            raise usage(f"the index is not one of this release ({error}); open the source without it") from None


class Source(ABC):
    """An open source of one format."""

    name: ClassVar[str]
    """The name of the format in options and reports."""
    nulls: ClassVar[str | None] = None
    """The value of `Options.nulls` that the format has."""

    @classmethod
    @abstractmethod
    def scan(cls, options: Options) -> Catalogue:
        """Finds the records that the options select."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue

    @abstractmethod
    def read(self, epoch: Epoch, first: int, rows: int) -> Sequence[Array]:
        """Returns the values of a block: an array of native, packed values for each column."""


def block_rows(row_bytes: int, chunk_rows: int = 0, compressed: bool = False) -> int:
    """Returns the rows of a block: whole chunks where the file has chunks, so that none is decompressed twice."""
    row_bytes = max(1, row_bytes)
    rows = max(FEWEST_BLOCK_ROWS, BLOCK_BYTES // row_bytes)
    rows = max(1, min(rows, LARGEST_BLOCK_BYTES // row_bytes))
    if 0 < chunk_rows <= rows:
        return rows // chunk_rows * chunk_rows
    if compressed and 0 < chunk_rows * row_bytes <= LARGEST_BLOCK_BYTES:
        return chunk_rows
    return rows


def type_of(dtype: numpy.dtype[Any]) -> str | None:
    """Returns the core's type that stores values of `dtype`, each exactly, or `None` if there is none."""
    if dtype.kind == "b":
        return "u8"
    if dtype.kind in "iu" and dtype.itemsize <= 8:
        return f"{dtype.kind}{dtype.itemsize * 8}"
    if dtype.kind == "f" and dtype.itemsize in (2, 4, 8):
        return f"f{max(dtype.itemsize, 4) * 8}"
    if dtype.kind == "V" and dtype.names is None and dtype.subdtype is None and 1 <= dtype.itemsize <= LARGEST_FIXED_BYTES:
        return f"fixed_bytes({dtype.itemsize})"
    return None


def in_words(dtype: numpy.dtype[Any]) -> str:
    """Returns the name of an unsupported type for a message."""
    words = {
        "O": "objects, or text of any length",
        "U": "text",
        "S": "text",
        "c": "complex numbers",
        "M": "dates",
        "m": "durations",
    }
    if dtype.kind == "f":
        return f"{dtype.itemsize * 8}-bit floats"
    return words.get(dtype.kind, str(dtype))


def packed(values: Array) -> Array:
    """Returns the values as the protocol sends them: contiguous and little-endian; the same array if it is."""
    return numpy.ascontiguousarray(values, values.dtype.newbyteorder("<"))


def component_names(name: str, count: int) -> list[str]:
    """Returns the names of the columns of a two-dimensional array."""
    return [f"{name}_{axis}" for axis in ("xyz" if count == 3 else range(count))]


def choose(known: Iterable[str], columns: list[str] | None, unreadable: dict[str, str], path: str) -> list[str]:
    """Returns the names of the columns to read: all that can be read, or those of the option `columns`."""
    names = list(known)
    if columns is None:
        if not names:
            reason = "; ".join(f"'{name}' {why}" for name, why in unreadable.items())
            raise failed(f"there is no column that can be read{': ' + reason if reason else ''}", path)
        return names
    chosen = [name.strip() for name in columns]
    for name in chosen:
        if name in unreadable:
            raise usage(f"column '{name}' {unreadable[name]}; the columns that can be read are {', '.join(names)}", path)
        if name not in names:
            raise usage(f"--columns: there is no column '{name}'; the columns are {', '.join(names)}", path)
    if len(set(chosen)) != len(chosen):
        raise usage("--columns: a column is named twice", path)
    if not chosen:
        raise usage("--columns: name at least one column", path)
    return chosen


def in_order(epochs: Iterable[Epoch], options: Options, notes: list[str]) -> list[Epoch]:
    """Returns the epochs in ascending order, each once.

    Of an epoch that occurs several times, as after a restart, the one that `options` states is returned, and a note is
    added. Otherwise it is an error. Occurrences are in the order of files and steps.
    """
    ordered = sorted(epochs, key=lambda epoch: epoch.epoch)
    remedy = "choose one by --if-repeated first or --if-repeated last"
    for one, other in pairwise(ordered):
        if one.epoch == other.epoch and options.if_repeated is None:
            if one.path == other.path:
                raise failed(f"the file has epoch {one.epoch} twice, as after a restart; {remedy}", one.path)
            raise failed(f"this file and {other.path} both have epoch {one.epoch}; if they are repetitions, {remedy}", one.path)
    for one in ordered:
        if not 0 <= one.epoch <= LARGEST_EPOCH:
            why = "negative" if one.epoch < 0 else f"larger than {LARGEST_EPOCH}, the largest"
            raise failed(f"epoch {one.epoch} is {why}; give the file another number", one.path)
    kept: dict[int, Epoch] = {}
    for one in ordered if options.if_repeated == "last" else reversed(ordered):
        kept[one.epoch] = one
    repeated = len(ordered) - len(kept)
    if repeated:
        these = [epoch for epoch, times in Counter(one.epoch for one in ordered).items() if times > 1]
        notes.append(f"read the {options.if_repeated} occurrence of each epoch that is repeated: {listing(these)}")
    return sorted(kept.values(), key=lambda epoch: epoch.epoch)


def same_columns(found: Iterable[tuple[int, str, list[Column]]], columns: list[str] | None) -> list[Column]:
    """Returns the columns of all epochs. Columns that change between epochs are an error.

    `found` has the label, path and columns of each epoch with records; with the option `columns` given, only the
    chosen ones.
    """
    reference: tuple[int, str, list[Column]] | None = None
    for label, path, these in found:
        if reference is None:
            reference = label, path, these
            continue
        before, after = ({column.name: column for column in one} for one in (reference[2], these))
        if before == after:
            continue
        changes = [f"without '{name}'" for name in before if name not in after]
        changes += [f"with '{name}' added" for name in after if name not in before]
        both = [name for name in before if name in after and before[name] != after[name]]
        changes += [f"'{name}' is {_kind(after[name])}, before {_kind(before[name])}" for name in both]
        same = [name for name in before if before[name] == after.get(name)]
        remedy = f"; choose columns that do not change: --columns {','.join(same)}" if same and columns is None else ""
        raise failed(
            f"the columns of epoch {label} differ from those of epoch {reference[0]}: {listing(changes)}{remedy}", path
        )
    return [] if reference is None else [replace(column) for column in reference[2]]


def _kind(column: Column) -> str:
    return column.type + (f" in '{column.unit}'" if column.unit else "")
