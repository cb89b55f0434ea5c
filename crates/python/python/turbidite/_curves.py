"""Curves over bins: in distinct colours, with one legend, also if several calls draw on the same axes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy

from turbidite._axes import BLUE, GREY, MIN_LOG_COUNT, ORANGE, RED, color_bar, headline, legend, module, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Array = numpy.ndarray[Any, Any]

__all__ = ["BAND", "MAX_NAMED", "curve_label", "curves", "draw_epochs", "fit", "free_colors", "name_axes", "title"]

_COLORS = (BLUE, RED, "#009E73", ORANGE, "#CC79A7", "#56B4E9", "#000000", "#8C564B", "#6A3D9A", "#9ACD32", "#7F0000", "#00CED1")
"""Distinct colours; colour-blind readers can tell the first ones apart."""

_HUE_STEP = (5**0.5 - 1) / 2
"""Multiples of the golden section are far from each other on the circle of hues."""

MAX_NAMED = 8
"""More epochs of one call have a colour bar in place of a legend and bands."""

BAND: dict[str, Any] = {"alpha": 0.25, "linewidth": 0, "fill": True, "zorder": 0.9}
"""The style of bands, which are below all curves."""


def curves(ax: Axes) -> list[Any]:
    """Returns the curves and bands on axes, of earlier calls as well."""
    steps = module("patches").StepPatch
    return [patch for patch in ax.patches if isinstance(patch, steps)]


def free_colors(ax: Axes, count: int) -> list[Any]:
    """Returns distinct colours that no line and no curve of the axes has."""
    colors = module("colors")
    used = {colors.to_hex(patch.get_edgecolor()) for patch in ax.patches}
    used |= {colors.to_hex(line.get_color()) for line in ax.lines}
    hues = (colors.hsv_to_rgb((number * _HUE_STEP % 1, 0.8, 0.75)) for number in itertools.count())
    known = (colors.to_hex(one) for one in itertools.chain(_COLORS, hues))
    return list(itertools.islice((color for color in known if color not in used), count))


def curve_label(ax: Axes, base: str, where: str | None, quantity: str, *, distinct: str) -> str:
    """Returns the label of a curve: with the predicate, and with what differs from earlier curves.

    `quantity` is the label of the values, and `distinct` is added if there is such a curve.
    """
    found = base if where is None else f"{base}, {one_line(where)}"
    if ax.get_ylabel() and curves(ax) and quantity not in ax.get_ylabel().split("; "):
        found = f"{found}, {quantity}"
    return f"{found}, {one_line(distinct)}" if found in ax.get_legend_handles_labels()[1] else found


def draw_epochs(
    ax: Axes,
    edges: Array,
    epochs: Sequence[int],
    lines: tuple[Array, Array, Array],
    *,
    labels: Sequence[str],
    bar: str,
    options: dict[str, Any],
) -> list[Any]:
    """Draws a curve for each epoch, and returns their colours. `lines` has arrays of (epochs, bins): values, and the ends of bands.

    Up to eight curves have bands and `labels`; more have the colours of a colour bar, which is called `bar`. `options` are those of
    ``Axes.stairs``, and ``cmap``.
    """
    options = dict(options)
    cmap = options.pop("cmap", "viridis")
    is_named = len(epochs) <= MAX_NAMED
    colors: list[Any] = free_colors(ax, len(epochs))
    if not is_named:
        shades = module("pyplot").get_cmap(cmap)(numpy.linspace(0, 0.92, 256))
        scale = module("cm").ScalarMappable(
            module("colors").Normalize(min(epochs), max(epochs)), module("colors").ListedColormap(shades)
        )
        colors = list(scale.to_rgba(numpy.array(epochs, "f8")))
        color_bar(ax, scale, bar)
    if "color" in options:
        colors = [options["color"]] * len(epochs)
    for label, color, value, low, high in zip(labels, colors, *lines, strict=True):
        style = {"linewidth": 1.3 if is_named else 0.9, **options, "color": color, "label": label if is_named else "_curve"}
        if is_named and numpy.isfinite(high).any():
            # Without a value there is a gap.
            ax.stairs(high, edges, baseline=low, color=color, **BAND)
        ax.stairs(value, edges, baseline=None, **style)
    return colors


def fit(ax: Axes, is_log: bool, *, from_zero: bool, is_count: bool = False) -> None:
    """Sets scales and limits so that all curves and bands are visible.

    With `from_zero`, values that span more than a factor of ten, and more than a few rows, have a log scale, unless some are
    negative; others have an axis from zero.
    """
    drawn = curves(ax)
    edges = numpy.concatenate([patch.get_data().edges for patch in drawn])
    ax.set_xscale("log" if is_log and edges.min() > 0 else "linear")
    ax.set_xlim(edges.min(), edges.max())
    if ax.get_xscale() == "log" and edges.max() > 10 * edges.min():
        # Numbers between the powers of ten would overlap.
        ax.xaxis.set_minor_formatter(module("ticker").NullFormatter())
    tops = numpy.concatenate([patch.get_data().values for patch in drawn])
    feet = [numpy.ravel(foot) for patch in drawn if (foot := patch.get_data().baseline) is not None]
    low, high = _extent(numpy.concatenate([tops, *feet]))
    positive = tops[(tops > 0) & (tops < numpy.inf)]
    least, most = (float(positive.min()), float(positive.max())) if len(positive) else (0.0, 0.0)
    if from_zero and not (tops < 0).any() and most > (MIN_LOG_COUNT if is_count else 10 * least):
        ax.set_yscale("log")
        ax.set_ylim(min(0.7, least / 2) if is_count else least / 2, high * 1.6)
        return
    ax.set_yscale("linear")
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    ax.set_ylim(low - room if low < 0 or not from_zero else 0.0, high + room)
    if low < 0 < high and from_zero:
        ax.axhline(0, color=GREY, linewidth=0.8, zorder=0.8)


def _extent(values: Array) -> tuple[float, float]:
    finite = values[numpy.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)


def name_axes(ax: Axes, x: str, y: str, *, is_first: bool) -> None:
    """Sets the labels of the axes. Curves of several quantities have all of their names."""
    for setter, earlier, words in ((ax.set_xlabel, ax.get_xlabel(), x), (ax.set_ylabel, ax.get_ylabel(), y)):
        known = earlier.split("; ") if earlier and not is_first else []
        setter("; ".join(known if words in known else [*known, words]))


def title(
    ax: Axes, epochs: Sequence[int], where: str | None, left_out: str | None, *, band: str | None, is_first: bool
) -> None:
    """Sets the title, and draws the legend if there is more than one curve or a band. The legend has what differs between calls."""
    if is_first:
        headline(ax, epochs, where, left_out)
    else:
        kept = [line for line in ax.get_title().split("\n") if line.startswith("not drawn")]
        ax.set_title("\n".join([*kept, *([left_out] if left_out else [])]), fontsize="medium")
    if band or len(ax.get_legend_handles_labels()[1]) > 1:
        earlier = ax.get_legend()
        known = earlier.get_title().get_text().split("\n") if earlier else []
        legend(ax, "\n".join(known if band is None or band in known else [*known, band]) or None)
