"""Two-dimensional histograms, counted by the core."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from turbidite._arguments import PhaseSpaceArguments, Range
from turbidite._axes import LEAST_LOG_COUNT, axes_of, drawn_edges, excluded, headline, label, module, say
from turbidite._checks import access, bin_count, ends, flag, optional_column, predicate
from turbidite._progress import Tell
from turbidite.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from turbidite import _core
    from turbidite.schema import Column, Schema

__all__ = ["PhaseSpace"]


@dataclass(frozen=True, eq=False)
class PhaseSpace:
    """The rows of a query by bins of two columns, as `numpy.histogram2d` counts them.

    Without ``exact=True``, a histogram has estimates within guaranteed bounds. A bin contains its lower edge. The last bin of an axis also contains its upper edge.
    """

    x: Column
    y: Column
    x_edges: numpy.ndarray[Any, Any]
    """The ends of the bins of x, one more than there are bins. Integer columns have edges of integers."""
    y_edges: numpy.ndarray[Any, Any]
    """The ends of the bins of y."""
    counts: numpy.ndarray[Any, Any]
    """The rows of each bin: ``counts[i, j]`` are those in bin i of x and bin j of y."""
    least: numpy.ndarray[Any, Any]
    """At least so many rows are in each bin. If rows were counted exactly, the same as `counts`."""
    most: numpy.ndarray[Any, Any]
    """At most so many rows are in each bin."""
    sums: numpy.ndarray[Any, Any] | None
    """The sum of the weights in each bin, if weights were requested."""
    weights: Column | None
    """The column of the weights."""
    outside: int
    """Rows with finite values that are in no bin."""
    infinite: int
    """Rows with an infinite value, and no NaN."""
    nan: int
    """Rows with a NaN in x or y."""
    epochs: tuple[int, ...]
    """The labels of the epochs."""
    where: str | None
    """The predicate of the rows."""
    log: tuple[bool, bool]
    """Whether the bins of x and of y have equal ratios instead of equal widths."""
    rows: int
    """The number of rows that satisfy the predicate."""
    bounds: dict[str, tuple[int, int]]
    """At least and at most so many ``rows``, and rows that are ``outside``, ``infinite`` and ``nan``."""

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draws the bins as a mesh, and returns the axes. `options` are those of ``Axes.pcolormesh``.

        >>> dataset.phase_space("energy", "id").plot().get_ylabel()
        'id'
        """
        return _draw(self, ax, options)


def _pair(value: Any) -> tuple[Any, Any]:
    """Returns a pair: as given, or one value for both axes."""
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        return value[0], value[1]
    return value, value


def _bins(value: Any) -> tuple[int, int]:
    """Returns the number of bins of both axes."""
    x, y = (bin_count(one) for one in _pair(value))
    if x is None or y is None:
        raise UsageError(f"bins: a number of bins, or a pair of them, is needed, and range for their ends, not {value!r}")
    return x, y


def _ranges(value: Any) -> tuple[Range | None, Range | None]:
    """Returns the ranges of both axes, as `numpy.histogram2d` takes them: ``((x0, x1), (y0, y1))``."""
    stated = _pair(list(value) if isinstance(value, numpy.ndarray) else value)
    x, y = (None if one is None else ends(one) for one in stated)
    if (x is None and stated[0] is not None) or (y is None and stated[1] is not None):
        raise UsageError(f"range: ((x from, x to), (y from, y to)) is needed, and None for a default; not {value!r}")
    return x, y


def count(
    core: _core.Dataset,
    schema: Schema,
    arguments: PhaseSpaceArguments,
    epochs: Sequence[int],
    tell: Tell | None,
) -> PhaseSpace:
    """Counts the rows of a request."""
    stated, counts, weights = core.phase_space(arguments, tell)
    totals = json.loads(stated)
    x_edges, y_edges = (_edges(edges) for edges in totals["edges"])
    shape = (max(len(x_edges) - 1, 0), max(len(y_edges) - 1, 0))
    columns = {column.name: column for column in schema.columns}
    weight = None
    if arguments["weights"] is not None:
        # The core finds columns whatever the case of their letters.
        named = {column.name.lower(): column for column in schema.columns}
        weight = columns.get(arguments["weights"]) or named[arguments["weights"].lower()]
    x, y = totals["columns"]
    least, rows, most = (numpy.asarray(each).reshape(shape) for each in counts)
    sums: dict[str, list[int]] = {name: totals[name] for name in ("rows", "outside", "infinite", "nan")}
    return PhaseSpace(
        x=columns[x],
        y=columns[y],
        x_edges=x_edges,
        y_edges=y_edges,
        counts=rows,
        least=least,
        most=most,
        sums=None if weights is None else numpy.asarray(weights).reshape(shape),
        weights=weight,
        outside=sums["outside"][1],
        infinite=sums["infinite"][1],
        nan=sums["nan"][1],
        epochs=tuple(epochs),
        where=arguments["where"],
        log=arguments["log"],
        rows=sums["rows"][1],
        bounds={name: (least_sum, most_sum) for name, (least_sum, _, most_sum) in sums.items()},
    )


def _edges(stated: list[float | str]) -> numpy.ndarray[Any, Any]:
    """Returns edges as an array: integers exactly."""
    edges = [edge if not isinstance(edge, str) else int(edge) if edge.lstrip("-").isdigit() else float(edge) for edge in stated]
    whole = [edge for edge in edges if isinstance(edge, int)]
    if not whole or len(whole) < len(edges):
        return numpy.array(edges, "f8")
    fitting = [dtype for dtype in ("i8", "u8") if numpy.iinfo(dtype).min <= min(whole) and max(whole) <= numpy.iinfo(dtype).max]
    return numpy.array(edges, fitting[0] if fitting else object)


def arguments(
    x: str,
    y: str,
    *,
    where: str | None,
    box: tuple[str | None, str | None],
    epochs: list[int] | None,
    bins: Any,
    ranges: Any,
    weights: str | None,
    log: Any,
    threads: int | None,
    use: str | None,
    exact: bool,
) -> PhaseSpaceArguments:
    """Checks a request."""
    scales = _pair(log)
    return {
        "columns": (x, y),
        "where": predicate("where", where),
        "box": box[0],
        "period": box[1],
        "epochs": epochs,
        "bins": _bins(bins),
        "ranges": _ranges(ranges),
        "log": (flag("log", scales[0]), flag("log", scales[1])),
        "weights": optional_column("weights", weights),
        "threads": threads,
        "use": access("use", use),
        "exact": exact,
    }


def _norm(values: numpy.ndarray[Any, Any], is_count: bool) -> Any:
    """Returns the colour scale of the values of filled bins: logarithmic, unless there is little to tell apart."""
    colors = module("colors")
    finite = values[numpy.isfinite(values)]
    least, most = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    if is_count:
        return colors.LogNorm(1, most) if most > LEAST_LOG_COUNT else colors.Normalize(0, max(most, 1))
    if least > 0 and most > 10 * least:
        return colors.LogNorm(least, most)
    return colors.Normalize(min(least, 0.0), max(most, 0.0) or 1.0)


def _draw(space: PhaseSpace, ax: Axes | None, options: dict[str, Any]) -> Axes:
    """Draws a two-dimensional histogram as a mesh with a colour bar. Empty bins stay blank."""
    ax = axes_of(ax, 6.8, 4.4)
    filled = space.counts > 0
    values = space.counts if space.sums is None else space.sums
    if filled.any():
        x_edges = drawn_edges(space.x_edges, space.log[0])
        y_edges = drawn_edges(space.y_edges, space.log[1])
        shown = numpy.ma.masked_where(~filled, values.astype("f8")).T
        if "norm" not in options and not {"vmin", "vmax"} & set(options):
            options["norm"] = _norm(values[filled], space.sums is None)
        mesh = ax.pcolormesh(x_edges, y_edges, shown, **{"cmap": "viridis", "rasterized": True, **options})
        weight = space.weights
        words = "rows per bin" if weight is None else f"{label(weight.name, weight.unit)}, summed per bin"
        ax.figure.colorbar(mesh, ax=ax, label=words, pad=0.02)
        ax.set_xscale("log" if space.log[0] else "linear")
        ax.set_yscale("log" if space.log[1] else "linear")
    else:
        say(ax, "no rows")
    ax.set_xlabel(label(space.x.name, space.x.unit))
    ax.set_ylabel(label(space.y.name, space.y.unit))
    left_out = excluded(outside=space.outside, infinite=space.infinite, NaN=space.nan)
    headline(ax, space.epochs, space.where, left_out)
    return ax
