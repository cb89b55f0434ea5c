"""The benchmark: ingest, queries and lookups next to raw writes, DuckDB, Polars and RocksDB, on this machine and in one run.

Every figure is compared with others of the same run; absolute figures of a shared machine mean little. Rounds go through
all contestants in turn, and medians are reported, so that a slow minute hits everyone. Prints Markdown, and with
`--out` keeps it together with all single measurements and plots. `--quick` takes about a minute and compares its ratios
with the committed ones of `quick.json`; it fails when one is worse by half. `--quick --parts lookups` has 2 epochs instead of 8.

Usage: run.py [--quick [--commit]] [--bytes N] [--large-bytes N] [--rounds N] [--parts A,B] [--epochs N,N] [--scratch FOLDER] [--out FOLDER]
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import analysis
import bitmaps
import capped
import data
import duckdb
import epochs
import indexes
import ingest
import lookups
import many_epochs
import overlap
import package
import plots
import polars
import queries
import scaling
import space
from common import EPOCHS, HERE, RANKS, median, say

WIDTHS = (36, 64)
PARTS = ("ingest", "query", "epochs", "capped", "large", "scaling", "python", "lookups", "space", "bitmaps", "indexes", "epochs-many", "analysis")
QUICK_PARTS = ("ingest", "query", "epochs")
QUICK = HERE / "quick.json"
# A ratio may be this much worse than the committed one before it counts: machines are shared.
LEEWAY = 1.5


class Bench:
    """One run: where it works, how much, and what it found."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.lines = [
            f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}; DuckDB {duckdb.__version__}, Polars {polars.__version__}; "
            f"median of {options.rounds} rounds."
        ]
        self.figures: dict[str, object] = {}
        self.ratios: dict[str, float] = {}

    def section(self, title: str, lines: list[str]) -> None:
        self.lines += ["", f"### {title}", "", *lines]
        print("\n".join([f"### {title}", "", *lines, ""]), flush=True)

    def width(self, scratch: Path, width: int) -> None:
        """Ingest and queries of records of one width."""
        options = self.options
        quick = options.quick
        memory, sorted_by, compacted = {}, {}, []
        if "ingest" in options.parts:
            contestants = [*ingest.RAW[2:5], ingest.MAIN, "shuffle", "sort"] if quick else [*ingest.RAW, *ingest.OURS]
            memory = ingest.from_memory(scratch, width, options.bytes, options.rounds, contestants)
        label, unsorted = None, data.generate(scratch, str(width), options.bytes, EPOCHS, RANKS)
        label = max(unsorted)
        ingest.dataset(scratch)
        if "ingest" in options.parts:
            engines = ["duckdb", "polars"] if quick else ["duckdb", "polars", "pyarrow"]
            sorted_by = ingest.sorts(scratch, unsorted, engines, options.rounds)
        compacted = ingest.compaction(scratch, options.rounds if "ingest" in options.parts else 1)
        if memory:
            title = f"Ingest: {width}-byte records, {options.bytes / 1e9:g} GB in {EPOCHS} epochs"
            self.section(title, ingest.table(memory, sorted_by, compacted))
            self.figures[f"ingest-{width}"] = {"memory": memory, "sorts": {name: [asdict(cost) for cost in costs] for name, costs in sorted_by.items()}}
            self.keep_ratios(width, ingest.ratios(memory, sorted_by))
            self.plot_ingest(width, memory, sorted_by)
        if "query" in options.parts:
            self.query(scratch, width, label, unsorted[label])

    def query(self, scratch: Path, width: int, label: int, unsorted: Path) -> None:
        asked = queries.Queries(scratch, label, unsorted, self.options.quick)
        asked.selectivities("all", cold=False, peers=("polars, sorted",) if self.options.quick else queries.PEERS)
        if not self.options.quick:
            asked.selectivities("key", cold=False, peers=("polars, sorted", "duckdb, sorted"))
            asked.selectivities("all", cold=True, peers=("polars, sorted", queries.DIRECT))
            asked.batches()
        self.section(f"Queries: {width}-byte records, one epoch of {self.options.bytes / EPOCHS / 1e9:g} GB; milliseconds (over ours)", asked.table())
        if not self.options.quick:
            self.section(f"Strays apart or not: {width}-byte records, the same epoch", overlap.table(scratch / "dataset", label, unsorted))
        self.figures[f"query-{width}"] = asked.found
        self.keep_ratios(width, asked.ratios())
        if self.options.out:
            series: dict[str, list[tuple[float, float]]] = {}
            for key, took in asked.found.items():
                if key.startswith("share") and key.endswith("all columns, warm"):
                    share = float(key.split(",")[0].removeprefix("share-"))
                    for name, us in took.items():
                        series.setdefault(name, []).append((share, us / 1e3))
            title = f"Range queries, {width}-byte records, all columns, warm"
            plots.curves(self.options.out / f"query-{width}.svg", title, ("rows that match, %", "milliseconds"), series, queries.OURS)

    def plot_ingest(self, width: int, memory: dict, sorted_by: dict) -> None:
        if not self.options.out:
            return
        raw_s = median(line["wall_s"] for line in memory[ingest.fastest_raw(memory)])
        megabytes = self.options.bytes / 1e6
        rates = {ingest.name(key): megabytes / median(line["wall_s"] for line in lines) for key, lines in memory.items()}
        for engine, costs in sorted_by.items():
            if not any(cost.failure for cost in costs) and engine != "pyarrow":
                rates[f"raw write, then {engine}"] = megabytes / (raw_s + median(cost.wall_s for cost in costs))
        title = f"Ingest, {width}-byte records"
        plots.bars(self.options.out / f"ingest-{width}.svg", title, "MB/s, synced", rates, ("turbidite",))

    def large(self, scratch: Path) -> None:
        """The goal's own setting: as much as fits, 64-byte records, 16 ranks, one epoch after the other."""
        contestants = [*ingest.RAW[1:5], ingest.MAIN, *ingest.PARTLY]
        memory = ingest.from_memory(scratch, 64, self.options.large_bytes, self.options.rounds, contestants)
        self.section(f"Ingest: 64-byte records, {self.options.large_bytes / 1e9:g} GB in {EPOCHS} epochs", ingest.table(memory, {}, []))
        self.figures["large"] = memory

    def capped(self, scratch: Path) -> None:
        """Storage of a known speed, as a shared file system leaves it to a node."""
        title = "Ingest under a limit on writes: 64-byte records, 16 ranks"
        try:
            found = capped.study(scratch, self.options.large_bytes, self.options.rounds)
            overlapped = capped.overlapped(scratch, self.options.rounds)
        except capped.Refused as refused:
            self.section(title, [f"Not measured: {refused}."])
            return
        self.section(title, capped.table(found))
        self.figures["capped"] = {str(limit_mb): lines for limit_mb, lines in found.items()}
        title = f"Indexing while a program computes on all cores, one rank on each, under a limit of {capped.OVERLAPPED_LIMIT_MB} MB/s per core"
        self.section(title, capped.overlapped_table(overlapped))
        self.figures["overlapped"] = overlapped

    def scale(self, scratch: Path) -> None:
        found = scaling.study(scratch, self.options.bytes // 2, self.options.rounds)
        self.section(f"Scaling: {self.options.bytes / 2e9:g} GB, 36-byte records unless columns are studied, 16 ranks, 2 epochs", scaling.table(found))
        self.figures["scaling"] = found

    def epochs(self, scratch: Path) -> None:
        quick = self.options.quick
        shapes, ranks = (epochs.QUICK_SHAPES, epochs.QUICK_RANKS) if quick else (epochs.SHAPES, epochs.RANKS)
        found = epochs.study(scratch, shapes, ranks, self.options.rounds)
        self.section("Epochs of 36-byte records by the command, dumps read and durable", epochs.table(found))
        self.figures["epochs"] = found
        for shape, figures in found.items():
            self.ratios |= {f"{shape}: {name}": figures[name] for name in ("MB per CPU s", "over copy and DuckDB")}

    def many_epochs(self, scratch: Path) -> None:
        found = many_epochs.study(scratch, self.options.epochs, self.options.rounds)
        self.section(f"Many epochs of {many_epochs.ROWS:,} records of 12 bytes", many_epochs.table(found))
        self.figures["epochs-many"] = {epochs: {name: cost if isinstance(cost, int) else asdict(cost) for name, cost in of.items()} for epochs, of in found.items()}

    def analysis(self, scratch: Path) -> None:
        lines, self.figures["analysis"] = analysis.study(scratch, max(self.options.rounds, 5), self.options.quick)
        self.section(f"Analysis: {analysis.EPOCHS} epochs of {analysis.QUICK_ROWS if self.options.quick else analysis.ROWS:,} records of 28 bytes", lines)

    def python(self, scratch: Path) -> None:
        measured = package.Package(scratch, self.options.bytes, self.options.large_bytes, self.options.rounds)
        self.section(f"The Python package: files of {self.options.bytes / 1e9:g} GB", measured.table())
        self.figures["python"] = measured.figures

    def lookups(self, scratch: Path) -> None:
        measured = lookups.Lookups(scratch, self.options.rounds, self.options.quick)
        measured.study()
        self.section(f"Lookups: epochs of {lookups.EPOCH_ROWS:,} records of 36 bytes, clustered by hash:id", measured.table())
        self.figures["lookups"] = measured.figures()
        self.ratios |= {f"lookups: {name}": value for name, value in measured.ratios().items()}

    def space(self, scratch: Path) -> None:
        measured = space.Space(scratch, self.options.rounds, self.options.quick)
        measured.study()
        self.section(f"Boxes: an epoch of {measured.rows:,} records of 36 bytes, clustered by space:x,y,z", measured.table())
        self.figures["space"] = measured.found

    def bitmaps(self, scratch: Path) -> None:
        measured = bitmaps.Bitmaps(scratch, self.options.rounds, self.options.quick)
        measured.study()
        self.section(f"Bitmap indexes: an epoch of {measured.rows:,} records of 36 bytes, `{bitmaps.INDEX}`", measured.table())
        self.figures["bitmaps"] = measured.figures()

    def indexes(self, scratch: Path) -> None:
        measured = indexes.Indexes(scratch, self.options.rounds, self.options.quick)
        measured.study()
        self.section(f"Sorted indexes: {measured.epochs} epochs of {measured.rows:,} records of 36 bytes", measured.table())
        self.figures["indexes"] = measured.figures()

    def keep_ratios(self, width: int, ratios: dict[str, float]) -> None:
        self.ratios |= {f"{width} bytes: {name}": value for name, value in ratios.items()}

    def compare(self) -> list[str]:
        """The ratios beside the committed ones; answers those that are worse by more than the leeway."""
        committed = json.loads(QUICK.read_text()) if QUICK.exists() else {}
        lines, worse = ["| | now | committed | |", "| --- | ---: | ---: | --- |"], []
        for name, now in self.ratios.items():
            before = committed.get(name)
            loss = 0.0 if before is None else now / before if ": query" in name else before / now
            if loss > LEEWAY:
                worse.append(name)
            lines.append(f"| {name} | {now:.3g} | {'' if before is None else f'{before:.3g}'} | {'**worse**' if loss > LEEWAY else ''} |")
        self.section("Ratios", lines)
        return worse


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="about a minute: 200 MB, and a comparison with the committed ratios")
    parser.add_argument("--commit", action="store_true", help="with --quick: keep these ratios as the committed ones")
    parser.add_argument("--bytes", type=lambda text: int(float(text)), default=2_000_000_000)
    parser.add_argument("--large-bytes", type=lambda text: int(float(text)), default=8_000_000_000, help="has to fit into memory")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=lambda text: tuple(map(int, text.split(","))), default=(1_000, 10_000), help="of epochs-many, such as 1000,10000,100000")
    parser.add_argument("--parts", type=lambda text: text.split(","), help=f"{','.join(PARTS)}; without it all, or {','.join(QUICK_PARTS)} with --quick")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()), help="where to write about 20 GB")
    parser.add_argument("--out", type=Path, help="keep report.md, figures.json and plots in this folder")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.bytes, chosen.rounds = 200_000_000, 3
    chosen.parts = chosen.parts or list(QUICK_PARTS if chosen.quick else PARTS)
    return chosen


def main() -> int:
    chosen = options()
    if chosen.out:
        chosen.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(chosen)
    for width in WIDTHS[1:] if chosen.quick else WIDTHS:
        if {"ingest", "query"} & set(chosen.parts):
            with tempfile.TemporaryDirectory(prefix="turbidite-bench-", dir=chosen.scratch) as folder:
                bench.width(Path(folder), width)
    works = {"epochs": bench.epochs, "capped": bench.capped, "large": bench.large, "scaling": bench.scale, "python": bench.python, "lookups": bench.lookups, "space": bench.space, "bitmaps": bench.bitmaps, "indexes": bench.indexes, "epochs-many": bench.many_epochs, "analysis": bench.analysis}
    for part, work in works.items():
        if part in chosen.parts:
            with tempfile.TemporaryDirectory(prefix="turbidite-bench-", dir=chosen.scratch) as folder:
                work(Path(folder))
    if chosen.out:
        (chosen.out / "report.md").write_text("\n".join(bench.lines) + "\n")
        (chosen.out / "figures.json").write_text(json.dumps(bench.figures, indent=1))
    if chosen.quick:
        worse = bench.compare()
        if chosen.commit:
            kept = json.loads(QUICK.read_text()) if QUICK.exists() else {}
            kept |= {name: float(f"{value:.3g}") for name, value in bench.ratios.items()}
            QUICK.write_text(json.dumps(kept, indent=1) + "\n")
        elif worse:
            say(f"worse than committed by more than {LEEWAY} times: {', '.join(worse)}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
