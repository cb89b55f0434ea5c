"""Writing: epochs from arrays."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy

from turbidite import _core
from turbidite._boxes import Period, period_text
from turbidite._checks import column_name, natural, optional_column, optional_text, real, text, texts
from turbidite._ranges import warn
from turbidite.errors import UsageError

if TYPE_CHECKING:
    from mpi4py import MPI

    from turbidite._ranks import RankWriter

__all__ = ["Writer"]


def _columns(schema: Any) -> dict[str, Any]:
    """Returns the types of the columns by their names."""
    if hasattr(schema, "__arrow_c_schema__"):
        stated: list[tuple[str, Any]] = list(_core.arrow_columns(schema))
    elif isinstance(schema, numpy.dtype) and schema.names is not None:
        stated = [(name, schema[name]) for name in schema.names]
    else:
        try:
            stated = list(dict(schema).items())
        except (TypeError, ValueError):
            needed = "a dict such as {'x': 'f4'}, a structured dtype or a schema of Arrow"
            raise UsageError(f"schema: {needed} is needed, not {type(schema).__name__}") from None
    for name, data_type in stated:
        _check_type(column_name("schema", name), data_type)
    columns = dict(stated)
    if len(columns) < len(stated):
        raise UsageError("schema: two columns have the same name")
    return columns


def _check_type(name: str, data_type: Any) -> None:
    """Refuses a type with several values, which the core would store as bytes without a type."""
    try:
        several = numpy.dtype(data_type).subdtype
    except (TypeError, ValueError):
        # A type of the core, or one that it refuses with the reason.
        return
    if several is not None:
        one, shape = several
        raise UsageError(f"column '{name}': a value has the shape {shape}; state a column of {one} for each component")


def _texts(name: str, stated: Sequence[str] | str, example: str) -> list[str]:
    """Returns derivations or indexes, of which one may be stated alone."""
    return [stated] if isinstance(stated, str) else texts(name, stated, f"give a list of texts, such as [{example!r}]")


def _derivations(stated: Sequence[str] | str) -> list[str]:
    return _texts("derive", stated, "energy = ux*ux/2")


def _indexes(stated: Sequence[str] | str) -> list[str]:
    return _texts("indexes", stated, "hash:id")


def _units(stated: Mapping[str, str] | None) -> dict[str, str]:
    """Returns the units of columns by their names."""
    if stated is None:
        return {}
    if not isinstance(stated, Mapping) or not all(isinstance(one, str) for pair in stated.items() for one in pair):
        raise UsageError(f"units: a unit by column is needed, such as {{'energy': 'MeV'}}, not {stated!r}")
    return dict(stated)


def _levels(stated: int | str | None) -> int:
    """Returns the number of levels of detail, 0 for none."""
    if stated is None:
        return 0
    if stated == "auto":
        what = "epoch sizes are not known before they are written; state 1 to 6, or use turbidite ingest --levels auto"
        raise UsageError(f"levels: {what}")
    count = natural("levels", stated)
    if not 1 <= count <= 6:
        raise UsageError(f"levels: a dataset has 1 to 6 levels of detail, not {stated}")
    return count


def _detail(levels: int | str | None, weight: str | None) -> tuple[int, str | None]:
    """Returns the number of levels of detail, and the column to which they are in proportion."""
    return _levels(levels), optional_column("level_weight", weight)


class Writer:
    """Writes a dataset, epoch by epoch. Records are partitioned and sorted by `key` on their way to storage.

    `schema` names the columns and their types: the core's (``"f32"``, ``"fixed_bytes(16)"``) or whatever ``numpy.dtype``
    takes. The names ``"u8"`` and ``"i8"`` are refused, since they mean 8 bits in one and 8 bytes in the other. It may also
    be the dtype of structured arrays, or a schema of Arrow. `derive` adds columns that are computed from those appended,
    such as ``["energy = ux*ux/2"]``. They are f32 unless a type is given, and `out_of_range` of `last` counts values that f32
    cannot represent; the first epoch with such values of a column raises a `RuntimeWarning`, on rank 0. `ranks` is the number of threads that append at the same time, each as a rank of its
    own. `if_exists` says what to do with an epoch that exists: ``"error"``, ``"skip"`` or ``"replace"``. `indexes` are
    columns to index while the rows are written: ``"uy"`` finds ranges and single values, ``"hash:id"`` single values,
    ``"bitmap:ux,uy,uz"`` answers conditions on several columns. `levels` are levels of detail, 1 to 6, of a new dataset
    whose key is by space. With `level_weight`, the rows of a level are chosen in proportion to this column of numbers, and
    not evenly. `period` has the periods of its coordinates, such as ``{"x": 128}``, modulo which boxes are then compared.

    With `comm`, an intracommunicator of mpi4py, the processes of a parallel program write one dataset. Opening, closing and
    the beginning and end of epochs are collective: all ranks call them in the same order. Each rank appends its own rows. A
    collective call raises `OperationError` after `stall_limit` seconds without progress, when a rank is missing.

    An epoch is visible to readers after its block has ended. The end of the block waits for the appends of other threads. An
    exception within the block aborts the epoch: nothing of it is stored, and such appends are refused. With `comm`, the other
    ranks then raise `OperationError` at the end of their blocks.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Mapping[str, Any] | numpy.dtype[Any] | Any,
        *,
        key: str,
        ranks: int | None = None,
        comm: MPI.Intracomm | None = None,
        if_exists: str = "error",
        units: Mapping[str, str] | None = None,
        derive: Sequence[str] | str = (),
        indexes: Sequence[str] | str = (),
        levels: int | None = None,
        level_weight: str | None = None,
        period: Period | None = None,
        stall_limit: float | None = 1800,
    ) -> None:
        self.path = os.path.abspath(os.fsdecode(path))
        self.last: dict[str, Any] | None = None
        """The metrics of the last epoch written, of all ranks."""
        # The last exception that all ranks have met, so that none of them is still waiting for another.
        self._met: BaseException | None = None
        # The columns that a warning of values out of range has named, or None if another rank warns.
        self._warned: set[str] | None = set()
        self._core: _core.Writer | RankWriter
        if comm is None:
            count = 1 if ranks is None else natural("ranks", ranks, bits=32)
            self._core = _core.Writer(
                self.path,
                _columns(schema),
                text("key", key, "energy"),
                count,
                text("if_exists", if_exists, "error"),
                _units(units),
                _derivations(derive),
                _indexes(indexes),
                *_detail(levels, level_weight),
                period_text(period, key),
            )
            return
        if ranks is not None:
            raise UsageError("comm and ranks exclude each other: with comm, each process is a rank")
        from turbidite._ranks import RankWriter

        self._core = RankWriter(
            comm,
            self.path,
            lambda: _columns(schema),
            key,
            if_exists,
            lambda: _units(units),
            lambda: _derivations(derive),
            lambda: _indexes(indexes),
            lambda: _detail(levels, level_weight),
            lambda: period_text(period, key),
            stall_limit,
        )
        if comm.rank > 0:
            self._warned = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or error is self._met or isinstance(self._core, _core.Writer):
            self.close()
        else:
            # The other ranks may be anywhere: waiting for them here would hide the exception forever.
            self._core.abandon()

    @contextmanager
    def epoch(self, epoch: int) -> Iterator[bool]:
        """Writes one epoch: ``with writer.epoch(200): writer.append(rows)``.

        The block gets False if the epoch exists and is skipped; what it appends is an error then.

        >>> with turbidite.Writer("other.tbd", {"x": "f8"}, key="x") as writer:
        ...     with writer.epoch(1):
        ...         _ = writer.append({"x": numpy.arange(5.0)})
        >>> writer.last["rows"]
        5
        """
        label = natural("epoch", epoch)
        with self._meeting():
            try:
                begun = self._core.begin_epoch(label)
            except UsageError as error:
                if not str(error).endswith("inside an epoch"):
                    raise
                raise UsageError(f"epoch {label} begins within the block of another one: end that block first") from None
        try:
            yield begun
            if begun:
                self._core.finish_appends()
        except BaseException as error:
            if begun:
                self._abort(error)
            raise
        if begun:
            with self._meeting():
                self.last = json.loads(self._core.end_epoch())
            if self._warned is not None:
                counts = self.last.get("out_of_range", [])
                new = [one for one in counts if one["column"] not in self._warned]
                self._warned.update(one["column"] for one in new)
                warn(new, stacklevel=3)

    def attribute(self, name: str, value: float, unit: str | None = None) -> None:
        """Sets a number that describes the epoch in whose block this is called, such as its physical time.

        A ``"time"`` in s, ms, us, ns, ps, fs or as is kept in seconds (`Dataset.times`), one in another unit as it is. With
        MPI, those of rank 0 are kept.

        >>> with turbidite.Writer("timed.tbd", {"x": "f8"}, key="x") as writer:
        ...     with writer.epoch(1):
        ...         writer.attribute("time", 2.5, "fs")
        >>> turbidite.open("timed.tbd").times
        array([2.5e-15])
        """
        found = real(value)
        if found is None:
            raise UsageError(f"value: a number is needed, not {value!r}")
        self._core.attribute(text("name", name, "time"), float(found), optional_text("unit", unit, "fs"))

    @contextmanager
    def _meeting(self) -> Iterator[None]:
        """Remembers an exception of a call that fails on all ranks if it fails on one."""
        try:
            yield
        except Exception as error:
            self._met = error
            raise

    def _abort(self, error: BaseException) -> None:
        """Aborts the epoch because of an exception, which stays the one that is raised."""
        try:
            cause = f"{type(error).__name__}: {error}".encode(errors="replace").decode()
        except Exception:  # noqa: BLE001
            # A user's __str__ may raise anything.
            cause = type(error).__name__
        try:
            self._core.abort_epoch(cause)
            self._met = error
        except Exception as failed:  # noqa: BLE001
            # The user's exception is the one to raise.
            error.add_note(f"the epoch could not be aborted: {failed}")

    def append(self, rows: Any, *, rank: int | None = None) -> int:
        """Appends rows: a dict of arrays, a structured array, a data frame, or whatever has Arrow's stream. Returns their
        number. A stream is read batch by batch, and may be larger than memory.

        Threads append as different ranks, of which there are `ranks`. With `comm`, `rank` is not given.

        An append that fails before its first rows are stored stores none of them, and may be repeated. After an append that
        fails later, in a stream or in rows with derived columns, no other append is taken, and the epoch's block raises
        `OperationError`.

        Arrays must have the types of the schema; nothing is converted. Strided arrays are read where they are, while the
        interpreter's lock is released: no other thread may write to them before the call returns.

        >>> with turbidite.Writer("columns.tbd", {"x": "f8"}, key="x") as writer, writer.epoch(1):
        ...     writer.append({"x": numpy.arange(5.0)})
        ...     writer.append(numpy.zeros(3, [("x", "f8")]))
        5
        3
        """
        if type(rows).__name__ == "LazyFrame" and not hasattr(rows, "__arrow_c_stream__"):
            raise UsageError("a LazyFrame has no rows before it runs: append(frame.collect())")
        try:
            if isinstance(self._core, _core.Writer):
                return self._core.append(rows, natural("rank", 0 if rank is None else rank, bits=32))
            return self._core.append(rows, rank)
        except UsageError as error:
            if not str(error).endswith("outside an epoch"):
                raise
            # epoch() alone begins nothing, and the block of an epoch that is skipped is none to append in.
            raise UsageError(f"{error}: append in a block, 'with writer.epoch(0) as begun:', if begun is True") from None

    def close(self) -> None:
        """Closes the dataset. Nothing is lost without it but the check that it was possible.

        With `comm`, all ranks close it, before ``MPI.Finalize()``.

        >>> writer = turbidite.Writer("empty.tbd", {"x": "f8"}, key="x")
        >>> writer.close()
        """
        self._core.close()
