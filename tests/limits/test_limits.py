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
from support.budget import budget_bytes
from support.command import ROOT, answer, turbidite

pytestmark = pytest.mark.serial

RANKS = 16
EPOCHS = 4
STORED_BYTES = 1_000_000_000
RECORD = numpy.dtype([("energy", "<f4"), ("id", "<u4"), ("ux", "<f4"), ("uy", "<f4"), ("payload", "V48")])


@dataclass(frozen=True)
class Ingested:
    """A finished ingest and what its process took."""

    source: Path
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
            rows["ux"], rows["uy"] = rng.random((2, per_rank), "f4")
            rows.tofile(folder / f"records.{rank}")
    raw.write_layout(root / "layout.toml", RECORD, "E.{epoch}/records.{rank}")
    os.sync()
    return ingest(root, dataset, per_rank * RANKS * EPOCHS, "--ranks", RANKS)


def ingest(root: Path, dataset: Path, rows: int, *options) -> Ingested:
    """Runs the command and keeps what its process took."""
    figures = dataset.with_suffix(".json")
    measure = (sys.executable, "-S", ROOT / "tests" / "support" / "measure.py", figures)
    turbidite(*raw.ingest_arguments(root, dataset, "energy", *options), prefix=measure)
    took = json.loads(figures.read_text())
    return Ingested(root, dataset, rows, took["written_bytes"], took["peak_bytes"])


def writing_threads(threads: int, ranks: int) -> int:
    """Those that sort and write, of an ingest with so many threads."""
    return min(2 * threads, ranks)


def test_write_amplification(ingested):
    stored = ingested.rows * RECORD.itemsize
    on_disk = sum(path.stat().st_size for path in ingested.dataset.rglob("*") if path.is_file())
    reported = [epoch["write_amplification"] for epoch in answer("stats", ingested.dataset)]
    print(f"write amplification: files {on_disk / stored:.5f}, written {ingested.written_bytes / stored:.5f}, reported {reported}")
    assert on_disk / stored <= 1.01
    # The kernel's count of this process's writes; a file system in memory counts none.
    assert ingested.written_bytes / stored <= 1.01
    assert len(reported) == EPOCHS and all(1 <= figure <= 1.01 for figure in reported)


def test_memory_stays_within_the_table_when_all_memtables_are_full(scratch):
    """One epoch in which each receiver fills its memtables many times: both of all receivers are in use at once."""
    root = scratch / "limits-long"
    (root / "E.0").mkdir(parents=True)
    rng = numpy.random.default_rng(9)
    per_rank = STORED_BYTES // RECORD.itemsize // RANKS
    rows = numpy.zeros(per_rank, RECORD)
    for rank in range(RANKS):
        rows["energy"] = rng.lognormal(0, 2, per_rank)
        rows.tofile(root / "E.0" / f"records.{rank}")
    raw.write_layout(root / "layout.toml", RECORD, "E.{epoch}/records.{rank}")
    threads = writing_threads(len(os.sched_getaffinity(0)), RANKS)
    peak = ingest(root, scratch / "limits-long-dataset", per_rank * RANKS, "--ranks", RANKS).peak_bytes
    budget = budget_bytes(rank=RANKS, receiver=RANKS, thread=threads, command=1)
    print(f"{RANKS} ranks, one epoch: peak memory {peak / 2**20:.1f} MiB, budget {budget / 2**20:.1f} MiB")
    assert peak <= budget


def test_memory_stays_within_the_table(ingested, scratch):
    threads = writing_threads(len(os.sched_getaffinity(0)), RANKS)
    one = ingest(ingested.source, scratch / "limits-one", 0, "--ranks", 1, "--threads", 1, "--epochs", 0)
    for ranks, threads, peak in ((RANKS, threads, ingested.peak_bytes), (1, 1, one.peak_bytes)):
        budget = budget_bytes(rank=ranks, receiver=ranks, thread=threads, command=1)
        print(f"{ranks} ranks, {threads} threads: peak memory {peak / 2**20:.1f} MiB, budget {budget / 2**20:.1f} MiB")
        assert peak <= budget


@pytest.mark.parametrize("indexes", [["id"], ["id", "ux", "uy", "energy"]], ids=["one", "four"])
def test_memory_with_indexes_stays_within_the_table(ingested, scratch, indexes):
    """Each index has a job of its own in this process, whose ranks and threads count like those of the records."""
    options = [word for definition in indexes for word in ("--index", definition)]
    dataset = scratch / f"limits-{len(indexes)}-indexes"
    peak = ingest(ingested.source, dataset, 0, "--ranks", RANKS, "--epochs", 0, *options).peak_bytes
    threads = writing_threads(len(os.sched_getaffinity(0)), RANKS) * (1 + len(indexes))
    counts = {"index": RANKS * len(indexes), "indexed_rank": RANKS}
    budget = budget_bytes(rank=RANKS, receiver=RANKS, thread=threads, command=1, **counts)
    print(f"{len(indexes)} indexes: peak memory {peak / 2**20:.1f} MiB, budget {budget / 2**20:.1f} MiB")
    assert peak <= budget
    assert [index["missing"] for index in answer("index", "list", dataset)["indexes"]] == [[]] * len(indexes)


def test_memory_with_bitmap_indexes_stays_within_the_table(ingested, scratch):
    indexes = ["bitmap:ux,uy,id", "bitmap:energy"]
    options = [word for definition in indexes for word in ("--index", definition)]
    dataset = scratch / "limits-bitmaps"
    for ranks, threads in ((RANKS, writing_threads(len(os.sched_getaffinity(0)), RANKS)), (1, 1)):
        run = ("--ranks", ranks, "--epochs", 0, "--if-exists", "replace", *options)
        peak = ingest(ingested.source, dataset, 0, *run).peak_bytes
        counts = {"bitmap_index": threads * len(indexes)}
        budget = budget_bytes(rank=ranks, receiver=ranks, thread=threads, command=1, **counts)
        print(f"{ranks} ranks, bitmap indexes: peak memory {peak / 2**20:.1f} MiB, budget {budget / 2**20:.1f} MiB")
        assert peak <= budget


def test_the_stated_sum_is_that_of_the_table():
    stated = re.search(r"one\s+receiver,\s+one\s+rank\s+and\s+one\s+writing\s+thread:\s+([0-9.]+)\s+MiB", (ROOT / "ARCHITECTURE.md").read_text())
    assert stated and float(stated.group(1)) * (1 << 20) == budget_bytes(rank=1, receiver=1, thread=1)
