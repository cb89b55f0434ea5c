"""Levels of detail in proportion to a column, through the command and Python: rows with large values at high levels, sums and
counts that NumPy confirms, refusals."""

import shutil
from pathlib import Path

import numpy
import pyarrow.dataset
import pytest
import turbidite

from support import raw
from support.command import USAGE, answer, attempt
from support.command import turbidite as command

ROWS, RANKS, EPOCH, LEVELS = 60_000, 4, 7, 2
RECORD = numpy.dtype([("id", "<u8"), ("x", "<f4"), ("y", "<f4"), ("energy", "<f4"), ("name", "S3")])


@pytest.fixture(scope="module")
def records() -> numpy.ndarray:
    """Energies with a heavy tail; each thousandth is not positive, or NaN."""
    random = numpy.random.default_rng(31)
    rows = numpy.empty(ROWS, RECORD)
    for name in ("x", "y"):
        rows[name] = random.random(ROWS, "f4")
    rows["energy"] = random.pareto(1.5, ROWS) * (1 + 4 * (rows["x"] < 0.25))
    rows["energy"][::1000], rows["energy"][1::1000] = -1, numpy.nan
    rows["id"], rows["name"] = numpy.arange(ROWS), b"abc"
    return rows


@pytest.fixture(scope="module")
def source(records, scratch) -> Path:
    root = scratch / "weights-source"
    raw.write_source(root, {EPOCH: numpy.array_split(records, RANKS)})
    return root


def arguments(source: Path, target: Path, *more):
    return raw.ingest_arguments(source, target, "space:x,y", "--ranks", RANKS, "--part-bytes", 0, *more)


@pytest.fixture(scope="module")
def path(source, scratch) -> Path:
    target = scratch / "weights.tbd"
    answer(*arguments(source, target, "--levels", LEVELS, "--level-weight", "energy"))
    return target


def ids_of(path: Path, level: int) -> numpy.ndarray:
    """The ids of the rows of a level and above, from the files."""
    files = [file for at in range(level, LEVELS + 1) for file in (path / f"data/epoch={EPOCH}/level={at}").glob("*.parquet")]
    return pyarrow.dataset.dataset(sorted(files)).to_table(columns=["id"])["id"].to_numpy()


def check(estimates, errors, expected, sampled=None):
    """The seed of the sample is random, so limits are wide: the core's tests measure how often 1.96 errors suffice. The error of
    a sum is estimated from the sampled values, and says little where these are few."""
    known = numpy.ones(len(estimates), bool) if sampled is None else numpy.asarray(sampled) >= 30
    deviations = abs(numpy.asarray(estimates, "f8") - expected)[known] / numpy.asarray(errors)[known]
    assert deviations.max(initial=0) < 5 and (len(deviations) < 10 or numpy.mean(deviations**2) < 4), deviations


def test_large_values_are_at_high_levels(path, records):
    everything = ids_of(path, 0)
    assert numpy.array_equal(numpy.sort(everything), records["id"])
    energy = numpy.where(numpy.isfinite(records["energy"]), records["energy"], 0).clip(0)
    for level in (1, 2):
        ids = ids_of(path, level)
        assert abs(len(ids) - ROWS / 8**level) < 40
        # A level has much more than its share of the energy, and few rows are as large as those that every level has.
        assert energy[ids].sum() > 2 * energy.sum() / 8**level
    largest = numpy.argsort(energy)[-20:]
    # A row is certain to move up unless it was stored apart, with few others.
    assert numpy.isin(largest, ids_of(path, 1)).sum() >= 17
    assert "no problems found" in command("verify", path).stdout
    assert "in proportion to 'energy'" in command("inspect", path).stdout
    assert answer("inspect", path)["level_weight"] == "energy"
    assert "rows by level of detail, in proportion to 'energy'" in command("stats", path).stdout


def test_estimates_are_right(path, records):
    inside = (records["x"] < 0.3) & (records["energy"] > 0.5)
    dataset = turbidite.open(path)
    for level in (1, 2):
        found = answer("query", path, "--where", "energy > 0.5", "--box", "x=:0.3", "--count", "--level", level)
        assert found["least"] <= inside.sum() <= found["most"] and found["sample"]["stands_for"] is None
        check([found["estimate"]], [found["error"]], inside.sum())
        estimate = dataset.query("energy > 0.5", box={"x": (None, 0.3)}).estimate(level=level)
        assert (estimate.rows, estimate.error) == (found["estimate"], found["error"])
        # Columns other than the weight, and the weight itself.
        for column, limits in (("x", (0, 1)), ("energy", (0, 8))):
            histogram = answer(
                "hist", path, "--column", column, "--bins", 12, "--range", f"{limits[0]}..{limits[1]}", "--level", level
            )
            edges = numpy.array([histogram["bins"][0]["from"], *(one["to"] for one in histogram["bins"])], "f4")
            expected, _ = numpy.histogram(records[column][~numpy.isnan(records[column])], edges)
            check([one["estimate"] for one in histogram["bins"]], [one["error"] for one in histogram["bins"]], expected)
    exact = answer("query", path, "--where", "energy > 0.5", "--count", "--level", 0)
    assert exact["estimate"] == (records["energy"] > 0.5).sum() and exact["error"] == 0


def test_sums_of_the_weight_are_estimated(path, records):
    """Of the values that are numbers: the others are in no bin."""
    energy = records["energy"].astype("f8")
    edges = numpy.array([-2, 0, 1, 4, 1e6])
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        inside = (records["energy"] >= low) & (records["energy"] < high)
        for level in (1, 2):
            sums = answer(
                "hist", path, "--column", "x", "--bins", 4, "--range", "0..1", "--level", level, "--weights", "energy",
                "--where", f"energy >= {low} and energy < {high}",
            )["sums"]  # fmt: skip
            expected, _ = numpy.histogram(records["x"][inside], 4, (0, 1), weights=energy[inside])
            check(*([one[name] for one in sums["bins"]] for name in ("sum", "error")), expected, [one["sampled"] for one in sums["bins"]])
            check([sums["rows"]["sum"]], [sums["rows"]["error"]], energy[inside].sum(), [sums["rows"]["sampled"]])
            sampled = ids_of(path, level)
            assert sums["rows"]["sampled"] == inside[sampled].sum()
        # The sum of a column that has nothing to do with the weight.
        found = answer("hist", path, "--column", "energy", "--bins", 1, "--range", f"{low}..{high}", "--level", 1, "--weights", "y")
        sums = found["sums"]
        inside = (records["energy"] >= low) & (records["energy"] <= high)
        [one] = sums["bins"]
        check([one["sum"]], [one["error"]], records["y"][inside].astype("f8").sum(), [one["sampled"]])
        # Values from 0 to 1 add up to no more than the rows that the sampled ones stand for.
        assert 0 <= one["sum"] <= found["bins"][0]["estimate"] + 1


def test_cursors_say_what_rows_stand_for(path, records):
    cursor = turbidite.open(path).cursor(EPOCH, columns=["id", "energy"])
    assert cursor.complete_level is None
    steps, energy = [], numpy.where(numpy.isfinite(records["energy"]), records["energy"], 0).clip(0)
    for quality, complete in ((1 / 64, 2), (0.05, 2), (1 / 8, 1), (1, 0)):
        steps.append(cursor.advance(quality=quality))
        assert cursor.complete_level == complete and cursor.stands_for == (1 if quality == 1 else None)
        assert all(batch.stands_for is None for batch in steps[-1].batches)
        numbers = numpy.concatenate([step.stand_for(complete) for step in steps])
        ids = numpy.concatenate([step.to_numpy()["id"] for step in steps])
        assert numpy.array_equal(numbers > 0, numpy.isin(ids, ids_of(path, complete)))
        # The seed of the sample is random, so limits are wide: the core's tests measure bias and variance.
        assert abs(numbers.sum() / ROWS - 1) < 0.3
        assert abs((numbers * energy[ids]).sum() / energy.sum() - 1) < 0.2
    assert (numbers == 1).all() and len(numbers) == ROWS


def test_even_levels_stand_for_as_many(source, scratch):
    target = scratch / "even.tbd"
    answer(*arguments(source, target, "--levels", LEVELS))
    cursor = turbidite.open(target).cursor(EPOCH, columns=["id"])
    step = cursor.advance(quality=1 / 64)
    assert cursor.complete_level == 2 and set(step.stand_for(2)) == {64} and set(step.stand_for(3)) == {0}
    assert answer("inspect", target)["level_weight"] is None
    refused = attempt(*arguments(source, target, "--levels", LEVELS, "--level-weight", "energy"))
    assert refused.returncode != 0 and "are even, but levels in proportion to 'energy' were requested" in refused.stderr


def test_wrong_weights_are_refused(source, path, scratch):
    def refused(*more) -> str:
        return command(*arguments(source, scratch / "refused.tbd", *more), expect=USAGE).stderr

    assert "--levels" in refused("--level-weight", "energy")
    assert "'ux' is not a stored column; the columns are id, x, y, energy, name" in refused("--levels", 2, "--level-weight", "ux")
    assert "is not a stored column" in refused("--levels", 2, "--level-weight", "energy", "--drop", "energy")
    assert "it has byte strings" in refused("--levels", 2, "--level-weight", "name")
    assert not (scratch / "refused.tbd").exists()
    other = attempt(*arguments(source, path, "--levels", LEVELS, "--level-weight", "x"))
    assert other.returncode != 0 and "in proportion to 'energy', but levels in proportion to 'x' were requested" in other.stderr


def test_jobs_add_epochs_with_the_weight(source, path, records, scratch):
    copy = scratch / "weights-more.tbd"
    shutil.copytree(path, copy)
    answer(*arguments(source, copy, "--if-exists", "replace"))
    answer("truncate", copy, "--after", EPOCH)
    assert "no problems found" in command("verify", copy).stdout
    assert abs(len(ids_of(copy, 1)) - ROWS / 8) < 40 and numpy.array_equal(numpy.sort(ids_of(copy, 0)), records["id"])


def test_python_ingests_with_weights(source, records, scratch):
    target, layout = scratch / "weights-python-ingest.tbd", source / "layout.toml"
    turbidite.ingest(source, target, key="space:x,y", layout=layout, levels=LEVELS, level_weight="energy", ranks=RANKS)
    described = answer("inspect", target)
    assert (described["level_weight"], described["levels"]) == ("energy", LEVELS)
    assert numpy.array_equal(numpy.sort(ids_of(target, 0)), records["id"])
    for wrong in ({"levels": 0}, {"levels": 7}, {"level_weight": "energy"}, {"levels": 1, "level_weight": "ux"}):
        with pytest.raises(turbidite.UsageError, match="level|ux"):
            turbidite.ingest(source, scratch / "none.tbd", key="space:x,y", layout=layout, **wrong)
    with pytest.raises(turbidite.UsageError, match="period: 'z' is not a coordinate"):
        turbidite.ingest(source, scratch / "none.tbd", key="space:x,y", layout=layout, period={"z": 1})
    assert not (scratch / "none.tbd").exists()


def test_python_writes_weights(records, scratch):
    types = {"x": "f4", "y": "f4", "energy": "f4"}
    target = scratch / "weights-python.tbd"
    with turbidite.Writer(target, types, key="space:x,y", levels=1, level_weight="energy") as writer, writer.epoch(1):
        writer.append({name: records[name] for name in types})
    assert answer("inspect", target)["level_weight"] == "energy"
    assert "no problems found" in command("verify", target).stdout
    with pytest.raises(turbidite.UsageError, match="state their number"):
        turbidite.Writer(scratch / "none.tbd", types, key="space:x,y", level_weight="energy")
    with pytest.raises(turbidite.UsageError, match="not one of the columns"):
        turbidite.Writer(scratch / "none.tbd", types, key="space:x,y", levels=1, level_weight="ux")
    with pytest.raises(turbidite.UsageError, match="the name of a column"):
        turbidite.Writer(scratch / "none.tbd", types, key="space:x,y", levels=1, level_weight=3)
