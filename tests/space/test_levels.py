"""Levels of detail: every engine sees them as a column, and the commands know them."""

import shutil
from pathlib import Path

import duckdb
import numpy
import polars
import pyarrow.dataset
import pytest
import turbidite

from support import raw
from support.command import FAILED, USAGE, answer
from support.command import turbidite as command

ROWS, RANKS, LEVELS = 60_000, 4, 2
RECORD = numpy.dtype([("id", "<u8"), ("x", "<f4"), ("y", "<f4"), ("z", "<f4")])
TYPES = {"id": "uint64", "x": "f4", "y": "f4", "z": "f4"}


def draw_records() -> numpy.ndarray:
    random = numpy.random.default_rng(5)
    rows = numpy.empty(ROWS, RECORD)
    for name in ("x", "y", "z"):
        rows[name] = random.random(ROWS, "f4")
    rows["id"] = numpy.arange(ROWS)
    return rows


@pytest.fixture(scope="module")
def records() -> numpy.ndarray:
    return draw_records()


@pytest.fixture(scope="module")
def source(records, scratch):
    root = scratch / "levels-source"
    raw.write_source(root, {3: numpy.array_split(records, RANKS), 4: numpy.array_split(records[::-1], RANKS)})
    return root


def ingest_arguments(source, target, key: str, *more):
    return raw.ingest_arguments(source, target, key, "--ranks", RANKS, "--part-bytes", 0, *more)


@pytest.fixture(scope="module")
def dataset(source, scratch) -> Path:
    answer(*ingest_arguments(source, scratch / "levels.tbd", "space:x,y,z", "--levels", LEVELS))
    return scratch / "levels.tbd"


def ids_of_levels(path: Path, epoch: int) -> list[numpy.ndarray]:
    """The ids at each level, from the files."""
    levels = []
    for level in range(LEVELS + 1):
        files = sorted((path / "data" / f"epoch={epoch}" / f"level={level}").glob("*.parquet"))
        levels.append(numpy.sort(pyarrow.dataset.dataset(files).to_table(columns=["id"])["id"].to_numpy()))
    return levels


def check_levels(path: Path, records: numpy.ndarray, epoch: int, receivers: int = RANKS) -> None:
    """Every record is there once; each level has an eighth of those that reach the one below."""
    levels = ids_of_levels(path, epoch)
    assert numpy.array_equal(numpy.sort(numpy.concatenate(levels)), numpy.sort(records["id"]))
    for level in range(1, LEVELS + 1):
        below, above = (sum(map(len, levels[first:])) for first in (level - 1, level))
        # One more or less for each run, of which there are few.
        assert abs(below / 8 - above) <= 16 * receivers, (level, list(map(len, levels)))
    assert "no problems found" in command("verify", path).stdout


def test_every_engine_sees_levels(dataset, records):
    data = str(dataset / "data")
    for epoch in (3, 4):
        check_levels(dataset, records, epoch)
        coarse = numpy.sort(numpy.concatenate(ids_of_levels(dataset, epoch)[1:]))
        scan = f"read_parquet('{data}/**/*.parquet', hive_partitioning = true)"
        found = duckdb.sql(f"SELECT id FROM {scan} WHERE level >= 1 AND epoch = {epoch} ORDER BY id").fetchnumpy()["id"]
        assert numpy.array_equal(found, coarse)
        frame = polars.scan_parquet(data, hive_partitioning=True)
        found = frame.filter(polars.col("level") >= 1, polars.col("epoch") == epoch).select("id").collect().to_series()
        assert numpy.array_equal(found.sort().to_numpy(), coarse)
        field = pyarrow.dataset.field
        table = pyarrow.dataset.dataset(data, partitioning="hive").to_table(
            columns=["id"], filter=(field("level") >= 1) & (field("epoch") == epoch)
        )
        assert numpy.array_equal(numpy.sort(table["id"].to_numpy()), coarse)
        found = turbidite.open(dataset).query(epochs=epoch, columns=["id"]).to_numpy()["id"]
        assert numpy.array_equal(numpy.sort(found), numpy.sort(records["id"]))


def test_commands_know_levels(dataset, tmp_path):
    for epoch in answer("stats", dataset):
        rows = [len(ids) for ids in ids_of_levels(dataset, epoch["epoch"])]
        assert epoch["level_rows"] == rows and sum(rows) == epoch["rows"]
    assert "rows by level of detail" in command("stats", dataset).stdout
    assert "levels of detail: 0 to 2" in command("inspect", dataset).stdout
    assert answer("inspect", dataset)["levels"] == LEVELS
    part = next((dataset / "data" / "epoch=3" / "level=2").glob("*.parquet"))
    (epoch,) = answer("inspect", part)["epochs"]
    assert {(run["level"], run["part"]) for run in epoch["runs"]} == {(2, part.name)}
    assert f"level=2/{part.name}" in command("inspect", part).stdout
    command("report", dataset, "-o", tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_a_column_called_level_is_not_hidden(tmp_path):
    path = tmp_path / "ds"
    level = numpy.arange(1000, dtype="f4")
    with turbidite.Writer(path, {"level": "f4", "y": "f4"}, key="space:level,y", levels=1) as writer, writer.epoch(1):
        writer.append({"level": level, "y": level[::-1].copy()})
    scan = f"read_parquet('{path}/data/**/*.parquet', hive_partitioning = true)"
    assert duckdb.sql(f"SELECT count(*), sum(level) FROM {scan}").fetchall() == [(1000, level.sum())]
    assert duckdb.sql(f"SELECT count(*) FROM {scan} WHERE level_ = 1").fetchall() == [(125,)]


def test_the_package_writes_levels(records, tmp_path):
    package = tmp_path / "package"
    with turbidite.Writer(package, TYPES, key="space:x,y,z", ranks=RANKS, levels=LEVELS, indexes=["id", "bitmap:x,y"]) as writer:
        with writer.epoch(3):
            for rank in range(RANKS):
                writer.append(records[rank::RANKS], rank=rank)
    check_levels(package, records, 3, receivers=1)
    opened = turbidite.open(package)
    assert opened.query("id IN (7, 4711)", use="id").count() == 2
    where = (records["x"] < 0.125) & (records["y"] > 0.875)
    for use in ("bitmap:x,y", "scan"):
        assert opened.query("x < 0.125 AND y > 0.875", use=use).count() == where.sum()
    # A job that states no levels goes on with those that there are.
    with turbidite.Writer(package, TYPES, key="space:x,y,z") as writer, writer.epoch(4):
        writer.append(records)
    check_levels(package, records, 4, receivers=1)


def test_unfinished_epochs_are_salvaged_at_their_levels(source, records, tmp_path):
    path = tmp_path / "ds"
    answer(*ingest_arguments(source, path, "space:x,y,z", "--levels", LEVELS))
    # The last commit undone: as if the writer had been killed before it.
    (attempt,) = (path / "_turbidite" / "manifest").glob("4.*")
    commit = attempt.name.split(".")[1]
    shutil.move(path / "data" / "epoch=4", path / "_turbidite" / "tmp" / f"4.{commit}")
    attempt.unlink()
    command("salvage", path, "--out", tmp_path / "recovered")
    scan = f"read_parquet('{tmp_path}/recovered/**/*.parquet', hive_partitioning = true)"
    assert duckdb.sql(f"SELECT count(*), count(DISTINCT id), max(level) FROM {scan}").fetchall() == [(ROWS, ROWS, LEVELS)]


@pytest.mark.parametrize(
    ("key", "levels", "code", "message"),
    [
        ("x", 2, USAGE, "whose key is by space"),
        ("hash:id", 1, USAGE, "whose key is by space"),
        ("space:x,y,z", 0, USAGE, "--levels"),
        ("space:x,y,z", 7, USAGE, "--levels"),
        ("space:x,y,z", "some", USAGE, "neither 1 to 6 nor 'auto'"),
        ("hash:id", "auto", USAGE, "whose key is by space"),
    ],
)
def test_levels_that_cannot_be_are_refused(source, tmp_path, key, levels, code, message):
    failed = command(*ingest_arguments(source, tmp_path / "new", key, "--levels", levels), expect=code)
    assert message in failed.stderr, failed.stderr
    assert not (tmp_path / "new").exists()


def test_levels_by_the_size_of_the_source(source, dataset, records, tmp_path):
    """A receiver has 15,000 records: level 2 has three pages of 64, and level 3 not even one."""
    path = tmp_path / "auto.tbd"
    said = answer(*ingest_arguments(source, path, "space:x,y,z", "--levels", "auto", "--page-rows", 64))
    assert "levels of detail: 2; the highest has about 234 rows of each of 4 receivers in the largest epoch" in said["notes"]
    check_levels(path, records, 3)
    # An existing dataset keeps its levels.
    again = ("--levels", "auto", "--if-exists", "replace", "--epochs", 4)
    said = command(*ingest_arguments(source, path, "space:x,y,z", *again)).stderr
    assert "levels of detail: 2, which the dataset has; a new one would have 1" in said
    check_levels(path, records, 4)
    with pytest.raises(turbidite.UsageError, match="state 1 to 6"):
        turbidite.Writer(tmp_path / "new", TYPES, key="space:x,y,z", levels="auto")


def test_datasets_keep_their_levels(dataset, source):
    failed = command(*ingest_arguments(source, dataset, "space:x,y,z", "--levels", 3), expect=FAILED)
    assert "it has 2 levels, but 3 were requested" in failed.stderr
    with pytest.raises(turbidite.UsageError, match="1 to 6"):
        turbidite.Writer(dataset, TYPES, key="space:x,y,z", levels=7)
