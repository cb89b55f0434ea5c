"""Distributions of a column: histograms and quantiles, with their bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy

from turbidite._axes import BLUE, GREY, LEAST_LOG_COUNT, axes_of, drawn_edges, excluded, headline, label, say, unit_text
from turbidite._tables import abridged, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Array = numpy.ndarray[Any, Any]

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
        return _draw(self, ax, options)

    def _repr_html_(self) -> str:
        counts: tuple[Any, ...] = (self.least, self.rows, self.most)
        head: tuple[str, ...] = ("at least", "about", "at most")
        if self.errors is not None:
            counts, head = (self.rows, numpy.ceil(self.errors)), ("about", "error")
        bins: list[tuple[str, ...]] = [
            (f"{one[0]:.6g}", f"{one[1]:.6g}", *(f"{int(count):,}" for count in one[2:]))
            for one in zip(self.edges[:-1], self.edges[1:], *counts, strict=True)
        ]
        if self.sums is not None and self.sum_errors is not None:
            head = (*head, f"sum of {self.summed}", "error")
            sums = zip(self.sums, self.sum_errors, strict=True)
            bins = [(*one, f"{value:.6g}", f"{error:.2g}") for one, (value, error) in zip(bins, sums, strict=True)]
        rows = [("…",) * (2 + len(head)) if one is None else one for one in abridged(bins)]
        named = f"{self.column} ({unit_text(self.unit)})" if self.unit else self.column
        return table(f"{named}: rows by bins", ("from", "to", *head), rows)


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


def _draw(histogram: Histogram, ax: Axes | None, options: dict[str, Any]) -> Axes:
    """Draws the rows of each bin, or the sums if there are any, as steps, and their bounds or errors as a band."""
    ax = axes_of(ax, 6.4, 4.0)
    edges = drawn_edges(histogram.edges, histogram.log)
    if histogram.sums is None:
        _draw_rows(histogram, edges, ax, options)
    else:
        _draw_sums(histogram, edges, ax, options)
    if len(edges):
        ax.set_xscale("log" if histogram.log else "linear")
        ax.set_xlim(edges[0], edges[-1])
    ax.set_xlabel(label(histogram.column, histogram.unit))
    below, above, negative, positive = (
        one[1] for one in (histogram.below, histogram.above, histogram.negative_infinity, histogram.positive_infinity)
    )
    left_out = excluded(outside=below + above, infinite=negative + positive, NaN=histogram.nan)
    headline(ax, histogram.epochs, left_out)
    return ax


def _draw_sums(histogram: Histogram, edges: Array, ax: Axes, options: dict[str, Any]) -> None:
    """Draws the sums of the bins, with a band of their errors where these are known."""
    sums, errors = numpy.asarray(histogram.sums, "f8"), numpy.asarray(histogram.sum_errors, "f8")
    finite = sums[numpy.isfinite(sums)]
    if not len(finite):
        say(ax, "no finite sums")
    elif len(edges):
        options = {"color": BLUE, "linewidth": 1.3, **options}
        if (errors > 0).any():
            # An error of NaN leaves a gap.
            band = {"color": options["color"], "alpha": 0.25, "linewidth": 0, "label": "± one standard error"}
            ax.stairs(sums + errors, edges, baseline=sums - errors, fill=True, **band)
            ax.stairs(sums, edges, baseline=None, **{"label": "estimate", **options})
            ax.legend(frameon=False)
        else:
            ax.stairs(sums, edges, baseline=None, **{"label": "sums", **options})
        ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set_ylabel(f"{label(str(histogram.summed), histogram.summed_unit)}, summed per bin")


def _draw_rows(histogram: Histogram, edges: Array, ax: Axes, options: dict[str, Any]) -> None:
    """Draws the rows of the bins, with a band of their bounds or errors."""
    low, high, words = histogram.least, histogram.most, "guaranteed bounds"
    if histogram.errors is not None:
        rows = histogram.rows.astype("f8")
        low, high = numpy.maximum(rows - histogram.errors, histogram.least), rows + histogram.errors
        words = "± one standard error"
    most = int(high.max(initial=0))
    if most == 0:
        say(ax, "no rows")
    if len(edges):
        is_exact = bool((histogram.least == histogram.most).all())
        options = {"color": BLUE, "linewidth": 1.3, **options}
        if is_exact:
            ax.stairs(histogram.rows, edges, fill=True, **{**options, "alpha": 0.25, "linewidth": 0})
        else:
            band = {"color": options["color"], "alpha": 0.25, "linewidth": 0, "label": words}
            ax.stairs(high, edges, baseline=low, fill=True, **band)
        ax.stairs(histogram.rows, edges, **{"label": "rows" if is_exact else "estimate", **options})
        if not is_exact:
            ax.legend(frameon=False)
    if most > LEAST_LOG_COUNT:
        ax.set_yscale("log")
        ax.set_ylim(0.7, most * 1.6)
    else:
        ax.set_ylim(0, max(most, 1) * 1.1)
    ax.set_ylabel("rows per bin")
