"""Bitmap indexes: what they cost, and 60 queries on one to four attributes beside a scan and Polars.

`bitmap_queries.txt` has the queries, half of them with numbers of two digits, which are edges of the index, and half with numbers
between edges. Each is answered as a count and with all columns of its rows: by the library with the path that it chooses and by its scan
in turns (`examples/predicate_speed`), and by Polars, in processes that have opened their files.
"""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import data
import polars
from common import COMMAND, EXAMPLES, HERE, RANKS, Cost, Line, measure, median, run, say

QUERIES = HERE / "bitmap_queries.txt"
INDEX = "bitmap:ux,uy,uz"
ROWS, QUICK_ROWS = 2_621_440, 655_360
RECORD_BYTES = data.VPIC_RECORD.itemsize
# Of queries, each after one that does not count.
ROUNDS = 5
CONTESTANTS = ("ours", "scan", "polars, unsorted", "polars, ours")
COUNTS = {"one attribute on edges": "ux > 0.5", "three attributes on edges": "ux > 0.5 AND abs(uy) < 1 AND uz > 0.1"}
GRID = {"bins": 64, "range": ((-3.2, 3.2), (-3.2, 3.2))}


class Bitmaps:
    """The measurements of one epoch."""

    def __init__(self, scratch: Path, rounds: int, quick: bool):
        self.scratch, self.rounds, self.rows = scratch, max(rounds, 3), QUICK_ROWS if quick else ROWS
        self.ingests: dict[str, list[Cost]] = {"without": [], "with": []}
        self.adds: list[Cost] = []
        # By query: what it is, and milliseconds of counts and of rows by contestant.
        self.queries: dict[str, dict] = {}
        self.counts_ms: dict[str, float] = {}
        self.histograms_ms: dict[str, float] = {}

    def study(self) -> None:
        unsorted = data.generate(self.scratch, "36", self.rows * RECORD_BYTES, 1, RANKS)
        self.epoch, self.unsorted = next(iter(unsorted.items()))
        self.build()
        self.ask()

    def build(self) -> None:
        """Makes the index with the records, and afterwards."""
        source, dataset = self.scratch / "source", self.scratch / "dataset"
        for _ in range(self.rounds):
            for name, options in (("with", ["--index", INDEX]), ("without", [])):
                shutil.rmtree(dataset, ignore_errors=True)
                command = [COMMAND, "ingest", source, "--layout", source / "layout.toml", "--out", dataset, "--key", "energy", "--ranks", RANKS]
                self.ingests[name].append(self.done([*command, *options]))
            self.adds.append(self.done([COMMAND, "index", "add", dataset, INDEX, "--threads", 1]))
        sidecars = (dataset / "_turbidite" / "index").rglob("*")
        self.index_bytes = sum(path.stat().st_size for path in sidecars if path.is_file())
        say(f"index: {self.index_bytes / (self.rows * RECORD_BYTES):.2%} of the records; add {median(cost.cpu_s for cost in self.adds):.3f} CPU s")

    def done(self, command: list) -> Cost:
        cost = measure(command, output=self.scratch / "said.txt")
        if cost.failure:
            raise SystemExit(f"{' '.join(map(str, command))} {cost.failure}")
        return cost

    def ask(self) -> None:
        import turbidite

        predicates = [line.split(": ", 1)[1] for line in QUERIES.read_text().splitlines()]
        counted = self.by_library([*predicates, *COUNTS.values()], [])
        counted_by_one = self.by_library([*COUNTS.values()], ["--threads", 1])
        self.counts_ms = {title: counted_by_one[text]["count_us"]["chosen"] / 1e3 for title, text in COUNTS.items()}
        files = {"polars, unsorted": [self.unsorted], "polars, ours": sorted((self.scratch / "dataset" / "data").rglob("*.parquet"))}

        def other(name: str, text: str, counts: bool) -> int:
            found = polars.scan_parquet(files[name]).filter(polars.sql_expr(text))
            return found.select(polars.len()).collect().item() if counts else found.select(data.VPIC_RECORD.names).collect().height

        for line in QUERIES.read_text().splitlines():
            kind, text = line.split(": ", 1)
            ours = counted[text]
            of_query: dict = {"kind": kind, "rows_found": ours["rows"]}
            for what, counts in (("count", True), ("rows", False)):
                asked = {name: (lambda name=name: other(name, text, counts)) for name in files}
                times, rows = self.timed(asked)
                # Polars may compare a decimal in double precision.
                if abs(ours["rows"] - rows["polars, ours"]) > self.rows / 1e4:
                    raise SystemExit(f"{text}: {ours['rows']} rows, Polars finds {rows}")
                own = ours[f"{what}_us"]
                of_query[what] = {"ours": own["chosen"] / 1e3, "scan": own["scan"] / 1e3, **times}
            self.queries[text] = of_query
            say(f"{kind}, {of_query['rows_found']} rows of {text}: {self.shown(of_query['count'])}; {self.shown(of_query['rows'])}")
        dataset = turbidite.open(self.scratch / "dataset")
        for title, options in (("no predicate", {}), ("uz > 0.1", {"where": "uz > 0.1"})):
            for exact in (False, True):
                ask = lambda: dataset.histogram("ux", "uy", epochs=self.epoch, source="exact" if exact else "bounds", **GRID, **options).counts.sum()
                self.histograms_ms[f"{title}, {'exact' if exact else 'bounds'}"] = self.timed({"ours": ask})[0]["ours"]
        say(f"{self.shown(self.counts_ms)}; {self.shown(self.histograms_ms)}")

    def by_library(self, predicates: list[str], options: list) -> dict[str, dict]:
        """The output of `examples/predicate_speed`, by predicate."""
        listed = self.scratch / "predicates.txt"
        listed.write_text("\n".join(predicates) + "\n")
        command = [EXAMPLES / "predicate_speed", self.scratch / "dataset", self.epoch, listed, "--rounds", ROUNDS, *options]
        return {found["predicate"]: found for found in map(json.loads, run(command).splitlines())}

    @staticmethod
    def shown(times_ms: dict[str, float]) -> str:
        return ", ".join(f"{name} {time_ms:.2f} ms" for name, time_ms in times_ms.items())

    @staticmethod
    def timed(asked: dict[str, Callable[[], int]]) -> tuple[dict[str, float], dict[str, int]]:
        """Medians in milliseconds, in turns, and the answers."""
        times: dict[str, list[float]] = {name: [] for name in asked}
        answers = {}
        for number in range(ROUNDS + 1):
            for name, ask in asked.items():
                began = time.perf_counter()
                answers[name] = ask()
                if number:
                    times[name].append((time.perf_counter() - began) * 1e3)
        return {name: median(of) for name, of in times.items()}, answers

    def figures(self) -> dict:
        return {"queries": self.queries, "counts_ms": self.counts_ms, "histograms_ms": self.histograms_ms, "index_bytes": self.index_bytes}

    def table(self) -> list[str]:
        """Medians of queries of a kind, then the goals."""
        lines = [
            "| queries | answer | ours, ms | our scan, ms | Polars, unsorted file | Polars, our files | ours / better scan, median (worst) | ours / Polars, median |",
            "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
        for kind, name in (("edges", "on edges"), ("between", "between edges")):
            for what in ("count", "rows"):
                found = [query[what] for query in self.queries.values() if query["kind"] == kind]
                cells = [f"{median(times[name] for times in found):.2f}" for name in CONTESTANTS]
                better, against = self.ratios(kind, what)
                cells += [f"{median(better):.2f} ({max(better):.2f})", f"{median(against):.2f}"]
                lines.append(f"| {len(found)} {name} | {what} | {' | '.join(cells)} |")
        for titles in (self.counts_ms, self.histograms_ms):
            lines += ["", *(f"- {title}: {time_ms:.2f} ms" for title, time_ms in titles.items())]
        return [*lines, "", "| | goal | measured | | |", "| --- | --- | ---: | --- | --- |", *(line.cells() for line in self.goals())]

    def ratios(self, kind: str, what: str) -> tuple[list[float], list[float]]:
        """Our time over that of the better scan, and over Polars'."""
        found = [query[what] for query in self.queries.values() if query["kind"] == kind]
        polars_ms = [min(times["polars, unsorted"], times["polars, ours"]) for times in found]
        better = [times["ours"] / min(times["scan"], other) for times, other in zip(found, polars_ms, strict=True)]
        return better, [times["ours"] / other for times, other in zip(found, polars_ms, strict=True)]

    def goals(self) -> list[Line]:
        cpu_s = {name: median(cost.cpu_s for cost in costs) for name, costs in self.ingests.items()}
        extra_s, add_s = cpu_s["with"] - cpu_s["without"], median(cost.cpu_s for cost in self.adds)
        kinds = [(kind, what) for kind in ("edges", "between") for what in ("count", "rows")]
        better = [value for kind in kinds for value in self.ratios(*kind)[0]]
        against = [value for kind in kinds for value in self.ratios(*kind)[1]]
        share = self.index_bytes / (self.rows * RECORD_BYTES)
        within = sum(value <= 1.05 for value in better)
        return [
            Line("index, of the records", "{} of them", "{:.3f}", 0.1, share, f"{self.index_bytes / self.rows:.2f} bytes a record", at_most=True),
            Line("building it at ingest", "{} ns a record", "{:.0f} ns", 25, extra_s / self.rows * 1e9, f"{cpu_s['with']:.2f} and {cpu_s['without']:.2f} CPU s", at_most=True),
            Line("`index add`", "{} MB per CPU s", "{:.0f}", 5 * 53, self.rows * RECORD_BYTES / 1e6 / add_s, "FastBit measured at 53"),
            Line("count, one attribute on edges", "{} ms", "{:.2f} ms", 0.1, self.counts_ms["one attribute on edges"], "one thread", at_most=True),
            Line("count, three attributes on edges, one thread", "{} ms", "{:.2f} ms", 2, self.counts_ms["three attributes on edges"], "", at_most=True),
            Line("over the better scan, worst of all", "{} x", "{:.2f} x", 1.05, max(better), f"{within} of {len(better)} within", at_most=True),
            Line("over Polars, median of all", "{} x", "{:.2f} x", 0.3, median(against), "", at_most=True),
            Line("histogram of 64 x 64, no predicate", "{} ms", "{:.1f} ms", 5, self.histograms_ms["no predicate, bounds"], "bounds", at_most=True),
            Line("the same with a predicate", "{} ms", "{:.1f} ms", 10, self.histograms_ms["uz > 0.1, bounds"], "bounds", at_most=True),
        ]
