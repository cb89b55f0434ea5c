"""Sorted indexes: what they cost, lookups and trajectories by them, and ranges of an indexed column.

Epochs of the same particles in a new order each, clustered by energy. One id and trajectories are looked up by `examples/lookup_speed`;
ranges and lists of ids by the Python package, with the plan that is chosen and with each plan forced, beside Polars on
unsorted files.
"""

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import data
import numpy
import polars
from common import COMMAND, DUMPS, EXAMPLES, RANKS, Cost, Line, measure, median, run, say
from support import raw, vpic

RECORD = numpy.dtype([("id", "<u4"), *((name, "<f4") for name in ("x", "y", "z", "ux", "uy", "uz", "weight", "energy"))])
EPOCHS, EPOCH_ROWS = 8, 7_300_000
QUICK_EPOCHS, QUICK_ROWS = 2, 700_000
CARRIED = "id,with=energy,with=ux"
SHARES = {"0.01%": 1e-4, "1%": 1e-2}
COUNTS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
# Of ranges, commands and lists, each after one that does not count.
ROUNDS, RANGES = 6, 5
LOOKUPS, TRACKS, SCANS = 2_000, 500, 20


class Indexes:
    """The measurements of all epochs."""

    def __init__(self, scratch: Path, rounds: int, quick: bool):
        self.scratch, self.rounds = scratch, max(rounds, 3)
        self.epochs, self.rows = (QUICK_EPOCHS, QUICK_ROWS) if quick else (EPOCHS, EPOCH_ROWS)
        self.dataset, self.source = scratch / "dataset", scratch / "source"
        self.ingests: dict[str, list[Cost]] = {"": [], "id": [], "id uy": []}
        self.us: dict[str, float] = {}
        # By share: milliseconds of each contestant. By number of ids: of each plan.
        self.ranges: dict[str, dict[str, float]] = {}
        self.lists: dict[int, dict[str, float]] = {}

    def study(self) -> None:
        self.generate()
        self.ingest()
        self.look_up()
        self.ask_ranges()
        self.ask_lists()
        self.add()
        self.follow_command()

    def generate(self) -> None:
        rng = numpy.random.default_rng(1)
        ids = numpy.unique(rng.integers(0, 1 << 32, self.rows * 11 // 10, numpy.uint32))
        self.ids = rng.permutation(ids)[: self.rows]
        self.unsorted = {}
        for epoch in range(self.epochs):
            records = numpy.empty(self.rows, RECORD)
            records["id"] = rng.permutation(self.ids)
            for name in RECORD.names[1:]:
                records[name] = rng.standard_normal(self.rows, numpy.float32)
            records["energy"] = numpy.exp(records["energy"])
            if epoch == 0:
                self.uy = numpy.sort(records["uy"])
            self.unsorted[epoch] = data.write(self.scratch, epoch, numpy.array_split(records, RANKS))
        raw.write_layout(self.source / "layout.toml", RECORD, "E.{epoch}/records.{rank}")

    def done(self, command: list) -> Cost:
        cost = measure(command, output=self.scratch / "said.txt")
        if cost.failure:
            raise SystemExit(f"{' '.join(map(str, command))} {cost.failure}")
        return cost

    def ingest(self) -> None:
        """Ingests with one, with two and without indexes, in turns. The last one stays."""
        for _ in range(self.rounds):
            for indexes, costs in self.ingests.items():
                shutil.rmtree(self.dataset, ignore_errors=True)
                command = [COMMAND, "ingest", self.source, "--layout", self.source / "layout.toml", "--out", self.dataset, "--key", "energy", "--ranks", RANKS]
                costs.append(self.done([*command, *(word for name in indexes.split() for word in ("--index", name))]))
        listed = json.loads(run([COMMAND, "index", "list", self.dataset, "--json"]))["indexes"]
        self.index_bytes = next(index["bytes"] for index in listed if index["name"] == "id")
        cpu_s = {name or "no index": median(cost.cpu_s for cost in costs) for name, costs in self.ingests.items()}
        say(f"ingest: {', '.join(f'{name} {of:.2f} CPU s' for name, of in cpu_s.items())}")

    def speed(self, name: str, *options) -> None:
        """The median of `examples/lookup_speed` in microseconds."""
        said = run([EXAMPLES / "lookup_speed", self.dataset, "id", *options])
        self.us[name] = float(re.search(r"p50 ([\d.]+) us", said)[1])
        say(f"{name}: {said.strip()}")

    def warm(self) -> None:
        """Reads all files once: they were written past the page cache."""
        for folder in (self.dataset, *(path.parent for path in self.unsorted.values())):
            for path in folder.rglob("*.parquet"):
                with path.open("rb") as file:
                    while file.read(1 << 24):
                        pass

    def look_up(self) -> None:
        self.warm()
        self.speed("one id", "--lookups", LOOKUPS)
        self.speed("one id, by scan", "--lookups", SCANS, "--use", "scan")
        self.speed("trajectory", "--lookups", TRACKS, "--tracks", 1)

    def timed(self, asked: dict[str, Callable[[], int]]) -> dict[str, float]:
        """Medians in milliseconds, in turns. All must give the same number of rows.

        Every other round is in the opposite order: a scan leaves a cold processor cache to the next contestant.
        """
        times: dict[str, list[float]] = {name: [] for name in asked}
        for number in range(ROUNDS + 1):
            rows = set()
            for name, ask in list(asked.items())[:: -1 if number % 2 else 1]:
                began = time.perf_counter()
                rows.add(ask())
                if number:
                    times[name].append((time.perf_counter() - began) * 1e3)
            if len(rows) > 1:
                raise SystemExit(f"{', '.join(asked)} found {rows} rows")
        return {name: median(of) for name, of in times.items()}

    def ask_ranges(self) -> None:
        import turbidite

        dataset, rng = turbidite.open(self.dataset), numpy.random.default_rng(2)
        for title, share in SHARES.items():
            found: dict[str, list[float]] = {}
            for _ in range(RANGES):
                width = max(int(share * self.rows), 1)
                start = int(rng.integers(0, self.rows - width))
                low, high = float(self.uy[start]), float(self.uy[start + width - 1])

                def ours(use: str | None, low=low, high=high) -> int:
                    return dataset.query(f"uy between {low!r} and {high!r}", epochs=0, use=use).to_arrow().num_rows

                def other(low=low, high=high) -> int:
                    return polars.scan_parquet(self.unsorted[0]).filter(polars.col("uy").is_between(low, high)).collect().height

                asked = {"chosen": lambda: ours(None), "index": lambda: ours("uy"), "scan": lambda: ours("scan"), "polars": other}
                if share > 1e-3:
                    # It may have more entries than are ever read.
                    del asked["index"]
                for name, time_ms in self.timed(asked).items():
                    found.setdefault(name, []).append(time_ms)
            self.ranges[title] = {name: median(times) for name, times in found.items()}
            say(f"range of {title}: {self.shown(self.ranges[title])}")

    @staticmethod
    def shown(times_ms: dict[str, float]) -> str:
        return ", ".join(f"{name} {time_ms:.2f} ms" for name, time_ms in times_ms.items())

    def ask_lists(self) -> None:
        import turbidite

        dataset = turbidite.open(self.dataset)
        for count in (count for count in COUNTS if count <= self.rows):
            listed = ", ".join(map(str, self.ids[:count].tolist()))
            if len(listed) > 1_000_000:
                break  # The most that an expression has.

            def ask(use: str | None, listed=listed) -> int:
                return dataset.query(f"id in ({listed})", epochs=0, use=use).to_arrow().num_rows

            self.lists[count] = self.timed({"chosen": lambda: ask(None), "index": lambda: ask("id"), "scan": lambda: ask("scan")})
            say(f"{count} ids: {self.shown(self.lists[count])}")

    def add(self) -> None:
        """Adds an index of ids with columns, beside DuckDB reading and sorting the column."""
        import duckdb

        costs, others = [], []
        for _ in range(self.rounds):
            run([COMMAND, "index", "drop", self.dataset, "id"])
            costs.append(self.done([COMMAND, "index", "add", self.dataset, "id"]))
            began = time.perf_counter()
            for path in self.unsorted.values():
                with duckdb.connect() as connection:
                    connection.execute(f"CREATE TABLE sorted AS SELECT id FROM read_parquet('{path}') ORDER BY id")
            others.append(time.perf_counter() - began)
        self.add_s, self.duckdb_s = median(cost.wall_s for cost in costs), median(others)
        say(f"index add: {self.add_s:.2f} s; DuckDB reads and sorts the column in {self.duckdb_s:.2f} s")
        run([COMMAND, "index", "drop", self.dataset, "id"])
        run([COMMAND, "index", "add", self.dataset, CARRIED])
        self.warm()
        self.speed("trajectory of carried columns", "--lookups", TRACKS, "--tracks", 1, "--columns", "energy,ux")

    def follow_command(self) -> None:
        """The whole command: trajectories of the energetic particles of VPIC's last dump."""
        dataset = self.scratch / "vpic"
        derive = [word for text in vpic.DERIVATIONS[:2] for word in ("--derive", text)]
        run([COMMAND, "ingest", DUMPS, "--out", dataset, "--key", "energy", *derive, "--index", "id"])
        command = [COMMAND, "tracks", dataset, "--of", "energy > 100", "--at", 4000, "--id", "id"]
        self.command_ms = median(self.done(command).wall_s for _ in range(9)) * 1e3
        say(f"tracks of VPIC's energetic electrons: {self.command_ms:.1f} ms")

    def figures(self) -> dict:
        return {"us": self.us, "ranges_ms": self.ranges, "lists_ms": self.lists, "add_s": self.add_s, "duckdb_s": self.duckdb_s, "command_ms": self.command_ms}

    def table(self) -> list[str]:
        lines = ["| | goal | measured | | |", "| --- | --- | ---: | --- | --- |", *(line.cells() for line in self.goals())]
        lines += ["", "| `id IN (…)`, ids | chosen, ms | by the index | by a scan | chosen over the best |", "| ---: | ---: | ---: | ---: | ---: |"]
        for count, times in self.lists.items():
            best = min(times["index"], times["scan"])
            lines.append(f"| {count:,} | {times['chosen']:.2f} | {times['index']:.2f} | {times['scan']:.2f} | {times['chosen'] / best:.2f} |")
        return lines

    def goals(self) -> list[Line]:
        rows = self.rows * self.epochs
        cpu_s = {name: median(cost.cpu_s for cost in costs) for name, costs in self.ingests.items()}
        each_ns = (cpu_s["id"] - cpu_s[""]) / rows * 1e9
        lines = [
            Line("one id, one epoch, nine columns", "{} µs", "{:.0f} µs", 25, self.us["one id"], f"{self.us['one id, by scan']:.0f} µs by scan", at_most=True),
            Line(f"trajectory of {self.epochs} epochs", "{} ms", "{:.2f} ms", 0.2, self.us["trajectory"] / 1e3, "", at_most=True),
            Line("the same, carried columns", "{} ms", "{:.2f} ms", 0.08, self.us["trajectory of carried columns"] / 1e3, f"`{CARRIED}`", at_most=True),
            Line("an entry at ingest", "{} ns", "{:.0f} ns", 60, each_ns, f"{cpu_s['']:.2f} and {cpu_s['id']:.2f} CPU s", at_most=True),
            Line("an entry on disk", "{} bytes", "{:.1f} bytes", 12, self.index_bytes / rows, "", at_most=True),
            Line("`index add` over reading and sorting in DuckDB", "{} x as fast", "{:.2f} x", 0.7, self.duckdb_s / self.add_s, f"{self.add_s:.2f} and {self.duckdb_s:.2f} s"),
            Line("`tracks --of 'energy > 100'`, VPIC, the command", "{} ms", "{:.1f} ms", 25, self.command_ms, "", at_most=True),
        ]
        for (title, times), limit in zip(self.ranges.items(), (0.2, 0.8), strict=True):
            lines.append(Line(f"range of {title} over Polars' scan", "{} x", "{:.2f} x", limit, times["chosen"] / times["polars"], self.shown(times), at_most=True))
        worst = max(times["chosen"] / min(times["index"], times["scan"]) for times in self.lists.values())
        lines.append(Line("lists of ids over the best forced plan, worst", "{} x", "{:.2f} x", 1.1, worst, "", at_most=True))
        return lines
