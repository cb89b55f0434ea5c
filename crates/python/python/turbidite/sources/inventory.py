"""The inventory of a source, and the interface of a format."""

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
from turbidite.sources.attributes import Attributes
from turbidite.sources.errors import failed, listing, usage
from turbidite.sources.patterns import pattern_of_parts

Array = NDArray[Any]

BLOCK_BYTES = 4 << 20
"""The size of a block of all columns."""
LARGEST_BLOCK_BYTES = 32 << 20
"""The size up to which a block follows the chunks of a compressed file, which are decompressed as a whole. Each rank of
the command holds a block."""
FEWEST_BLOCK_ROWS = 4096
LARGEST_EPOCH = 2**63 - 1
LARGEST_RANK = 2**32 - 1
LARGEST_FIXED_BYTES = 65536
"""The largest payload of the core's `fixed_bytes`."""
MAX_COMPONENTS = 16
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
    epochs: tuple[tuple[int, int, int], ...] | None = None
    """Spans of the epochs that are read: the first, the last and the stride. Defects of others are no errors."""
    done: frozenset[int] = frozenset()
    """Epochs that have been read before and are not read again."""
    resume: dict[str, Any] = field(default_factory=dict)
    """The places of an earlier inventory from which files are scanned again."""
    allow_missing_ranks: bool = False
    """Whether epochs may lack parts."""
    complete_only: bool = False
    """Whether epochs that are not whole are left out. Otherwise they are an error."""

    def selects(self, epoch: int) -> bool:
        """Returns whether an epoch is read."""
        if epoch in self.done:
            return False
        spans = self.epochs
        return spans is None or any(first <= epoch <= last and (epoch - first) % stride == 0 for first, last, stride in spans)


@dataclass(frozen=True)
class Epoch:
    """The records of one epoch, or of one part of it."""

    epoch: int
    path: str
    records: int
    block_rows: int
    details: Any = None
    """A JSON value for the format's own use."""
    periods: dict[str, float | str] = field(default_factory=dict)
    """The periods of coordinates, by column, or the reason why one has none."""
    attributes: Attributes = field(default_factory=dict)
    """Numbers that describe the epoch. Those of the first part count."""
    rank: int = 0
    """The number of the part."""
    numbered: str | None = None
    """The path with ``{rank}`` in place of the part's number, if parts have numbers."""
    parts: int | None = None
    """The number of parts that the file's header states."""


@dataclass(frozen=True)
class LeftOut:
    """An epoch that is not whole."""

    epoch: int | None
    """The label, or `None` if the file does not show it."""
    path: str
    message: str


@dataclass(frozen=True)
class Inventory:
    """The columns and epochs of a source. As JSON it opens further readers without a scan."""

    format: str
    columns: list[Column]
    epochs: list[Epoch]
    notes: list[str] = field(default_factory=list)
    details: Any = None
    """A JSON value for the format's own use."""
    labels: list[int] = field(default_factory=list)
    """The epochs that the source has, whether they are read or not."""
    left_out: list[LeftOut] = field(default_factory=list)

    def answer(self) -> dict[str, Any]:
        """Returns the answer to a request that opens the source."""
        epochs = [{name: value for name, value in asdict(epoch).items() if name != "details"} for epoch in self.epochs]
        columns = [asdict(column) for column in self.columns]
        return {
            "format": self.format,
            "columns": columns,
            "epochs": epochs,
            "notes": self.notes,
            "labels": self.labels,
            "left_out": [asdict(one) for one in self.left_out],
            "index": asdict(self),
        }

    @classmethod
    def of_index(cls, index: Any) -> Inventory:
        """Returns the inventory that an answer's index holds."""
        try:
            columns = [Column(**column) for column in index["columns"]]
            epochs = [Epoch(**epoch) for epoch in index["epochs"]]
            left_out = [LeftOut(**one) for one in index["left_out"]]
            return cls(index["format"], columns, epochs, list(index["notes"]), index["details"], index["labels"], left_out)
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
    def scan(cls, options: Options) -> Inventory:
        """Finds the records that the options select."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory

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
    """Returns the epochs and their parts in ascending order, each once.

    Of an epoch that occurs several times, as after a restart, the one that `options` states is returned, and a note is
    added. Otherwise it is an error. Occurrences are in the order of files and steps.
    """
    ordered = sorted(epochs, key=_place)
    remedy = "choose one by --if-repeated first or --if-repeated last"
    for one, other in pairwise(ordered):
        if _place(one) == _place(other) and options.if_repeated is None:
            if one.path == other.path:
                raise failed(f"the file has epoch {one.epoch} twice, as after a restart; {remedy}", one.path)
            pattern = pattern_of_parts(one.path, other.path)
            parts = f"give the pattern '{pattern}'" if pattern else "put {rank} into the pattern in place of the part's number"
            raise failed(
                f"this file and {other.path} both have epoch {one.epoch}; if they are parts of it, {parts}; if they are repetitions, "
                f"{remedy}",
                one.path,
            )
    for one in ordered:
        if not 0 <= one.epoch <= LARGEST_EPOCH:
            why = "negative" if one.epoch < 0 else f"larger than {LARGEST_EPOCH}, the largest"
            raise failed(f"epoch {one.epoch} is {why}; give the file another number", one.path)
        if one.rank > LARGEST_RANK:
            raise failed(f"the part's number, {one.rank}, is larger than {LARGEST_RANK}, the largest", one.path)
    kept: dict[tuple[int, int], Epoch] = {}
    for one in ordered if options.if_repeated == "last" else reversed(ordered):
        kept[_place(one)] = one
    if len(ordered) > len(kept):
        these = sorted({epoch for (epoch, _), times in Counter(map(_place, ordered)).items() if times > 1})
        notes.append(f"read the {options.if_repeated} occurrence of each epoch that is repeated: {listing(these)}")
    return sorted(kept.values(), key=_place)


def _place(epoch: Epoch) -> tuple[int, int]:
    return epoch.epoch, epoch.rank


def same_columns(found: Iterable[tuple[int, str, list[Column]]], columns: list[str] | None) -> list[Column]:
    """Returns the columns of all epochs and parts, in the order of the first. Columns that change are an error.

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
        where = "" if path == reference[1] else f" in {reference[1]}"
        raise failed(
            f"the columns of epoch {label} differ from those of epoch {reference[0]}{where}: {listing(changes)}{remedy}", path
        )
    return [] if reference is None else [replace(column) for column in reference[2]]


def _kind(column: Column) -> str:
    return column.type + (f" in '{column.unit}'" if column.unit else "")
