"""Cursors: rows step by step from Python and from the command, each row once, samples that are even and without bias, refusals."""

import itertools
import re
from pathlib import Path

import duckdb
import numpy
import pytest
import turbidite

from support import raw
from support.command import FAILED, ROOT, USAGE, answer
from support.command import turbidite as command

ROWS, RANKS, EPOCH, SIDE, LEVELS = 400_000, 4, 4000, 128.0, 3
RECORD = numpy.dtype([("id", "<u8"), ("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("ux", "<f4")])


@pytest.fixture(scope="module")
def records() -> numpy.ndarray:
    """Half of the particles are spread evenly, the others are in a blob. Ranks own slabs."""
    random = numpy.random.default_rng(22)
    rows = numpy.empty(ROWS, RECORD)
    for name in ("x", "y", "z"):
        even = random.random(ROWS) * SIDE
        rows[name] = numpy.where(numpy.arange(ROWS) % 2, even, 40 + 3 * random.standard_normal(ROWS))
    rows["ux"] = random.random(ROWS, "f4")
    rows = rows[numpy.argsort(rows["x"])]
    rows["x"][::5000] = numpy.nan
    rows["id"] = numpy.arange(ROWS)
    return rows


@pytest.fixture(scope="module")
def dataset(records, scratch) -> turbidite.Dataset:
    source, path = scratch / "cursor-source", scratch / "cursor.tbd"
    raw.write_source(source, {EPOCH: numpy.array_split(records, RANKS)})
    answer(*raw.ingest_arguments(source, path, "space:x,y,z", "--ranks", RANKS, "--part-bytes", 0, "--levels", LEVELS))
    return turbidite.open(path)


def test_steps_return_each_row_once(dataset, records):
    random = numpy.random.default_rng(1)
    box = {"x": (20, 70), "z": (None, 60)}
    matching = (records["x"] >= 20) & (records["x"] < 70) & (records["z"] < 60) & (records["ux"] > numpy.float32(0.25))
    expected = records["id"][matching]
    for near in (None, (40, 40, 40)):
        cursor = dataset.cursor(EPOCH, "ux > 0.25", box=box, columns=["id", "x", "y", "z"], near=near)
        found = []
        while cursor.rows_most:
            rows, quality = int(random.integers(1, 40_000)), float(random.random())
            step = cursor.advance(rows=rows) if random.random() < 0.5 else cursor.advance(quality=quality)
            arrays = step.to_numpy()
            assert len(step) == len(arrays["id"]) == len(step.level())
            for batch, about in zip(step, step.batches, strict=True):
                assert len(batch) == about.rows and about.stands_for == 8**about.level
                for axis, (low, high) in zip("xyz", about.bounds, strict=True):
                    values = numpy.asarray(batch.column(axis))
                    assert low <= values.min() and values.max() <= high
            found.append(arrays["id"])
        assert numpy.array_equal(numpy.sort(numpy.concatenate(found)), expected)
        assert cursor.stands_for == 1 and len(cursor.advance(rows=5)) == 0


def test_samples_are_even(dataset, records):
    """Counts in cells that hold about 40 sampled rows differ from the truth by less than those of random sampling, whose variance
    is that of a binomial distribution."""
    placed = records[~numpy.isnan(records["x"])]
    edges = [numpy.linspace(0, SIDE, cells + 1) for cells in (11, 11, 11)]
    truth, _ = numpy.histogramdd([placed[axis] for axis in "xyz"], edges)
    sizes = []
    for step, level in zip(dataset.cursor(EPOCH, columns=["x", "y", "z"]), reversed(range(LEVELS + 1)), strict=True):
        assert set(step.level()) == {level} and numpy.isclose(step.stands_for, 8**level, rtol=0.1)
        sizes.append(len(step))
    assert sum(sizes) == ROWS and all(0.7 < more / (7 * less) < 1.4 for less, more in itertools.pairwise(sizes[1:]))
    sample = dataset.cursor(EPOCH, columns=["x", "y", "z"]).advance(quality=1 / 8)
    arrays = sample.to_numpy()
    counts, _ = numpy.histogramdd([arrays[axis] for axis in "xyz"], edges)
    cells = truth > 100
    errors = (counts * sample.stands_for - truth)[cells] / numpy.sqrt(truth[cells] * (8 - 1))
    ratio = numpy.sqrt(numpy.mean(errors**2))
    print(f"count error over random sampling's at 1/8: {ratio:.2f} in {cells.sum()} cells")
    assert ratio < 0.9 and abs(numpy.mean(errors)) < 0.2


def read(path: Path) -> dict[str, numpy.ndarray]:
    return duckdb.sql(f"SELECT * FROM '{path}'").fetchnumpy()


def test_the_command_returns_whole_levels(dataset, records, tmp_path):
    out = tmp_path / "sample.parquet"
    pattern = Path(dataset.path) / "data" / "*" / "*" / "*.parquet"
    placed = (~numpy.isnan(records["x"])).sum()
    for box, inside in (([], ~numpy.isnan(records["x"])), (["--box", "x=:64"], records["x"] < 64)):
        above = f"FROM read_parquet('{pattern}', hive_partitioning=true) WHERE {'x < 64' if box else 'true'} AND level >="
        counts = [duckdb.sql(f"SELECT count(*) {above} {level}").fetchall()[0][0] for level in range(LEVELS + 1)]
        ends = [("--quality", 0.125, 1), ("--quality", 0.9, 1), ("--quality", 0.0156, 2), ("--quality", 1e-6, 3)]
        ends += [("--rows", counts[1], 1), ("--rows", counts[1] - 1, 2), ("--rows", counts[0], 0), ("--rows", counts[0] - 1, 1)]
        for option, end, level in ends:
            said = answer("query", dataset.path, "--epoch", EPOCH, *box, option, end, "-o", out)
            found = read(out)
            assert said["rows"] == len(set(found["id"])) == counts[level]
            assert (inside[found["id"]] | (level == 0)).all()
            assert said["sample"]["level"] == level and said["sample"]["density_ratio"] == 1
            # Weights are normalised to the rows with coordinates if all are asked for.
            stand_for = counts[level] * 8**level if box or level == 0 else placed
            assert numpy.isclose(found["stands_for"].sum(), stand_for, rtol=1e-9)
            assert numpy.allclose(found["stands_for"], said["sample"]["stands_for"])


def test_the_command_returns_partial_samples(dataset, records, tmp_path):
    out = tmp_path / "sample.parquet"
    arguments = ("query", dataset.path, "--epoch", EPOCH, "--columns", "x,stands_for,y,z", "-o", out)
    placed = (~numpy.isnan(records["x"])).sum()
    for end in (("--quality", 0.05), ("--rows", 30_000)):
        said = answer(*arguments, "--partial", *end)
        found = read(out)
        assert list(found) == ["x", "stands_for", "y", "z"]
        assert abs(said["rows"] - {"--rows": 30_000}.get(end[0], 0.05 * ROWS)) < 5_000
        assert said["sample"]["level"] is None and said["sample"]["density_ratio"] == 8
        weights = found["stands_for"]
        assert numpy.isclose(weights.max() / weights.min(), 8) and numpy.isclose(weights.sum(), placed)
    said = command(*arguments, "--partial", "--quality", 0.05).stderr
    assert "density varies by a factor of 8" in said and re.search(r"each row stands for \d\d(\.\d)? rows on average", said)
    # The first level has more rows.
    for box in ([], ["--where", "ux >= 0"]):
        few = command(*arguments, "--rows", 200, *box)
        assert "level 3, the first one with rows, has more than 200 rows" in few.stderr and "have no rows" in few.stderr
        assert 200 <= len(read(out)["x"]) < 200 + 2048
    said = answer(
        "query", dataset.path, "--epoch", EPOCH, "--rows", 30_000, "--near", "40,40,40", "--columns", "x,y,z", "-o", out
    )
    assert 30_000 <= said["rows"] < 30_000 + 2048
    near = read(out)
    assert list(near) == ["x", "y", "z"]
    distance = numpy.sqrt(sum((near[axis] - 40.0) ** 2 for axis in "xyz"))
    # Half of all rows are in the blob, and so are half of levels 2 and 3, but most of the pages of level 1 that come first.
    assert numpy.quantile(distance, 0.6) < 20
    said = command("query", dataset.path, "--epoch", EPOCH, "--quality", 0.02, "--columns", "id", "--metrics")
    assert "all rows of level 2 and above; each row stands for 6" in said.stderr and len(said.stdout.splitlines()) > ROWS / 70
    assert re.search(r"level 3: (\d+) of \1 row groups", command("query", dataset.path, "--explain").stdout)
    assert command("query", dataset.path, "--epoch", EPOCH, "--rows", 0, "--columns", "id").stdout == "id\n"


def test_the_guide_runs(dataset, capsys):
    [block] = re.findall(r"```python cursor\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)
    names = {"dataset": dataset}
    exec(block, names)
    total = dataset.query("ux > 0.5", box={"x": (0, 64)}).count()
    [estimate] = re.findall(r"rows stand for about ([\d,]+); density varies by 8", capsys.readouterr().out)
    assert abs(int(estimate.replace(",", "")) / total - 1) < 0.05
    assert len(names["first"]) + len(names["more"]) + len(names["rest"]) == total


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--quality", "1.5"], USAGE, "from 0 to 1"),
        (["--quality", "0.5", "--rows", "5"], USAGE, "cannot be used with"),
        (["--quality", "0.5", "--limit", "5"], USAGE, "cannot be used with"),
        (["--rows", "5", "--order"], USAGE, "cannot be used with"),
        (["--near", "1,2,3"], USAGE, "--near needs --quality or --rows"),
        (["--partial"], USAGE, "--partial needs --quality or --rows"),
        (["--rows", "5", "--near", "1,2"], USAGE, "3 coordinates"),
        (["--rows", "5", "--epoch", "7"], FAILED, "epoch 7"),
    ],
)
def test_mistakes_are_told(dataset, arguments, code, message):
    failed = command("query", dataset.path, *arguments, expect=code)
    assert message in failed.stderr, failed.stderr


def test_mistakes_in_python_are_told(dataset, records, tmp_path):
    cursor = dataset.cursor(EPOCH)
    for arguments in ({}, {"rows": 1, "quality": 0.5}, {"quality": "all"}, {"quality": numpy.nan}, {"rows": -1}):
        with pytest.raises(turbidite.UsageError):
            cursor.advance(**arguments)
    with pytest.raises(turbidite.UsageError, match="3 coordinates"):
        dataset.cursor(EPOCH, near=(1, 2))
    with pytest.raises(turbidite.OperationError, match="epoch 7"):
        dataset.cursor(7)
    with turbidite.Writer(tmp_path / "plain.tbd", {"x": "f4", "y": "f4"}, key="space:x,y") as writer, writer.epoch(1):
        writer.append(records[["x", "y"]][:100])
    with pytest.raises(turbidite.UsageError, match="no levels of detail"):
        turbidite.open(tmp_path / "plain.tbd").cursor(1)
