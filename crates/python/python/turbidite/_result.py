"""The base of queries and trajectories: rows, in the forms that Python uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy

from turbidite import _core
from turbidite._progress import Progress, Tell, watching

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class Result:
    """A result that can be read as often as it is asked for, each time by a new execution."""

    _progress: Progress = False

    def _start(self, tell: Tell | None = None) -> _core.Stream:
        raise NotImplementedError

    @contextmanager
    def _running(self) -> Iterator[_core.Stream]:
        """Runs the request while the block reads its batches, and shows the progress."""
        with watching(self._progress, "row groups") as tell:
            yield self._start(tell)

    def __iter__(self) -> Iterator[_core.Batch]:
        """Iterates over record batches; ``batch["id"]`` is an array that views a column.

        >>> for batch in hot:
        ...     print(len(batch), batch["id"])
        2 [ 999 1000]
        """
        with self._running() as stream:
            yield from stream

    def __bool__(self) -> bool:
        raise TypeError("a result has no truth value before it is read: use count() > 0 for whether a query has rows")

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Exports the result by the Arrow PyCapsule interface: pandas, Polars, pyarrow and DuckDB take it as it is.

        No progress is shown: the consumer may read on any thread.
        """
        return self._start().__arrow_c_stream__(requested_schema)

    def to_numpy(self) -> dict[str, numpy.ndarray[Any, Any]]:
        """Returns the columns as arrays. A result of one batch is not copied, and read-only.

        >>> hot.to_numpy()["energy"]
        array([ 9.99, 10.  ], dtype=float32)
        """
        with self._running() as stream:
            columns = stream.columns()
            batches = stream.collect()
        found: dict[str, numpy.ndarray[Any, Any]] = {}
        for name, dtype in columns:
            parts = [batch[name] for batch in batches]
            join = numpy.ma.concatenate if any(map(numpy.ma.isMaskedArray, parts)) else numpy.concatenate
            found[name] = parts[0] if len(parts) == 1 else join(parts or [numpy.empty(0, dtype)])
        return found

    def __array__(self, dtype: object = None, copy: object = None) -> numpy.ndarray[Any, Any]:
        raise TypeError("a result has several columns: use to_numpy(), which returns a dict of arrays")

    def to_arrow(self) -> pyarrow.Table:
        """Returns a `pyarrow.Table`. Needs pyarrow.

        >>> hot.to_arrow().num_rows
        2
        """
        import pyarrow

        with self._running() as stream:
            return pyarrow.RecordBatchReader.from_stream(stream.collected()).read_all()

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a `pandas.DataFrame`, a copy. Opaque columns hold `bytes`. Needs pandas.

        >>> hot.to_pandas()["id"].tolist()
        [999, 1000]
        """
        arrays = self.to_numpy()
        return data_frame(arrays, 0 if arrays else sum(len(batch) for batch in self))

    def to_polars(self) -> polars.DataFrame:
        """Returns a `polars.DataFrame`. Needs Polars.

        >>> hot.to_polars().columns
        ['energy', 'id', 'epoch']
        """
        import polars

        with self._running() as stream:
            return polars.DataFrame(stream.collected())


def data_frame(arrays: dict[str, numpy.ndarray[Any, Any]], rows: int) -> pandas.DataFrame:
    """Returns a `pandas.DataFrame` of copies of arrays; `rows` counts if there are none."""
    import pandas

    # pandas has no type of fixed width for bytes.
    others: dict[str, Any] = {
        name: [one.tobytes() for one in array] for name, array in arrays.items() if array.dtype.kind == "V"
    }
    # A masked array would become floats, which are not exact beyond 2^53.
    for name, array in arrays.items():
        if isinstance(array, numpy.ma.MaskedArray):
            others[name] = pandas.arrays.IntegerArray(array.data, numpy.ma.getmaskarray(array))
    index = None if arrays else range(rows)
    return pandas.DataFrame({name: others.get(name, array) for name, array in arrays.items()}, index=index, copy=True)
