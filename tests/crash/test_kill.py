"""SIGKILL at random moments of a running ingest: what was committed stays whole, and the next writer goes on."""

import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy
import pytest

from support import raw
from support.command import OK, answer, start, turbidite
from support.sweeps import IS_WHOLE, TURN

pytestmark = pytest.mark.serial

KILLS = 50 if IS_WHOLE else 20
EPOCHS = 8
RANKS = 4
ROWS_PER_RANK = 150_000
RECORD = numpy.dtype([("energy", "<f4"), ("id", "<u4"), ("ux", "<f4"), ("uy", "<f4"), ("tag", "<u8"), ("weight", "<f8")])


@dataclass
class Source:
    """What is ingested, and the sums that tell whether an epoch is all there."""

    root: Path
    epochs: dict[int, numpy.ndarray]


def records(epoch: int, rank: int) -> numpy.ndarray:
    rng = numpy.random.default_rng([epoch, rank])
    rows = numpy.empty(ROWS_PER_RANK, RECORD)
    rows["energy"] = rng.lognormal(0, 1 + epoch / 1000, ROWS_PER_RANK)
    rows["id"] = numpy.arange(rank * ROWS_PER_RANK, (rank + 1) * ROWS_PER_RANK)
    for name in ("ux", "uy", "weight"):
        rows[name] = rng.normal(size=ROWS_PER_RANK)
    rows["tag"] = rng.integers(0, 1 << 40, ROWS_PER_RANK)
    return rows


@pytest.fixture(scope="module")
def source(scratch) -> Source:
    root = scratch / "crash-source"
    epochs = {epoch: [records(epoch, rank) for rank in range(RANKS)] for epoch in range(100, 100 * (EPOCHS + 1), 100)}
    raw.write_source(root, epochs)
    return Source(root, {epoch: numpy.concatenate(ranks) for epoch, ranks in epochs.items()})


def ingest(source: Source, target: Path, key: str, index: str | None) -> list:
    # Small memtables, so that there are many writes to be killed between.
    options = ["--index", index] if index else []
    return raw.ingest_arguments(source.root, target, key, "--if-exists", "skip", "--ranks", 4, "--memtable", "256KiB", *options)


def committed(target: Path) -> list[int]:
    data = target / "data"
    return sorted(int(path.name.removeprefix("epoch=")) for path in data.iterdir()) if data.is_dir() else []


def check_committed(source: Source, target: Path, index: str | None) -> list[int]:
    """Everything committed must be whole, for us and for DuckDB, and have its index."""
    epochs = committed(target)
    if not (target / "_turbidite" / "dataset.json").exists():
        assert epochs == []
        return epochs
    turbidite("verify", target, expect=OK)
    turbidite("salvage", target, expect=OK)
    for epoch in epochs:
        with duckdb.connect() as connection:
            query = f"SELECT count(*), sum(id), sum(tag) FROM read_parquet('{target}/data/epoch={epoch}')"
            found = connection.execute(query).fetchone()
        rows = source.epochs[epoch]
        assert found == (len(rows), int(rows["id"].sum(dtype="u8")), int(rows["tag"].sum(dtype="u8"))), f"epoch {epoch}"
        assert turbidite("query", target, "--epoch", epoch, "--count").stdout.split()[0] == str(len(rows))
        some = ", ".join(str(number) for number in range(0, len(rows), 60_007))
        assert turbidite("query", target, "--epoch", epoch, "--count", "--where", f"id IN ({some})").stdout.split()[0] == str(some.count(",") + 1)
        if index:
            assert list((target / "_turbidite" / "index" / index).glob(f"{epoch}.*")), "a committed epoch has its sidecars"
            found = answer("query", target, "--epoch", epoch, "--count", "--bounds", "--where", "ux > 1 AND uy < 0.5", "--use", index)
            assert found["least"] <= int(((rows["ux"] > 1) & (rows["uy"] < 0.5)).sum()) <= found["most"]
    return epochs


KEYS = [("energy", KILLS, None), ("hash:id", KILLS // 5, "bitmap:ux,uy"), ("space:energy,tag", KILLS // 5, None)]


@pytest.mark.parametrize(("key", "wanted", "index"), KEYS)
def test_killed_at_random_moments(source, scratch, key, wanted, index):
    began = time.monotonic()
    target = scratch / "crash-undisturbed"
    turbidite(*ingest(source, target, key, index))
    # The machine may be faster or slower later: the moments follow it.
    longest = 2.5 * (time.monotonic() - began) / EPOCHS
    assert check_committed(source, target, index) == sorted(source.epochs)
    shutil.rmtree(target)

    rng = random.Random(TURN)
    kills, datasets, takeovers, unfinished = 0, 0, 0, 0
    target, left_behind = scratch / "crash-0", False
    while kills < wanted or min(unfinished, takeovers) <= wanted / 4:
        assert kills < 40 * wanted, f"the moments are not in the middle of the work: {unfinished} of {kills}, {takeovers} takeovers"
        process = start(*ingest(source, target, key, index))
        time.sleep(rng.uniform(0, longest))
        process.kill()
        _, said = process.communicate()
        if left_behind:
            takeovers += "lock" in said
        if process.returncode == 0:
            # Through before the blow fell: nothing more to kill here.
            longest *= 0.95
            assert check_committed(source, target, index) == sorted(source.epochs)
            shutil.rmtree(target)
            datasets += 1
            target, left_behind = scratch / f"crash-{datasets}", False
            continue
        assert process.returncode == -9, said
        kills += 1
        left_behind = (target / "_turbidite" / "lock").exists()
        in_the_middle = any((target / "_turbidite" / "tmp").glob("*"))
        unfinished += in_the_middle
        longest *= 1.0 if in_the_middle else 1.1
        check_committed(source, target, index)

    turbidite(*ingest(source, target, key, index))
    assert check_committed(source, target, index) == sorted(source.epochs)
    shutil.rmtree(target)
    print(f"{kills} kills over {datasets + 1} datasets; {unfinished} left an unfinished epoch, {takeovers} locks were taken over")
