"""Distributions of a column: histograms and quantiles, with their bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy

from turbidite import _tables, pictures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Estimate", "Histogram", "Quantile", "number", "with_sums"]


@dataclass(frozen=True, eq=False)
class Histogram:
    """The rows of a column by bins. Without ``exact=True`` the counts are estimates within guaranteed bounds.

    Those from a level of detail have standard errors, too.
    """

    column: str
    edges: numpy.ndarray[Any, Any]
    """The ends of the bins, one more than there are bins."""
    rows: numpy.ndarray[Any, Any]
    """Estimated rows of each bin."""
    least: numpy.ndarray[Any, Any]
    """At least so many rows are in each bin."""
    most: numpy.ndarray[Any, Any]
    """At most so many rows are in each bin."""
    below: tuple[int, int, int]
    """Rows below the first bin: at least, about, at most."""
    above: tuple[int, int, int]
    """Rows above the last bin: at least, about, at most."""
    negative_infinity: tuple[int, int, int]
    """Rows with minus infinity: at least, about, at most."""
    positive_infinity: tuple[int, int, int]
    """Rows with infinity: at least, about, at most."""
    nan: int
    """Rows with NaN: without ``exact=True`` and with a predicate, an estimate."""
    nan_bounds: tuple[int, int]
    """Rows with NaN: at least, at most."""
    matching: tuple[int, int, int]
    """Rows that are counted: at least, about, at most."""
    unit: str | None = None
    """The unit of the column."""
    epochs: tuple[int, ...] = ()
    """The labels of the epochs."""
    log: bool = False
    """Whether the bins have equal ratios instead of equal widths."""
    errors: numpy.ndarray[Any, Any] | None = None
    """The standard error of each bin's `rows`, if they are estimated from a level of detail."""
    level: int | None = None
    """Rows of this level of detail and above were read."""
    sampled: int | None = None
    """The number of these rows that match."""
    unplaced: tuple[int, int] = (0, 0)
    """Rows with a NaN coordinate, which are in no sample and in no estimate: at least, at most."""
    summed: str | None = None
    """The column of `sums`, if sums were requested."""
    sums: numpy.ndarray[Any, Any] | None = None
    """The estimated sum of `summed` in each bin."""
    sum_errors: numpy.ndarray[Any, Any] | None = None
    """The standard error of each sum; NaN where it is not known, as for fewer than 30 sampled rows of even levels."""
    sum_samples: numpy.ndarray[Any, Any] | None = None
    """The number of sampled rows of each sum."""
    sum_of_all: tuple[float, float] | None = None
    """The estimated sum over all rows that match, and its standard error."""
    summed_unit: str | None = None
    """The unit of `summed`."""

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draws the rows of each bin with their bounds or errors, or the sums if there are any, and returns the axes.

        `options` are those of ``Axes.stairs``.

        >>> dataset.histogram("energy", bins=10).plot().get_xlabel()
        'energy'
        """
        return pictures.draw_histogram(self, ax, **options)

    def _repr_html_(self) -> str:
        return _tables.of_histogram(self)


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
    """The value below which a share of the rows lies: an estimate within guaranteed bounds.

    Values of integer columns are integers.
    """

    share: float
    least: float
    estimate: float
    most: float


def with_sums(histogram: Histogram, stated: dict[str, Any], unit: str | None) -> Histogram:
    """Returns the histogram with sums of the core's JSON, whose column has the unit."""
    sums = [(number(value), number(error), sampled) for value, error, sampled in [stated["rows"], *stated["bins"]]]
    values, errors, samples = zip(*sums, strict=True)
    return replace(
        histogram,
        summed=stated["column"],
        sums=numpy.array(values[1:], dtype="f8"),
        sum_errors=numpy.array(errors[1:], dtype="f8"),
        sum_samples=numpy.array(samples[1:], dtype="u8"),
        sum_of_all=(values[0], errors[0]),
        summed_unit=unit,
    )


def number(value: float | str) -> float:
    """Returns a number of the core's JSON: integers exactly, and infinities, which JSON cannot express."""
    if not isinstance(value, str):
        return value
    return int(value) if value.lstrip("-").isdigit() else float(value)
