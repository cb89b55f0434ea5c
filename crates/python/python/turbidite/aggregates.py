"""Aggregates of rows by group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from turbidite import _core
from turbidite._checks import texts
from turbidite._progress import Tell
from turbidite._result import Result
from turbidite._tables import abridged, clipped, table
from turbidite.errors import UsageError

__all__ = ["Aggregates", "group_texts", "named_texts"]

_MAX_NAME = 40
"""Tables show less of longer names."""


def named_texts(aggregates: Any) -> list[tuple[str, str]]:
    """Returns the names and texts of aggregates."""
    if not isinstance(aggregates, Mapping) or not all(
        isinstance(name, str) and isinstance(one, str) for name, one in aggregates.items()
    ):
        raise UsageError(f"aggregates: give a dict of names and aggregates, such as {{'n': 'count()'}}, not {aggregates!r}")
    return list(aggregates.items())


def group_texts(by: Any) -> list[str]:
    """Returns the texts of groups."""
    if isinstance(by, str):
        return [by]
    return [] if by is None else texts("by", by, "give a list of groups, such as ['epoch', 'bins(x, 0, 100, 50)']")


class Aggregates(Result):
    """A table with a row for each group: what it is grouped by, then its aggregates."""

    rows: int
    """The number of rows that match."""
    outside: int
    """The number of these rows that are in no group: a number is outside its bins, or NaN."""

    def __init__(self, found: _core.Aggregates) -> None:
        self._found = found
        self.rows = found.rows
        self.outside = found.outside

    def _start(self, tell: Tell | None = None) -> _core.Stream:
        return self._found.stream()

    def __len__(self) -> int:
        return len(self._batch())

    def __getitem__(self, name: str) -> numpy.ndarray[Any, Any]:
        """Returns a column as an array: a masked one if integers have no value, such as the least of an empty group.

        >>> dataset.aggregate({"n": "count()"}, by="epoch")["n"]
        array([1001, 1001])
        """
        return self._batch()[name]

    def _batch(self) -> _core.Batch:
        [batch] = self._found.stream().collect()
        return batch

    def __repr__(self) -> str:
        lines = self._lines()
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        text = "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
        return f"<Aggregates: {self._caption()}>\n{text}"

    def _repr_html_(self) -> str:
        head, *lines = self._lines()
        return table(self._caption(), head, lines)

    def _caption(self) -> str:
        groups = len(self)
        outside = f", {self.outside:,} of them outside the bins" if self.outside else ""
        return f"{groups:,} group{'s' * (groups != 1)} of {self.rows:,} row{'s' * (self.rows != 1)}{outside}"

    def _lines(self) -> list[list[str]]:
        """Returns the names of the columns, and the first and last groups. Columns in the middle are left out if there are many."""
        arrays = self.to_numpy()
        names = abridged(list(arrays))
        lines = [["…" if name is None else clipped(name, _MAX_NAME) for name in names]]
        for group in abridged(range(len(self))):
            lines.append(["…" if group is None or name is None else str(arrays[name][group]) for name in names])
        return lines
