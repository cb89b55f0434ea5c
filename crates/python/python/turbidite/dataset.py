"""Reading: datasets, queries, distributions and trajectories."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from turbidite import _core
from turbidite._arguments import Arguments, HistogramArguments, TrackArguments
from turbidite.errors import UsageError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

__all__ = ["Column", "Dataset", "Histogram", "Quantile", "Query", "Schema", "Tracks"]

Epochs = int | range | slice | Iterable[int] | None
"""The epochs of a query: a label, several, a slice of labels such as ``slice(100, 400)`` (both included), or all."""


@dataclass(frozen=True)
class Column:
    """A column: its name, its type (``f32``, ``u64``, ``fixed_bytes(16)``) and the unit, if it is known."""

    name: str
    type: str
    unit: str | None = None


@dataclass(frozen=True)
class Schema:
    """The columns of a dataset, and the one by which records are ordered."""

    columns: tuple[Column, ...]
    key: str

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]


@dataclass(frozen=True)
class Histogram:
    """The rows of a column by bins. Without ``exact=True`` the counts are estimates within guaranteed bounds."""

    column: str
    edges: numpy.ndarray[Any, Any]
    """The ends of the bins, one more than there are bins."""
    rows: numpy.ndarray[Any, Any]
    """Estimated rows of each bin."""
    least: numpy.ndarray[Any, Any]
    """At least so many rows are in each bin."""
    most: numpy.ndarray[Any, Any]
    """At most so many rows are in each bin."""
    nan: int
    """Rows with NaN."""


@dataclass(frozen=True)
class Quantile:
    """The value below which a share of the rows lies: an estimate within guaranteed bounds."""

    share: float
    least: float
    estimate: float
    most: float


def _labels(epochs: Epochs, known: Sequence[int]) -> list[int] | None:
    """Resolves the epochs of a request; None stands for all."""
    if epochs is None:
        return None
    if isinstance(epochs, slice):
        if epochs.step is not None:
            raise UsageError("epochs: a slice of labels has no step")
        first = known[0] if epochs.start is None and known else epochs.start
        last = known[-1] if epochs.stop is None and known else epochs.stop
        return [label for label in known if first <= label <= last]
    if isinstance(epochs, (int, numpy.integer)):
        return [int(epochs)]
    return [int(label) for label in epochs]


class _Result:
    """A result that can be read as often as it is asked for, each time by a new execution."""

    def _start(self) -> _core.Stream:
        raise NotImplementedError

    def __iter__(self) -> Iterator[_core.Batch]:
        """Iterates over record batches; their columns are views, ``numpy.asarray(batch.column("id"))``."""
        return iter(self._start())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Exports the result by the Arrow PyCapsule interface: pandas, Polars, pyarrow and DuckDB take it as it is."""
        return self._start().__arrow_c_stream__(requested_schema)

    def to_numpy(self) -> dict[str, numpy.ndarray[Any, Any]]:
        """Returns the columns as arrays. A result of one batch is not copied, and read-only."""
        parts: dict[str, list[numpy.ndarray[Any, Any]]] = {}
        stream = self._start()
        for batch in stream:
            for name in batch.column_names:
                parts.setdefault(name, []).append(numpy.asarray(batch.column(name)))
        if not parts:
            return self._empty()
        return {name: one[0] if len(one) == 1 else numpy.concatenate(one) for name, one in parts.items()}

    def _empty(self) -> dict[str, numpy.ndarray[Any, Any]]:
        raise NotImplementedError

    def to_arrow(self) -> pyarrow.Table:
        """Returns a `pyarrow.Table`. Needs pyarrow."""
        import pyarrow

        return pyarrow.table(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a `pandas.DataFrame`. Needs pandas."""
        import pandas

        return pandas.DataFrame(self.to_numpy(), copy=False)

    def to_polars(self) -> polars.DataFrame:
        """Returns a `polars.DataFrame`. Needs Polars."""
        import polars

        return polars.DataFrame(self)


class Query(_Result):
    """A query. It is lazy, and can be run again: each use reads the dataset anew.

    >>> import turbidite
    >>> hot = turbidite.open("run.tbd").query("energy >= 1.5 and abs(ux) < 1", order="key")  # doctest: +SKIP
    """

    def __init__(self, dataset: Dataset, arguments: Arguments) -> None:
        self._dataset = dataset
        self._arguments = arguments

    def _start(self) -> _core.Stream:
        return self._dataset._core.stream(self._arguments)

    def _empty(self) -> dict[str, numpy.ndarray[Any, Any]]:
        types = {column.name: column.type for column in self._dataset.schema.columns}
        names = self._arguments["columns"] or [*types, "epoch"]
        return {name: numpy.empty(0, _dtype(types.get(name, "u64"))) for name in names}

    def count(self) -> int:
        """Counts the rows. Reads only the pages that statistics leave open."""
        rows, limit = self._dataset._core.count(self._arguments), self._arguments["limit"]
        return rows if limit is None else min(rows, limit)

    def explain(self) -> str:
        """Returns what the query would read, and why, as text."""
        return self._dataset._core.explain(self._arguments)[0]

    def plan(self) -> dict[str, Any]:
        """Returns what the query would read as a dict, like ``turbidite query --explain --json``."""
        plan: dict[str, Any] = json.loads(self._dataset._core.explain(self._arguments)[1])
        return plan

    def __reduce__(self) -> tuple[Any, ...]:
        return Query, (self._dataset, self._arguments)

    def __repr__(self) -> str:
        stated = {name: value for name, value in self._arguments.items() if value not in (None, False) and name != "check"}
        return f"<Query of {self._dataset.path}: {stated or 'all rows'}>"


class Tracks(_Result):
    """The trajectories of particles: rows ordered by particle, then by epoch."""

    def __init__(self, dataset: Dataset, arguments: TrackArguments) -> None:
        self._dataset = dataset
        self._arguments = arguments

    def _start(self) -> _core.Stream:
        return self._dataset._core.tracks(self._arguments)

    def _empty(self) -> dict[str, numpy.ndarray[Any, Any]]:
        types = {column.name: column.type for column in self._dataset.schema.columns}
        names = self._arguments["columns"] or [name for name in types if name != self._arguments["id"]]
        found = {self._arguments["id"]: numpy.empty(0, _dtype(types[self._arguments["id"]]))}
        found["epoch"] = numpy.empty(0, "<u8")
        return found | {name: numpy.empty(0, _dtype(types[name])) for name in names if name not in found}

    def __reduce__(self) -> tuple[Any, ...]:
        return Tracks, (self._dataset, self._arguments)


def _dtype(type_name: str) -> str:
    """Returns NumPy's name of a column type."""
    if type_name.startswith("fixed_bytes"):
        return f"|V{type_name[len('fixed_bytes(') : -1]}"
    return f"<{type_name[0]}{int(type_name[1:]) // 8}"


class Dataset:
    """A dataset that is open for reading. Threads may share it; it pickles as its path."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        """The folder of the dataset."""
        self._core = _core.Dataset(self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        return Dataset, (os.path.abspath(self.path),)

    def __repr__(self) -> str:
        schema = self.schema
        columns = ", ".join(f"{column.name} {column.type}" for column in schema.columns)
        return f"<Dataset {self.path}: {len(self.epochs)} epochs, key {schema.key}; {columns}>"

    @property
    def epochs(self) -> list[int]:
        """The labels of the epochs, ascending; new ones appear as they are committed."""
        return self._core.epochs()

    @property
    def schema(self) -> Schema:
        """The columns and the key."""
        columns, key = self._core.schema()
        return Schema(tuple(Column(*column) for column in columns), key)

    def stats(self, epoch: int) -> dict[str, Any]:
        """Returns the statistics of an epoch: rows, files, load imbalance, and those of its writing."""
        found: dict[str, Any] = json.loads(self._core.statistics(epoch))
        return found

    def query(
        self,
        where: str | None = None,
        *,
        epochs: Epochs = None,
        columns: Sequence[str] | None = None,
        order: str | None = None,
        limit: int | None = None,
        threads: int | None = None,
        check: bool = True,
    ) -> Query:
        """Returns a query: the rows that satisfy `where`, an expression such as ``"energy >= 1.5 and abs(ux) < 1"``.

        `columns` are those to return (default: all, and the epoch), `order="key"` orders rows by epoch and key, `limit`
        ends the result early. `check=False` does not compare checksums of pages.
        """
        if order not in (None, "key", self.schema.key):
            raise UsageError(f"order: rows can be ordered by the key, '{self.schema.key}', not by '{order}'")
        if isinstance(columns, str):
            raise UsageError("columns: give a list of names, such as ['id', 'energy']")
        arguments: Arguments = {
            "where": where,
            "epochs": _labels(epochs, self.epochs),
            "columns": None if columns is None else list(columns),
            "ordered": order is not None,
            "limit": limit,
            "threads": threads,
            "check": check,
        }
        return Query(self, arguments)

    def tracks(
        self,
        *,
        of: str,
        at: int,
        id: str,
        epochs: Epochs = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        threads: int | None = None,
    ) -> Tracks:
        """Returns the trajectories, through all epochs, of the particles that satisfy `of` at epoch `at`.

        The column `id` identifies particles.
        """
        arguments: TrackArguments = {
            "of": of,
            "at": at,
            "id": id,
            "epochs": _labels(epochs, self.epochs),
            "columns": None if columns is None else list(columns),
            "limit": limit,
            "threads": threads,
        }
        return Tracks(self, arguments)

    def histogram(
        self,
        column: str,
        *,
        bins: int = 20,
        range: tuple[float, float] | None = None,
        log: bool = False,
        epochs: Epochs = None,
        exact: bool = False,
    ) -> Histogram:
        """Returns the distribution of a column: from the manifests alone, or with `exact` by reading what is open."""
        arguments: HistogramArguments = {
            "column": column,
            "bins": bins,
            "range": range,
            "log": log,
            "epochs": _labels(epochs, self.epochs),
            "exact": exact,
        }
        found = json.loads(self._core.histogram(arguments))
        counts = numpy.array(found["bins"], dtype="u8").reshape(-1, 3)
        edges = numpy.array([float(edge) for edge in found["edges"]])
        return Histogram(column, edges, counts[:, 1], counts[:, 0], counts[:, 2], found["nan"])

    def quantiles(
        self,
        column: str,
        shares: Sequence[float] = (0.01, 0.25, 0.5, 0.75, 0.99),
        *,
        epochs: Epochs = None,
        exact: bool = False,
    ) -> list[Quantile]:
        """Returns the values below which the given shares of the rows lie, with bounds."""
        found = json.loads(self._core.quantiles(column, list(shares), _labels(epochs, self.epochs), exact))
        names = ("share", "least", "estimate", "most")
        return [Quantile(*(float(one[name]) for name in names)) for one in found["quantiles"]]
