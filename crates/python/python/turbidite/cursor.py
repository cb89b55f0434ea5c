"""Cursors: the rows of a query step by step, from the coarsest level of detail to the finest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy

from turbidite import _core
from turbidite._checks import natural, optional, real
from turbidite._progress import Tell
from turbidite._result import Result
from turbidite.errors import UsageError

__all__ = ["Cursor", "CursorBatch", "CursorStep"]


@dataclass(frozen=True)
class CursorBatch:
    """The rows of one page, or of a few pages that follow each other."""

    rows: int
    """The number of rows."""
    level: int
    """The level of detail: rows of this level and above are a sample of one row in ``8**level``."""
    bounds: tuple[tuple[float, float], ...] | None
    """Lower and upper bound of each coordinate, both included. `None` for rows with a NaN coordinate."""
    run: tuple[int, int] | None
    """The receiver that has stored the rows, and the number of its run. All levels of a run share it. `None` for rows of the
    overview, which are of several runs."""
    stands_for: int | None
    """The number of rows that each of these rows stands for among those of its level and above: ``8**level``.

    `None` if levels are in proportion to a column: see `CursorStep.stand_for`. `Cursor.weights` returns what rows stand for
    among all rows of a cursor.
    """


class CursorStep(Result):
    """The rows of a step. They are in memory, and can be read as often as wanted, as those of a query."""

    def __init__(self, step: _core.CursorStep, stands_for: float | None) -> None:
        self._step = step
        self.batches = tuple(
            CursorBatch(rows, level, None if bounds is None else tuple(bounds), run, stands_for)
            for level, rows, bounds, run, stands_for in step.batches()
        )
        """Descriptions of the batches, in the order in which iteration returns them."""
        self.stands_for = stands_for
        """The number of rows that each row of all steps up to this one stands for; see `Cursor.stands_for`."""

    def _start(self, tell: Tell | None = None) -> _core.Stream:
        return self._step.stream()

    def __len__(self) -> int:
        return sum(batch.rows for batch in self.batches)

    def level(self) -> numpy.ndarray[Any, Any]:
        """Returns the level of each row, in the order of the rows.

        >>> set(sample.level().tolist())
        {1}
        """
        levels = numpy.array([batch.level for batch in self.batches], dtype=numpy.uint8)
        return numpy.repeat(levels, [batch.rows for batch in self.batches])

    def stand_for(self, level: int) -> numpy.ndarray[Any, Any]:
        """Returns the number of rows that each row stands for among the rows of a level and above; 0 for rows below it.

        With the level of `Cursor.complete_level`, sums of these numbers over all steps are unbiased counts of rows, for any box
        and predicate, and sums of their products with a column are unbiased sums of the column.

        >>> float(sample.stand_for(1).sum()) == 8 * len(sample)
        True
        """
        return numpy.frombuffer(self._step.stand_for(min(natural("level", level), 255)), dtype="<f8")

    def __repr__(self) -> str:
        return f"<CursorStep of {len(self):,} rows in {len(self.batches):,} batches>"


class Cursor:
    """The rows of a query, from the coarsest level of detail to the finest, each row once.

    A cursor is pinned to the commit of its epoch: once the epoch has been replaced, a step that needs further files raises
    `OperationError`. Iteration takes a step for each level of detail that is left, the coarsest first.
    """

    def __init__(self, cursor: _core.Cursor, path: str) -> None:
        self._cursor = cursor
        self._path = path

    def advance(self, *, rows: int | None = None, quality: float | None = None) -> CursorStep:
        """Takes a step, and returns its rows.

        `rows` returns at least as many more, unless fewer are left: all matching rows of a page, so about a page too many.
        `quality` returns rows until this share of the matching rows, from 0 to 1, has been returned by all steps together;
        1 returns all that are left.

        >>> places = {"x": numpy.linspace(0, 8, 4000, dtype="f4"), "y": numpy.linspace(0, 2, 4000, dtype="f4") ** 2}
        >>> with turbidite.Writer("space.tbd", {"x": "f4", "y": "f4"}, key="space:x,y", levels=1) as writer:
        ...     with writer.epoch(7):
        ...         _ = writer.append(places)
        >>> cursor = turbidite.open("space.tbd").cursor(7, "x < 4")
        >>> sample = cursor.advance(quality=0.125)
        >>> sample.stands_for
        8.0
        >>> len(sample) + len(cursor.advance(quality=1))
        2000
        """
        if (rows is None) == (quality is None):
            raise UsageError("advance: state either rows or quality")
        share = real(quality)
        if quality is not None and share is None:
            raise UsageError(f"quality: a number from 0 to 1 is needed, not {quality!r}")
        step = self._cursor.advance(optional("rows", rows), None if share is None else float(share))
        return CursorStep(step, self.stands_for)

    def __iter__(self) -> Iterator[CursorStep]:
        for level in reversed(range(self._cursor.levels + 1)):
            if self.rows_most == 0:
                return
            step = self.advance(quality=8.0**-level)
            if len(step):
                yield step

    def weights(self) -> numpy.ndarray[Any, Any]:
        """Returns the number of rows that each row of all steps stands for, in the order of the steps.

        Counts and sums with these weights are unbiased estimates, for any box and predicate. Without a predicate and a box,
        they add up to the rows of the epoch, unless levels are in proportion to a column. A further step changes the weights
        of earlier rows. Rows with a NaN coordinate are all of level 0 and have the weight 1. Weights are NaN in the middle of
        the highest level that is read from a point outwards.

        >>> cursor = turbidite.open("space.tbd").cursor(7)
        >>> _ = cursor.advance(rows=1000)
        >>> round(float(cursor.weights().sum()))
        4000
        """
        return numpy.frombuffer(self._cursor.weights(), dtype="<f8")

    @property
    def density_ratio(self) -> float | None:
        """The ratio of the highest to the lowest share of rows that regions have returned; `None` before the first rows.

        It is 1 at the end of a level, and 8 in the middle of one (more if levels are in proportion to a column), for which
        `weights` compensates. It is infinite in the middle of the highest level, where regions have no rows.
        """
        return self._cursor.density_ratio

    @property
    def stands_for(self) -> float | None:
        """The number of rows that each row of all steps so far stands for, and their mean in the middle of a level.

        `None` before the first rows, and in the middle of a level that is read from a point outwards. If levels are in
        proportion to a column, it is `None` up to the end: rows stand for different numbers, see `weights`.
        """
        return self._cursor.stands_for

    @property
    def complete_level(self) -> int | None:
        """The lowest level of detail of which all rows have been returned, as have been those of all coarser levels.

        `None` before the coarsest level is complete.
        """
        return self._cursor.complete_level

    @property
    def rows_most(self) -> int:
        """Further steps return at most so many rows, by statistics; 0 at the end."""
        return self._cursor.rows_most

    def __repr__(self) -> str:
        return f"<Cursor of {self._path}: at most {self.rows_most:,} rows are left>"
