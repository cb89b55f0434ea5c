"""What the extension module takes: every argument is stated, so that a misspelt one is an error."""

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
    limit: int | None
    threads: int | None
    check: bool
    use: str | None
    piece: str | None


class HistogramArguments(TypedDict):
    """The arguments of a histogram."""

    column: str
    bins: int
    range: tuple[float, float] | None
    log: bool
    where: str | None
    box: str | None
    period: str | None
    epochs: list[int] | None
    use: str | None
    exact: bool
    level: int | None
    sum: str | None


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


Range = tuple[float, float]
"""The ends of a range. Integers are passed exactly."""


class PhaseSpaceArguments(TypedDict):
    """The arguments of a two-dimensional histogram; pairs are those of x and y."""

    columns: tuple[str, str]
    where: str | None
    box: str | None
    period: str | None
    epochs: list[int] | None
    bins: tuple[int, int]
    ranges: tuple[Range | None, Range | None]
    log: tuple[bool, bool]
    weights: str | None
    threads: int | None
    use: str | None
    exact: bool
