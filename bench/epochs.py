"""The command's ingest of small and large epochs, by many and by few ranks: reading the dumps included, the start of the
process, too.

Next to it stands what a user does without us: a plain copy of the dumps, and DuckDB's sort of each epoch to Parquet.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import data
from common import COMMAND, HERE, Cost, measure, median, say

MB = 1_000_000
# Number and size of the epochs. A run of 64 epochs is one of the many small dumps of diagnostics.
SHAPES = ((64, 8 * MB), (8, 66 * MB), (4, 264 * MB), (1, 2000 * MB))
QUICK_SHAPES = ((16, 8 * MB),)
RANKS, QUICK_RANKS = (1, 4, 16, 64), (16,)
FILES = 64


@dataclass(frozen=True)
class Ingest:
    """One ingest: its cost, and what came of it."""

    cost: Cost
    figures: dict
    files: int

    def mean(self, what: str) -> float:
        return sum(epoch[what] for epoch in self.figures["epochs"]) / len(self.figures["epochs"])


def copy(source: Path, target: Path) -> float:
    """Copies files durably, as a simulation writes them without us. Returns the seconds."""
    began = time.perf_counter()
    for path in sorted(source.rglob("records.*")):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
        with place.open("rb") as file:
            os.fsync(file.fileno())
    return time.perf_counter() - began


def ingest(scratch: Path, ranks: int) -> Ingest:
    source, target, report = scratch / "source", scratch / "dataset", scratch / "report.json"
    shutil.rmtree(target, ignore_errors=True)
    command = [COMMAND, "ingest", source, "--layout", source / "layout.toml", "--out", target, "--key", "energy", "--ranks", ranks, "--json"]
    cost = measure(command, output=report)
    if cost.failure:
        sys.exit(f"ingest with {ranks} ranks {cost.failure}")
    return Ingest(cost, json.loads(report.read_text()), len(list(target.glob("data/*/*.parquet"))))


def without_us(scratch: Path, unsorted: dict[int, Path]) -> float:
    """The seconds of a plain copy, and of DuckDB's sort of each epoch in one process."""
    shutil.rmtree(scratch / "copy", ignore_errors=True)
    os.sync()
    copy_s = copy(scratch / "source", scratch / "copy")
    shutil.rmtree(scratch / "copy")
    pairs = [place for path in unsorted.values() for place in (path, path.with_name(f"sorted-{path.name}"))]
    cost = measure([sys.executable, HERE / "sort_peer.py", "duckdb", *pairs], own_clock=True)
    for path in pairs[1::2]:
        path.unlink(missing_ok=True)
    if cost.failure:
        sys.exit(f"DuckDB's sort {cost.failure}")
    return copy_s + cost.wall_s


def study(scratch: Path, shapes: tuple, ranks: tuple, rounds: int) -> dict[str, dict]:
    """All shapes: each in a folder of its own, the contestants in turn."""
    found = {}
    for epochs, epoch_bytes in shapes:
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            shape = Path(folder)
            unsorted = data.drift(shape, epoch_bytes, epochs, FILES)
            others, ours = [], {number: [] for number in ranks}
            for _ in range(rounds):
                others.append(without_us(shape, unsorted))
                for number in ranks:
                    ours[number].append(ingest(shape, number))
            name = f"{epochs} x {epoch_bytes / MB:g} MB"
            found |= {f"{name}, {number} ranks": line(ours[number], others) for number in ranks}
            for number in ranks:
                say(f"{name}, {number} ranks: {found[f'{name}, {number} ranks']}")
    return found


def line(ours: list[Ingest], others: list[float]) -> dict[str, float]:
    """The medians of one shape with one number of ranks."""
    megabytes = ours[0].figures["stored_bytes"] / 1e6
    return {
        "MB per CPU s": megabytes / median(one.cost.cpu_s for one in ours),
        "over copy and DuckDB": median(others) / median(one.cost.wall_s for one in ours),
        "wall s": median(one.cost.wall_s for one in ours),
        "files": ours[0].files,
        "imbalance %": 100 * median(one.mean("load_imbalance") for one in ours),
        "worst %": 100 * max(epoch["load_imbalance"] for one in ours for epoch in one.figures["epochs"]),
        "tables": median(one.mean("renegotiations") for one in ours),
        "strays %": 100 * median(sum(epoch["strays"] for epoch in one.figures["epochs"]) / one.figures["rows"] for one in ours),
    }


def table(found: dict[str, dict]) -> list[str]:
    names = list(next(iter(found.values())))
    lines = [f"| epochs, ranks | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
    return lines + [f"| {shape} | {' | '.join(f'{figures[name]:.3g}' for name in names)} |" for shape, figures in found.items()]
