"""Tables for notebooks: short, with every name escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy

from turbidite._axes import unit_text

if TYPE_CHECKING:
    from turbidite._arguments import Arguments
    from turbidite.dataset import Dataset
    from turbidite.distributions import Histogram
    from turbidite.schema import Schema

__all__ = ["of_dataset", "of_histogram", "of_query", "of_schema"]

_SHOWN = 12
"""Longer tables have their first and last rows."""


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def line(tag: str, cells: Sequence[object]) -> str:
        return "<tr>" + "".join(f"<{tag} style='text-align: left'>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line("td", row) for row in rows)
    title = f"<caption style='text-align: left; caption-side: top'>{escape(caption)}</caption>"
    header = f"<thead>{line('th', head)}</thead>" if head else ""
    return f"<table>{title}{header}<tbody>{body}</tbody></table>"


def _ends(items: Sequence[Any]) -> list[Any]:
    """Returns the items, or the first and the last ones around None."""
    half = _SHOWN // 2
    return list(items) if len(items) <= _SHOWN else [*items[:half], None, *items[-half:]]


def of_schema(schema: Schema) -> str:
    """Returns the columns as a table."""

    def remarks(name: str) -> str:
        period = [f"period {schema.periods[name]}"] if name in schema.periods else []
        return ", ".join((["key"] if name in schema.keys else []) + period)

    rows = [
        (column.name, column.type, unit_text(column.unit) if column.unit else "", remarks(column.name))
        for column in schema.columns
    ]
    return _table(f"{len(rows)} columns", ("column", "type", "unit", ""), rows)


def of_dataset(dataset: Dataset) -> str:
    """Returns the columns and the epochs as tables. Reads the manifests of a few epochs."""
    epochs = dataset.epochs
    rows: list[tuple[object, object]] = []
    for epoch in _ends(epochs):
        rows.append(("…", "…") if epoch is None else (epoch, f"{dataset.stats(epoch)['rows']:,}"))
    count = "1 epoch" if len(epochs) == 1 else f"{len(epochs):,} epochs"
    return f"<div><b>{escape(dataset.path)}</b>{of_schema(dataset.schema)}{_table(count, ('epoch', 'rows'), rows)}</div>"


def of_query(path: str, arguments: Arguments, selection: list[int] | str | None) -> str:
    """Returns what a query asks for as a table. The query is not run."""
    columns, limit = arguments["columns"], arguments["limit"]
    epochs = "all"
    if isinstance(selection, str):
        epochs = selection
    elif selection is not None:
        epochs = ", ".join("…" if label is None else str(label) for label in _ends(selection))
    rows = [
        ("dataset", path),
        ("where", arguments["where"] or "all rows"),
        *([] if arguments["box"] is None else [("box", arguments["box"])]),
        *([] if arguments["period"] is None else [("period", arguments["period"])]),
        ("epochs", epochs),
        ("columns", "all, and epoch" if columns is None else ", ".join(columns)),
        (
            "order",
            "epoch, key" if arguments["ordered"] else "as stored" if (by := arguments["order_by"]) is None else f"epoch, {by}",
        ),
    ]
    if limit is not None:
        rows.append(("limit", f"{limit:,}"))
    return _table("Query, not run yet", (), rows)


def of_histogram(histogram: Histogram) -> str:
    """Returns the bins as a table."""
    counts: tuple[Any, ...] = (histogram.least, histogram.rows, histogram.most)
    head: tuple[str, ...] = ("at least", "about", "at most")
    if histogram.errors is not None:
        counts, head = (histogram.rows, numpy.ceil(histogram.errors)), ("about", "error")
    bins: list[tuple[str, ...]] = [
        (f"{one[0]:.6g}", f"{one[1]:.6g}", *(f"{int(count):,}" for count in one[2:]))
        for one in zip(histogram.edges[:-1], histogram.edges[1:], *counts, strict=True)
    ]
    if histogram.sums is not None and histogram.sum_errors is not None:
        head = (*head, f"sum of {histogram.summed}", "error")
        sums = zip(histogram.sums, histogram.sum_errors, strict=True)
        bins = [(*one, f"{value:.6g}", f"{error:.2g}") for one, (value, error) in zip(bins, sums, strict=True)]
    rows = [("…",) * (2 + len(head)) if one is None else one for one in _ends(bins)]
    named = f"{histogram.column} ({unit_text(histogram.unit)})" if histogram.unit else histogram.column
    return _table(f"{named}: rows by bins", ("from", "to", *head), rows)
