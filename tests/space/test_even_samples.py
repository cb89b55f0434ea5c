"""Samples are even: with the weights of their rows, counts in the cells of a grid deviate no more than those of a random sample,
at whole levels and in the middle of one, for any distribution and number of receivers. Without them, they do."""

import duckdb
import numpy
import pytest
import turbidite

from support import raw
from support.command import answer
from support.command import turbidite as command
from support.sweeps import taken

ROWS, EPOCH, LEVELS, SIDE = 600_000, 7, 3, 64.0
RECORD = numpy.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("id", "<u4")])
# Cells along each axis at most.
CELLS = {2: 16, 3: 6}
# All end at level 3 or in the middle of a lower level.
STEPS = [
    {"quality": 1 / 512},
    {"quality": 0.005},
    {"quality": 0.01},
    {"quality": 1 / 64},
    {"quality": 0.05},
    {"quality": 1 / 8},
    {"quality": 0.3},
    {"rows": 4_000},
    {"rows": 50_000},
    {"rows": 200_000},
]


def places(domain: str, random: numpy.random.Generator) -> numpy.ndarray:
    """The places of the records of a domain: in 2-D, all have the same z."""
    found = random.random((ROWS, 3)) * SIDE
    if domain.startswith("clustered"):
        blobs = random.random((12, 3)) * SIDE
        near = blobs[random.integers(0, 12, ROWS)] + random.standard_normal((ROWS, 3)) * 4
        found = numpy.where(numpy.arange(ROWS)[:, None] % 4 > 0, near, found)
    if domain.startswith("periodic"):
        # A dense sheet across the boundary of the domain.
        found[::3, 0] = random.standard_normal(len(found[::3])) * 3 % SIDE
    if domain.endswith("2-D"):
        found[:, 2] = 1
    return found


def written(domain: str, receivers: int, folder) -> tuple[turbidite.Dataset, numpy.ndarray, list[str]]:
    records = numpy.empty(ROWS, RECORD)
    found = places(domain, numpy.random.default_rng([receivers, *domain.encode()]))
    for axis, name in enumerate("xyz"):
        records[name] = found[:, axis]
    records["id"] = numpy.arange(ROWS)
    source, path, axes = folder / "source", folder / "even.tbd", list("xyz")[: int(domain[-3])]
    raw.write_source(source, {EPOCH: numpy.array_split(records, receivers)})
    period = ["--period", ",".join([str(SIDE)] * len(axes))] if domain.startswith("periodic") else []
    key = f"space:{','.join(axes)}"
    answer(*raw.ingest_arguments(source, path, key, "--ranks", receivers, "--part-bytes", 0, "--levels", LEVELS, *period))
    return turbidite.open(path), records, axes


def chi_square(
    records: numpy.ndarray, sample: dict[str, numpy.ndarray], weights: numpy.ndarray, most: float, axes: list[str]
) -> float:
    """Chi-square per cell of the weighted counts of a sample against the counts of all records; Poisson: 1.

    If all rows stood for `most` others, the cells would have ten on average. Those that would have fewer than five are left out.
    """
    along = min(CELLS[len(axes)], int((ROWS / most / 10) ** (1 / len(axes))))
    edges = [numpy.linspace(0, SIDE, along + 1)] * len(axes)

    def counts(rows, of=None):
        return numpy.histogramdd([rows[axis] for axis in axes], edges, weights=of)[0]

    truth, found, squares = counts(records), counts(sample, weights), counts(sample, weights**2)
    # The variance of a row with the weight w is w for each row that it stands for.
    variance = truth * numpy.divide(squares, found, out=numpy.full_like(found, most), where=found > 0)
    cells = truth > 5 * most
    return float(numpy.mean((found - truth)[cells] ** 2 / variance[cells]))


DOMAINS = [f"{shape}, {dimensions}" for shape in ("uniform", "clustered", "periodic") for dimensions in ("2-D", "3-D")]
CASES = [(domain, receivers) for domain in DOMAINS for receivers in (1, 4, 16, 64)]


@pytest.mark.parametrize(("domain", "receivers"), taken(CASES, 6), ids=str)
def test_samples_are_even(domain, receivers, tmp_path):
    dataset, records, axes = written(domain, receivers, tmp_path)
    worst = {}
    for step in STEPS:
        cursor = dataset.cursor(EPOCH, columns=axes)
        rows = cursor.advance(**step).to_numpy()
        weights = cursor.weights()
        assert len(weights) == len(rows["x"]) and numpy.isclose(weights.sum(), ROWS, rtol=1e-9)
        most = weights.max()
        even = chi_square(records, rows, weights, most, axes)
        print(f"{domain}, {receivers} receivers, {step}: {even:.2f}, density varies by {cursor.density_ratio}")
        assert even <= 1.3, step
        is_whole = cursor.density_ratio == 1
        assert is_whole == (weights.min() == weights.max()) and cursor.density_ratio in (1, 8)
        if not is_whole:
            worst[str(step)] = chi_square(records, rows, numpy.full(len(weights), ROWS / len(weights)), most, axes)
    # The same rows are not even without their weights.
    assert max(worst.values()) > 5, worst
    out = tmp_path / "sample.parquet"
    for options in ("--quality 0.01", "--rows 50000", "--quality 0.05 --partial", "--rows 50000 --partial"):
        command("query", dataset.path, "--epoch", EPOCH, *options.split(), "-o", out)
        rows = duckdb.sql(f"SELECT * FROM '{out}'").fetchnumpy()
        assert chi_square(records, rows, rows["stands_for"], rows["stands_for"].max(), axes) <= 1.3, options


@pytest.mark.parametrize("domain", ["periodic, 2-D", "periodic, 3-D"])
def test_weights_add_up_across_a_boundary(domain, tmp_path):
    dataset, records, axes = written(domain, 4, tmp_path)
    box = {"x": (SIDE - 3, SIDE + 5)}
    inside = int(((records["x"] >= SIDE - 3) | (records["x"] < 5)).sum())
    for quality in (1 / 64, 0.05, 1 / 8, 0.3):
        cursor = dataset.cursor(EPOCH, box=box, columns=axes)
        rows = len(cursor.advance(quality=quality))
        # Of a random sample, 99.99 % would be within four standard errors.
        assert abs(cursor.weights().sum() / inside - 1) < 4 / numpy.sqrt(rows), quality
