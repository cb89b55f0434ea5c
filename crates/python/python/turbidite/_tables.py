"""Tables for notebooks: short, with every name escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

__all__ = ["abridged", "clipped", "table"]

_SHOWN = 12
"""Longer tables have their first and last rows."""

_CHARACTERS = 1200
"""Longer texts are cut: about 15 lines of a terminal."""


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns an HTML table."""

    def line(tag: str, cells: Sequence[object]) -> str:
        return "<tr>" + "".join(f"<{tag} style='text-align: left'>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line("td", row) for row in rows)
    title = f"<caption style='text-align: left; caption-side: top'>{escape(caption)}</caption>"
    header = f"<thead>{line('th', head)}</thead>" if head else ""
    return f"<table>{title}{header}<tbody>{body}</tbody></table>"


def abridged(items: Sequence[Any], shown: int = _SHOWN) -> list[Any]:
    """Returns the items, or the first and the last ones around None."""
    half = shown // 2
    return list(items) if len(items) <= shown else [*items[:half], None, *items[-half:]]


def clipped(words: str, most: int = _CHARACTERS) -> str:
    """Returns a text, by default of a screen at most: of a longer one, its begin and its end."""
    half = most // 2
    return words if len(words) <= most else f"{words[:half]} … {words[-half:]}"
