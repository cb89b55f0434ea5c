"""Boxes: half-open ranges of several columns, as the core reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from turbidite._checks import real
from turbidite.errors import UsageError

Box = Mapping[str, tuple[float | None, float | None]]
"""The sides of a box: ``{"x": (0, 10), "y": (None, 5)}``. A lower bound is included, an upper bound excluded."""

Period = Mapping[str, float | None]
"""The periods of columns of a box: ``{"x": 128}``; None for a column that is not periodic, whatever the dataset states."""


def box_texts(box: Box | None, period: Period | None) -> tuple[str | None, str | None]:
    """Returns the text of a box, and that of its periods."""
    if box is None:
        if period is not None:
            raise UsageError("period: there is no box whose sides could be periodic")
        return None, None
    if not isinstance(box, Mapping) or not box:
        raise UsageError(f"box: a range for each of its columns is needed, such as {{'x': (0, 10)}}, not {box!r}")
    sides = ",".join(_side(column, ends) for column, ends in box.items())
    if period is None:
        return sides, None
    if not isinstance(period, Mapping):
        raise UsageError(f"period: a period by column is needed, such as {{'x': 128}}, not {period!r}")
    for column in period:
        if column not in box:
            raise UsageError(f"period: the box has no side {column!r}; its sides are {', '.join(box)}")
    return sides, ",".join(_period(period[column]) if column in period else "" for column in box)


def period_text(period: Period | None, key: str) -> str | None:
    """Returns the text of the periods of a new dataset, in the order of its coordinates."""
    if period is None:
        return None
    if not isinstance(period, Mapping):
        raise UsageError(f"period: a period by column is needed, such as {{'x': 128}}, not {period!r}")
    method, _, names = key.partition(":")
    if method != "space":
        raise UsageError(f"period: only a key by space has periods, such as 'space:x,y,z', not {key!r}")
    coordinates = names.split(",")
    for column in period:
        if column not in coordinates:
            raise UsageError(f"period: {column!r} is not a coordinate; the coordinates are {', '.join(coordinates)}")
    stated = [period.get(column) for column in coordinates]
    return ",".join("" if number is None else _number("period", number) for number in stated)


def _period(period: float | None) -> str:
    return "none" if period is None else _number("period", period)


def _side(column: Any, ends: Any) -> str:
    if not isinstance(column, str):
        raise UsageError(f"box: a side is named by its column, not by {column!r}")
    if isinstance(ends, str) or not isinstance(ends, (Sequence, numpy.ndarray)) or len(ends) != 2:
        raise UsageError(f"box: a range (low, high) of {column!r} is needed, with None for a missing bound, not {ends!r}")
    low, high = ("" if end is None else _number("box", end) for end in ends)
    name = column if re.fullmatch(r"[^\W\d]\w*", column) else '"' + column.replace('"', '""') + '"'
    return f"{name}={low}:{high}"


def _number(name: str, value: Any) -> str:
    """Returns a number as text that the core reads as the same number."""
    found = real(value)
    if found is None:
        raise UsageError(f"{name}: a number is needed, not {value!r}")
    return repr(found)
