"""Datasets that are clustered by space: other engines skip what lies outside of a box, boxes read few bytes, each way of writing
stores the same records, and what needs an order is refused. Random boxes against NumPy are in tests/oracle."""

import shutil
from pathlib import Path

import duckdb
import numpy
import polars
import pyarrow.dataset
import pytest
import turbidite
from pyarrow import parquet

from support import raw
from support.command import FAILED, USAGE, answer
from support.command import turbidite as command
from support.rows import read_answer

ROWS, RANKS, EPOCHS = 400_000, 8, (3, 4)
RECORD = numpy.dtype([("id", "<u8"), ("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("ux", "<f4"), ("uy", "<f4"), ("w", "<f4")])
AXES = ("x", "y", "z")
SIDE = 128.0


def draw_records(epoch: int) -> numpy.ndarray:
    """Evenly spread particles. Ranks own slabs, as in a decomposed domain."""
    random = numpy.random.default_rng(epoch)
    rows = numpy.empty(ROWS, RECORD)
    for name in RECORD.names[1:]:
        rows[name] = random.random(ROWS, "f4") * (SIDE if name in AXES else 1)
    rows = rows[numpy.argsort(rows["x"])]
    rows["id"] = numpy.arange(ROWS)
    return rows


@pytest.fixture(scope="module")
def epochs() -> dict[int, numpy.ndarray]:
    return {epoch: draw_records(epoch) for epoch in EPOCHS}


@pytest.fixture(scope="module")
def source(epochs, scratch):
    root = scratch / "space-source"
    raw.write_source(root, {epoch: numpy.array_split(rows, RANKS) for epoch, rows in epochs.items()})
    return root


def ingest(source, target, key: str, *more) -> dict:
    return answer(*raw.ingest_arguments(source, target, key, "--ranks", RANKS, "--part-bytes", 0, *more))


@pytest.fixture(scope="module")
def dataset(source, scratch) -> turbidite.Dataset:
    ingest(source, scratch / "space.tbd", "space:x,y,z")
    return turbidite.open(scratch / "space.tbd")


def boxes(share: float, count: int) -> list[dict[str, tuple[float, float]]]:
    """Cubes with a share of the domain's volume."""
    random = numpy.random.default_rng(int(1 / share))
    side = SIDE * share ** (1 / 3)
    corners = random.random((count, 3)) * (SIDE - side)
    # Bounds that are f32, so that all engines compare the same numbers.
    return [{axis: (float(numpy.float32(low)), float(numpy.float32(low + side))) for axis, low in zip(AXES, corner)} for corner in corners]


def inside(rows: numpy.ndarray, box: dict[str, tuple[float, float]]) -> numpy.ndarray:
    return numpy.all([(rows[axis] >= numpy.float32(low)) & (rows[axis] < numpy.float32(high)) for axis, (low, high) in box.items()], axis=0)


def as_sql(box: dict[str, tuple[float, float]]) -> str:
    return " AND ".join(f"{axis} >= {low!r}::FLOAT AND {axis} < {high!r}::FLOAT" for axis, (low, high) in box.items())


def test_engines_skip_row_groups_outside_of_a_box(dataset, epochs):
    """The row groups' statistics exclude most rows, and every engine returns NumPy's rows."""
    files = sorted((Path(dataset.path) / "data" / "epoch=3").iterdir())
    groups = [parquet.ParquetFile(file).metadata.row_group(number) for file in files for number in range(parquet.ParquetFile(file).num_row_groups)]
    skipped = []
    for box in boxes(0.001, 8):
        touched = 0
        for group in groups:
            bounds = {group.column(place).path_in_schema: group.column(place).statistics for place in range(group.num_columns)}
            touched += group.num_rows * all(bounds[axis].max >= low and bounds[axis].min < high for axis, (low, high) in box.items())
        skipped.append(1 - touched / ROWS)
        expected = numpy.sort(epochs[3]["id"][inside(epochs[3], box)])
        pattern = str(Path(dataset.path) / "data" / "epoch=3" / "*.parquet")
        found = duckdb.sql(f"SELECT id FROM read_parquet('{pattern}') WHERE {as_sql(box)} ORDER BY id").fetchnumpy()["id"]
        assert numpy.array_equal(found, expected)
        tests = [(polars.col(axis) >= low) & (polars.col(axis) < high) for axis, (low, high) in box.items()]
        assert numpy.array_equal(polars.scan_parquet(pattern).filter(*tests).select("id").collect().to_series().sort().to_numpy(), expected)
        field = pyarrow.dataset.field
        test = None
        for axis, (low, high) in box.items():
            side = (field(axis) >= numpy.float32(low)) & (field(axis) < numpy.float32(high))
            test = side if test is None else test & side
        table = pyarrow.dataset.dataset(str(Path(dataset.path) / "data" / "epoch=3")).to_table(columns=["id"], filter=test)
        assert numpy.array_equal(numpy.sort(table["id"].to_numpy()), expected)
        assert numpy.array_equal(numpy.sort(dataset.query(box=box, epochs=3, columns=["id"]).to_numpy()["id"]), expected)
    print(f"rows in skipped row groups: {numpy.mean(skipped):.1%} on average, {min(skipped):.1%} at least")
    # 32 row groups, of which a box touches eight at a corner; with more rows the share is higher (`make bench`).
    assert numpy.mean(skipped) > 0.7


def bytes_read(path, box: dict[str, tuple[float, float]], scratch) -> int:
    """The bytes that a query of the box reads from the files of epoch 3."""
    place = ",".join(f"{axis}={low!r}:{high!r}" for axis, (low, high) in box.items())
    (scratch / "box.arrow").unlink(missing_ok=True)
    return answer("query", path, "--epoch", 3, "--box", place, "-o", scratch / "box.arrow")["metrics"]["bytes_read"]


@pytest.mark.parametrize(("share", "most"), [(0.001, 60), (0.01, 12), (0.1, 4)])
def test_boxes_read_few_bytes(dataset, source, epochs, scratch, share, most):
    """There are 196 pages of 2,048 rows: a box of a hundredth of the domain has the rows of two, and touches eight or more; one of a
    thousandth has 400 rows of as many pages."""
    by_id = scratch / "by-id.tbd"
    if not by_id.exists():
        ingest(source, by_id, "id")
    read, wanted, plain = 0, 0, 0
    for box in boxes(share, 10):
        read += bytes_read(dataset.path, box, scratch)
        plain += bytes_read(by_id, box, scratch)
        wanted += inside(epochs[3], box).sum() * RECORD.itemsize
    print(f"boxes of {share:.1%}: {read / wanted:.2f} times their bytes, {plain / wanted:.2f} clustered by id")
    assert read < most * wanted
    assert read < plain


def test_epochs_balance_and_begin_with_the_last_frame(dataset):
    for epoch in answer("stats", dataset.path):
        assert (epoch["rows"], epoch["metrics"]["receivers"]) == (ROWS, RANKS)
        assert epoch["largest_load"] < 2, epoch
    assert "clustered by place in x, y, z" in command("inspect", dataset.path).stdout
    assert "no problems found" in command("verify", dataset.path).stdout
    assert "for the first coordinate" in command("stats", dataset.path).stdout


def test_the_package_writes_and_truncates(epochs, tmp_path):
    path = tmp_path / "written.tbd"
    types = {"id": "uint64", **dict.fromkeys(RECORD.names[1:], "f4")}
    rows = epochs[3][::7].copy()
    rows["y"][::50] = numpy.nan
    with turbidite.Writer(path, types, key="space:z,y", ranks=3, indexes=["hash:id"]) as writer:
        for epoch in (1, 2, 3):
            with writer.epoch(epoch):
                for rank in range(3):
                    writer.append(rows[rank::3], rank=rank)
    dataset = turbidite.open(path)
    assert dataset.query("isnan(y)", epochs=2).count() == numpy.isnan(rows["y"]).sum()
    assert dataset.query("id IN (7, 14)", epochs=2, use="id").count() == 2
    command("truncate", path, "--after", 1)
    assert list(turbidite.open(path).epochs) == [1]
    found = turbidite.open(path).query(epochs=1).to_numpy()
    order = numpy.argsort(found["id"])
    assert all(found[name][order].tobytes() == rows[name].tobytes() for name in RECORD.names)


def test_unfinished_epochs_are_salvaged(source, epochs, tmp_path):
    """The parts of an attempt have all of its runs, whose seals state no bounds."""
    path = tmp_path / "ds"
    ingest(source, path, "space:x,y,z", "--memtable", "256KiB")
    # The last commit undone: as if the writer had been killed before it.
    (attempt,) = (path / "_turbidite" / "manifest").glob("4.*")
    commit = attempt.name.split(".")[1]
    shutil.move(path / "data" / "epoch=4", path / "_turbidite" / "tmp" / f"4.{commit}")
    attempt.unlink()
    command("salvage", path, "--out", tmp_path / "recovered")
    files = sorted((tmp_path / "recovered" / "epoch=4").glob("*.parquet"))
    ids = numpy.concatenate([parquet.read_table(file, columns=["id"])["id"].to_numpy() for file in files])
    assert numpy.array_equal(numpy.sort(ids), epochs[4]["id"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["query", "DS", "--order"], USAGE, "records are clustered by 'space:x,y,z', and have no order"),
        (["compact", "DS", "--out", "COPY"], USAGE, "have no order to sort by"),
        (["index", "add", "DS", "space:x"], USAGE, "two or three columns"),
        (["get", "DS", "5"], USAGE, "the records are clustered by 'space:x,y,z'"),
        (["query", "DS", "--batch", "LAYOUT"], USAGE, "query with --box"),
        (["ingest", "SOURCE", "--layout", "LAYOUT", "--out", "DS", "--key", "space:x,z,y"], FAILED, "its key is 'space:x,y,z'"),
        (["ingest", "SOURCE", "--layout", "LAYOUT", "--out", "DS", "--key", "x"], FAILED, "its key is 'space:x,y,z'"),
        (["ingest", "SOURCE", "--layout", "LAYOUT", "--out", "NEW", "--key", "space:x"], USAGE, "a key by space 2 or 3"),
        (["ingest", "SOURCE", "--layout", "LAYOUT", "--out", "NEW", "--key", "space:x,q"], USAGE, "'q' is not a column"),
        (["simulate", "--key", "space:x,y"], USAGE, "--key"),
    ],
)
def test_mistakes_are_told(dataset, source, tmp_path, arguments, code, message):
    names = {"DS": dataset.path, "SOURCE": source, "LAYOUT": source / "layout.toml", "NEW": tmp_path / "new", "COPY": tmp_path / "copy"}
    failed = command(*(names.get(argument, argument) for argument in arguments), expect=code)
    assert message in failed.stderr, failed.stderr
    assert not (tmp_path / "new").exists() and not (tmp_path / "copy").exists()


def test_rows_are_ordered_by_a_coordinate(dataset, epochs):
    for axis in ("x", "y"):
        found = dataset.query(epochs=3, order=axis, limit=50, columns=[axis]).to_numpy()[axis]
        assert numpy.array_equal(found, numpy.sort(epochs[3][axis])[:50])
    with pytest.raises(turbidite.UsageError, match="have no order"):
        dataset.query(order="key").to_numpy()
    with pytest.raises(turbidite.UsageError, match="clustered by space"):
        dataset.get([1])


def test_rows_are_printed_and_written(dataset, epochs, tmp_path):
    box = boxes(0.01, 1)[0]
    place = ",".join(f"{axis}={low!r}:{high!r}" for axis, (low, high) in box.items())
    command("query", dataset.path, "--epoch", 4, "--box", place, "--columns", "id,w", "-o", tmp_path / "box.arrow")
    found = read_answer(tmp_path / "box.arrow")
    expected = epochs[4][inside(epochs[4], box)]
    order = numpy.argsort(found["id"].to_numpy())
    assert numpy.array_equal(found["id"].to_numpy()[order], expected["id"])
    assert numpy.array_equal(found["w"].to_numpy()[order], expected["w"])
