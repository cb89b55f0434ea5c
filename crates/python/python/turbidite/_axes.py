"""Axes, labels and titles of pictures."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy

from turbidite._optional import needed

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
    "drawn_edges",
    "excluded",
    "headline",
    "label",
    "module",
    "say",
    "text",
    "unit_text",
]

BLUE, ORANGE, RED, GREY = "#0072B2", "#E69F00", "#D55E00", "#777777"
"""Colours that colour-blind readers can tell apart."""

MIN_LOG_COUNT = 10
"""Counts up to this are drawn on a linear scale."""

_LINE_CHARACTERS = 64
"""Longer lines of titles are cut: they would leave the figure."""

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


def label(name: str, unit: str | None) -> str:
    """Returns the label of a column: its name, and its unit in parentheses."""
    return text(f"{name} ({unit_text(unit)})" if unit else name)


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


def _epochs_text(epochs: Sequence[int]) -> str:
    """Returns the epochs of a picture in words."""
    if not epochs:
        return "no epochs"
    return f"epoch {epochs[0]}" if len(epochs) == 1 else f"{len(epochs)} epochs, {min(epochs)} to {max(epochs)}"


def _line(words: str) -> str:
    """Returns a text as one line of a title."""
    whole = " ".join(words.split())
    return text(whole if len(whole) <= _LINE_CHARACTERS else whole[: _LINE_CHARACTERS - 1] + "…")


def headline(ax: Axes, epochs: Sequence[int], *details: str | None) -> None:
    """Sets the title: the epochs, then a line for each detail that applies."""
    ax.set_title("\n".join([_epochs_text(epochs), *(_line(one) for one in details if one)]), fontsize="medium")
