"""All trajectories are NumPy's, for each type of id, whichever way the records took into the dataset.

`TURBIDITE_DUMPS=../shared/data/vpic` takes the full dumps instead of the sample.
"""

import os
import sys
from pathlib import Path

import numpy
import pyarrow.parquet
import pytest

from support import raw, vpic
from support.command import answer, turbidite
from support.libraries import prefix
from support.mpi import Mpi
from support.mpi import run as run_ranks
from support.preload import Form, configure, libraries, run

DUMPS = Path(os.environ.get("TURBIDITE_DUMPS", vpic.sample_dumps()))
RANKS = 16
CPUS = 64
RECORD = numpy.dtype([("uuid", "V16"), ("cpu", "<u4"), ("local", "<u8"), ("number", "<u8"), ("energy", "<f4"), ("ux", "<f4")])
VALUES = ("energy", "ux")
# An unmodified program: it copies files with what Python has for that.
COPY = """
import pathlib, sys
source, target = map(pathlib.Path, sys.argv[1:])
for path in sorted(source.glob("E.*/records.*")):
    (target / path.parent.name).mkdir(parents=True, exist_ok=True)
    (target / path.parent.name / path.name).write_bytes(path.read_bytes())
"""


def keyed(rows: numpy.ndarray) -> numpy.ndarray:
    """Particles with their ids in each form."""
    records = numpy.empty(len(rows), RECORD)
    number = rows["id"].astype("<u8")
    records["number"], records["cpu"], records["local"] = number, number % CPUS, number // CPUS
    halves = numpy.stack([number * 0x9E3779B97F4A7C15, number * 0xC2B2AE3D27D4EB4F + 1], axis=1)
    records["uuid"] = halves.astype("<u8").view("V16").reshape(-1)
    for name in VALUES:
        records[name] = rows[name]
    return records


@pytest.fixture(scope="module")
def epochs() -> dict[int, numpy.ndarray]:
    return {epoch: keyed(rows) for epoch, rows in vpic.read_dumps(DUMPS).items()}


@pytest.fixture(scope="module")
def source(epochs, scratch) -> Path:
    root = scratch / "source"
    raw.write_source(root, {epoch: numpy.array_split(records, RANKS) for epoch, records in epochs.items()})
    return root


def words(records: numpy.ndarray, key: str) -> list[numpy.ndarray]:
    """Numbers that order the records as their keys do, the most significant first."""
    if key == "uuid":
        return list(numpy.frombuffer(records["uuid"].tobytes(), ">u8").reshape(-1, 2).T)
    return [records[name] for name in key.split(",")]


def texts(records: numpy.ndarray, key: str) -> list[str]:
    if key == "uuid":
        return [f"0x{value.tobytes().hex()}" for value in records["uuid"]]
    return [":".join(map(str, row)) for row in zip(*(records[name].tolist() for name in key.split(",")))]


def write(way: str, source: Path, out: Path, key: str, scratch: Path) -> None:
    arguments = raw.ingest_arguments(source, out, f"hash:{key}")
    if way == "alone":
        turbidite(*arguments, "--ranks", RANKS)
    elif way == "mpiexec":
        run_ranks(Mpi.find(scratch).bin / "mpiexec", "-n", RANKS, prefix() / "bin" / "turbidite", *arguments)
    else:
        form = Form("E.{epoch}/records.{rank}", 0, RECORD, f"hash:{key}")
        config = configure(scratch / "c.toml", (form, out, {"mode": "keep", "files_per_epoch": RANKS}))
        assert run([sys.executable, "-c", COPY, source, scratch / "copy"], config, preload=libraries(with_mpi=False)) == ""


@pytest.mark.parametrize("key", ["number", "uuid", "cpu,local"])
@pytest.mark.parametrize("way", ["alone", "mpiexec", "preloaded"])
def test_all_trajectories_are_those_of_numpy(epochs, source, tmp_path, way, key):
    out, listed, found = tmp_path / "ds", tmp_path / "ids.txt", tmp_path / "tracks.parquet"
    write(way, source, out, key, tmp_path)
    turbidite("verify", out)
    listed.write_text("\n".join(texts(next(iter(epochs.values())), key)))
    summary = answer("tracks", out, "--ids", f"@{listed}", "-o", found, "--columns", ",".join(VALUES))
    assert summary["absent_ids"] == summary["missing"] == summary["duplicates"] == 0
    records = numpy.concatenate(list(epochs.values()))
    labels = numpy.repeat(numpy.array(list(epochs), "i8"), [len(rows) for rows in epochs.values()])
    order = numpy.lexsort([labels, *reversed(words(records, key))])
    table = pyarrow.parquet.read_table(found)
    assert numpy.array_equal(table.column("epoch").to_numpy(), labels[order])
    for name in VALUES:
        assert table.column(name).to_numpy().tobytes() == records[name][order].tobytes(), name
    if key != "uuid":
        for name in key.split(","):
            assert numpy.array_equal(table.column(name).to_numpy(), records[name][order]), name
