"""Queries of a dataset."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy

from turbidite import _core
from turbidite._arguments import Arguments
from turbidite._checks import Selection, column_option, natural
from turbidite._command import run
from turbidite._opened import OpenDataset
from turbidite._progress import Tell, watching
from turbidite._result import Result
from turbidite._tables import abridged, clipped, table
from turbidite.distributions import Estimate
from turbidite.errors import UsageError

__all__ = ["Query"]


class Query(Result):
    """A query. It is lazy, and can be run again: each use reads the dataset anew."""

    def __init__(self, dataset: OpenDataset, selection: Selection, arguments: Arguments) -> None:
        self._dataset = dataset
        self._selection = selection
        self._arguments = arguments
        self._progress = dataset.progress

    def _resolved(self) -> Arguments:
        return {**self._arguments, "epochs": self._dataset._labels(self._selection)}

    def _start(self, tell: Tell | None = None) -> _core.Stream:
        return self._dataset._core.stream(self._resolved(), tell)

    def count(self) -> int:
        """Counts the rows. Reads only the pages that statistics leave open.

        >>> hot.count()
        2
        """
        with watching(self._progress, "row groups") as tell:
            rows, limit = self._dataset._core.count(self._resolved(), tell), self._arguments["limit"]
        return rows if limit is None else min(rows, limit)

    def head(self, rows: int = 5) -> dict[str, numpy.ndarray[Any, Any]]:
        """Returns the first rows as arrays, and reads little more than these.

        >>> hot.head(1)["id"]
        array([999], dtype=uint64)
        """
        stated, limit = natural("rows", rows), self._arguments["limit"]
        limit = stated if limit is None else min(stated, limit)
        return Query(self._dataset, self._selection, {**self._arguments, "limit": limit}).to_numpy()

    def estimate(self, level: int) -> Estimate:
        """Estimates the number of rows from those of a level of detail and above, one in ``8**level``; reads no others.

        The dataset needs levels of detail (``turbidite ingest --levels``), or a spatial index, which is then read. Limit, order and
        columns do not matter.

        >>> found = turbidite.open("space.tbd").query("x < 4").estimate(level=1)
        >>> abs(found.rows - 2000) < 4 * found.error
        True
        """
        if self._arguments["use"] is not None:
            raise UsageError("use: an estimate reads a level of detail, and no other index; leave `use` out")
        with watching(self._progress, "row groups") as tell:
            found = json.loads(self._dataset._core.estimate(self._resolved(), natural("level", level), tell))
        least, rows, most = found["rows"]
        sample = found["sample"]
        unplaced = (sample["unplaced"][0], sample["unplaced"][2])
        return Estimate(rows, found["error"], least, most, sample["level"], sample["rows"], unplaced)

    def explain(self) -> str:
        """Returns what the query would read, and why, as text.

        >>> print(hot.explain().splitlines()[0])
        rows where energy >= 9.99
        """
        return self._dataset._core.explain(self._resolved())[0]

    def plan(self) -> dict[str, Any]:
        """Returns what the query would read as a dict, like ``turbidite query --explain --json``.

        >>> hot.plan()["filter"]
        'energy >= 9.99'
        """
        plan: dict[str, Any] = json.loads(self._dataset._core.explain(self._resolved())[1])
        return plan

    def write(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Writes the rows to a file, whose name ends in ``.parquet``, ``.arrow``, ``.csv`` or ``.jsonl``.

        The file appears once it is complete. Returns the number of rows and the cost of the query.

        >>> hot.write("hot.csv")["rows"]
        2
        """
        arguments, where, chosen = self._arguments, self._arguments["where"], self._selection
        chosen = self._dataset._labels(chosen) if isinstance(chosen, range) else chosen
        if chosen == []:
            where, chosen = "false", None
        options = ["query", "--json", f"--output={os.path.abspath(os.fsdecode(path))}"]
        options += [] if chosen is None else [f"--epoch={chosen if isinstance(chosen, str) else ','.join(map(str, chosen))}"]
        options += [] if where is None else [f"--where={where}"]
        options += [f"--{name}={arguments[name]}" for name in ("box", "period") if arguments[name] is not None]
        options += column_option(arguments["columns"])
        options += [f"--{name}={arguments[name]}" for name in ("limit", "threads") if arguments[name] is not None]
        options += [] if arguments["use"] is None else [f"--use={arguments['use']}"]
        options += ["--order"] * arguments["ordered"] + ["--no-check"] * (not arguments["check"])
        options += [] if arguments["order_by"] is None else [f"--order={arguments['order_by']}"]
        options += ["--per-epoch"] * arguments["per_epoch"]
        with watching(self._progress, "row groups") as tell:
            return run([*options, "--", self._dataset.path], tell)

    def __reduce__(self) -> tuple[Any, ...]:
        return Query, (self._dataset, self._selection, self._arguments)

    def __repr__(self) -> str:
        usual = {"check": True, "ordered": False, "per_epoch": False}
        stated = {name: value for name, value in self._arguments.items() if value != usual.get(name)}
        if self._selection is not None:
            stated["epochs"] = self._selection
        return clipped(f"<Query of {self._dataset.path}: {stated or 'all rows'}>")

    def _repr_html_(self) -> str:
        arguments, chosen = self._arguments, self._selection
        columns, limit = arguments["columns"], arguments["limit"]
        epochs = "all"
        if isinstance(chosen, str):
            epochs = chosen
        elif chosen is not None:
            epochs = ", ".join("…" if label is None else str(label) for label in abridged(chosen))
        order = "epoch, key" if arguments["ordered"] else arguments["order_by"] or "as stored"
        order = f"epoch, {order}" if arguments["per_epoch"] else order
        rows = [
            ("dataset", self._dataset.path),
            ("where", clipped(arguments["where"] or "all rows")),
            *((name, arguments[name]) for name in ("box", "period") if arguments[name] is not None),
            ("epochs", epochs),
            ("columns", "all, and epoch" if columns is None else clipped(", ".join(columns))),
            ("order", order),
            *([] if limit is None else [("limit", f"{limit:,}")]),
        ]
        return table("Query, not run yet", (), rows)
