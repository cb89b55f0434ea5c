"""Rows of several species: batches with a column for the species, the forms that Python uses, and types in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy

from turbidite._optional import needed
from turbidite._result import Result, data_frame
from turbidite.errors import OperationError, UsageError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

__all__ = ["FOLDS", "Array", "Naming", "SpeciesBatch", "SpeciesResult", "folded", "joined", "joint_types"]

Array = numpy.ndarray[Any, Any]

Naming = tuple[str, tuple[str, ...]]
"""The name of the column that has the species, and the names of all species, in their order."""

FOLDS = {"count": numpy.add, "nan": numpy.add, "sum": numpy.add, "min": numpy.fmin, "max": numpy.fmax}
"""The aggregates of several species that follow from those of each."""


class SpeciesBatch:
    """Rows with a column that has the species: as codes, until it is read."""

    def __init__(self, naming: Naming, columns: dict[str, Array], rows: int) -> None:
        self._column, self._species = naming
        self._columns = columns
        self._rows = rows

    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""
        return list(self._columns)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, name: str) -> Array:
        column = self._columns[name]
        return numpy.array(self._species)[column] if name == self._column else column

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        exported: tuple[object, object] = self.to_arrow().__arrow_c_array__(requested_schema)
        return exported

    def to_arrow(self) -> pyarrow.RecordBatch:
        """Returns a `pyarrow.RecordBatch`, in which the species is a dictionary. Needs pyarrow."""
        arrow = needed("pyarrow", "arrow", "a table of several species")
        arrays, fields = [], []
        for name, column in self._columns.items():
            values, mask = numpy.ascontiguousarray(numpy.ma.getdata(column)), numpy.ma.getmask(column)
            if name == self._column:
                array = arrow.DictionaryArray.from_arrays(values, arrow.array(self._species, arrow.string()))
            elif values.dtype.kind == "V":
                opaque = arrow.binary(values.dtype.itemsize)
                array = arrow.FixedSizeBinaryArray.from_buffers(opaque, len(values), [None, arrow.py_buffer(values.tobytes())])
            else:
                array = arrow.array(values, mask=None if mask is numpy.ma.nomask else mask)
            arrays.append(array)
            fields.append(arrow.field(name, array.type, nullable=mask is not numpy.ma.nomask))
        if not arrays:
            return arrow.RecordBatch.from_struct_array(arrow.array([{}] * self._rows, arrow.struct([])))
        return arrow.RecordBatch.from_arrays(arrays, schema=arrow.schema(fields))


def joined(batches: Sequence[SpeciesBatch]) -> SpeciesBatch:
    """Returns all rows of batches of the same columns, of which there is at least one."""
    first, *others = [batch for batch in batches if len(batch)] or batches[:1]
    if not others:
        return first
    columns = {}
    for name in first.column_names:
        parts = [batch._columns[name] for batch in (first, *others)]
        join = numpy.ma.concatenate if any(map(numpy.ma.isMaskedArray, parts)) else numpy.concatenate
        columns[name] = join(parts)
    return SpeciesBatch((first._column, first._species), columns, sum(map(len, batches)))


class SpeciesResult(Result):
    """A result whose rows have a species."""

    _naming: Naming

    def _batches(self, shown: bool = True) -> Iterator[SpeciesBatch]:
        """Reads the batches. The first one may be empty: it has the types of all."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[SpeciesBatch]:  # type: ignore[override]
        """Iterates over batches; ``batch["id"]`` is an array."""
        for batch in self._batches():
            if len(batch):
                yield batch

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Exports the result by the Arrow PyCapsule interface, without progress: the consumer may read on any thread. Needs pyarrow."""
        arrow = needed("pyarrow", "arrow", "a table of several species")
        batches = self._batches(shown=False)
        first = next(batches).to_arrow()
        rest = (batch.to_arrow() for batch in batches)
        reader = arrow.RecordBatchReader.from_batches(first.schema, chain([first], rest))
        return reader.__arrow_c_stream__(requested_schema)

    def to_numpy(self) -> dict[str, Array]:
        """Returns the columns as arrays; the species as text.

        >>> both.query(limit=1).to_numpy()["species"].tolist()
        ['e']
        """
        found = joined(list(self._batches()))
        return {name: found[name] for name in found.column_names}

    def to_arrow(self) -> pyarrow.Table:
        """Returns a `pyarrow.Table`, in which the species is a dictionary. Needs pyarrow.

        >>> both.query(limit=1).to_arrow()["species"].to_pylist()
        ['e']
        """
        arrow = needed("pyarrow", "arrow", "a table of several species")
        return arrow.Table.from_batches([batch.to_arrow() for batch in self._batches()])

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a `pandas.DataFrame`, in which the species is categorical. Needs pandas.

        >>> both.query(limit=1).to_pandas()["species"].tolist()
        ['e']
        """
        import pandas

        found, (column, species) = joined(list(self._batches())), self._naming
        frame = data_frame(found._columns, len(found))
        if column in frame:
            frame[column] = pandas.Categorical.from_codes(found._columns[column], list(species))
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Returns a `polars.DataFrame`, in which the species is categorical. Needs Polars and pyarrow.

        >>> both.query(limit=1).to_polars()["species"].to_list()
        ['e']
        """
        import polars

        return polars.DataFrame(self.to_arrow())


def joint_types(types: dict[str, dict[str, numpy.dtype[Any]]]) -> dict[str, numpy.dtype[Any]]:
    """Returns the names that the first species has, and the types that hold the values of all species exactly."""
    joint = {}
    for place, name in enumerate(next(iter(types.values()))):
        found = {species: list(columns.values())[place] for species, columns in types.items()}
        kinds = set(found.values())
        # Bytes of another width would be padded, and integers of 64 bits rounded.
        common = kinds.pop() if len(kinds) == 1 else None
        if kinds and all(kind.kind in "iuf" for kind in kinds):
            common = numpy.result_type(*kinds)
            if common.kind == "f" and any(kind.kind != "f" and kind.itemsize == 8 for kind in kinds):
                common = None
        if common is None:
            stated = ", ".join(f"{kind} in {species!r}" for species, kind in found.items())
            raise UsageError(
                f"columns: {name!r} is {stated}, and no type holds all values exactly; leave it out, or select `species`"
            )
        joint[name] = common
    return joint


def folded(whole: SpeciesBatch, folds: dict[str, numpy.ufunc]) -> SpeciesBatch:
    """Returns aggregates of all species from those of each: a row for each group, ascending."""
    columns = {name: column for name, column in whole._columns.items() if name != whole._column}
    keys = [column for name, column in columns.items() if name not in folds]
    rows = numpy.lexsort(keys[::-1]) if keys else numpy.arange(len(whole))
    differ = numpy.zeros(len(rows), bool)
    differ[:1] = True
    for key in keys:
        differ[1:] |= key[rows][1:] != key[rows][:-1]
    starts = numpy.flatnonzero(differ)
    found = {
        name: _folded(name, column[rows], starts, folds[name]) if name in folds else column[rows][starts]
        for name, column in columns.items()
    }
    return SpeciesBatch((whole._column, whole._species), found, len(starts))


def _folded(name: str, values: Array, starts: Array, fold: numpy.ufunc) -> Array:
    data, mask = numpy.ma.getdata(values), numpy.ma.getmaskarray(values)
    if fold is numpy.add and data.dtype.kind in "iu":
        exact, limits = numpy.add.reduceat(data.astype(object), starts), numpy.iinfo(data.dtype)
        if any(not limits.min <= total <= limits.max for total in exact):
            raise OperationError(f"aggregates: {name!r} of all species does not fit into {data.dtype}; ask for each species")
        return exact.astype(data.dtype)
    if mask.any():
        # Integers without a value.
        limits = numpy.iinfo(data.dtype)
        data = numpy.where(mask, limits.max if fold is numpy.fmin else limits.min, data)
    found, without = fold.reduceat(data, starts), numpy.logical_and.reduceat(mask, starts)
    return numpy.ma.MaskedArray(found, without) if without.any() else found
