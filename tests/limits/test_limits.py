"""What is promised about cost: bytes written per byte stored, and memory, on an ingest of 1 GB."""

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy
import pytest

from support import raw
from support.command import ROOT, answer, turbidite

RANKS = 16
EPOCHS = 4
STORED_BYTES = 1_000_000_000
RECORD = numpy.dtype([("energy", "<f4"), ("id", "<u4"), ("payload", "V56")])


@dataclass(frozen=True)
class Ingested:
    """A finished ingest and what its process took."""

    dataset: Path
    rows: int
    written_bytes: int
    peak_bytes: int


@pytest.fixture(scope="module")
def ingested(scratch) -> Ingested:
    root, dataset = scratch / "limits-source", scratch / "limits"
    rng = numpy.random.default_rng(8)
    per_rank = STORED_BYTES // RECORD.itemsize // EPOCHS // RANKS
    rows = numpy.zeros(per_rank, RECORD)
    for epoch in range(EPOCHS):
        folder = root / f"E.{epoch}"
        folder.mkdir(parents=True)
        for rank in range(RANKS):
            rows["energy"] = rng.lognormal(0, 2, per_rank)
            rows["id"] = numpy.arange(rank * per_rank, (rank + 1) * per_rank)
            rows.tofile(folder / f"records.{rank}")
    raw.write_layout(root / "layout.toml", RECORD, "E.{epoch}/records.{rank}")
    os.sync()
    figures = scratch / "limits.json"
    measure = (sys.executable, "-S", ROOT / "tests" / "support" / "measure.py", figures)
    turbidite(*raw.ingest_arguments(root, dataset, "energy", "--ranks", RANKS), prefix=measure)
    took = json.loads(figures.read_text())
    return Ingested(dataset, per_rank * RANKS * EPOCHS, took["written_bytes"], took["peak_bytes"])


def test_write_amplification(ingested):
    stored = ingested.rows * RECORD.itemsize
    on_disk = sum(path.stat().st_size for path in ingested.dataset.rglob("*") if path.is_file())
    reported = [epoch["write_amplification"] for epoch in answer("stats", ingested.dataset)]
    print(f"write amplification: files {on_disk / stored:.5f}, written {ingested.written_bytes / stored:.5f}, reported {reported}")
    assert on_disk / stored <= 1.01
    # The kernel's count of this process's writes; a file system in memory counts none.
    assert ingested.written_bytes / stored <= 1.01
    assert len(reported) == EPOCHS and all(1 <= figure <= 1.01 for figure in reported)


def budget_bytes(ranks: int, receivers: int, threads: int, commands: int) -> float:
    """The sum of the memory table in ARCHITECTURE.md; `commands` is 0 for the library inside of another program."""
    _, found, rest = (ROOT / "ARCHITECTURE.md").read_text().partition("<!-- memory -->")
    assert found
    counts = {"rank": ranks, "receiver": receivers, "thread": threads, "command": commands}
    total = 0.0
    for line in rest.lstrip().splitlines()[2:]:
        if not line.startswith("|"):
            break
        _, size, unit = (cell.strip() for cell in line.strip("|").split("|"))
        total += float(size) * counts[unit] * (1 << 20)
    return total


def test_memory_stays_within_the_table(ingested):
    budget = budget_bytes(RANKS, RANKS, len(os.sched_getaffinity(0)), 1)
    print(f"peak memory {ingested.peak_bytes / 2**20:.1f} MiB, budget {budget / 2**20:.1f} MiB")
    assert ingested.peak_bytes <= budget


def test_the_table_promises_at_most_27_mib_for_one_rank_of_many():
    assert budget_bytes(1, 1, 1, 0) <= 27 * (1 << 20)
    assert re.search(r"27 MiB", (ROOT / "ARCHITECTURE.md").read_text())
