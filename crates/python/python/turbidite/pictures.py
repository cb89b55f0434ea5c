"""Pictures: functions that draw what the core has counted. The methods of datasets and results call them.

Each function draws on given axes or on those of a new figure, and returns the axes. Nothing is shown, and no setting of
matplotlib is changed. matplotlib is imported at the first picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from turbidite._axes import axes_of, drawn_edges, epochs_text, label, line, module, say, text
from turbidite._optional import needed
from turbidite.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from turbidite.distributions import Histogram
    from turbidite.phase_space import PhaseSpace
    from turbidite.schema import Column

    Array = numpy.ndarray[Any, Any]

__all__ = ["draw_histogram", "draw_partitions", "draw_phase_space", "draw_selectivity", "draw_tracks"]

_BLUE, _ORANGE, _RED, _GREY = "#0072B2", "#E69F00", "#D55E00", "#777777"
"""Colours that colour-blind readers can tell apart."""

_KINDS = {
    "regular": (_BLUE, "in its partition"),
    "stray": (_ORANGE, "strays"),
    "unordered": (_RED, "spills"),
    "nan_key": (_GREY, "NaN keys"),
}

_LOG_RATIO = 1000.0
"""Keys that span more than this ratio are drawn on a log scale."""

_LEAST_LOG_COUNT = 10
"""Counts up to this are drawn on a linear scale."""


def _excluded(**rows: int) -> str | None:
    """Returns what a histogram leaves out, in words."""
    found = [f"{count:,} {words.replace('_', ' ')}" for words, count in rows.items() if count]
    return f"not drawn: {', '.join(found)}" if found else None


def _headline(ax: Axes, epochs: Sequence[int], *details: str | None) -> None:
    """Sets the title: the epochs, then a line for each detail that applies."""
    ax.set_title("\n".join([epochs_text(epochs), *(line(one) for one in details if one)]), fontsize="medium")


def draw_histogram(histogram: Histogram, ax: Axes | None = None, **options: Any) -> Axes:
    """Draws the rows of each bin, or the sums if there are any, as steps, and their bounds or errors as a band.

    `options` are those of ``Axes.stairs``.
    """
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
    excluded = _excluded(outside=below + above, infinite=negative + positive, NaN=histogram.nan)
    _headline(ax, histogram.epochs, excluded)
    return ax


def _draw_sums(histogram: Histogram, edges: Array, ax: Axes, options: dict[str, Any]) -> None:
    """Draws the sums of the bins, with a band of their errors where these are known."""
    sums, errors = numpy.asarray(histogram.sums, "f8"), numpy.asarray(histogram.sum_errors, "f8")
    finite = sums[numpy.isfinite(sums)]
    if not len(finite):
        say(ax, "no finite sums")
    elif len(edges):
        options = {"color": _BLUE, "linewidth": 1.3, **options}
        if (errors > 0).any():
            # An error of NaN leaves a gap.
            band = {"color": options["color"], "alpha": 0.25, "linewidth": 0, "label": "± one standard error"}
            ax.stairs(sums + errors, edges, baseline=sums - errors, fill=True, **band)
            ax.stairs(sums, edges, baseline=None, **{"label": "estimate", **options})
            ax.legend(frameon=False)
        else:
            ax.stairs(sums, edges, baseline=None, **{"label": "sums", **options})
        ax.axhline(0, color=_GREY, linewidth=0.8)
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
        options = {"color": _BLUE, "linewidth": 1.3, **options}
        if is_exact:
            ax.stairs(histogram.rows, edges, fill=True, **{**options, "alpha": 0.25, "linewidth": 0})
        else:
            band = {"color": options["color"], "alpha": 0.25, "linewidth": 0, "label": words}
            ax.stairs(high, edges, baseline=low, fill=True, **band)
        ax.stairs(histogram.rows, edges, **{"label": "rows" if is_exact else "estimate", **options})
        if not is_exact:
            ax.legend(frameon=False)
    if most > _LEAST_LOG_COUNT:
        ax.set_yscale("log")
        ax.set_ylim(0.7, most * 1.6)
    else:
        ax.set_ylim(0, max(most, 1) * 1.1)
    ax.set_ylabel("rows per bin")


def _norm(values: Array, is_count: bool) -> Any:
    """Returns the colour scale of the values of filled bins: logarithmic, unless there is little to tell apart."""
    colors = module("colors")
    finite = values[numpy.isfinite(values)]
    least, most = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    if is_count:
        return colors.LogNorm(1, most) if most > _LEAST_LOG_COUNT else colors.Normalize(0, max(most, 1))
    if least > 0 and most > 10 * least:
        return colors.LogNorm(least, most)
    return colors.Normalize(min(least, 0.0), max(most, 0.0) or 1.0)


def draw_phase_space(space: PhaseSpace, ax: Axes | None = None, **options: Any) -> Axes:
    """Draws a two-dimensional histogram as a mesh with a colour bar. Empty bins stay blank.

    `options` are those of ``Axes.pcolormesh``.
    """
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
    excluded = _excluded(outside=space.outside, infinite=space.infinite, NaN=space.nan)
    _headline(ax, space.epochs, space.where, excluded)
    return ax


def _boxes(ax: Axes, left: Array, right: Array, places: Array, **options: Any) -> None:
    """Draws a box of height 0.8 for each row: one artist, however many there are."""
    low, high = places - 0.4, places + 0.4
    corners = numpy.stack(
        [numpy.stack([x, y], axis=-1) for x, y in ((left, low), (right, low), (right, high), (left, high))], axis=1
    )
    ax.add_collection(module("collections").PolyCollection(corners, **options))


def draw_partitions(
    groups: Sequence[Mapping[str, Any]], key: Column, epoch: int, ax: Axes | None = None, *, log: bool | None = None
) -> Axes:
    """Draws the range of keys of each row group by part, and the rows of each part in further axes to the right.

    `groups` are the row groups as ``Dataset.row_groups`` returns them. Ranges that span several orders of magnitude
    are drawn on a log scale, unless `log` is stated.
    """
    ax = axes_of(ax, 7.2, 4.4)
    ranks = sorted({group["rank"] for group in groups})
    places = {rank: place for place, rank in enumerate(ranks)}
    ax.set_xlabel(label(key.name, key.unit))
    ax.set_ylabel("part")
    if not groups:
        say(ax, "no rows")
        _headline(ax, [epoch])
        return ax
    ranges = [group["keys"] for group in groups if group["keys"] is not None]
    finite = numpy.array([end for one in ranges for end in one if numpy.isfinite(float(end))], "f8")
    for kind, (color, words) in _KINDS.items():
        of_kind = [group for group in groups if group["kind"] == kind and group["keys"] is not None]
        if of_kind and len(finite):
            ends = numpy.clip(numpy.array([group["keys"] for group in of_kind], "f8"), finite.min(), finite.max())
            at = numpy.array([places[group["rank"]] for group in of_kind], "f8")
            _boxes(ax, ends[:, 0], ends[:, 1], at, facecolor=(color, 0.35), edgecolor=color, linewidth=0.8, label=words)
    _keys_axis(ax, finite, log)
    _part_ticks(ax, ranks)
    divider = needed("mpl_toolkits.axes_grid1", "pictures", "a picture").make_axes_locatable(ax)
    mean = _draw_loads(divider.append_axes("right", size="30%", pad=0.1, sharey=ax), groups, places)
    if len({group["kind"] for group in groups if group["keys"] is not None}) > 1:
        ax.legend(loc="upper left", frameon=False, fontsize="small")
    total = sum(group["rows"] for group in groups)
    _headline(ax, [epoch], f"{total:,} rows in {len(ranks):,} parts, {mean:,.0f} on average")
    return ax


def _keys_axis(ax: Axes, finite: Array, log: bool | None) -> None:
    if not len(finite):
        say(ax, "no finite keys")
        return
    least, most = float(finite.min()), float(finite.max())
    if log is None:
        log = least > 0 and most > _LOG_RATIO * least
    elif log and least <= 0:
        raise UsageError(f"log: keys begin at {least:g}, and a log scale needs keys above 0")
    if log:
        ax.set_xscale("log")
        ax.set_xlim(least / 1.1, most * 1.1)
    else:
        room = 0.02 * (most - least) or max(abs(most) * 0.05, 0.5)
        ax.set_xlim(least - room, most + room)


def _part_ticks(ax: Axes, ranks: Sequence[int]) -> None:
    ticker = module("ticker")
    ax.set_ylim(-0.6, len(ranks) - 0.4)
    named = ticker.FuncFormatter(lambda place, _: str(ranks[int(place)]) if 0 <= place < len(ranks) else "")
    ax.yaxis.set_major_locator(ticker.MaxNLocator(integer=True, nbins=16))
    ax.yaxis.set_major_formatter(named)


def _draw_loads(ax: Axes, groups: Sequence[Mapping[str, Any]], places: Mapping[int, int]) -> float:
    """Draws the rows of each part, and returns their mean."""
    at = numpy.arange(len(places), dtype="f8")
    begin = numpy.zeros(len(places))
    for kind, (color, _) in _KINDS.items():
        rows = numpy.zeros(len(places))
        for group in groups:
            if group["kind"] == kind:
                rows[places[group["rank"]]] += group["rows"]
        if rows.any():
            _boxes(ax, begin, begin + rows, at, facecolor=color, linewidth=0)
            begin = begin + rows
    mean = float(begin.mean())
    ax.axvline(mean, color="black", linewidth=0.8, linestyle="--")
    ax.set_xlim(0, begin.max() * 1.08 or 1)
    ax.set_xlabel("rows")
    ax.xaxis.set_major_locator(module("ticker").MaxNLocator(2, integer=True))
    ax.xaxis.set_major_formatter(module("ticker").EngFormatter(sep=""))
    ax.tick_params(axis="y", labelleft=False)
    return mean


def draw_selectivity(profile: Mapping[str, Any], key: Column, ax: Axes | None = None, **options: Any) -> Axes:
    """Draws the share of an epoch's rows that a query for one key touches, over the percentiles of the key.

    The axis on the right is the read amplification: these rows over those of a perfectly balanced part. `profile` is
    a dict as ``Dataset.key_profile`` returns it. `options` are those of ``Axes.plot``.
    """
    ax = axes_of(ax, 6.4, 4.0)
    points = profile["points"]
    parts = max(int(profile["receivers"]), 1)
    if points:
        percentiles = [point["percentile"] for point in points]
        shares = [100 * point["share"] for point in points]
        ax.plot(percentiles, shares, **{"color": _BLUE, "linewidth": 1.3, "drawstyle": "steps-mid", **options})
        ax.axhline(100 / parts, color=_GREY, linewidth=0.8, linestyle="--")
        words = f"one of {parts:,} balanced parts"
        at = ax.get_yaxis_transform()
        ax.text(0.99, 100 / parts, words, transform=at, ha="right", va="bottom", fontsize="small", color=_GREY)
        ax.set_ylim(0, max(100 / parts, *shares) * 1.15)
        forth, back = (lambda share: share * parts / 100), (lambda amplification: amplification * 100 / parts)
        ax.secondary_yaxis("right", functions=(forth, back)).set_ylabel("read amplification")
    else:
        say(ax, "no rows")
    ax.set_xlim(0, 100)
    ax.set_xlabel(f"percentile of {text(key.name)}")
    ax.set_ylabel("rows to read for one key (% of the epoch)")
    _headline(ax, [profile["epoch"]])
    return ax


def draw_tracks(
    rows: Mapping[str, Array],
    columns: Mapping[str, str],
    epochs: Sequence[int],
    ax: Axes | None = None,
    *,
    is_cut: bool = False,
    periods: Sequence[float | None] = (None, None),
    **options: Any,
) -> Axes:
    """Draws trajectories as lines. `is_cut` states that there are further ones.

    `rows` has the arrays ``id``, ``epoch``, ``x``, ``y`` and maybe ``color``, ordered by id, then by epoch. `columns`
    has the label of each array that is drawn. `epochs` are those at which a particle can be: a line has a gap where
    the particle is missing at one, or has no finite coordinates, and where it moves by more than half a period of ``x`` or
    ``y``, `periods`: it has left the domain at one side and entered at the other. A particle at one epoch is a point. So are all rows of
    an id that occurs twice in an epoch, since nothing tells which of them belong together. `options` are those of
    ``LineCollection``.
    """
    ax = axes_of(ax, 6.8 if "color" in rows else 6.0, 4.6)
    positions = numpy.stack([rows["x"].astype("f8"), rows["y"].astype("f8")], axis=-1)
    finite = numpy.isfinite(positions).all(axis=1)
    joined = _joined(rows["id"], numpy.searchsorted(numpy.array(epochs, "u8"), rows["epoch"]), finite)
    for along, period in enumerate(periods):
        if period is not None:
            joined &= ~(numpy.abs(numpy.diff(positions[:, along])) > period / 2)
    alone = finite.copy()
    alone[:-1] &= ~joined
    alone[1:] &= ~joined
    lines, points = _track_styles(rows, joined, alone, options)
    mappable = None
    if joined.any():
        segments = numpy.stack([positions[:-1][joined], positions[1:][joined]], axis=1)
        if "array" in lines:
            # The largest values are drawn last, on top of the others.
            order = numpy.argsort(lines["array"].filled(-numpy.inf), kind="stable")
            segments, lines["array"] = segments[order], lines["array"][order]
        mappable = ax.add_collection(module("collections").LineCollection(segments, **lines))
    if alone.any():
        dots = ax.scatter(*positions[alone].T, **points)
        mappable = mappable or dots
    if mappable is None:
        say(ax, "no rows")
    elif "color" in rows:
        ax.figure.colorbar(mappable, ax=ax, label=columns["color"], pad=0.02)
    ax.autoscale_view()
    ax.set_xlabel(columns["x"])
    ax.set_ylabel(columns["y"])
    particles = len(numpy.unique(rows["id"]))
    drawn = f"{'first ' if is_cut else ''}{particles:,} {'track' if particles == 1 else 'tracks'}"
    _headline(ax, epochs, drawn)
    return ax


def _joined(ids: Array, places: Array, finite: Array) -> Array:
    """Returns for each row but the last whether a line leads to the next row."""
    same = ids[1:] == ids[:-1]
    steps = numpy.diff(places)
    repeated = numpy.unique(ids[1:][same & (steps == 0)])
    joined: Array = same & (steps == 1) & finite[1:] & finite[:-1] & ~numpy.isin(ids[1:], repeated)
    return joined


def _track_styles(
    rows: Mapping[str, Array], joined: Array, alone: Array, options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the options of lines and of points, which have one colour scale."""
    particles = max(len(numpy.unique(rows["id"])), 1)
    lines: dict[str, Any] = {"linewidths": 1.0 if particles <= 200 else 0.6, **options}
    points: dict[str, Any] = {"s": 9, "linewidths": 0, "zorder": 3}
    if "color" not in rows:
        color = options.get("color", options.get("colors", _BLUE))
        lines = {"alpha": min(1.0, max(0.15, 60 / particles)), **lines}
        if not {"color", "colors"} & set(options):
            lines["color"] = color
        return lines, {**points, "color": color, "alpha": lines["alpha"]}
    lines.setdefault("capstyle", "round")
    values = rows["color"].astype("f8")
    # A segment has the mean of its ends.
    between = values[:-1][joined] / 2 + values[1:][joined] / 2
    drawn = numpy.concatenate([between, values[alone]])
    finite = drawn[numpy.isfinite(drawn)]
    norm = options.get("norm") or module("colors").Normalize(*((finite.min(), finite.max()) if len(finite) else (0, 1)))
    cmap = options.get("cmap", "viridis")
    lines.update(array=numpy.ma.masked_invalid(between), norm=norm, cmap=cmap)
    points.update(c=numpy.ma.masked_invalid(values[alone]), norm=norm, cmap=cmap, plotnonfinite=True)
    return lines, points
