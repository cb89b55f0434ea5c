"""Pictures of partitions, selectivity and trajectories. The methods of datasets and results call these functions.

Each function draws on given axes or on those of a new figure, and returns the axes. Nothing is shown, and no setting of
matplotlib is changed. matplotlib is imported at the first picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from turbidite._axes import BLUE, GREY, ORANGE, RED, axes_of, color_bar, headline, label, module, say, text
from turbidite._optional import needed
from turbidite.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from turbidite.schema import Column

    Array = numpy.ndarray[Any, Any]

__all__ = ["draw_partitions", "draw_selectivity", "draw_tracks"]

_KINDS = {
    "regular": (BLUE, "in its partition"),
    "stray": (ORANGE, "strays"),
    "unordered": (RED, "spills"),
    "nan_key": (GREY, "NaN keys"),
}

_LOG_RATIO = 1000.0
"""Keys that span more than this ratio are drawn on a log scale."""


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
        headline(ax, [epoch])
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
    headline(ax, [epoch], f"{total:,} rows in {len(ranks):,} parts, {mean:,.0f} on average")
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
        ax.plot(percentiles, shares, **{"color": BLUE, "linewidth": 1.3, "drawstyle": "steps-mid", **options})
        ax.axhline(100 / parts, color=GREY, linewidth=0.8, linestyle="--")
        words = f"one of {parts:,} balanced parts"
        at = ax.get_yaxis_transform()
        ax.text(0.99, 100 / parts, words, transform=at, ha="right", va="bottom", fontsize="small", color=GREY)
        ax.set_ylim(0, max(100 / parts, *shares) * 1.15)
        forth, back = (lambda share: share * parts / 100), (lambda amplification: amplification * 100 / parts)
        ax.secondary_yaxis("right", functions=(forth, back)).set_ylabel("read amplification")
    else:
        say(ax, "no rows")
    ax.set_xlim(0, 100)
    ax.set_xlabel(f"percentile of {text(key.name)}")
    ax.set_ylabel("rows to read for one key (% of the epoch)")
    headline(ax, [profile["epoch"]])
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
    joined = _joined(rows["id"], numpy.searchsorted(numpy.array(epochs, "i8"), rows["epoch"]), finite)
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
    ax.autoscale_view()
    ax.set_xlabel(columns["x"])
    ax.set_ylabel(columns["y"])
    if mappable is None:
        say(ax, "no rows")
    elif "color" in rows:
        color_bar(ax, mappable, columns["color"])
    particles = len(numpy.unique(rows["id"]))
    drawn = f"{'first ' if is_cut else ''}{particles:,} {'track' if particles == 1 else 'tracks'}"
    headline(ax, epochs, drawn)
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
        color = options.get("color", options.get("colors", BLUE))
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
