"""Arguments of the wrong kind: each is refused by its name, with what is needed."""

import numpy
import pytest
import turbidite


@pytest.fixture(scope="module")
def dataset(scratch) -> turbidite.Dataset:
    path = scratch / "places.tbd"
    places = numpy.linspace(0, 8, 1000, dtype="f4")
    rows = {"x": places, "y": places[::-1].copy(), "id": numpy.arange(1000, dtype="u8")}
    with turbidite.Writer(path, {"x": "f4", "y": "f4", "id": "uint64"}, key="space:x,y", levels=1) as writer, writer.epoch(1):
        writer.append(rows)
    return turbidite.open(path)


WRONG = {
    "where": (lambda dataset: dataset.query(where=1), "where: a text such as 'energy > 1' is needed, not 1"),
    "bytes for where": (lambda dataset: dataset.query(b"x > 1"), "where: a text .* not b'x > 1'"),
    "order": (lambda dataset: dataset.query(order=True), "order: a text such as 'key' is needed, not True"),
    "use": (lambda dataset: dataset.query(use=1), "use: a text such as 'scan' is needed, not 1"),
    "check": (lambda dataset: dataset.query(check="no"), "check: True or False is needed, not 'no'"),
    "columns": (lambda dataset: dataset.query(columns=[1]), r"columns: give a list of names, .*, not \[1\]"),
    "one column": (lambda dataset: dataset.query(columns=5), "columns: give a list of names, .*, not 5"),
    "a huge limit": (lambda dataset: dataset.query(limit=2**64), "limit: 18446744073709551616 needs more than 64 bits"),
    "a huge label": (lambda dataset: dataset.query(epochs=[2**64]), "epochs: .* 64 bits"),
    "pieces": (lambda dataset: dataset.pieces(3), "query: a text .* not 3"),
    "share": (lambda dataset: dataset.share(0, 2, 3), "query: a text .* not 3"),
    "cursor": (lambda dataset: dataset.cursor(1, 3), "where: .* not 3"),
    "cursor's columns": (lambda dataset: dataset.cursor(1, columns=[2]), r"columns: .* not \[2\]"),
    "near": (lambda dataset: dataset.cursor(1, near="12"), "near: a number for each coordinate is needed, not '12'"),
    "near texts": (lambda dataset: dataset.cursor(1, near=["1", 2]), r"near: .* not \['1', 2\]"),
    "quality": (lambda dataset: dataset.cursor(1).advance(quality="0.5"), "quality: a number from 0 to 1 is needed, not '0.5'"),
    "histogram": (lambda dataset: dataset.histogram(1), "column: the name of a column is needed, not 1"),
    "by": (lambda dataset: dataset.histogram("x", 1), "by: the name of a column is needed, not 1"),
    "range": (lambda dataset: dataset.histogram("x", range=5), r"range: a pair of numbers, \(from, to\), is needed, not 5"),
    "range of texts": (lambda dataset: dataset.histogram("x", range=("0", "1")), "range: a pair of numbers"),
    "half a range": (lambda dataset: dataset.histogram("x", range=(0, None)), "range: a pair of numbers"),
    "three ends": (lambda dataset: dataset.histogram("x", range=(0, 1, 2)), "range: a pair of numbers"),
    "huge ends": (lambda dataset: dataset.histogram("x", range=(0, 10**400)), "range: a pair of numbers"),
    "edges and a range": (lambda dataset: dataset.histogram("x", bins=numpy.arange(3), range=(0, 2)), "range: bins states the edges"),
    "one edge": (lambda dataset: dataset.histogram("x", bins=[1]), r"bins: a number of bins or their edges is needed, not \[1\]"),
    "edges as texts": (lambda dataset: dataset.histogram("x", bins=["0", "1"]), "bins: a number of bins or their edges"),
    "edges backwards": (lambda dataset: dataset.histogram("x", bins=[1, 0]), "bins: the edges must be finite and ascend"),
    "endless edges": (lambda dataset: dataset.histogram("x", bins=[0, numpy.inf]), "bins: the edges must be finite and ascend"),
    "no bins": (lambda dataset: dataset.histogram("x", bins=0), "bins: a number of bins .* not 0"),
    "edges of two": (lambda dataset: dataset.histogram("x", "y", bins=(4, "5")), "bins: a number of bins or their edges, or a pair .* '5'"),
    "log": (lambda dataset: dataset.histogram("x", log="yes"), "log: True or False is needed, not 'yes'"),
    "source": (lambda dataset: dataset.histogram("x", source="sample"), "source: 'exact', 'bounds', 'levels' are possible, not 'sample'"),
    "level and source": (lambda dataset: dataset.histogram("x", level=1, source="exact"), "level: estimates exclude source='exact'"),
    "budget": (lambda dataset: dataset.histogram("x", "y", budget="1GB"), "budget: a number of bytes is needed, such as 4e9, not '1GB'"),
    "negative budget": (lambda dataset: dataset.histogram("x", budget=-1), "budget: a number of bytes is needed"),
    "histogram's where": (lambda dataset: dataset.histogram("x", where=1), "where: a text"),
    "histogram's use": (lambda dataset: dataset.histogram("x", use=1), "use: a text"),
    "one column's weights": (lambda dataset: dataset.histogram("x", level=0, weights=1), "weights: the name of a column is needed, not 1"),
    "bounds of sums": (lambda dataset: dataset.histogram("x", weights="y", source="bounds"), "weights: are summed over rows"),
    "x": (lambda dataset: dataset.phase_space(1, "y"), "x: the name of a column is needed, not 1"),
    "y": (lambda dataset: dataset.phase_space("x", None), "y: the name of a column is needed, not None"),
    "weights": (lambda dataset: dataset.phase_space("x", "y", weights=1), "weights: the name of a column is needed, not 1"),
    "pairs' where": (lambda dataset: dataset.phase_space("x", "y", where=1), "where: a text"),
    "pairs' use": (lambda dataset: dataset.phase_space("x", "y", use=1), "use: a text"),
    "pairs' log": (lambda dataset: dataset.phase_space("x", "y", log=(True, 1)), "log: True or False is needed, not 1"),
    "pairs' range": (lambda dataset: dataset.phase_space("x", "y", range=5), r"range: \(\(x from, x to\), .* not 5"),
    "pairs' texts": (lambda dataset: dataset.phase_space("x", "y", range=(("a", "b"), None)), r"range: \(\(x from"),
    "of": (lambda dataset: dataset.tracks(of=1, at=1, id="id"), "of: a text such as 'energy > 10' is needed, not 1"),
    "id": (lambda dataset: dataset.get(1, id=3), "id: the name of a column is needed, not 3"),
    "tracks' id": (lambda dataset: dataset.tracks(of="x > 1", at=1, id=["id"]), r"id: the name of a column is needed, not \['id'\]"),
    "tracks' columns": (lambda dataset: dataset.tracks(of="x > 1", at=1, id="id", columns=[1]), "columns: give a list"),
    "a picture's x": (lambda dataset: dataset.get(1, id="id").plot(1, "y"), "x: the name of a column is needed, not 1"),
    "a picture's limit": (lambda dataset: dataset.get(1, id="id").plot("x", "y", limit="9"), "limit: a whole number"),
    "quantiles": (lambda dataset: dataset.quantiles(1, 0.5), "column: the name of a column is needed, not 1"),
    "a share as text": (lambda dataset: dataset.quantiles("x", "0.5"), "shares: numbers from 0 to 1 are needed, not '0.5'"),
    "shares as texts": (lambda dataset: dataset.quantiles("x", ["0.5"]), r"shares: .* not \['0.5'\]"),
    "a share beyond 1": (lambda dataset: dataset.quantiles("x", [0.5, 1.5]), "shares: .* not 1.5"),
    "epochs backwards": (lambda dataset: dataset.query(epochs="5..1"), "epochs: .*5"),
    "no share": (lambda dataset: dataset.quantiles("x", None), "shares: .* not None"),
    "a truth value": (lambda dataset: dataset.quantiles("x", True), "shares: .* not True"),
    "a missing share": (lambda dataset: dataset.quantiles("x", [0.5, None]), r"shares: .* not \[0.5, None\]"),
    "quantiles of levels": (lambda dataset: dataset.quantiles("x", 0.5, source="levels"), "source: 'exact', 'bounds' are possible, not 'levels'"),
    "quantiles' budget": (lambda dataset: dataset.quantiles("x", 0.5, budget=None), "budget: a number of bytes is needed"),
    "percentiles": (lambda dataset: dataset.key_profile(1, ["5"]), "percentiles: ascending numbers from 0 to 100 are needed"),
    "ingest's columns": (lambda dataset: turbidite.ingest("a", "b", key="x", columns=[1]), r"columns: .* not \[1\]"),
    "ingest's drop": (lambda dataset: turbidite.ingest("a", "b", key="x", drop="id"), "drop: .* not 'id'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_arguments_of_the_wrong_kind_are_named(dataset, name):
    act, words = WRONG[name]
    with pytest.raises(turbidite.UsageError, match=f"^{words}"):
        act(dataset)


def test_numbers_of_numpy_are_those_of_python(dataset):
    plain = dataset.histogram("x", bins=4, range=(0, 8)).counts.tolist()
    ends = numpy.array([0, 8])
    for bins, range_ in ((numpy.int64(4), ends), (numpy.uint8(4), ends.astype("f4")), (4, tuple(ends)), (4, list(ends))):
        assert dataset.histogram("x", bins=bins, range=range_, budget=numpy.float32(1e6)).counts.tolist() == plain
    pairs = dataset.phase_space("x", "y", bins=(2, 4), range=((0, 8), (0, 8))).counts.tolist()
    for range_ in (numpy.array([[0, 8], [0, 8]]), (ends, ends.astype("f8")), [(0, 8), ends]):
        assert dataset.phase_space("x", "y", bins=[numpy.int8(2), 4], range=range_, log=numpy.False_).counts.tolist() == pairs
    median = dataset.quantiles("x", 0.5)
    for shares in (numpy.float32(0.5), numpy.array(0.5), numpy.array([0.5]), (share for share in [0.5])):
        assert dataset.quantiles("x", shares) == median
    near = [len(dataset.cursor(1, near=point).advance(rows=5)) for point in ((1, 2), numpy.array([1.0, 2.0]))]
    assert near[0] == near[1] > 0
    assert dataset.query(box={"x": (numpy.float32(2), numpy.array(4))}).count() == dataset.query(box={"x": (2, 4)}).count() > 0
