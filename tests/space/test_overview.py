"""Overviews: cursors begin with a copy of the highest level, from Python and from the command; its life, and corruption."""

import shutil
from pathlib import Path

import numpy
import pytest
import turbidite

from support import raw
from support.command import CORRUPTION, USAGE, answer
from support.command import turbidite as command

ROWS, RANKS, EPOCH, LEVELS = 200_000, 16, 7, 2
RECORD = numpy.dtype([("id", "<u8"), ("x", "<f4"), ("y", "<f4"), ("z", "<f4")])


@pytest.fixture(scope="module")
def dataset(scratch) -> Path:
    random = numpy.random.default_rng(170)
    rows = numpy.empty(ROWS, RECORD)
    for name in ("x", "y", "z"):
        rows[name] = random.random(ROWS)
    rows["id"] = numpy.arange(ROWS)
    source, path = scratch / "overview-source", scratch / "overview.tbd"
    raw.write_source(source, {EPOCH: numpy.array_split(rows, RANKS)})
    answer(*raw.ingest_arguments(source, path, "space:x,y,z", "--ranks", RANKS, "--part-bytes", 0, "--levels", LEVELS))
    return path


def steps_of(path: Path, use: str | None = None) -> list[turbidite.CursorStep]:
    cursor = turbidite.open(path).cursor(EPOCH, columns=["id"], use=use)
    found = [cursor.advance(rows=1500), cursor.advance(quality=0.1), cursor.advance(quality=1)]
    assert cursor.rows_most == 0
    return found


def test_every_row_is_returned_once_with_an_overview(dataset):
    indexes = turbidite.open(dataset).indexes
    made = indexes.add("overview")
    # One row in 64.
    assert made.definition == "overview" and abs(made.entries - ROWS / 64) < 200
    files = list((dataset / "_turbidite/index/overview/data").rglob("*.parquet"))
    assert len(files) == 1 < len(list((dataset / "data").rglob("level=2/*.parquet")))
    for use in (None, "overview", "scan"):
        steps = steps_of(dataset, use)
        ids = numpy.concatenate([step.to_numpy()["id"] for step in steps])
        assert len(ids) == ROWS and numpy.array_equal(numpy.sort(ids), numpy.arange(ROWS))
        for batch in (batch for step in steps for batch in step.batches):
            assert (batch.run is None) == (use != "scan" and batch.level == LEVELS)
            assert batch.stands_for == 8**batch.level
    assert answer("verify", dataset)["clean"]
    assert "only cursors" in command("query", dataset, "--use", "overview", expect=USAGE).stderr


def test_records_answer_for_a_corrupt_overview(dataset, scratch):
    path = scratch / "overview-corrupt.tbd"
    shutil.copytree(dataset, path)
    turbidite.open(path).indexes.add("overview")
    (part,) = (path / "_turbidite/index/overview/data").rglob("*.parquet")
    content = bytearray(part.read_bytes())
    content[len(content) // 3] ^= 1
    part.write_bytes(content)
    cursor = turbidite.open(path).cursor(EPOCH, columns=["id", "x", "y", "z"])
    with pytest.warns(RuntimeWarning, match="corrupt"):
        step = cursor.advance(quality=1)
    ids = step.to_numpy()["id"]
    assert numpy.array_equal(numpy.sort(ids), numpy.arange(ROWS))
    assert "cannot be read" in command("query", path, "--epoch", EPOCH, "--quality", 0.5).stderr
    command("verify", path, expect=CORRUPTION)
    turbidite.open(path).indexes.drop("overview")
    assert answer("verify", path)["clean"]
