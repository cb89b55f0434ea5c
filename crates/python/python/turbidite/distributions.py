"""Numbers of rows and quantiles, with their bounds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Estimate", "Quantile", "number"]


@dataclass(frozen=True)
class Estimate:
    """A number of rows that is estimated from a level of detail.

    The true number lies within 1.96 errors with a probability of 0.95 or more.
    """

    rows: int
    error: float
    """The standard error; 0 if statistics prove the number."""
    least: int
    """At least so many rows match."""
    most: int
    """At most so many rows match."""
    level: int
    """Rows of this level of detail and above were read."""
    sampled: int
    """The number of these rows that match."""
    unplaced: tuple[int, int]
    """Rows with a NaN coordinate, which are in no sample and not in the estimate: at least, at most."""


@dataclass(frozen=True)
class Quantile:
    """The value below which a share of the rows lies: exact, or an estimate within guaranteed bounds.

    Values of integer columns are integers.
    """

    share: float
    least: float
    estimate: float
    most: float
    source: str
    """``"exact"`` or ``"bounds"``."""


def number(value: float | str) -> float:
    """Returns a number of the core's JSON: integers exactly, and infinities, which JSON cannot express."""
    if not isinstance(value, str):
        return value
    return int(value) if value.lstrip("-").isdigit() else float(value)
