"""The benchmark: ingest and queries next to raw writes, DuckDB and Polars, on this machine and in one run.

Every figure is a ratio of things measured minutes apart; absolute figures of a shared machine mean little. Whole
processes are timed with their processor time. Rounds go through all contestants in turn, and medians are reported, so
that a slow minute hits everyone. Prints Markdown; `--json FILE` keeps all single measurements.

Usage: run.py [--quick] [--width 36|64] [--rounds N] [--scratch FOLDER] [--json FILE]
"""

import argparse
import csv
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb
import numpy
import polars
from pyarrow import parquet

HERE = Path(__file__).resolve().parent
MEASURE = HERE.parent / "tests" / "support" / "measure.py"
sys.path.insert(0, str(HERE))
import data  # noqa: E402

RANKS = 16
EPOCHS = 4
SELECTIVITIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
RAW_WRITES = [
    (mode, threads, block) for mode, block in (("buffered", 4 << 20), ("direct", 12 << 20)) for threads in (1, 2, 4)
]


@dataclass(frozen=True)
class Cost:
    """What a process took."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def measure(command: list, own_clock: bool = False) -> Cost:
    """Runs a process to its end. What was written before is on disk beforehand, so that it does not count here.

    With `own_clock` the process prints its wall and processor seconds, since starting Python is no part of the matter.
    """
    os.sync()
    with tempfile.NamedTemporaryFile("r") as result:
        measured = [sys.executable, "-S", MEASURE, result.name, *command]
        done = subprocess.run([str(argument) for argument in measured], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"exit {done.returncode}: {' '.join(map(str, command))}")
        figures = json.load(result)
    wall_s, cpu_s = map(float, done.stdout.split()) if own_clock else (figures["wall_s"], figures["cpu_s"])
    return Cost(wall_s, cpu_s, figures["peak_bytes"] / (1 << 20))


def median(values) -> float:
    return statistics.median(values)


class Bench:
    """One run: its scratch folder, its sizes, and all that was measured."""

    def __init__(self, scratch: Path, width: str, total_bytes: int, rounds: int):
        self.scratch, self.width, self.rounds = scratch, width, rounds
        self.command = os.environ["TURBIDITE"]
        self.total_bytes = total_bytes
        self.costs: dict[str, list[Cost]] = {}
        self.queries: dict[float, dict[str, list[float]]] = {}

    def prepare(self) -> None:
        self.unsorted = data.generate(self.scratch, self.width, self.total_bytes, EPOCHS, RANKS)
        source = self.scratch / "source"
        self.stored_bytes = sum(path.stat().st_size for path in source.glob("E.*/*"))
        self.dataset = self.scratch / "dataset"

    def ingest(self) -> Cost:
        shutil.rmtree(self.dataset, ignore_errors=True)
        source = self.scratch / "source"
        arguments = ["ingest", source, "--layout", source / "layout.toml", "--out", self.dataset, "--key", "energy", "--ranks", RANKS]
        return measure([self.command, *arguments])

    def raw_write(self, mode: str, threads: int, block: int) -> Cost:
        folder = self.scratch / "raw"
        arguments = [folder, self.stored_bytes, EPOCHS * RANKS, threads, block, mode]
        cost = measure([sys.executable, HERE / "raw_write.py", *arguments], own_clock=True)
        shutil.rmtree(folder)
        return cost

    def sort(self, engine: str) -> Cost:
        """All epochs, one after the other, in processes of their own as a batch job would."""
        costs = []
        for label, path in self.unsorted.items():
            target = self.sorted_copy(engine, label)
            target.unlink(missing_ok=True)
            costs.append(measure([sys.executable, HERE / "sort_peer.py", engine, path, target], own_clock=True))
        return Cost(sum(c.wall_s for c in costs), sum(c.cpu_s for c in costs), max(c.peak_mib for c in costs))

    def sorted_copy(self, engine: str, label: int) -> Path:
        return self.scratch / f"sorted-{engine}-{label}.parquet"

    def writes(self) -> None:
        contestants = {f"raw {mode} x{threads}": (self.raw_write, (mode, threads, block)) for mode, threads, block in RAW_WRITES}
        contestants |= {"turbidite": (self.ingest, ()), "duckdb": (self.sort, ("duckdb",)), "polars": (self.sort, ("polars",))}
        for number in range(self.rounds):
            for name, (function, arguments) in contestants.items():
                cost = function(*arguments)
                self.costs.setdefault(name, []).append(cost)
                print(f"  round {number + 1}: {name}: {cost.wall_s:.2f} s, {cost.cpu_s:.2f} CPU s", file=sys.stderr)

    def read(self) -> None:
        """Queries of all columns of one epoch, warm, ours inside one process as the others are."""
        label = max(self.unsorted)
        keys = numpy.sort(parquet.read_table(self.unsorted[label], columns=["energy"]).column("energy").to_numpy())
        rng = numpy.random.default_rng(7)
        bounds = {}
        for share in SELECTIVITIES:
            count = max(1, int(share * len(keys)))
            begins = rng.integers(0, len(keys) - count + 1, self.rounds if share == 1 else 7)
            bounds[share] = [(float(keys[begin]), float(keys[begin + count - 1])) for begin in begins]
        for share, ranges in bounds.items():
            mine = self.own_queries(label, ranges)
            rows = {"turbidite": [row for row, _ in mine]}
            times = {"turbidite": [seconds for _, seconds in mine]}
            for engine, function, path in (
                ("duckdb", duckdb_query, self.sorted_copy("duckdb", label)),
                ("polars", polars_query, self.sorted_copy("polars", label)),
                ("duckdb on ours", duckdb_query, self.dataset / "data" / f"epoch={label}"),
            ):
                rows[engine], times[engine] = zip(*(timed(function, path, *bound) for bound in ranges))
            for engine, found in rows.items():
                if list(found) != list(rows["turbidite"]):
                    sys.exit(f"{engine} finds {found} rows, turbidite {rows['turbidite']}")
            self.queries[share] = {engine: list(values) for engine, values in times.items()}
            print(f"  queries of {share:g}: done", file=sys.stderr)

    def own_queries(self, label: int, ranges: list[tuple[float, float]]) -> list[tuple[int, float]]:
        """Rows and seconds of each range, from the log of a batch; each range three times, the median counts."""
        queries, log = self.scratch / "queries.csv", self.scratch / "querylog.csv"
        with queries.open("w") as file:
            for low, high in ranges * 3:
                file.write(f"{label},{low!r},{high!r}\n")
        measure([self.command, "query", self.dataset, "--batch", queries, "--log", log])
        with log.open() as file:
            lines = list(csv.DictReader(file))
        result = []
        for number in range(len(ranges)):
            repeats = lines[number :: len(ranges)]
            seconds = [float(line["total_s"]) for line in repeats]
            result.append((int(repeats[0]["matches"]), median(seconds)))
        return result

    def report(self) -> str:
        wall = {name: median(cost.wall_s for cost in costs) for name, costs in self.costs.items()}
        cpu = {name: median(cost.cpu_s for cost in costs) for name, costs in self.costs.items()}
        peak = {name: max(cost.peak_mib for cost in costs) for name, costs in self.costs.items()}
        megabytes = self.stored_bytes / 1e6
        fastest = min((name for name in wall if name.startswith("raw")), key=wall.get)
        lines = [
            f"### {self.width}-byte records, {megabytes:.0f} MB in {EPOCHS} epochs, {RANKS} ranks, median of {self.rounds}",
            "",
            "| | wall s | MB/s | MB per CPU s | peak MiB | wall / turbidite | CPU / turbidite |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]

        def line(name: str, wall_s: float, cpu_s: float, peak_mib: float) -> str:
            ratios = f"{wall_s / wall['turbidite']:.2f} | {cpu_s / cpu['turbidite']:.2f}"
            return f"| {name} | {wall_s:.2f} | {megabytes / wall_s:.0f} | {megabytes / cpu_s:.0f} | {peak_mib:.0f} | {ratios} |"

        for name in sorted(wall, key=lambda name: (not name.startswith("raw"), wall[name])):
            if name.startswith("raw") or name == "turbidite":
                lines.append(line(name, wall[name], cpu[name], peak[name]))
        for name in ("duckdb", "polars"):
            total = wall[fastest] + wall[name], cpu[fastest] + cpu[name]
            lines.append(line(f"{fastest}, then sort with {name}", *total, peak[name]))
        lines += [
            "",
            f"Ingest reaches {wall[fastest] / wall['turbidite']:.2f} of the fastest raw write ({fastest}).",
            "",
            "| selectivity | turbidite ms | duckdb, sorted copy | polars, sorted copy | duckdb on our files |",
            "| ---: | ---: | ---: | ---: | ---: |",
        ]
        for share, times in self.queries.items():
            mine = median(times["turbidite"])
            cells = [f"{median(times[name]) * 1e3:.2f} ({median(times[name]) / mine:.1f}x)" for name in ("duckdb", "polars", "duckdb on ours")]
            lines.append(f"| {share:g} | {mine * 1e3:.2f} | {' | '.join(cells)} |")
        return "\n".join(lines)

    def raw_figures(self) -> dict:
        return {
            "record_bytes": int(self.width),
            "stored_bytes": self.stored_bytes,
            "costs": {name: [asdict(cost) for cost in costs] for name, costs in self.costs.items()},
            "query_s": {f"{share:g}": times for share, times in self.queries.items()},
        }


CONNECTION = duckdb.connect()


def duckdb_query(path: Path, low: float, high: float) -> int:
    query = f"SELECT * FROM read_parquet('{path}') WHERE energy BETWEEN {low!r}::FLOAT AND {high!r}::FLOAT"
    return CONNECTION.execute(query).to_arrow_table().num_rows


def polars_query(path: Path, low: float, high: float) -> int:
    condition = polars.col("energy").is_between(polars.lit(low, polars.Float32), polars.lit(high, polars.Float32))
    return polars.scan_parquet(path).filter(condition).collect().height


def timed(function, *arguments) -> tuple[int, float]:
    """The answer and the median time of three calls after one that warms up."""
    rows = function(*arguments)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        function(*arguments)
        seconds.append(time.perf_counter() - began)
    return rows, median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="100 MB and one round: shows that it works, not how fast")
    parser.add_argument("--width", choices=sorted(data.RECORDS), action="append", help="bytes per record; both unless given")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()), help="where to write about 8 GB")
    parser.add_argument("--json", type=Path, help="keep the single measurements here")
    options = parser.parse_args()
    total_bytes, rounds = (100_000_000, 1) if options.quick else (1_000_000_000, options.rounds)
    figures = []
    print(f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}; DuckDB {duckdb.__version__}, Polars {polars.__version__}\n")
    for width in options.width or sorted(data.RECORDS):
        with tempfile.TemporaryDirectory(prefix="turbidite-bench-", dir=options.scratch) as folder:
            bench = Bench(Path(folder), width, total_bytes, rounds)
            bench.prepare()
            bench.writes()
            bench.read()
            print(bench.report() + "\n")
            figures.append(bench.raw_figures())
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
