"""Axes, labels and titles of pictures."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from turbidite._optional import needed
from turbidite._units import Units, in_math, ratio
from turbidite.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Array = numpy.ndarray[Any, Any]

__all__ = [
    "BLUE",
    "GREY",
    "MIN_LOG_COUNT",
    "ORANGE",
    "RED",
    "axes_of",
    "color_bar",
    "drawn_edges",
    "epochs_text",
    "excluded",
    "headline",
    "label",
    "legend",
    "module",
    "one_line",
    "say",
    "shown_units",
    "text",
    "unit_label",
    "unit_text",
]

BLUE, ORANGE, RED, GREY = "#0072B2", "#E69F00", "#D55E00", "#777777"
"""Colours that colour-blind readers can tell apart."""

MIN_LOG_COUNT = 10
"""Counts up to this are drawn on a linear scale."""

_LINE_CHARACTERS = 64
"""Longer lines of titles are cut: they would leave the figure."""

_BAR_PAD = 0.02
"""The gap between axes and a colour bar, of the width of the axes."""

_BAR_SHARE, _MAX_BAR_SHARE = 0.15, 0.6
"""The share of a colour bar with its labels, unless these are wider, and at most."""

_LABELS_INCHES = 0.6
"""Width that is left for the numbers and the label of an axis."""

_LEGEND_LINES = 14
"""Longer legends have several columns."""

_PREFIXES = {-15: "f", -12: "p", -9: "n", -6: "µ", -3: "m", 3: "k", 6: "M", 9: "G", 12: "T"}
_SYMBOLS = frozenset(("m", "s", "A", "K", "V", "J", "N", "T", "W", "C", "g", "eV", "Pa", "Hz", "rad"))
"""Units of one symbol that take a prefix."""


def module(name: str) -> Any:
    """Imports a module of matplotlib."""
    return needed(f"matplotlib.{name}", "pictures", "a picture")


def axes_of(ax: Axes | None, width: float, height: float) -> Axes:
    """Returns the given axes, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    _, made = module("pyplot").subplots(figsize=(width, height), layout="constrained")
    found: Axes = made
    return found


def text(words: str) -> str:
    """Escapes a text: dollars would begin a formula."""
    return words.replace("$", r"\$")


def unit_text(unit: str) -> str:
    """Returns a unit with its factor as a prefix, where there is one: ``1e-06 m`` is ``µm``."""
    found = re.fullmatch(r"(\d[\d.]*(?:[eE][+-]?\d+)?) (\S.*)", unit)
    if not found:
        return unit
    factor, symbol = float(found[1]), found[2]
    exponent = round(math.log10(factor)) if 0 < factor < math.inf else None
    if exponent == 0 and factor == 1:
        return symbol
    if exponent in _PREFIXES and symbol in _SYMBOLS and math.isclose(factor, 10.0**exponent, rel_tol=1e-12):
        return _PREFIXES[exponent] + symbol
    return unit


def unit_label(unit: str) -> str:
    """Returns a unit as pictures show it: as a formula if it has powers or constants."""
    short = unit_text(unit)
    return in_math(short) or text(short)


def label(name: str, unit: str | None) -> str:
    """Returns the label of a column: its name, and its unit in parentheses."""
    return f"{text(name)} ({unit_label(unit)})" if unit else text(name)


def shown_units(units: Units | None, columns: Mapping[str, str | None]) -> dict[str, tuple[str | None, float]]:
    """Returns the unit in which a picture shows each of its columns, and the factor of the values to it.

    `columns` has the stored units by name.
    """
    stated = dict(units or {})
    if unknown := [name for name in stated if name not in columns]:
        raise UsageError(f"units: '{unknown[0]}' is not shown; the picture has {', '.join(columns)}")
    return {name: (stated.get(name, unit), ratio(name, unit, stated.get(name))) for name, unit in columns.items()}


def color_bar(ax: Axes, mappable: Any, words: str) -> None:
    """Draws a colour bar beside the axes, within the place that the axes have had."""
    figure: Any = ax.figure
    width, share = ax.get_window_extent().width, _BAR_SHARE
    while True:
        bar = figure.colorbar(mappable, ax=ax, label=words, pad=_BAR_PAD, fraction=share)
        if figure.get_layout_engine() is not None:
            return
        # Nothing else keeps the labels of the bar out of the next axes, or out of those of an earlier bar.
        excess = bar.ax.get_tightbbox().x1 - _room(ax, bar.ax)
        if excess <= 0 or share == _MAX_BAR_SHARE:
            return
        bar.remove()
        share = min(share + excess / width + _BAR_PAD / 2, _MAX_BAR_SHARE)


def _room(ax: Axes, bar: Any) -> float:
    """Returns where the place to the right of the axes ends, in pixels: at the labels of what is there, or of the figure."""
    own, end = ax.get_window_extent(), float(ax.figure.bbox.x1)
    labels = max(own.x0 - _left(ax), _LABELS_INCHES * ax.figure.dpi)
    for other in ax.figure.axes:
        box = other.get_window_extent()
        if other not in (ax, bar) and box.x0 > own.x0 and box.y0 < own.y1 and own.y0 < box.y1:
            # Other axes may get labels, or longer ones, later.
            is_bar = other.get_label() == "<colorbar>"
            end = min(end, _left(other), box.x0 if is_bar else box.x0 - labels)
    return end


def _left(ax: Any) -> float:
    """Returns where axes with their labels begin, in pixels."""
    labels = ax.yaxis.get_tightbbox()
    begin: float = ax.get_window_extent().x0
    return begin if labels is None else min(begin, labels.x0)


def legend(ax: Axes, title: str | None = None) -> None:
    """Draws one legend of all that has a label."""
    _, names = ax.get_legend_handles_labels()
    columns = 1 + (len(names) - 1) // _LEGEND_LINES
    small: dict[str, Any] = {"fontsize": "small", "title_fontsize": "small", "alignment": "left"}
    ax.legend(edgecolor="none", framealpha=0.7, title=title, ncols=max(columns, 1), **small)


def say(ax: Axes, words: str) -> None:
    """Writes a few words where a picture would be."""
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center", color="0.4")


def drawn_edges(edges: Array, log: bool) -> Array:
    """Returns edges as they are drawn, so that every bin has a width.

    The last bin of integers contains its upper edge, and so reaches up to the next integer.
    """
    drawn = edges.astype("f8")
    if edges.dtype.kind in "iuO" and len(drawn):
        drawn[-1] += 1
    if len(drawn) == 2 and drawn[0] == drawn[1]:
        value = drawn[0]
        if log:
            return numpy.array([value / 1.1, value * 1.1])
        half = max(0.5, abs(value) * 1e-6) if abs(value) >= 1 else abs(value) / 2 or 0.5
        return numpy.array([value - half, value + half])
    return drawn


def excluded(**rows: int) -> str | None:
    """Returns what a histogram leaves out, in words."""
    found = [f"{count:,} {words.replace('_', ' ')}" for words, count in rows.items() if count]
    return f"not drawn: {', '.join(found)}" if found else None


def epochs_text(epochs: Sequence[int]) -> str:
    """Returns the epochs of a picture in words."""
    if not epochs:
        return "no epochs"
    return f"epoch {epochs[0]}" if len(epochs) == 1 else f"{len(epochs)} epochs, {min(epochs)} to {max(epochs)}"


def one_line(words: str) -> str:
    """Returns a text as one line of a title."""
    whole = " ".join(words.split())
    return text(whole if len(whole) <= _LINE_CHARACTERS else whole[: _LINE_CHARACTERS - 1] + "…")


def headline(ax: Axes, epochs: Sequence[int], *details: str | None) -> None:
    """Sets the title: the epochs, then a line for each detail that applies."""
    ax.set_title("\n".join([epochs_text(epochs), *(one_line(one) for one in details if one)]), fontsize="medium")
