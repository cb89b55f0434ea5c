"""Every byte of every file is what it was: datasets of hostile records, written by one thread with fixed random numbers,
against checksums.txt.

A change that is not meant to change what is stored leaves this file as it is. Where it is meant, the changelog says so, and `TURBIDITE_WRITE_IDENTITY=1 make test-python ARGS='-k every_byte'` writes the checksums anew.
"""

import hashlib
import os
import shutil
from pathlib import Path

import numpy
import pytest

from support import raw
from support.command import ROOT, turbidite
from support.mpi import run

HERE = Path(__file__).parent
# Small structures: rows stray, runs have several row groups. One memtable takes an epoch: with more of
# them, with little credit or little patience, what goes together depends on when the background thread has stored the last
# one, and on how long the machine was busy with something else.
SMALL = [
    "--receivers", 3, "--memtable", "1MiB", "--page-rows", 128, "--row-groups-per-part", 3,
    "--row-groups-per-run", 4, "--pivots", 8, "--renegotiate", 500, "--credit", 60000, "--patience", 3600000,
]  # fmt: skip
KEYS = ["<f4", "<f8", "<i4", "<i8", "<u4", "<u8"]
SETTINGS = {"small": SMALL, "default": ["--patience", 3600000]}
RANKS = 5


def noise(count: int, seed: int) -> numpy.ndarray:
    """64 random bits each, by arithmetic that no library changes (SplitMix64)."""
    with numpy.errstate(over="ignore"):
        state = (numpy.arange(1, count + 1, dtype="u8") + numpy.uint64(seed << 32)) * numpy.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        return state ^ (state >> numpy.uint64(31))


def keys(dtype: numpy.dtype, count: int, seed: int) -> numpy.ndarray:
    """Any bits at all, which are NaN, infinite and subnormal values of floats; ties; extremes; both zeros."""
    bits = noise(count, seed)
    values = bits.astype(f"<u{dtype.itemsize}").view(dtype)
    small = (bits >> numpy.uint64(20)) % numpy.uint64(1000)
    near = numpy.arange(count) % 3 != 0
    values[near] = small[near].astype(dtype)
    values[::11] = dtype.type(7)
    if dtype.kind == "f":
        special = [numpy.nan, -numpy.nan, numpy.inf, -numpy.inf, 0.0, -0.0]
        values[5::13] = numpy.resize(numpy.array(special, dtype), len(values[5::13]))
    else:
        extremes = [numpy.iinfo(dtype).min, numpy.iinfo(dtype).max]
        values[5::13] = numpy.resize(numpy.array(extremes, dtype), len(values[5::13]))
    return values


def records(key: str, count: int, seed: int) -> numpy.ndarray:
    fields = [("key", key), ("id", "<u8"), ("x", "<f8"), ("small", "<u4"), ("constant", "<i4"), ("payload", "V13")]
    rows = numpy.zeros(count, numpy.dtype(fields))
    rows["key"] = keys(rows["key"].dtype, count, seed)
    rows["id"] = noise(count, seed + 1)
    rows["x"] = noise(count, seed + 2).view("<f8")
    rows["small"] = noise(count, seed + 3) % numpy.uint64(5)
    rows["payload"] = numpy.repeat(noise(count, seed + 4), 2).view("V16").astype("V13")
    return rows


def write_hostile(root: Path, key: str) -> None:
    """Epochs of many records, that drift while they are written, of none, of one, and of one value only."""
    many = [records(key, 3000 + 500 * rank, 10 * rank) for rank in range(RANKS)]
    drifting = [numpy.sort(records(key, 2500, 100 + rank), order="id") for rank in range(RANKS)]
    for rank, rows in enumerate(drifting):
        rows["key"] = numpy.arange(len(rows)).astype(rows["key"].dtype) + rows["key"].dtype.type(rank)
    equal = [records(key, 1500, 200 + rank) for rank in range(RANKS)]
    for rows in equal:
        rows["key"] = rows["key"].dtype.type(3)
    none = [records(key, 0, 0)] * RANKS
    one = [records(key, 1 if rank == 3 else 0, 7) for rank in range(RANKS)]
    raw.write_source(root, {0: many, 1: drifting, 2: none, 3: one, 4: equal, 2**63 - 1: many[:1] + none[1:]})


@pytest.fixture(scope="module")
def fixed_random(tmp_path_factory) -> Path:
    library = tmp_path_factory.mktemp("random") / "libfixed_random.so"
    run("cc", "-shared", "-fPIC", "-O1", "-o", library, ROOT / "tests" / "support" / "fixed.c", "-pthread")
    return library


def listing(dataset: Path) -> list[str]:
    files = sorted(path for path in dataset.rglob("*") if path.is_file())
    return [f"{path.relative_to(dataset)} {path.stat().st_size} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]


def test_every_byte_is_what_it_was(fixed_random, tmp_path):
    found = []
    for key in KEYS:
        source = tmp_path / "source"
        write_hostile(source, key)
        for name, settings in SETTINGS.items():
            dataset = tmp_path / "dataset"
            # The source's path would be stored with the dataset.
            arguments = raw.ingest_arguments(Path("source"), dataset, "key", "--ranks", RANKS, "--threads", 1, *settings)
            turbidite(*arguments, cwd=tmp_path, env=os.environ | {"LD_PRELOAD": str(fixed_random)})
            turbidite("verify", dataset)
            found += [f"{key[1:]} {name} {line}" for line in listing(dataset)]
            shutil.rmtree(dataset)
        shutil.rmtree(source)
    path = HERE / "checksums.txt"
    if os.environ.get("TURBIDITE_WRITE_IDENTITY"):
        path.write_text("\n".join(found) + "\n")
    changed = sorted(set(found) ^ set(path.read_text().splitlines()))
    assert not changed, "\n".join(changed[:20])
    assert len(found) > 100
