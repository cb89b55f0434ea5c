"""Spectra and profiles: sums and means over the rows of bins, for each epoch, from aggregates."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

import numpy

from turbidite._arguments import Range
from turbidite._axes import axes_of, epochs_text, excluded, say, shown_units, text, unit_label
from turbidite._axes import label as _label
from turbidite._checks import bin_count, column_named, ends, flag, optional_column
from turbidite._curves import MAX_NAMED, curve_label, curves, draw_epochs, fit, name_axes, title
from turbidite._tables import clipped
from turbidite._units import Units
from turbidite.errors import UsageError
from turbidite.histograms import HistogramAxis, bins_text
from turbidite.schema import Column, Schema

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from turbidite.aggregates import Aggregates

    Array = numpy.ndarray[Any, Any]

__all__ = ["Profile", "Request", "Spectrum", "profile", "spectrum"]


class Rows(Protocol):
    """Aggregates the rows of a request, as ``Dataset.aggregate`` does."""

    def __call__(self, aggregates: Mapping[str, str], by: Sequence[str] | str | None = None) -> Aggregates: ...


@dataclass(frozen=True)
class Request:
    """What spectra and profiles have in common. Checks the bins."""

    path: str
    schema: Schema
    rows: Rows
    where: str | None
    weights: str | None
    bins: int
    range: Range | None
    log: bool

    @classmethod
    def checked(
        cls, path: str, schema: Schema, rows: Rows, where: Any, weights: Any, bins: Any, range: Any, log: Any
    ) -> Request:
        """Returns a request, or refuses it."""
        count, stated, is_log = bin_count(bins), None if range is None else ends(range), flag("log", log)
        if count is None:
            raise UsageError(f"bins: a number of bins is needed, and range=(from, to) for their ends, not {bins!r}")
        if stated is None and range is not None:
            raise UsageError(f"range: a pair of numbers, (from, to), is needed, not {range!r}")
        if stated is not None and not (0 if is_log else -math.inf) < stated[0] < stated[1] < math.inf:
            above = ", above 0" if is_log else ""
            raise UsageError(f"range: finite ascending numbers are needed{above}, not {range!r}")
        return cls(path, schema, rows, where, optional_column("weights", weights), count, stated, is_log)

    def column(self, name: str) -> tuple[Column, str]:
        """Returns a column and its text in expressions. Any other name is an expression."""
        named = column_named(name, self.schema.names)
        known = next((column for column in self.schema.columns if column.name == named), None)
        quoted = named.replace('"', '""')
        return (Column(name, "f64"), name) if known is None else (known, f'"{quoted}"')


@dataclass(frozen=True, eq=False, repr=False)
class _Binned:
    """Numbers by epoch and bin. Arrays have a row for each epoch, and an element for each bin."""

    path: str
    """The folder of the dataset."""
    x: HistogramAxis
    """The bins. A bin contains its lower edge, and the last one its upper edge, too."""
    epochs: tuple[int, ...]
    """The labels of the epochs."""
    counts: numpy.ndarray[Any, Any]
    """The rows of each bin."""
    rows: int
    """The number of rows that are selected."""
    outside: int
    """The number of these rows that are in no bin: outside its range, or NaN."""
    where: str | None
    """The predicate of the rows."""
    weights: Column | None
    """The weights of the rows."""

    def __repr__(self) -> str:
        of = f"{self._words()}{bins_text(self.x)}"
        return f"<{type(self).__name__} of {of}; {self.rows:,} rows, {epochs_text(self.epochs)}>"

    def _words(self) -> str:
        """Returns what comes before the bins in the text of the object."""
        return ""

    def _draw(
        self,
        ax: Axes | None,
        edges: Array,
        lines: tuple[Array, Array, Array],
        band: str,
        words: tuple[str, str],
        named: str | None,
        options: dict[str, Any],
    ) -> tuple[Axes, list[Any]]:
        """Draws a curve for each epoch. Returns the axes and the colours."""
        ax = axes_of(ax, 6.4, 4.0)
        is_first, colors = not curves(ax), list[Any]()
        if len(edges) and len(self.epochs):
            names = [f"epoch {epoch}" for epoch in self.epochs]
            if named is None:
                distinct = PurePath(self.path).name
                names = [curve_label(ax, name, self.where, words[1], distinct=distinct) for name in names]
            else:
                names = [named] if len(names) == 1 else [f"{named}, {name}" for name in names]
            bar = "epoch" if named is None else f"epoch of {named}"
            colors = draw_epochs(ax, edges, self.epochs, lines, labels=names, bar=bar, options=options)
            fit(ax, self.x.log, from_zero=isinstance(self, Spectrum))
        elif is_first:
            say(ax, "no rows")
        name_axes(ax, *words, is_first=is_first)
        shown = band if colors and len(colors) <= MAX_NAMED and numpy.isfinite(lines[1]).any() else None
        title(ax, self.epochs, self.where, excluded(outside=self.outside), band=shown, is_first=is_first)
        return ax, colors


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum(_Binned):
    """The rows, or the sum of their weights, by bins of a column, for each epoch."""

    values: numpy.ndarray[Any, Any]
    """The rows of each bin or the sum of their weights; with `per_width`, divided by the width of the bin."""
    errors: numpy.ndarray[Any, Any]
    """The standard errors of the values: √n or √Σw², divided likewise."""
    per_width: bool

    def plot(self, ax: Axes | None = None, *, label: str | None = None, units: Units | None = None, **options: Any) -> Axes:
        """Draws a curve for each epoch, with a band of one standard error, and returns the axes.

        Further spectra on the same axes have other colours, and share the legend; `label` names them there. More than eight
        epochs have a colour bar and no bands. `units` states the units to show, such as ``{"energy": "keV"}``. `options` are
        those of ``Axes.stairs``, and ``cmap``.

        >>> dataset.spectrum("energy", bins=20).plot().get_ylabel()
        'dN/d(energy)'
        """
        stored = {self.x.name: self.x.unit} | ({} if (w := self.weights) is None else {w.name: w.unit})
        shown = shown_units(units, stored)
        unit, factor = shown[self.x.name]
        of_weights, scale = (None, 1.0) if w is None else shown[w.name]
        edges = self.x.edges * factor
        scale = scale / factor if self.per_width else scale
        words = (_label(self.x.name, unit), self._quantity(unit, of_weights))
        lines = _with_band(self.values * scale, self.errors * scale)
        return self._draw(ax, edges, lines, "bands: ± one standard error", words, label, options)[0]

    def _quantity(self, unit: str | None, of_weights: str | None) -> str:
        """Returns the label of the values."""
        if not self.per_width:
            return "rows per bin" if self.weights is None else f"{_label(self.weights.name, of_weights)}, summed per bin"
        summed = "N" if self.weights is None else f"({text(self.weights.name)})"
        found = f"d{summed}/d({text(self.x.name)})"
        if unit is None and of_weights is None:
            return found
        below = "" if unit is None else unit_label(unit)
        over = "1" if of_weights is None else unit_label(of_weights)
        below = f"({below})" if re.search(r"[ ,/]", below) else below
        return f"{found} ({over}{'/' * bool(below)}{below})"


@dataclass(frozen=True, eq=False, repr=False)
class Profile(_Binned):
    """The mean and the spread of a column by bins of another, for each epoch. Bins without rows have NaN."""

    column: Column
    """The column of the means."""
    means: numpy.ndarray[Any, Any]
    stds: numpy.ndarray[Any, Any]
    """The standard deviations of the rows."""
    errors: numpy.ndarray[Any, Any]
    """The standard errors of the means: those of the rows, divided by the root of their effective number, (Σw)²/Σw²."""

    def plot(self, ax: Axes | None = None, *, label: str | None = None, units: Units | None = None, **options: Any) -> Axes:
        """Draws the means of each epoch with error bars, and a band of one standard deviation, and returns the axes.

        The arguments are those of :meth:`Spectrum.plot`.

        >>> dataset.profile("id", by="energy", bins=20).plot().get_ylabel()
        'mean of id'
        """
        shown = shown_units(units, {self.x.name: self.x.unit, self.column.name: self.column.unit})
        unit, factor = shown[self.x.name]
        of_column, scale = shown[self.column.name]
        edges = self.x.edges * factor
        words = (_label(self.x.name, unit), f"mean of {_label(self.column.name, of_column)}")
        lines = _with_band(self.means * scale, self.stds * scale)
        ax, colors = self._draw(ax, edges, lines, "bands: ± one standard deviation", words, label, options)
        if colors and len(colors) <= MAX_NAMED:
            centers = numpy.sqrt(edges[1:] * edges[:-1]) if self.x.log else (edges[1:] + edges[:-1]) / 2
            for color, mean, error in zip(colors, lines[0], self.errors * scale, strict=True):
                ax.errorbar(centers, mean, error, fmt="none", ecolor=color, elinewidth=1)
        return ax

    def _words(self) -> str:
        return f"{clipped(self.column.name)} by "


def _with_band(values: Array, errors: Array) -> tuple[Array, Array, Array]:
    """Returns the values, and the ends of their bands. Those of infinite values are NaN."""
    with numpy.errstate(all="ignore"):
        return values, values - errors, values + errors


def spectrum(request: Request, column: str, per_width: bool) -> Spectrum:
    """Computes the result of ``Dataset.spectrum``."""
    summed = "count()" if request.weights is None else f"sum({request.column(request.weights)[1]})"
    shared, arrays = _binned(request, column, {"sums": summed, "errors": f"error({summed})"})
    widths = numpy.diff(shared["x"].edges) if per_width else 1.0
    return Spectrum(**shared, values=arrays["sums"] / widths, errors=arrays["errors"] / widths, per_width=per_width)


def profile(request: Request, column: str, by: str) -> Profile:
    """Computes the result of ``Dataset.profile``."""
    of, value = request.column(column)
    wanted = {}
    if request.weights is not None:
        weight = request.column(request.weights)[1]
        value, wanted = f"{value}, {weight}", {"effective": f"n_eff({weight})"}
    shared, arrays = _binned(request, by, {"means": f"mean({value})", "stds": f"std({value})", **wanted})
    with numpy.errstate(all="ignore"):
        errors = arrays["stds"] / numpy.sqrt(arrays.get("effective", arrays["rows"]))
    return Profile(**shared, column=of, means=arrays["means"], stds=arrays["stds"], errors=errors)


def _binned(request: Request, name: str, wanted: dict[str, str]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Aggregates the rows by epoch and by bins of a column. Returns the fields that all results have, and the aggregates."""
    column, number = request.column(name)
    low, high, count = _span(request, number)
    wanted = {"rows": "count()", **wanted}
    if math.isnan(low):
        found, edges, count = request.rows({"rows": "count()"}, "epoch"), numpy.zeros(0), 1
        arrays = dict.fromkeys(wanted, numpy.zeros((len(found), 0)))
    else:
        term = f"log10({number}), log10({low!r}), log10({high!r})" if request.log else f"{number}, {low!r}, {high!r}"
        found = request.rows(wanted, ["epoch", f"bin = bins({term}, {count})"])
        table = found.to_numpy()
        arrays = {of: table[of].reshape(-1, count).astype("f8") for of in wanted}
        edges = numpy.append(table["bin_from"][:count], table["bin_to"][count - 1 : count])
        if request.log:
            # The ends are those of the request, not rounded by the powers.
            edges = numpy.concatenate([[low], 10.0 ** edges[1:-1], [high]])
    shared = {
        "path": request.path,
        "x": HistogramAxis(column.name, column.unit, edges, request.log, numpy.diff(edges)),
        "epochs": tuple(found["epoch"][::count].tolist()),
        "counts": arrays["rows"],
        "rows": found.rows,
        "outside": found.outside if len(edges) else found.rows,
        "where": request.where,
        "weights": None if request.weights is None else request.column(request.weights)[0],
    }
    return shared, arrays


def _span(request: Request, number: str) -> tuple[float, float, int]:
    """Returns the ends of the bins, and their number: unless stated, those of all finite values, and NaN if there are none."""
    if request.range is not None:
        return *request.range, request.bins
    count, is_log = request.bins, request.log
    low, high = _extremes(request, number)
    if math.isinf(low) or math.isinf(high) or (is_log and low <= 0):
        usable = f"{number} > 0 and {number} < inf" if is_log else f"abs({number}) < inf"
        low, high = _extremes(request, f"if({usable}, {number}, nan)")
    if isinstance(low, int) and isinstance(high, int) and not is_log:
        # Each bin has the same number of integers.
        step = -(-(high + 1 - low) // count)
        count = -(-(high + 1 - low) // step)
        return low, low + step * count, count
    if low == high:
        room = max(0.5, abs(low) * 1e-6)
        return (low / 1.1, high * 1.1, count) if is_log else (low - room, high + room, count)
    return low, high, count


def _extremes(request: Request, number: str) -> tuple[float, float]:
    """Returns the least and the greatest value: integers exactly, NaN if there is none."""
    found = request.rows({"low": f"min({number})", "high": f"max({number})"})
    [low], [high] = found["low"].tolist(), found["high"].tolist()
    return (math.nan, math.nan) if low is None or high is None else (low, high)
