"""Histograms of one column or of two, from any source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from turbidite import _checks
from turbidite._arguments import Axis, HistogramArguments, Range
from turbidite._axes import (
    BLUE,
    GREY,
    MIN_LOG_COUNT,
    axes_of,
    drawn_edges,
    excluded,
    headline,
    label,
    module,
    say,
    unit_text,
)
from turbidite._checks import access, bins_or_edges, ends, flag, optional, predicate
from turbidite._progress import Tell
from turbidite._tables import abridged, table
from turbidite.distributions import number
from turbidite.errors import UsageError
from turbidite.schema import Column

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from turbidite import _core
    from turbidite.schema import Schema

    Array = numpy.ndarray[Any, Any]

__all__ = ["Histogram", "HistogramAxis"]


@dataclass(frozen=True, eq=False)
class HistogramAxis:
    """An axis of a histogram."""

    name: str
    """The column."""
    unit: str | None
    edges: numpy.ndarray[Any, Any]
    """The ends of the bins, one more than there are bins. Integer columns have edges of integers, unless others are given."""
    log: bool
    """Whether the bins have equal ratios instead of equal widths."""
    widths: numpy.ndarray[Any, Any]
    """The width of each bin. Of integers, that is how many are in it, unless the edges are given."""


@dataclass(frozen=True, eq=False)
class Histogram:
    """Rows by bins of one column, as `numpy.histogram` counts them, or of two, as `numpy.histogram2d` does.

    A bin contains its lower edge. The last bin of an axis also contains its upper edge. Arrays have an element for each bin;
    those of two columns have the bins of `x` along the first axis.
    """

    x: HistogramAxis
    y: HistogramAxis | None
    """The axis of the second column, if there is one."""
    source: str
    """``"exact"``; ``"bounds"``: estimates within guaranteed bounds; ``"levels"``: estimates from a level of detail."""
    counts: numpy.ndarray[Any, Any]
    """The rows of each bin, or their estimated number."""
    least: numpy.ndarray[Any, Any]
    """Lower bounds of the rows of each bin, equal to `counts` where these are exact."""
    most: numpy.ndarray[Any, Any]
    """Upper bounds of the rows of each bin."""
    rows: int
    """The number of rows that are selected, or its estimate."""
    unbinned: dict[str, int]
    """The rows that are in no bin. Of one column: ``nan``, ``negative_infinity``, ``below``, ``above``, ``positive_infinity``. Of two:
    ``nan``, ``infinite`` (and not NaN), ``outside`` (and finite)."""
    bounds: dict[str, tuple[int, int]]
    """The lower and upper bound of ``rows``, and of the rows in no bin by reason."""
    epochs: tuple[int, ...]
    """The labels of the epochs."""
    where: str | None = None
    """The predicate of the rows."""
    errors: numpy.ndarray[Any, Any] | None = None
    """The standard error of each bin's `counts`, if they are estimated from a level of detail."""
    weights: Column | None = None
    """The column of `sums`."""
    sums: numpy.ndarray[Any, Any] | None = None
    """The sum of the weights in each bin, if weights were requested."""
    squares: numpy.ndarray[Any, Any] | None = None
    """The sum of the squared weights in each bin, or its estimate."""
    sum_errors: numpy.ndarray[Any, Any] | None = None
    """The standard error of each sum, if they are estimated: NaN where it is not known, as for fewer than 30 rows of even levels."""
    sum_of_all: tuple[float, float] | None = None
    """The sum over all rows that are selected, and its standard error."""
    samples: numpy.ndarray[Any, Any] | None = None
    """The number of sampled rows in each bin, if numbers are estimated from a level of detail."""
    level: int | None = None
    """Rows of this level of detail and above were read."""
    sampled: int | None = None
    """The number of these rows that are selected."""
    unplaced: tuple[int, int] = (0, 0)
    """Rows with a NaN coordinate, which are in no sample and in no estimate: at least, at most."""

    @property
    def values(self) -> numpy.ndarray[Any, Any]:
        """The sum of each bin if there are weights, otherwise its rows."""
        return self.counts if self.sums is None else self.sums

    @property
    def error_bars(self) -> numpy.ndarray[Any, Any]:
        """The statistical error of each bin, as of independent rows: √n, or √Σw² with weights.

        >>> dataset.histogram("energy", bins=2, range=(0, 8), epochs=200).error_bars.round(2)
        array([20.  , 20.02])
        """
        return numpy.asarray(numpy.sqrt(self.counts if self.squares is None else self.squares))

    @property
    def per_width(self) -> numpy.ndarray[Any, Any]:
        """The values by the width of the bins, such as dN/dE, or by their area.

        >>> dataset.histogram("energy", bins=[0, 2, 8], epochs=200).per_width
        array([100. , 100.16666667])
        """
        area = self.x.widths if self.y is None else numpy.outer(self.x.widths, self.y.widths)
        # The bin of a single float has no width.
        with numpy.errstate(divide="ignore", invalid="ignore"):
            return numpy.asarray(self.values / area)

    @property
    def density(self) -> numpy.ndarray[Any, Any]:
        """The values by the width of the bins and by the total of all bins, as ``density=True`` of NumPy."""
        with numpy.errstate(divide="ignore", invalid="ignore"):
            return numpy.asarray(self.per_width / self.values.sum())

    @property
    def cumulative(self) -> numpy.ndarray[Any, Any]:
        """The total of the values up to the end of each bin, and of two columns up to the corner of each."""
        found = self.values.cumsum(axis=0)
        return found if self.y is None else found.cumsum(axis=1)

    @property
    def nan(self) -> int:
        """Rows with a NaN in a column of the histogram."""
        return self.unbinned["nan"]

    @property
    def infinite(self) -> int:
        """Rows with an infinite value, and no NaN."""
        return sum(self.unbinned.get(name, 0) for name in ("infinite", "negative_infinity", "positive_infinity"))

    @property
    def outside(self) -> int:
        """Rows with finite values that are in no bin."""
        return sum(self.unbinned.get(name, 0) for name in ("outside", "below", "above"))

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draws the rows of each bin, or the sums if there are any, and returns the axes.

        Bins of one column are steps, with a band of bounds or errors, and `options` are those of ``Axes.stairs``. Bins of two are a
        mesh, with those of ``Axes.pcolormesh``.

        >>> dataset.histogram("energy", bins=10).plot().get_xlabel()
        'energy'
        >>> dataset.phase_space("energy", "id").plot().get_ylabel()
        'id'
        """
        return _draw(self, ax, options) if self.y is None else _draw_mesh(self, self.y, ax, options)

    def _repr_html_(self) -> str | None:
        if self.y is not None:
            return None
        columns: list[Array] = [self.least, self.counts, self.most]
        head = ["at least", "about", "at most"]
        if self.source == "exact":
            columns, head = [self.counts], ["rows"]
        if self.errors is not None:
            columns, head = [self.counts, numpy.ceil(self.errors)], ["about", "error"]
        formats = ["{:.6g}", "{:.6g}", *["{:,.0f}"] * len(columns)]
        if self.sums is not None and self.weights is not None:
            columns, head, formats = [*columns, self.sums], [*head, f"sum of {self.weights.name}"], [*formats, "{:.6g}"]
        if self.sum_errors is not None:
            columns, head, formats = [*columns, self.sum_errors], [*head, "error"], [*formats, "{:.2g}"]
        bins = zip(self.x.edges[:-1], self.x.edges[1:], *columns, strict=True)
        lines = [tuple(form.format(value) for form, value in zip(formats, one, strict=True)) for one in bins]
        rows = [("…",) * len(formats) if one is None else one for one in abridged(lines)]
        named = f"{self.x.name} ({unit_text(self.x.unit)})" if self.x.unit else self.x.name
        return table(f"{named}: rows by bins", ("from", "to", *head), rows)


def _pair(value: Any) -> tuple[Any, Any]:
    """Returns a pair: as given, or one value for both axes."""
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        return value[0], value[1]
    return value, value


def _bins(value: Any) -> tuple[int | list[float], int | list[float]]:
    """Returns the bins of both axes."""
    x, y = (bins_or_edges(one) for one in _pair(value))
    if x is None or y is None:
        raise UsageError(f"bins: a number of bins or their edges, or a pair of these, is needed, not {value!r}")
    return x, y


def _ranges(value: Any) -> tuple[Range | None, Range | None]:
    """Returns the ranges of both axes, as `numpy.histogram2d` takes them: ``((x0, x1), (y0, y1))``."""
    stated = _pair(list(value) if isinstance(value, numpy.ndarray) else value)
    x, y = (None if one is None else ends(one) for one in stated)
    if (x is None and stated[0] is not None) or (y is None and stated[1] is not None):
        raise UsageError(f"range: ((x from, x to), (y from, y to)) is needed, and None for a default; not {value!r}")
    return x, y


def arguments(
    column: str,
    by: str | None,
    *,
    bins: Any,
    range: Any,
    log: Any,
    where: str | None,
    box: tuple[str | None, str | None],
    epochs: list[int] | None,
    threads: int | None,
    use: str | None,
    source: str | None,
    budget: float,
    level: int | None,
    weights: str | None,
) -> HistogramArguments:
    """Checks a request."""
    if level is not None and use is not None:
        raise UsageError("level: estimates exclude use")
    axes: list[Axis]
    if by is None:
        count, stated = bins_or_edges(bins), None if range is None else ends(range)
        if count is None:
            raise UsageError(f"bins: a number of bins or their edges is needed, not {bins!r}")
        if stated is None and range is not None:
            raise UsageError(f"range: a pair of numbers, (from, to), is needed, not {range!r}")
        axes = [(column, count, stated, flag("log", log))]
    else:
        scales = _pair(log)
        of_both = zip((column, by), _bins(bins), _ranges(range), scales, strict=True)
        axes = [(name, count, stated, flag("log", scale)) for name, count, stated, scale in of_both]
    if any(isinstance(count, list) and stated is not None for _, count, stated, _ in axes):
        raise UsageError("range: bins states the edges")
    return {
        "axes": axes,
        "where": predicate("where", where),
        "box": box[0],
        "period": box[1],
        "epochs": epochs,
        "threads": optional("threads", threads),
        "use": access("use", use),
        "source": _checks.source(source, has_level=level is not None),
        "budget": _checks.budget(budget),
        "level": optional("level", level),
        "weights": weights,
    }


def histogram(
    core: _core.Dataset,
    schema: Schema,
    arguments: HistogramArguments,
    epochs: Sequence[int],
    tell: Tell | None,
) -> Histogram:
    """Counts the rows of a request."""
    stated, arrays = core.histogram(arguments, tell)
    totals = json.loads(stated)
    columns = {column.name: column for column in schema.columns}
    axes = [
        HistogramAxis(
            name := axis["column"],
            columns[name].unit if name in columns else None,
            _edges(axis["edges"]),
            log,
            numpy.array(axis["widths"], "f8"),
        )
        for axis, (_, _, _, log) in zip(totals["axes"], arguments["axes"], strict=True)
    ]
    shape = tuple(max(len(axis.edges) - 1, 0) for axis in axes)
    bins: dict[str, Array] = {name: numpy.asarray(values).reshape(shape) for name, values in arrays.items()}
    unbinned: dict[str, list[int]] = totals["unbinned"]
    bounds = {name: (least, most) for name, (least, _, most) in {"rows": totals["rows"], **unbinned}.items()}
    sample, total = totals["sample"], totals["sum"]
    return Histogram(
        x=axes[0],
        y=axes[1] if len(axes) > 1 else None,
        source=arguments["source"],
        rows=totals["rows"][1],
        unbinned={name: about for name, (_, about, _) in unbinned.items()},
        bounds=bounds,
        epochs=tuple(epochs),
        where=arguments["where"],
        weights=None if (name := totals["weights"]) is None else columns.get(name, Column(name, "f64")),
        sum_of_all=None if total is None else (number(total[0]), number(total[1])),
        level=None if sample is None else sample["level"],
        sampled=None if sample is None else sample["rows"],
        unplaced=(0, 0) if sample is None else (sample["unplaced"][0], sample["unplaced"][2]),
        **bins,
    )


def _edges(stated: list[float | str]) -> numpy.ndarray[Any, Any]:
    """Returns edges as an array: integers exactly."""
    edges = [number(edge) for edge in stated]
    whole = [edge for edge in edges if isinstance(edge, int)]
    if not whole or len(whole) < len(edges):
        return numpy.array(edges, "f8")
    fitting = [dtype for dtype in ("i8", "u8") if numpy.iinfo(dtype).min <= min(whole) and max(whole) <= numpy.iinfo(dtype).max]
    return numpy.array(edges, fitting[0] if fitting else object)


def _draw(histogram: Histogram, ax: Axes | None, options: dict[str, Any]) -> Axes:
    """Draws the rows of each bin, or the sums if there are any, as steps, and their bounds or errors as a band."""
    ax = axes_of(ax, 6.4, 4.0)
    edges = drawn_edges(histogram.x.edges, histogram.x.log)
    if histogram.sums is None:
        _draw_rows(histogram, edges, ax, options)
    else:
        _draw_sums(histogram, edges, ax, options)
    if len(edges):
        ax.set_xscale("log" if histogram.x.log else "linear")
        ax.set_xlim(edges[0], edges[-1])
    ax.set_xlabel(label(histogram.x.name, histogram.x.unit))
    left_out = excluded(outside=histogram.outside, infinite=histogram.infinite, NaN=histogram.nan)
    headline(ax, histogram.epochs, left_out)
    return ax


def _draw_sums(histogram: Histogram, edges: Array, ax: Axes, options: dict[str, Any]) -> None:
    """Draws the sums of the bins, with a band of their errors where these are known."""
    sums = numpy.asarray(histogram.sums)
    errors = numpy.zeros_like(sums) if histogram.sum_errors is None else histogram.sum_errors
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
    ax.set_ylabel(_summed(histogram))


def _draw_rows(histogram: Histogram, edges: Array, ax: Axes, options: dict[str, Any]) -> None:
    """Draws the rows of the bins, with a band of their bounds or errors."""
    low, high, words = histogram.least, histogram.most, "guaranteed bounds"
    if histogram.errors is not None:
        rows = histogram.counts.astype("f8")
        low, high = numpy.maximum(rows - histogram.errors, histogram.least), rows + histogram.errors
        words = "± one standard error"
    most = int(high.max(initial=0))
    if most == 0:
        say(ax, "no rows")
    if len(edges):
        is_exact = bool((histogram.least == histogram.most).all())
        options = {"color": BLUE, "linewidth": 1.3, **options}
        if is_exact:
            ax.stairs(histogram.counts, edges, fill=True, **{**options, "alpha": 0.25, "linewidth": 0})
        else:
            band = {"color": options["color"], "alpha": 0.25, "linewidth": 0, "label": words}
            ax.stairs(high, edges, baseline=low, fill=True, **band)
        ax.stairs(histogram.counts, edges, **{"label": "rows" if is_exact else "estimate", **options})
        if not is_exact:
            ax.legend(frameon=False)
    if most > MIN_LOG_COUNT:
        ax.set_yscale("log")
        ax.set_ylim(0.7, most * 1.6)
    else:
        ax.set_ylim(0, max(most, 1) * 1.1)
    ax.set_ylabel("rows per bin")


def _summed(histogram: Histogram) -> str:
    """Returns the label of sums."""
    weights = histogram.weights
    return "rows per bin" if weights is None else f"{label(weights.name, weights.unit)}, summed per bin"


def _norm(values: numpy.ndarray[Any, Any], is_count: bool) -> Any:
    """Returns the colour scale of the values of filled bins: logarithmic, unless the values are close."""
    colors = module("colors")
    finite = values[numpy.isfinite(values)]
    least, most = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    if is_count:
        return colors.LogNorm(1, most) if most > MIN_LOG_COUNT else colors.Normalize(0, max(most, 1))
    if least > 0 and most > 10 * least:
        return colors.LogNorm(least, most)
    return colors.Normalize(min(least, 0.0), max(most, 0.0) or 1.0)


def _draw_mesh(histogram: Histogram, y: HistogramAxis, ax: Axes | None, options: dict[str, Any]) -> Axes:
    """Draws a two-dimensional histogram as a mesh with a colour bar. Empty bins stay blank."""
    ax = axes_of(ax, 6.8, 4.4)
    filled = histogram.counts > 0
    values = histogram.counts if histogram.sums is None else histogram.sums
    if filled.any():
        x_edges = drawn_edges(histogram.x.edges, histogram.x.log)
        y_edges = drawn_edges(y.edges, y.log)
        shown = numpy.ma.masked_where(~filled, values.astype("f8")).T
        if "norm" not in options and not {"vmin", "vmax"} & set(options):
            options["norm"] = _norm(values[filled], histogram.sums is None)
        mesh = ax.pcolormesh(x_edges, y_edges, shown, **{"cmap": "viridis", "rasterized": True, **options})
        ax.figure.colorbar(mesh, ax=ax, label=_summed(histogram), pad=0.02)
        ax.set_xscale("log" if histogram.x.log else "linear")
        ax.set_yscale("log" if y.log else "linear")
    else:
        say(ax, "no rows")
    ax.set_xlabel(label(histogram.x.name, histogram.x.unit))
    ax.set_ylabel(label(y.name, y.unit))
    left_out = excluded(outside=histogram.outside, infinite=histogram.infinite, NaN=histogram.nan)
    headline(ax, histogram.epochs, histogram.where, left_out)
    return ax
