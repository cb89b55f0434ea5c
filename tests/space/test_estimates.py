"""Estimates from a level of detail through the command and Python: what NumPy counts lies within the errors, NaN is known."""

import matplotlib
import numpy
import pytest
import turbidite

from support import raw
from support.command import USAGE, answer
from support.command import turbidite as command

matplotlib.use("Agg")

ROWS, RANKS, EPOCH, SIDE, LEVELS = 200_000, 4, 4000, 128.0, 2
RECORD = numpy.dtype([("id", "<u8"), ("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("ux", "<f4")])


@pytest.fixture(scope="module")
def records() -> numpy.ndarray:
    """Momenta depend on the place. Each 1,000th particle is in no place."""
    random = numpy.random.default_rng(23)
    rows = numpy.empty(ROWS, RECORD)
    for name in ("x", "y", "z"):
        rows[name] = random.random(ROWS) * SIDE
    rows["ux"] = rows["x"] / SIDE + 0.3 * random.standard_normal(ROWS)
    rows["x"][::1000] = numpy.nan
    rows["id"] = numpy.arange(ROWS)
    return rows


@pytest.fixture(scope="module")
def path(records, scratch):
    source, path = scratch / "estimate-source", scratch / "estimate.tbd"
    raw.write_source(source, {EPOCH: numpy.array_split(records, RANKS)})
    answer(*raw.ingest_arguments(source, path, "space:x,y,z", "--ranks", RANKS, "--levels", LEVELS))
    return path


def check(estimates, errors, expected, sampled=None):
    """The seed of the sample is random, so limits are wide: the core's tests measure how often 1.96 errors suffice. The error of
    a sum is estimated from the sampled values, and says little where these are few."""
    known = numpy.ones(len(estimates), bool) if sampled is None else numpy.asarray(sampled) >= 30
    deviations = abs(numpy.asarray(estimates, "f8") - expected)[known] / numpy.asarray(errors)[known]
    assert deviations.max(initial=0) < 5 and (len(deviations) < 10 or numpy.mean(deviations**2) < 4), deviations


def test_the_command_estimates_histograms(path, records):
    placed = records[~numpy.isnan(records["x"])]
    for level in (1, 2):
        found = answer("hist", path, "--column", "ux", "--bins", 12, "--range=-0.4..1.4", "--level", level)
        edges = numpy.array([found["bins"][0]["from"], *(one["to"] for one in found["bins"])], "f4")
        expected, _ = numpy.histogram(placed["ux"], edges)
        estimates = [one["estimate"] for one in found["bins"]]
        check(estimates, [one["error"] for one in found["bins"]], expected)
        check_spread(estimates, expected, expected, level)
        check([found["below"]["estimate"]], [found["below"]["error"]], (placed["ux"] < edges[0]).sum())
        assert found["rows"] == {"estimate": ROWS, "error": 0, "least": ROWS, "most": ROWS}
        unplaced = ROWS // 1000
        assert found["sample"]["unplaced"] == {"least": unplaced, "estimate": unplaced, "most": unplaced}
        assert found["sample"]["level"] == level and found["sample"]["stands_for"] == 8**level
        assert abs(found["sample"]["matched"] - ROWS / 8**level) < 0.02 * ROWS / 8**level + 50
    said = command("hist", path, "--column", "ux", "--level", 1, "--box", "0:64,:,:").stdout
    assert "rows of level 1 and above" in said and "error" in said and "\u2591" in said
    said = command("hist", path, "--column", "x", "--level", 1).stdout
    assert f"NaN: {unplaced}" in said and f"with a NaN coordinate, in no sample: {unplaced}" in said


def test_the_command_estimates_numbers(path, records):
    inside = (records["x"] < 64) & (records["ux"] > 0.5)
    for level in (0, 1, 2):
        found = answer("query", path, "--where", "ux > 0.5", "--box", "x=:64", "--count", "--level", level)
        assert found["least"] <= inside.sum() <= found["most"]
        if level == 0:
            assert found["estimate"] == inside.sum() and found["error"] == 0
        else:
            check([found["estimate"]], [found["error"]], inside.sum())
    said = command("query", path, "--where", "ux > 0.5", "--count", "--level", 1)
    estimate, sign, error = said.stdout.split()
    assert sign == "\u00b1" and int(error) > 8
    check([int(estimate)], [int(error)], ((records["ux"] > 0.5) & ~numpy.isnan(records["x"])).sum())
    assert "with a NaN coordinate, in no sample: up to" in said.stderr
    assert command("query", path, "--count", "--level", 2).stdout.strip() == str(ROWS), "manifests know it"


def test_python_estimates_too(path, records):
    dataset = turbidite.open(path)
    box = {"x": (0, 64), "z": (10, None)}
    inside = records[(records["x"] < 64) & (records["z"] >= 10)]
    for level in (1, 2):
        histogram = dataset.histogram("ux", bins=10, range=(-0.5, 1.5), box=box, level=level)
        expected, _ = numpy.histogram(inside["ux"], histogram.x.edges.astype("f4"))
        check(histogram.counts, histogram.errors, expected)
        check_spread(histogram.counts, expected, expected, level)
        assert (histogram.least <= expected).all() and (expected <= histogram.most).all()
        assert histogram.level == level and histogram.least.sum() <= histogram.sampled and histogram.unplaced == (0, 0)
        assert "<th style='text-align: left'>error</th>" in histogram._repr_html_()
        drawn = histogram.plot().get_legend().get_title().get_text()
        assert "\u00b1 one standard error" in drawn
        found = dataset.query("ux > 0.5", box=box).estimate(level)
        check([found.rows], [found.error], (inside["ux"] > numpy.float32(0.5)).sum())
    exact = dataset.histogram("ux", bins=10, range=(-0.5, 1.5), box=box)
    assert exact.errors is None and exact.level is None
    for arguments in ({"source": "exact"}, {"use": "scan"}, {"level": -1}, {"level": 3}, {"level": 300}):
        with pytest.raises(turbidite.UsageError, match="level"):
            dataset.histogram("ux", **{"level": 1, **arguments})


def check_sums(sums, errors, samples, expected, sampled):
    """Sums of the sampled rows are as NumPy adds them up, and the true sums lie within their errors."""
    assert list(samples) == list(sampled)
    check(sums, errors, expected, samples)


def check_spread(estimates, expected, squares, level):
    """Each row is in the sample of a level or not, and counts for ``8**level``: `squares` are the sums of the squared values."""
    deviations = abs(numpy.asarray(estimates, "f8") - expected) / numpy.sqrt((8**level - 1) * numpy.maximum(squares, 1e-9))
    assert deviations.max() < 6 and (len(deviations) < 10 or numpy.mean(deviations**2) < 4), deviations


def test_sums_are_estimated(path, records):
    placed = records[~numpy.isnan(records["x"])]
    edges = numpy.linspace(0, SIDE, 9)
    values = placed["ux"].astype("f8")
    expected, _ = numpy.histogram(placed["x"], edges, weights=values)
    squares, _ = numpy.histogram(placed["x"], edges, weights=values**2)
    for level in (1, 2):
        found = answer("hist", path, "--column", "x", "--bins", 8, "--range", f"0..{SIDE}", "--level", level, "--weights", "ux")
        counts = answer("hist", path, "--column", "x", "--bins", 8, "--range", f"0..{SIDE}", "--level", level)
        sums = found.pop("sums")
        assert {**found, "cost": None} == {**counts, "cost": None} and sums["column"] == "ux"
        sampled = [round(one["estimate"] / 8**level) for one in found["bins"]]
        bins = sums["bins"]
        check_sums(*([one[name] for one in bins] for name in ("sum", "error", "sampled")), expected, sampled)
        check_spread([one["sum"] for one in bins], expected, squares, level)
        check([sums["rows"]["sum"]], [sums["rows"]["error"]], values.sum())
        histogram = turbidite.open(path).histogram("x", bins=8, range=(0, SIDE), level=level, weights="ux")
        assert histogram.weights.name == "ux" and list(histogram.sums) == [one["sum"] for one in bins]
        assert list(histogram.sum_errors) == [one["error"] for one in bins] and list(histogram.samples) == sampled
        assert histogram.sum_of_all == (sums["rows"]["sum"], sums["rows"]["error"])
        assert "<th style='text-align: left'>sum of ux</th>" in histogram._repr_html_()
        ax = histogram.plot()
        band, drawn = (patch.get_data() for patch in ax.patches)
        assert numpy.array_equal(drawn.values, histogram.sums) and ax.get_ylabel() == "ux, summed per bin"
        assert numpy.array_equal(band.values, histogram.sums + histogram.sum_errors)
    said = command("hist", path, "--column", "x", "--bins", 8, "--level", 1, "--weights", "ux").stdout
    assert "sum of ux about" in said and "(error" in said and "sampled" in said and "\u2588" in said
    # Every row is of level 0 or above, in places or not.
    exact = answer("hist", path, "--column", "x", "--bins", 8, "--range", f"0..{SIDE}", "--level", 0, "--weights", "ux")["sums"]
    assert numpy.allclose([one["sum"] for one in exact["bins"]], expected, rtol=1e-12)
    assert all(one["error"] == 0 for one in exact["bins"])
    nowhere = records["ux"][numpy.isnan(records["x"])].astype("f8")
    assert numpy.isclose(exact["nan"]["sum"], nowhere.sum()) and exact["nan"]["sampled"] == len(nowhere)


def test_pairs_are_estimated(path, records):
    """The same rows by two columns, with sums."""
    placed = records[~numpy.isnan(records["x"])]
    dataset = turbidite.open(path)
    for level in (0, 1, 2):
        found = dataset.histogram("ux", "y", bins=(4, 3), range=((-0.4, 1.4), (0, 96)), level=level, weights="z")
        rows = records if level == 0 else placed
        edges = [axis.edges.astype("f4") for axis in (found.x, found.y)]
        expected = numpy.histogram2d(rows["ux"], rows["y"], edges)[0]
        sums = numpy.histogram2d(rows["ux"], rows["y"], edges, weights=rows["z"].astype("f8"))[0]
        assert found.source == "levels" and found.samples.shape == found.counts.shape == (4, 3)
        if level == 0:
            assert numpy.array_equal(found.counts, expected) and numpy.allclose(found.sums, sums, rtol=1e-12)
            continue
        check(found.counts.ravel(), found.errors.ravel(), expected.ravel())
        check(found.sums.ravel(), found.sum_errors.ravel(), sums.ravel(), found.samples.ravel())
        arguments = ["hist", path, "--column", "ux", "--range=-0.4..1.4", "--bins", 4, "--by", "y", "--by-range", "0..96", "--by-bins", 3]
        stated = answer(*arguments, "--level", level, "--weights", "z")
        assert stated["estimate"] == found.counts.tolist() and stated["error"] == found.errors.tolist()
        assert stated["sums"]["sum"] == found.sums.tolist() and stated["sample"]["level"] == level
        assert "sums of z" in command(*arguments, "--level", level, "--weights", "z").stdout
        found.plot()


def test_errors_of_sums_of_few_rows_are_unknown(path):
    histogram = turbidite.open(path).histogram("x", bins=400, range=(0, SIDE), level=2, weights="ux")
    assert (histogram.samples < 30).all() and numpy.isnan(histogram.sum_errors).all()
    assert numpy.isfinite(histogram.errors).all() and numpy.isfinite(histogram.sum_of_all).all(), "counts keep theirs"


def test_sums_of_nothing_and_of_nan(path):
    """A box in which no row is: nothing is known of the sum. NaN makes a sum NaN."""
    found = answer(
        "hist", path, "--column", "ux", "--bins", 2, "--range", "90..91", "--level", 1, "--weights", "ux", "--where", "z < 64"
    )
    for one in found["sums"]["bins"]:
        assert one["sum"] == 0 and one["sampled"] == 0 and one["error"] in (0, None)
    nan = answer("hist", path, "--column", "ux", "--bins", 1, "--level", 0, "--weights", "x")["sums"]["bins"][0]
    assert nan["sum"] == "NaN" and nan["error"] is None
    histogram = turbidite.open(path).histogram("ux", bins=1, level=0, weights="x")
    assert numpy.isnan(histogram.sums).all() and numpy.isnan(histogram.sum_errors).all()
    assert "unknown" in command("hist", path, "--column", "ux", "--bins", 1, "--level", 0, "--weights", "x").stdout
    with pytest.raises(turbidite.UsageError, match="weights"):
        turbidite.open(path).histogram("ux", weights="x", source="bounds")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hist", "--column", "ux", "--level", 3], "the dataset has the levels 0 to 2, and no level 3"),
        (["hist", "--column", "ux", "--level", 1, "--source", "exact"], "cannot be used with"),
        (["query", "--count", "--level", 1, "--bounds"], "cannot be used with"),
        (["query", "--level", 1], "--count"),
        (["hist", "--column", "ux", "--weights", "x", "--source", "bounds"], "weights: are summed over rows"),
        (["hist", "--column", "ux", "--level", 1, "--weights", "uy"], "uy"),
    ],
)
def test_mistakes_are_told(path, arguments, message):
    failed = command(arguments[0], path, *arguments[1:], expect=USAGE)
    assert message in failed.stderr, failed.stderr


def test_datasets_without_levels_are_refused(records, tmp_path):
    with turbidite.Writer(tmp_path / "plain.tbd", {"x": "f4", "y": "f4"}, key="space:x,y") as writer, writer.epoch(1):
        writer.append(records[["x", "y"]][:100])
    failed = command("hist", tmp_path / "plain.tbd", "--column", "x", "--level", 1, expect=USAGE)
    assert "no levels of detail" in failed.stderr and "--levels" in failed.stderr and "index add" in failed.stderr
