"""`hist` and `quantiles` against NumPy: bounds hold, exact answers are exact, the bounded ones open no part."""

import shutil

import numpy
import pytest
from pyarrow import parquet

from support import raw
from support.command import CORRUPTION, FAILED, USAGE, answer, turbidite
from support.hostile import extremes
from support.ranks import value_at

COLUMNS = ["energy", "ux", "x", "slope", "id", "i"]
SHARES = [0, 0.001, 0.1, 0.5, 0.9, 0.99, 1]


def chosen(indexed, epoch):
    epochs = [epoch] if epoch is not None else sorted(indexed.epochs)
    return numpy.concatenate([indexed.epochs[one] for one in epochs])


def edges_of(histogram: dict) -> numpy.ndarray:
    return numpy.array([bin["from"] for bin in histogram["bins"]] + [histogram["bins"][-1]["to"]])


def counted(values: numpy.ndarray, edges: numpy.ndarray) -> dict:
    """The same by full scan. NumPy's bins are half open and the last is closed too."""
    finite = values[numpy.isfinite(values)]
    return {
        "nan": int(numpy.isnan(values).sum()),
        "negative_infinity": int((values == -numpy.inf).sum()),
        "positive_infinity": int((values == numpy.inf).sum()),
        "below": int((finite < edges[0]).sum()),
        "above": int((finite > edges[-1]).sum()),
        "bins": numpy.histogram(finite, edges)[0].tolist(),
    }


def check(told: dict, expected: dict, rows: int, exact: bool) -> None:
    assert (told["rows"], told["nan"], told["source"]) == (rows, expected["nan"], "exact" if exact else "bounds")
    pairs = [(told[name], expected[name]) for name in ("negative_infinity", "positive_infinity", "below", "above")]
    pairs += zip(told["bins"], expected["bins"], strict=True)
    for bounds, truth in pairs:
        assert bounds["least"] <= truth <= bounds["most"], (bounds, truth)
        assert bounds["least"] <= bounds["estimate"] <= bounds["most"], bounds
        if exact:
            assert bounds["least"] == bounds["most"] == truth


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("more", [[], ["--range", "-0.5..2"], ["--log"]], ids=["all", "range", "log"])
def test_histograms(indexed, column, more):
    for epoch in [None, max(indexed.epochs)]:
        arguments = ["hist", indexed.path, "--column", column, "--bins", 30, *more]
        arguments += [] if epoch is None else ["--epoch", epoch]
        values = chosen(indexed, epoch)[column].astype("f8")
        bounded, exact = answer(*arguments, "--source", "bounds"), answer(*arguments)
        for told, is_exact in ((bounded, False), (exact, True)):
            edges = edges_of(told)
            assert (numpy.diff(edges[:-1]) > 0).all()
            check(told, counted(values, edges), len(values), is_exact)
        if "--range" in more:
            assert (edges_of(bounded) == edges_of(exact)).all()
        else:
            # Manifests do not know the finite values of a row group that has infinite ones, nor the smallest positive one.
            inside = values[numpy.isfinite(values) & ((values > 0) | ("--log" not in more))]
            assert (edges_of(exact)[0], edges_of(exact)[-1]) == (inside.min(), inside.max())
            known = edges_of(bounded)
            assert inside.min() <= known[0] and known[-1] <= inside.max()
        assert bounded["cost"]["bytes_read"] == 0


@pytest.mark.parametrize("column", COLUMNS)
def test_quantiles(indexed, column):
    for epoch in [None, max(indexed.epochs)]:
        arguments = ["quantiles", indexed.path, "--column", column, "--at", ",".join(map(str, SHARES))]
        arguments += [] if epoch is None else ["--epoch", epoch]
        values = chosen(indexed, epoch)[column].astype("f8")
        ordered = numpy.sort(values[~numpy.isnan(values)])
        bounded, exact = answer(*arguments, "--source", "bounds"), answer(*arguments)
        infinite = {"Infinity": numpy.inf, "-Infinity": -numpy.inf}
        for share, about, sure in zip(SHARES, bounded["quantiles"], exact["quantiles"], strict=True):
            truth = value_at(ordered, share)
            low, middle, high = (infinite.get(about[name], about[name]) for name in ("least", "estimate", "most"))
            assert low <= truth <= high and low <= middle <= high, (share, truth, about)
            assert all(infinite.get(sure[name], sure[name]) == truth for name in ("least", "estimate", "most"))
        assert bounded["cost"]["bytes_read"] == 0


def test_the_key_is_told_well_and_counted_cheaply(default_dataset):
    """What clustering is for: the manifest's bounds are close for the key, and exact counts read little of it."""
    rows = sum(map(len, default_dataset.epochs.values()))
    bounded = answer("quantiles", default_dataset.path, "--at", "0.5", "--source", "bounds")["quantiles"][0]
    assert bounded["most"] < 2 * bounded["least"]
    exact = answer("hist", default_dataset.path, "--bins", 10, "--log")
    assert 0 < exact["cost"]["bytes_read"] < 4 * rows / 2


def test_integers_beyond_what_floats_hold(scratch):
    """Ends of the types, where an edge that was rounded would miscount a quarter of all rows."""
    for name in ["i8", "u8"]:
        keys = extremes(name, 4)
        rows = [numpy.array(list(zip(part)), dtype=[("key", part.dtype.str)]) for part in keys]
        root, target = scratch / f"ends-{name}", scratch / f"ends-{name}.tbd"
        raw.write_source(root, {0: rows})
        turbidite(*raw.ingest_arguments(root, target, "key"))
        values = numpy.sort(numpy.concatenate(keys))
        told = answer("hist", target, "--bins", 4)
        starts = [int(bin["from"]) for bin in told["bins"]]
        places = numpy.searchsorted(values, numpy.array(starts[1:], values.dtype)).tolist()
        expected = numpy.diff([0, *places, len(values)]).tolist()
        assert [bin["estimate"] for bin in told["bins"]] == expected
        assert starts[0] == int(values[0]) and told["bins"][-1]["to"] == int(values[-1])
        quantiles = answer("quantiles", target, "--at", "0.3,0.6,0.75")["quantiles"]
        assert [one["estimate"] for one in quantiles] == [int(values[one["position"] - 1]) for one in quantiles]


def test_no_part_is_needed_beyond_its_footer(default_dataset, scratch):
    """The pages of every part are zeroed: manifests answer as before, exact answers name the corruption."""
    corrupted = scratch / "zeroed"
    shutil.copytree(default_dataset.path, corrupted)
    bounded = [("hist", corrupted, "--column", "ux"), ("hist", corrupted), ("quantiles", corrupted)]
    questions = [(*question, "--source", "bounds") for question in bounded] + [("stats", corrupted)]
    expected = [answer(*question) for question in questions]
    for part in (corrupted / "data").glob("*/*.parquet"):
        metadata = parquet.ParquetFile(part).metadata
        columns = [metadata.row_group(group).column(c) for group in range(metadata.num_row_groups) for c in range(metadata.num_columns)]
        with part.open("r+b") as file:
            for column in columns:
                file.seek(column.data_page_offset)
                file.write(bytes(column.total_compressed_size))
    assert [answer(*question) for question in questions] == expected
    turbidite("report", corrupted, "-o", scratch / "zeroed.html")
    error = turbidite("hist", corrupted, "--column", "ux", expect=CORRUPTION).stderr
    assert ".parquet" in error and "ux" in error
    shutil.rmtree(corrupted)


def test_what_is_printed_and_refused(default_dataset):
    path = default_dataset.path
    lines = turbidite("hist", path, "--column", "i", "--bins", 5).stdout.splitlines()
    assert lines[2].split() == ["from", "to", "rows"] and len([line for line in lines if "█" in line]) >= 4
    assert turbidite("quantiles", path, "--at", "0.5").stdout.splitlines()[2].split()[0] == "share"
    for wrong in [
        ["hist", path, "--column", "epoch"],
        ["hist", path, "--column", "nothing"],
        ["hist", path, "--bins", "0"],
        ["hist", path, "--range", "3..1"],
        ["hist", path, "--range", "0..1", "--log"],
        ["quantiles", path, "--at", "1.5"],
        ["quantiles", path, "--at", "nan"],
    ]:
        turbidite(*wrong, expect=USAGE)
    turbidite("hist", path, "--epoch", "77", expect=FAILED)
