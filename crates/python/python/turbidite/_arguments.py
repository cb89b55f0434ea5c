"""Arguments of the extension module: all are stated, so that a misspelt one is an error."""

from __future__ import annotations

from typing import TypedDict


class Arguments(TypedDict):
    """The arguments of a query."""

    where: str | None
    box: str | None
    period: str | None
    epochs: list[int] | None
    columns: list[str] | None
    ordered: bool
    order_by: str | None
    per_epoch: bool
    limit: int | None
    threads: int | None
    check: bool
    use: str | None
    piece: str | None


Range = tuple[float, float]
"""The ends of a range. Integers are passed exactly."""

Axis = tuple[str, int | list[float], Range | None, bool]
"""An axis of a histogram: the column, the number of bins or their edges, their range, and whether they have equal ratios."""


class HistogramArguments(TypedDict):
    """The arguments of a histogram of one axis or of two."""

    axes: list[Axis]
    where: str | None
    box: str | None
    period: str | None
    epochs: list[int] | None
    threads: int | None
    use: str | None
    source: str
    budget: int
    level: int | None
    weights: str | None


class TrackArguments(TypedDict):
    """The arguments of trajectories."""

    particles: tuple[str | None, int] | list[int | bytes | tuple[int | bytes, ...]]
    box: str | None
    period: str | None
    id: str
    epochs: list[int] | None
    columns: list[str] | None
    limit: int | None
    threads: int | None
