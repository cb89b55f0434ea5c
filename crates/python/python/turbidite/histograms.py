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
    MIN_LOG_COUNT,
    axes_of,
    color_bar,
    drawn_edges,
    epochs_text,
    excluded,
    headline,
    label,
    module,
    say,
    shown_units,
    unit_text,
)
from turbidite._checks import access, bins_or_edges, ends, flag, optional, predicate
from turbidite._curves import BAND, curve_label, curves, fit, free_colors, name_axes, title
from turbidite._progress import Tell
from turbidite._tables import abridged, clipped, table
from turbidite._units import Units
from turbidite.distributions import number
from turbidite.errors import UsageError
from turbidite.schema import Column

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from turbidite import _core
    from turbidite.schema import Schema

    Array = numpy.ndarray[Any, Any]

__all__ = ["Histogram", "HistogramAxis"]


@dataclass(frozen=True, eq=False, repr=False)
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

    def __repr__(self) -> str:
        return f"<HistogramAxis of {bins_text(self)}>"


def bins_text(axis: HistogramAxis) -> str:
    """Returns the column and the bins of an axis, in words."""
    bins = max(len(axis.edges) - 1, 0)
    ends = f" from {axis.edges[0]} to {axis.edges[-1]}" if bins else ""
    return f"{clipped(axis.name)}: {bins:,} bin{'s' * (bins != 1)}{ends}"


@dataclass(frozen=True, eq=False, repr=False)
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

    def __repr__(self) -> str:
        axes = "; ".join(bins_text(axis) for axis in (self.x, self.y) if axis is not None)
        return f"<Histogram of {axes}; {self.rows:,} rows, {epochs_text(self.epochs)}, {self.source}>"

    def plot(self, ax: Axes | None = None, *, units: Units | None = None, **options: Any) -> Axes:
        """Draws the rows of each bin, or the sums if there are any, and returns the axes.

        Bins of one column are steps, with a band of errors, and `options` are those of ``Axes.stairs``. Bins of which only bounds are
        known are bands without steps. Further histograms on the same axes have other colours, and share the legend. Bins of two
        columns are a mesh, with the options of ``Axes.pcolormesh``. `units` states the units to show, such as
        ``{"momentum_x": "m_e c"}``: values are converted, unless the unit of a column is
        not known.

        >>> dataset.histogram("energy", bins=10).plot().get_xlabel()
        'energy'
        >>> dataset.phase_space("energy", "id").plot().get_ylabel()
        'id'
        """
        return (_draw if self.y is None else _draw_pairs)(self, ax, units, options)

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


def _draw(histogram: Histogram, ax: Axes | None, units: Units | None, options: dict[str, Any]) -> Axes:
    """Draws the rows of each bin, or the sums if there are any, as steps, and their bounds or errors as a band."""
    ax = axes_of(ax, 6.4, 4.0)
    unit, factor = _shown(histogram, units)[histogram.x.name]
    edges = drawn_edges(histogram.x.edges, histogram.x.log) * factor
    is_first, words = not curves(ax), _summed(histogram, units)
    values, low, high, band = _lines(histogram, units)
    if not len(edges) or (histogram.sums is None and not high.any()):
        say(ax, "no rows")
    elif not numpy.isfinite(high).any():
        say(ax, "no finite sums")
    if len(edges):
        options = {"color": free_colors(ax, 1)[0], "linewidth": 1.3, **options}
        named = curve_label(ax, epochs_text(histogram.epochs), histogram.where, words, distinct=histogram.source)
        if band is None and histogram.sums is None:
            ax.stairs(values, edges, **{**options, **BAND})
        elif band is not None:
            # Values that are not finite leave a gap.
            style: dict[str, Any] = {**BAND, "color": options["color"]}
            if histogram.source == "bounds":
                # Where bounds are close, there is nothing but the outline to see.
                style = {"fill": True, "facecolor": (options["color"], 0.25), "edgecolor": options["color"], "linewidth": 0.8}
            ax.stairs(high, edges, baseline=low, **style)
        ax.stairs(values, edges, baseline=None, **{"label": named, **options})
        fit(ax, histogram.x.log, from_zero=True, is_count=histogram.sums is None)
    name_axes(ax, label(histogram.x.name, unit), words, is_first=is_first)
    title(ax, histogram.epochs, histogram.where, left_out(histogram), band=band, is_first=is_first)
    return ax


def _lines(histogram: Histogram, units: Units | None) -> tuple[Array, Array, Array, str | None]:
    """Returns the values of the bins, NaN where only bounds are known; the ends of their bands; and what these are, if any."""
    if histogram.sums is not None:
        scale = 1.0 if histogram.weights is None else _shown(histogram, units)[histogram.weights.name][1]
        sums = histogram.sums * scale
        errors = numpy.zeros_like(sums) if histogram.sum_errors is None else histogram.sum_errors * scale
        return sums, sums - errors, sums + errors, "bands: ± one standard error" if (errors > 0).any() else None
    rows, low, high = (one.astype("f8") for one in (histogram.counts, histogram.least, histogram.most))
    if histogram.errors is not None:
        low, high = numpy.maximum(rows - histogram.errors, low), rows + histogram.errors
        return rows, low, high, "bands: ± one standard error"
    is_open = low < high
    # An estimate within bounds is no count: a line would show a shape that the data need not have.
    return numpy.where(is_open, numpy.nan, rows), low, high, "bands: guaranteed bounds" if is_open.any() else None


def _shown(histogram: Histogram, units: Units | None) -> dict[str, tuple[str | None, float]]:
    """Returns the units to show, and the factors of the values to them, by column."""
    columns = (histogram.x, histogram.y, histogram.weights)
    return shown_units(units, {column.name: column.unit for column in columns if column is not None})


def _summed(histogram: Histogram, units: Units | None) -> str:
    """Returns the label of rows or sums."""
    weights = histogram.weights
    if weights is None:
        return "rows per bin"
    return f"{label(weights.name, _shown(histogram, units)[weights.name][0])}, summed per bin"


def color_scale(values: numpy.ndarray[Any, Any], is_count: bool) -> Any:
    """Returns the colour scale of the values of filled bins: logarithmic, unless the values are close."""
    colors = module("colors")
    finite = values[numpy.isfinite(values)]
    least, most = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    if is_count:
        return colors.LogNorm(1, most) if most > MIN_LOG_COUNT else colors.Normalize(0, max(most, 1))
    if least > 0 and most > 10 * least:
        return colors.LogNorm(least, most)
    return colors.Normalize(min(least, 0.0), max(most, 0.0) or 1.0)


def shown_values(histogram: Histogram, units: Units | None) -> numpy.ma.MaskedArray[Any, Any]:
    """Returns what a mesh shows: the rows or sums of the bins, without empty ones."""
    values = histogram.counts if histogram.sums is None else histogram.sums
    scale = 1.0 if histogram.weights is None else _shown(histogram, units)[histogram.weights.name][1]
    shown: numpy.ma.MaskedArray[Any, Any] = numpy.ma.masked_array(values.astype("f8") * scale, histogram.counts == 0).T
    return shown


def draw_mesh(histogram: Histogram, ax: Axes, units: Units | None, options: dict[str, Any]) -> Any:
    """Draws a two-dimensional histogram as a mesh with a colour bar, and names the axes. Empty bins stay blank."""
    y, shown, values = histogram.y or histogram.x, _shown(histogram, units), shown_values(histogram, units)
    ax.set_xlabel(label(histogram.x.name, shown[histogram.x.name][0]))
    ax.set_ylabel(label(y.name, shown[y.name][0]))
    mesh = None
    if histogram.counts.any():
        ends = [drawn_edges(axis.edges, axis.log) * shown[axis.name][1] for axis in (histogram.x, y)]
        if "norm" not in options and not {"vmin", "vmax"} & set(options):
            options = {**options, "norm": color_scale(values.compressed(), histogram.sums is None)}
        mesh = ax.pcolormesh(*ends, values, **{"cmap": "viridis", "rasterized": True, **options})
        ax.set_xscale("log" if histogram.x.log else "linear")
        ax.set_yscale("log" if y.log else "linear")
        color_bar(ax, mesh, _summed(histogram, units))
    else:
        say(ax, "no rows")
    return mesh


def left_out(histogram: Histogram) -> str | None:
    """Returns what the bins leave out, in words."""
    return excluded(outside=histogram.outside, infinite=histogram.infinite, NaN=histogram.nan)


def _draw_pairs(histogram: Histogram, ax: Axes | None, units: Units | None, options: dict[str, Any]) -> Axes:
    """Draws a two-dimensional histogram."""
    ax = axes_of(ax, 6.8, 4.4)
    draw_mesh(histogram, ax, units, options)
    headline(ax, histogram.epochs, histogram.where, left_out(histogram))
    return ax
