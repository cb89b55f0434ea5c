"""Weighted histograms equal NumPy's, with any values of axes and weights, through Python and the command."""

import json

import numpy
import pytest
import turbidite
from hypothesis import given, settings
from hypothesis import strategies as st

from support.command import answer
from support.command import turbidite as command

WILD = [0.0, -0.0, 1.0, 1.5, -2.25, 3.0, numpy.nan, numpy.inf, -numpy.inf, 1e-300, 1e300]


def write(path, epochs: dict):
    columns = {"x": "f8", "y": "i4", "w": "f4"}
    with turbidite.Writer(path, columns, key="x") as writer:
        for label, rows in epochs.items():
            with writer.epoch(label):
                writer.append(rows)
    return turbidite.open(path)


def rows_of(random: numpy.random.Generator, size: int) -> dict:
    return {
        "x": random.choice(WILD + random.normal(size=4).tolist(), size),
        "y": random.integers(-3, 4, size).astype("i4"),
        "w": random.choice(numpy.array([1, -2, 0.5, numpy.nan, numpy.inf], "f4"), size, p=[0.4, 0.3, 0.28, 0.01, 0.01]),
    }


def close(sums, expected) -> bool:
    return numpy.allclose(sums, expected, rtol=1e-12, atol=1e-12, equal_nan=True)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), sizes=st.lists(st.sampled_from([0, 1, 40, 3000]), min_size=1, max_size=3), log=st.booleans())
def test_sums_are_those_of_numpy(tmp_path_factory, seed, sizes, log):
    random = numpy.random.default_rng(seed)
    epochs = {label: rows_of(random, size) for label, size in enumerate(sizes)}
    dataset = write(tmp_path_factory.mktemp("weights") / "d.tbd", epochs)
    rows = {name: numpy.concatenate([epoch[name] for epoch in epochs.values()]) for name in ("x", "y", "w")}
    w = rows["w"].astype("f8")
    ends = (0.25, 4.0) if log else (-2.25, 3.0)
    for where, chosen in (None, numpy.ones(len(w), bool)), ("y > 0", rows["y"] > 0):
        x, y, weights = rows["x"][chosen], rows["y"][chosen], w[chosen]
        one = dataset.histogram("x", bins=7, range=ends, log=log, weights="w", where=where)
        inside = numpy.isfinite(x)
        with numpy.errstate(invalid="ignore"):
            # `numpy.histogram` adds up a NaN in all later bins.
            assert close(one.sums, numpy.histogramdd([x[inside]], [one.x.edges], weights=weights[inside])[0])
            assert close(one.sum_of_all[0], weights.sum())
        assert numpy.array_equal(one.counts, numpy.histogram(x[inside], one.x.edges)[0])
        assert (one.source, one.rows, one.nan, one.infinite) == ("exact", len(x), numpy.isnan(x).sum(), numpy.isinf(x).sum())
        assert one.errors is None and one.sum_errors is None and one.weights.name == "w"
        plain = dataset.histogram("x", bins=7, range=ends, log=log, where=where)
        assert numpy.array_equal(plain.counts, one.counts) and plain.unbinned == one.unbinned and plain.sums is None
        two = dataset.histogram("x", "y", bins=(5, 3), range=(ends, (-3, 2)), log=(log, False), weights="w", where=where)
        # NumPy's last bin of integers is closed, too.
        found = numpy.histogram2d(x[inside], y[inside].astype("f8"), [two.x.edges, two.y.edges], weights=weights[inside])[0]
        with numpy.errstate(invalid="ignore"):
            assert close(two.sums, found) and two.sums.shape == (5, 3)


def test_an_empty_epoch_has_no_sums(tmp_path):
    dataset = write(tmp_path / "d.tbd", {1: rows_of(numpy.random.default_rng(1), 0)})
    for options, shape in (({"range": (0, 1), "bins": 4}, (4,)), ({}, (0,))):
        found = dataset.histogram("x", weights="w", **options)
        assert found.sums.tolist() == [0.0] * shape[0] and found.rows == 0 and found.sum_of_all == (0, 0)
        found.plot()
        assert "sum of w" in found._repr_html_()
    assert dataset.histogram("x", "y", weights="w").sums.shape == (0, 0)


def test_the_command_sums_too(tmp_path):
    epochs = {1: rows_of(numpy.random.default_rng(5), 3000), 2: rows_of(numpy.random.default_rng(6), 0)}
    dataset = write(tmp_path / "d.tbd", epochs)
    arguments = ["hist", dataset.path, "--column", "y", "--range", "-3..3", "--bins", 7, "--weights", "x", "--where", "x < 9 and x > -9"]
    found = answer(*arguments)
    kept = abs(epochs[1]["x"]) < 9
    expected = numpy.histogram(epochs[1]["y"][kept], numpy.arange(-3, 5), weights=epochs[1]["x"][kept])[0]
    assert found["source"] == "exact" and found["sums"]["column"] == "x"
    assert close([one["sum"] for one in found["sums"]["bins"]], expected)
    assert {"sum", "error"} == set(found["sums"]["rows"]) and found["sums"]["rows"]["error"] == 0
    printed = command(*arguments).stdout
    assert "sum of x" in printed and "error" not in printed and "counted" in printed
    pairs = answer(*arguments, "--by", "w", "--by-range", "-2..1", "--by-bins", 2)
    assert json.dumps(pairs["sums"]["sum"]) and numpy.shape(pairs["sums"]["sum"]) == (7, 2)
    assert "sums of x" in command(*arguments, "--by", "w", "--by-range", "-2..1").stdout
    with pytest.raises(turbidite.UsageError, match="weights"):
        dataset.histogram("x", weights="w", source="bounds")
