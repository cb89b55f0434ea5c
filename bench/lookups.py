"""Lookups and trajectories in a dataset that is clustered by hash, beside RocksDB, LevelDB, and Parquet files.

All contestants hold the same records and look up the same ids, in turns. The programs are `lookup_peer.py`, and
`examples/lookup_speed` for ours without Python. Databases need packages of their own: `make bench` installs them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import data
import numpy
from common import COMMAND, EXAMPLES, HERE, RANKS, Cost, Line, measure, median, run, say
from lookup_peer import RECORD
from support import raw

# The interpreter that has the packages of the databases.
STORES = os.environ.get("TURBIDITE_STORES", "")
PROGRAM = HERE / "lookup_peer.py"
EPOCH_ROWS = 7_300_000
QUICK_EPOCHS, EPOCHS = 2, 8
MIN_ROUNDS = 5
# Rounds of calls with many ids, which take seconds each.
MANY_ROUNDS = 3
# Ingests by hash and by range, in turns.
INGESTS = 3
LOOKUPS, COLD_LOOKUPS, MANY = 500, 20, 1_000_000
# Lookups of those that scan; fewer, since each takes as long.
SCANS, COLD_TRACKS = 5, 3
LIBRARY, OURS, DATABASES = "library", ("package", "expression"), ("rocksdb", "leveldb")
PARQUET = ("duckdb, unsorted", "duckdb, ours", "polars, unsorted", "polars, ours")
RAW = "raw"
# Those that read a column, or all, for each lookup.
SCANNING = (*PARQUET, RAW)
NAMES = {
    LIBRARY: "Turbidite, Rust",
    "package": "`get`, Python",
    "expression": "`query`, Arrow stream",
    "rocksdb": "RocksDB",
    "leveldb": "LevelDB",
    "duckdb, unsorted": "DuckDB, unsorted Parquet",
    "duckdb, ours": "DuckDB, our files",
    "polars, unsorted": "Polars, unsorted Parquet",
    "polars, ours": "Polars, our files",
    RAW: "NumPy, raw files",
}


@dataclass(frozen=True)
class Measure:
    """A row of the table: what is requested of whom, and the unit of its time in microseconds."""

    title: str
    what: str
    ids: str
    contestants: tuple[str, ...]
    unit_us: float
    unit: str
    cold: str | None = None
    of_epochs: str = "all"
    library: tuple[str, ...] | None = None


MEASURES = {
    "one": Measure("one id", "one", "present", (*OURS, *DATABASES, *PARQUET), 1, "µs", of_epochs="one", library=()),
    "absent": Measure("an absent id", "one", "absent", (*OURS, *DATABASES), 1, "µs", of_epochs="one", library=("--absent",)),
    "track": Measure("trajectory", "track", "present", (*OURS, *DATABASES, *SCANNING), 1, "µs", library=("--tracks", "1")),
    "many": Measure(
        f"{MANY:,} ids, one call, one epoch", "many", "many", (OURS[0], *DATABASES, *PARQUET), 1e3, "ms", of_epochs="one"
    ),
    "opened": Measure(
        "one id, cold", "one", "cold", (*OURS, DATABASES[0], *PARQUET), 1e3, "ms", cold="opened", of_epochs="one"
    ),
    "track cold": Measure("trajectory, cold", "track", "cold tracks", (*OURS, *SCANNING), 1e3, "ms", cold="opened"),
    "closed": Measure(
        "one id, cold, and opening", "one", "cold", (*OURS, *DATABASES), 1e3, "ms", cold="closed", of_epochs="one"
    ),
}


class Contestant:
    """A process that has opened its files and looks up ids."""

    def __init__(self, name: str, folder: Path):
        self.name = name
        python = STORES if name in DATABASES else sys.executable
        command = [python, PROGRAM, name.split(",")[0], folder, "serve"]
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def request(self, what: str, ids: Path, epochs: list[int], cold: str | None = None) -> dict:
        self.process.stdin.write(json.dumps({"what": what, "ids": str(ids), "epochs": epochs, "cold": cold}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"lookup_peer.py of {self.name} ended with {self.process.wait()}")
        return json.loads(line)

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


class Lookups:
    """The measurements, and what they share: a folder for files, epochs, rounds."""

    def __init__(self, scratch: Path, rounds: int, quick: bool):
        self.scratch, self.rounds = scratch, max(rounds, MIN_ROUNDS)
        self.epochs = list(range(QUICK_EPOCHS if quick else EPOCHS))
        self.rng = numpy.random.default_rng(1)
        self.costs: dict[str, dict] = {}
        # By key.
        self.ingests: dict[str, list[Cost]] = {"id": [], "hash:id": []}
        # By measure and contestant, the median of each round, in microseconds.
        self.times_us: dict[str, dict[str, list[float]]] = {key: {} for key in MEASURES}
        # By measure and contestant: reads, major faults and KB of a cold lookup.
        self.reads: dict[str, dict[str, tuple[float, float, float]]] = {key: {} for key, one in MEASURES.items() if one.cold}
        # Of `turbidite tracks`, by access path.
        self.commands: dict[str, list[Cost]] = {}
        if not STORES:
            sys.exit("TURBIDITE_STORES names no Python that has rocksdict and plyvel: measure with make bench ARGS='--parts lookups'")
        self.folders = {
            "package": scratch / "dataset",
            "expression": scratch / "dataset",
            "rocksdb": scratch / "rocksdb",
            "leveldb": scratch / "leveldb",
            **{name: scratch / ("unsorted" if "unsorted" in name else "dataset/data") for name in PARQUET},
            RAW: scratch / "source",
        }

    def study(self) -> None:
        self.generate()
        self.load()
        self.measure()
        self.ask_command()

    def generate(self) -> None:
        """Writes epochs of the same particles, in a new order each, as raw records and as Parquet files."""
        ids = numpy.unique(self.rng.integers(0, 1 << 32, EPOCH_ROWS * 11 // 10, numpy.uint32))
        self.ids = self.rng.permutation(ids)[:EPOCH_ROWS]
        numpy.save(self.scratch / "all.npy", self.ids)
        for epoch in self.epochs:
            records = numpy.empty(EPOCH_ROWS, RECORD)
            records["id"] = self.rng.permutation(self.ids)
            for name in RECORD.names[1:]:
                records[name] = self.rng.standard_normal(EPOCH_ROWS, numpy.float32)
            written = data.write(self.scratch, epoch, numpy.array_split(records, RANKS))
            target = self.scratch / "unsorted" / f"epoch={epoch}"
            target.mkdir(parents=True)
            written.rename(target / written.name)
        raw.write_layout(self.scratch / "source" / "layout.toml", RECORD, "E.{epoch}/records.{rank}")

    def load(self) -> None:
        """Stores the records with each contestant: once, all epochs in one process. Ours is also clustered by range."""
        source, dataset = self.scratch / "source", self.folders["package"]
        record_bytes = EPOCH_ROWS * len(self.epochs) * RECORD.itemsize
        for _ in range(INGESTS):
            for key, costs in self.ingests.items():
                shutil.rmtree(dataset, ignore_errors=True)
                command = [COMMAND, "ingest", source, "--layout", source / "layout.toml", "--out", dataset, "--key", key, "--ranks", RANKS]
                costs.append(self.loaded(f"package by {key}", command))
        self.keep_load("package", self.ingests["hash:id"], record_bytes)
        for name in DATABASES:
            cost = self.loaded(name, [STORES, PROGRAM, name, self.folders[name], "load", source])
            self.keep_load(name, [cost], record_bytes)

    def loaded(self, name: str, command: list) -> Cost:
        cost = measure(command, output=self.scratch / "load.txt")
        if cost.failure:
            sys.exit(f"the load of {name} {cost.failure}")
        say(f"load {name}: {cost.wall_s:.1f} s, {cost.cpu_s:.1f} CPU s")
        return cost

    def keep_load(self, name: str, costs: list[Cost], record_bytes: int) -> None:
        stored = sum(path.stat().st_size for path in self.folders[name].rglob("*") if path.is_file())
        medians = {figure: median(getattr(cost, figure) for cost in costs) for figure in ("wall_s", "cpu_s", "peak_mib")}
        self.costs[name] = medians | {"size": stored / record_bytes}

    def draw(self) -> dict[str, Path]:
        """Writes the ids of a round, which are the same for all contestants."""
        draws = {
            "present": self.rng.choice(self.ids, LOOKUPS, replace=False),
            "cold": self.rng.choice(self.ids, COLD_LOOKUPS, replace=False),
            "many": self.rng.choice(self.ids, MANY, replace=False, shuffle=False),
        }
        others = self.rng.integers(0, 1 << 32, 2 * LOOKUPS, numpy.uint32)
        draws["absent"] = others[~numpy.isin(others, self.ids)][:LOOKUPS]
        draws["few"] = draws["present"][:SCANS]
        draws["cold tracks"] = draws["cold"][:COLD_TRACKS]
        paths = {}
        for name, ids in draws.items():
            paths[name] = self.scratch / f"{name}.npy"
            numpy.save(paths[name], ids)
        return paths

    def measure(self) -> None:
        """Runs the rounds; the first warms up, and does not count. Cold lookups have processes of their own."""
        contestants = {name: Contestant(name, self.folders[name]) for name in (*OURS, *DATABASES, *SCANNING)}
        for name in DATABASES:
            contestants[name].request("warm", self.scratch / "all.npy", self.epochs)
        for number in range(self.rounds + 1):
            drawn = self.draw()
            for key, one in MEASURES.items():
                if not one.cold and (key != "many" or 1 <= number <= MANY_ROUNDS):
                    self.turn(key, one, contestants, drawn, number)
            self.tell(number, cold=False)
        for contestant in contestants.values():
            contestant.end()
        os.sync()
        contestants = {name: Contestant(name, self.folders[name]) for name in (*OURS, *DATABASES, *SCANNING)}
        for number in range(self.rounds + 1):
            drawn = self.draw()
            for key, one in MEASURES.items():
                if one.cold:
                    self.turn(key, one, contestants, drawn, number)
            self.tell(number, cold=True)
        for contestant in contestants.values():
            contestant.end()

    def turn(self, key: str, one: Measure, contestants: dict[str, Contestant], drawn: dict[str, Path], number: int) -> None:
        """One round of a measure: each contestant looks up the same ids."""
        epochs = self.epochs[:1] if one.of_epochs == "one" else self.epochs
        if one.library is not None:
            self.keep(key, LIBRARY, number, self.ask_library(one.library, number))
        for name in one.contestants:
            ids = drawn["few" if name in SCANNING and one.ids in ("present", "cold") else one.ids]
            if one.cold == "opened" and name not in DATABASES:
                # Filters and page indexes are in memory, as they are once a database is open.
                contestants[name].request(one.what, drawn["few" if name in SCANNING else "present"], epochs)
            reply = contestants[name].request(one.what, ids, epochs, one.cold)
            expected = 0 if one.ids == "absent" else len(numpy.load(ids, mmap_mode="r")) * len(epochs)
            if reply["rows"] != expected:
                sys.exit(f"{name} found {reply['rows']} rows of {expected}: {one.title}")
            self.keep(key, name, number, median(reply["times_us"]))
            if one.cold and number > 0:
                of_lookup = [median(column) for column in zip(*reply["costs"], strict=True)]
                self.reads[key][name] = (of_lookup[0], of_lookup[1], of_lookup[2] / 1e3)

    def keep(self, key: str, name: str, number: int, time_us: float) -> None:
        if number > 0:
            self.times_us[key].setdefault(name, []).append(time_us)

    def tell(self, number: int, cold: bool) -> None:
        """Says what the round took, in microseconds."""
        for key, one in MEASURES.items():
            found = {name: times for name, times in self.times_us[key].items() if name not in SCANNING and len(times) == number > 0}
            if bool(one.cold) == cold and found:
                say(f"round {number}: {one.title}: {', '.join(f'{name} {times[-1]:.1f}' for name, times in found.items())}")

    def ask_library(self, options: tuple[str, ...], seed: int) -> float:
        """Returns the median time in microseconds of `examples/lookup_speed`, which draws ids of its own."""
        command = [EXAMPLES / "lookup_speed", self.folders["package"], "id", "--lookups", LOOKUPS, "--seed", seed + 1, *options]
        return float(re.search(r"p50 ([0-9.]+) us", run(command))[1])

    def ask_command(self) -> None:
        """Has `turbidite tracks` find many particles of an epoch: by the path it chooses, and by a scan."""
        ids, target = self.scratch / "ids.txt", self.scratch / "found.parquet"
        ids.write_text("\n".join(map(str, numpy.load(self.scratch / "many.npy"))))
        command = [COMMAND, "tracks", self.folders["package"], "--id", "id", "--ids", f"@{ids}", "--epoch", 0, "-o", target, "--json"]
        for _ in range(MANY_ROUNDS):
            for path, forced in {"chosen": [], "scan": ["--use", "scan"]}.items():
                target.unlink(missing_ok=True)
                cost = measure([*command, *forced], output=self.scratch / "tracks.txt")
                if cost.failure:
                    sys.exit(f"turbidite tracks {cost.failure}")
                self.commands.setdefault(path, []).append(cost)
        say(", ".join(f"{path} {median(cost.wall_s for cost in costs):.2f} s" for path, costs in self.commands.items()))

    def figures(self) -> dict:
        commands = {path: [cost.wall_s for cost in costs] for path, costs in self.commands.items()}
        return {"load": self.costs, "times_us": self.times_us, "cold reads": self.reads, "tracks_s": commands}

    def found_us(self, key: str, name: str) -> float:
        return median(self.times_us[key][name])

    def ingest_s(self, key: str) -> float:
        return median(cost.wall_s for cost in self.ingests[key])

    def faster(self, what: str, key: str, ours: str, name: str, limit: float) -> Line:
        ours_us, time_us = self.found_us(key, ours), self.found_us(key, name)
        details = f"{ours_us / 1e3:.2f} and {time_us / 1e3:.1f} ms"
        return Line(f"{what}, over {NAMES[name]}", "{} x as fast", "{:.0f} x", limit, time_us / ours_us, details)

    def ratios(self) -> dict[str, float]:
        """Those of the library, without Python's threads. Below 1 we are faster."""
        keys = {"query one id": "one", "query an absent id": "absent", "query a trajectory": "track"}
        ratios = {}
        for title, key in keys.items():
            ratios[f"{title} / RocksDB"] = self.found_us(key, LIBRARY) / self.found_us(key, "rocksdb")
        return ratios

    def table(self) -> list[str]:
        """A row for each measure, with the ratio to `get` in Python, and the goals."""
        lines = [f"| {len(self.epochs)} epochs | {' | '.join(NAMES.values())} |", "| --- |" + " ---: |" * len(NAMES)]
        for key, one in MEASURES.items():
            cells = []
            for name in NAMES:
                if name not in self.times_us[key]:
                    cells.append("")
                    continue
                time_us = self.found_us(key, name)
                digits = 1 if time_us / one.unit_us < 1000 else 0
                cell = f"{time_us / one.unit_us:,.{digits}f} ({time_us / self.found_us(key, 'package'):.2g}x)"
                if one.cold:
                    reads, faults, kilobytes = self.reads[key][name]
                    cell += f"; {reads + faults:.0f} reads, {kilobytes:.0f} kB"
                cells.append(cell)
            lines.append(f"| {one.title}, {one.unit} | {' | '.join(cells)} |")
        for title, cost, form in (("load, s", "wall_s", "{:.1f}"), ("load, CPU s", "cpu_s", "{:.1f}"), ("bytes on disk / bytes of records", "size", "{:.3f}")):
            cells = [form.format(self.costs[name][cost]) if name in self.costs else "" for name in NAMES]
            lines.append(f"| {title} | {' | '.join(cells)} |")
        for path, costs in self.commands.items():
            title = f"{MANY:,} ids of one epoch by `tracks --ids`{' --use scan' if path == 'scan' else ''}, ms"
            lines.append(f"| {title} | {median(cost.wall_s for cost in costs) * 1e3:.0f} |" + " |" * (len(NAMES) - 1))
        return [*lines, "", "| | goal | measured | | |", "| --- | --- | ---: | --- | --- |", *(line.cells() for line in self.goals())]

    def goals(self) -> list[Line]:
        beside = {key: ", ".join(f"{NAMES[name]} {self.found_us(key, name):.1f} µs" for name in (*OURS, *DATABASES)) for key in ("one", "absent", "track")}
        return [
            Line("one id, by the library", "{} µs", "{:.1f} µs", 20, self.found_us("one", LIBRARY), beside["one"], at_most=True),
            Line("trajectory, by the library", "{} µs", "{:.1f} µs", 120, self.found_us("track", LIBRARY), beside["track"], at_most=True),
            Line("an absent id, by the library", "{} µs", "{:.1f} µs", 3, self.found_us("absent", LIBRARY), beside["absent"], at_most=True),
            *(self.faster("trajectory", "track", LIBRARY, name, limit) for name, limit in ((RAW, 2000), ("polars, unsorted", 1200))),
            self.faster("trajectory, cold", "track cold", "package", RAW, 300),
            *(
                Line(
                    f"load, {what}, over RocksDB's",
                    "{} x",
                    "{:.1f} x",
                    10,
                    self.costs["rocksdb"][figure] / self.costs["package"][figure],
                    f"{self.costs['package'][figure]:.1f} and {self.costs['rocksdb'][figure]:.1f} s",
                )
                for figure, what in (("wall_s", "time"), ("cpu_s", "CPU time"))
            ),
            Line(
                "ingest by hash:id, over ingest by id",
                "{} x as fast",
                "{:.2f} x",
                0.95,
                self.ingest_s("id") / self.ingest_s("hash:id"),
                f"medians of {INGESTS}: {self.ingest_s('hash:id'):.2f} and {self.ingest_s('id'):.2f} s",
            ),
            Line(
                "bytes on disk",
                "{} x the records",
                "{:.3f} x",
                1.07,
                self.costs["package"]["size"],
                ", ".join(f"{NAMES[name]} {self.costs[name]['size']:.3f} x" for name in DATABASES),
                at_most=True,
            ),
        ]
