"""Expressions as columns, orders, axes and weights against NumPy, for every way in which rows are found."""

import csv
import io
import random
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib
import numpy
import pyarrow.parquet
import pytest
import turbidite
from support.command import USAGE, answer
from support.command import turbidite as command

matplotlib.use("Agg")

EPOCHS, ROWS = (3, 7), 6_000
FLOATS, INTEGERS = ("x", "y", "z", "u", "w"), ("n", "m")
TYPES = {**dict.fromkeys(FLOATS, "f4"), "w": "f8", "n": "i4", "m": "uint16", "id": "uint64"}
KEYS = {"range": "x", "hash": "hash:id", "space": "space:x,y,z", "levels": "space:x,y,z", "indexed": "y"}
INDEXES = ["x,with=u,with=w", "u", "hash:id,with=n", "bitmap:z,n"]


def rows(epoch: int) -> dict[str, numpy.ndarray]:
    rng = numpy.random.default_rng(epoch)
    found = {name: rng.uniform(-4, 4, ROWS).astype("f4") for name in "xyz"}
    u = rng.normal(size=ROWS).astype("f4")
    u[:8] = [numpy.nan, -numpy.nan, numpy.inf, -numpy.inf, 0.0, -0.0, 1e-40, 3e38]
    return {
        **found,
        "u": rng.permutation(u),
        "w": rng.lognormal(size=ROWS),
        "n": rng.integers(-50, 50, ROWS).astype("i4"),
        "m": rng.integers(0, 2**16, ROWS).astype("u2"),
        # Beyond the integers of f64.
        "id": rng.permutation(ROWS).astype("u8") + numpy.uint64(2**63 + epoch * ROWS),
    }


@pytest.fixture(scope="module")
def everything() -> dict[str, numpy.ndarray]:
    """All rows of all epochs, by id, with the epoch."""
    parts = [{**rows(epoch), "epoch": numpy.full(ROWS, epoch, "u8")} for epoch in EPOCHS]
    joined = {name: numpy.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = numpy.argsort(joined["id"])
    return {name: values[order] for name, values in joined.items()}


@pytest.fixture(scope="module", params=KEYS)
def dataset(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "run.tbd"
    options = {"levels": 2} if request.param == "levels" else {"indexes": INDEXES} if request.param == "indexed" else {}
    with turbidite.Writer(path, TYPES, key=KEYS[request.param], ranks=2, **options) as writer:
        for epoch in EPOCHS:
            with writer.epoch(epoch):
                for rank in range(2):
                    writer.append({name: values[rank::2] for name, values in rows(epoch).items()}, rank=rank)
    if request.param == "indexed":
        command("index", "add", path, "space:x,y,z")
    return turbidite.open(path)


@dataclass(frozen=True)
class Drawn:
    """An expression, and its value in NumPy."""

    text: str
    value: Callable[[dict[str, numpy.ndarray]], numpy.ndarray]


BINARY = {
    "({} + {})": numpy.add, "({} - {})": numpy.subtract, "{} * {}": numpy.multiply, "({} / {})": numpy.divide,
    "least({}, {})": numpy.minimum, "greatest({}, {})": numpy.maximum, "({} % {})": numpy.fmod,
}  # fmt: skip
UNARY = {
    "sqrt({})": numpy.sqrt,
    "abs({})": numpy.abs,
    "floor({})": numpy.floor,
    "round({})": numpy.rint,
    "-({})": numpy.negative,
}


def drawn(draw: random.Random, depth: int) -> Drawn:
    """Draws a float expression whose NumPy form has the same bits: functions with rounding errors are left out."""
    if depth == 0 or draw.random() < 0.1:
        if draw.random() < 0.25:
            literal = draw.choice([0.5, 2.0, -1.25, 1e10])
            return Drawn(f"({literal!r})", lambda of: numpy.full(len(of["id"]), literal))
        name = draw.choice([*FLOATS, *INTEGERS, "epoch"])
        return Drawn(f"({name} + 0.0)", lambda of: of[name].astype("f8") + 0.0)
    if draw.random() < 0.15:
        condition, one, other = (drawn(draw, depth - 1) for _ in range(3))
        return Drawn(
            f"if({condition.text} > 0.5, {one.text}, {other.text})",
            lambda of: numpy.where(condition.value(of) > 0.5, one.value(of), other.value(of)),
        )
    if draw.random() < 0.4:
        text, function = draw.choice(list(UNARY.items()))
        operand = drawn(draw, depth - 1)
        return Drawn(text.format(operand.text), lambda of: function(operand.value(of)))
    text, operation = draw.choice(list(BINARY.items()))
    left, right = drawn(draw, depth - 1), drawn(draw, depth - 1)
    return Drawn(text.format(f"({left.text})", f"({right.text})"), lambda of: operation(left.value(of), right.value(of)))


def selections(draw: random.Random) -> tuple[dict, Callable]:
    """Draws what a query selects, and the mask of these rows."""
    bound = round(draw.uniform(-3, 3), 3)
    x, u, id = numpy.float32(bound), numpy.float32(bound / 2), 2**63 + draw.choice(EPOCHS) * ROWS + draw.randrange(ROWS)
    return draw.choice([
        ({}, lambda of: of["id"] > 0),
        ({"where": f"x > {bound}"}, lambda of: of["x"] > x),
        ({"where": f"u < {bound / 2} AND n > 10"}, lambda of: (of["u"] < u) & (of["n"] > 10)),
        ({"where": f"id = {id}"}, lambda of: of["id"] == numpy.uint64(id)),
        ({"where": f"x BETWEEN {bound} AND {bound + 0.01}"}, lambda of: (of["x"] >= x) & (of["x"] <= numpy.float32(bound + 0.01))),
        ({"box": {"x": (0, 2), "y": (-1, None)}}, lambda of: (of["x"] >= 0) & (of["x"] < 2) & (of["y"] >= -1)),
        ({"where": "n = 3 AND z > 1.5"}, lambda of: (of["n"] == 3) & (of["z"] > 1.5)),
        ({"epochs": 7}, lambda of: of["epoch"] == 7),
    ])  # fmt: skip


def assert_same(found: numpy.ndarray, expected: numpy.ndarray, label: str) -> None:
    assert found.dtype == expected.dtype, label
    same = (found == expected) | (numpy.isnan(found) & numpy.isnan(expected))
    assert same.all(), f"{label}: {found[~same][:3]} instead of {expected[~same][:3]}"


@pytest.mark.parametrize("seed", range(60))
def test_columns_are_those_of_numpy(dataset, everything, seed):
    draw = random.Random(seed)
    one, other = drawn(draw, 3), drawn(draw, 2)
    options, mask = selections(draw)
    columns = ["id", f"a = {one.text}", "n", other.text]
    query = dataset.query(columns=columns, **options)
    with numpy.errstate(all="ignore"):
        matching = everything["id"][mask(everything)]
        expected = {"a": one.value(everything), "n": everything["n"], other.text: other.value(everything)}
    label = f"{options}, {columns}"
    pieces = [piece.to_numpy() for piece in dataset.pieces(query, draw.choice([0, 60_000]))]
    found = {
        "all": query.to_numpy(),
        "pieces": {name: numpy.concatenate([piece[name] for piece in pieces]) for name in ["id", *expected]}
        if pieces
        else None,
        "batches": {name: values for name, values in query.to_arrow().to_pydict().items()},
        "threads": dataset.query(columns=columns, threads=4, **options).to_numpy(),
        "head": query.head(7),
        "limit": dataset.query(columns=columns, limit=500, **options).to_numpy(),
        "ordered": dataset.query(columns=columns, order="u", limit=900, **options).to_numpy(),
        "key": dataset.query(
            columns=columns, order="key" if dataset.schema.keys in (("x",), ("y",)) else None, **options
        ).to_numpy(),
    }
    limits = {"head": 7, "limit": 500, "ordered": 900}
    for way, table in found.items():
        if table is None:
            assert not len(matching), label
            continue
        assert list(table) == ["id", "a", "n", other.text], (label, way)
        ids = numpy.asarray(table["id"], "u8")
        assert numpy.isin(ids, matching).all() and len(numpy.unique(ids)) == len(ids) == min(
            limits.get(way, len(matching)), len(matching)
        ), (label, way)
        places = numpy.searchsorted(everything["id"], ids)
        for name, values in expected.items():
            assert_same(numpy.asarray(table[name], values.dtype), values[places], f"{label}, {way}, {name}")


def in_order(values, is_descending):
    """Returns sorted values. NaN is last, as in numpy.sort."""
    ascending = numpy.sort(values)
    count = numpy.count_nonzero(ascending == ascending)
    return numpy.concatenate([ascending[:count][::-1], ascending[count:]]) if is_descending else ascending


@pytest.mark.parametrize("seed", range(24))
def test_orders_are_those_of_numpy(dataset, everything, seed):
    draw = random.Random(seed)
    by = drawn(draw, 3)
    is_descending, per_epoch = draw.random() < 0.5, draw.random() < 0.5
    options, mask = selections(draw)
    limit = draw.choice([1, 50, 100_000])
    columns, order = draw.choice([(["id", f"by = {by.text}"], "by"), (["n", "id"], by.text)])
    order += " desc" if is_descending else ""
    found = dataset.query(columns=columns, order=order, per_epoch=per_epoch, limit=limit, **options).to_numpy()
    with numpy.errstate(all="ignore"):
        values, chosen = by.value(everything), mask(everything)
    sets = [everything["epoch"] == epoch for epoch in EPOCHS] if per_epoch else [numpy.ones(len(chosen), bool)]
    expected = [in_order(values[chosen & of_set], is_descending) for of_set in sets]
    places = numpy.searchsorted(everything["id"], found["id"])
    assert_same(values[places], numpy.concatenate(expected)[:limit], f"{options}, {order}")
    assert len(numpy.unique(found["id"])) == len(found["id"]) and chosen[places].all()


@pytest.mark.parametrize("seed", range(8))
def test_orders_of_several_columns_are_those_of_numpy(dataset, everything, seed):
    draw = random.Random(seed)
    signs = {name: draw.choice([1, -1]) for name in [*draw.sample(["n", "m"], draw.choice([1, 2])), "id"]}
    order = [name + (" desc" if sign < 0 else " asc") for name, sign in signs.items()]
    found = dataset.query(order=order, limit=500, columns=["id"]).to_numpy()["id"]
    # All rows are in the order of their ids, which f64 cannot tell apart.
    numbers = {**everything, "id": numpy.arange(len(everything["id"]))}
    keys = [sign * numbers[name].astype(float) for name, sign in signs.items()]
    assert numpy.array_equal(found, everything["id"][numpy.lexsort(keys[::-1])][:500]), order


@pytest.mark.parametrize("seed", range(12))
def test_histograms_are_those_of_numpy(dataset, everything, seed):
    draw = random.Random(seed)
    x, y, weights = drawn(draw, 2), drawn(draw, 2), drawn(draw, 2)
    options, mask = selections(draw)
    with numpy.errstate(all="ignore"):
        of = {name: values[mask(everything)] for name, values in everything.items()}
        a, b, w = x.value(of), y.value(of), weights.value(of)
    edges = numpy.linspace(-3, 5, 17)
    label = f"{options}, {x.text}, {y.text}, {weights.text}"
    ends = {"bins": 16, "range": (-3, 5), **options}
    found = dataset.histogram(f"a = {x.text}", weights=weights.text, **ends)
    inside = (a >= -3) & (a <= 5)
    assert (found.x.edges == edges).all() and found.x.name == "a" and found.rows == len(a), label
    assert (found.counts == numpy.histogram(a[inside], edges)[0]).all(), label
    with numpy.errstate(all="ignore"):
        sums, size = (numpy.histogram(a[inside], edges, weights=of_row[inside])[0] for of_row in (w, numpy.abs(w)))
        close = (
            (numpy.abs(found.sums - sums) <= 1e-12 * size)
            | (found.sums == sums)
            | (numpy.isnan(found.sums) & numpy.isnan(sums))
        )
    assert (close | ~numpy.isfinite(size)).all(), label
    both = inside & (b >= -3) & (b <= 5)
    pairs = dataset.histogram(x.text, y.text, **{**ends, "range": ((-3, 5), (-3, 5))})
    assert (pairs.counts == numpy.histogram2d(a[both], b[both], (edges, edges))[0]).all(), label
    mixed = dataset.histogram("n", y.text, bins=(3, 16), range=((-50, 50), (-3, 5)), **options)
    assert mixed.counts.sum() == ((b >= -3) & (b <= 5)).sum(), label
    finite = a[numpy.isfinite(a)]
    if len(finite):
        open_ends = dataset.histogram(x.text, bins=4, **options)
        assert (open_ends.x.edges[0], open_ends.x.edges[-1]) == (finite.min(), finite.max()), label


def test_trajectories_have_expressions(dataset, everything):
    ids = everything["id"][::997]
    found = dataset.get(ids, id="id", columns=["r = sqrt(x*x + y*y)", "n", "half = n / 2"]).to_numpy()
    places = numpy.searchsorted(everything["id"], ids)
    of = {name: values[places] for name, values in everything.items()}
    assert list(found) == ["id", "epoch", "r", "n", "half"]
    assert (found["id"] == ids).all() and (found["epoch"] == of["epoch"]).all() and (found["n"] == of["n"]).all()
    assert_same(found["r"], numpy.sqrt(of["x"].astype("f8") ** 2 + of["y"].astype("f8") ** 2), "r")
    assert_same(found["half"], of["n"] / 2, "half")
    axes = dataset.get(ids[:3], id="id").plot("r = x * x", "y / 2")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("r = x * x", "y / 2")


def test_cursors_have_expressions(everything, tmp_path):
    with turbidite.Writer(tmp_path / "d", TYPES, key="space:x,y,z", levels=2) as writer, writer.epoch(3):
        writer.append(rows(3))
    dataset = turbidite.open(tmp_path / "d")
    for columns in (["id", "r = x * u"], ["r = x * u", "id", "u"]):
        cursor = dataset.cursor(3, columns=columns)
        batches = [cursor.advance(quality=share).to_numpy() for share in (0.1, 1.0)]
        ids = numpy.concatenate([batch["id"] for batch in batches])
        places = numpy.searchsorted(everything["id"], ids)
        assert len(numpy.unique(ids)) == ROWS
        with numpy.errstate(all="ignore"):
            expected = everything["x"][places].astype("f8") * everything["u"][places]
        assert_same(numpy.concatenate([batch["r"] for batch in batches]), expected, str(columns))


def test_only_needed_columns_are_read(dataset, tmp_path):
    def bytes_read(*columns, **options) -> int:
        return dataset.query(columns=list(columns), use="scan", **options).write(tmp_path / "a.csv")["metrics"]["bytes_read"]

    assert bytes_read("r = x * x + w") == bytes_read("x", "w") < bytes_read("x", "w", "u")
    assert bytes_read("x", "r = x * w", "x / w") == bytes_read("w", "x")
    assert bytes_read("a = 1.5", "epoch * 2") == bytes_read("epoch")
    # Columns of the predicate are read once, and others where rows match.
    assert bytes_read("r = x * w", where="x > 3.9 AND x < 3.91") == bytes_read("x", "w", where="x > 3.9 AND x < 3.91")


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    path = tmp_path_factory.mktemp("covering") / "run.tbd"
    with turbidite.Writer(path, TYPES, key="y", indexes=INDEXES) as writer:
        for epoch in EPOCHS:
            with writer.epoch(epoch):
                writer.append(rows(epoch))
    return turbidite.open(path)


def test_a_covering_index_has_the_inputs_of_expressions(indexed):
    where = "x > 3.99 AND x < 3.993"
    covered, other = indexed.query(where, columns=["u * w"], use="x"), indexed.query(where, columns=["u * z"], use="x")
    assert "no records are read" in covered.explain() and "no records are read" not in other.explain()
    assert len(covered.to_numpy()["u * w"]) == len(other.to_numpy()["u * z"]) > 0


def test_plans_and_reprs_state_expressions(indexed):
    query = indexed.query("x > 3", columns=["id", "r = x*x", "u / w"], order="r", limit=5)
    assert query.plan()["columns"] == ["id", "r", "u / w"] and query.plan()["ordered_by"] == "r"
    assert "columns id, r, u / w" in query.explain()
    assert "r = x*x" in repr(query) and "r = x*x" in query._repr_html_()
    assert query.to_arrow().schema.names == list(query.to_pandas().columns) == query.to_polars().columns == ["id", "r", "u / w"]


def test_files_and_text_have_expressions(indexed, tmp_path):
    columns = ["id", "low = least(x, (u + 1), z)", "x*x"]
    wanted = indexed.query("n = 7", columns=columns).to_numpy()
    for name in ("a.parquet", "a.arrow"):
        assert indexed.query("n = 7", columns=columns).write(tmp_path / name)["rows"] == len(wanted["id"])
    stored = pyarrow.parquet.read_table(tmp_path / "a.parquet")
    assert stored.column_names == list(wanted)
    for name, values in wanted.items():
        assert stored.column(name).to_numpy().tobytes() == values.tobytes()
    text = command("query", indexed.path, "--where", "n = 7", "--columns", ", ".join(columns)).stdout
    head, *lines = csv.reader(io.StringIO(text))
    assert head == list(wanted)
    assert [float(line[1]) for line in lines] == wanted["low"].tolist()
    found = answer("hist", indexed.path, "--column", "x*x", "--bins", 4, "--weights", "w * 2")
    assert found["column"] == "x*x" and found["sums"]["column"] == "w * 2" and found["rows"] == 2 * ROWS


REFUSED = [
    ({"columns": ["x > 1"]}, r"columns: 'x > 1': .*expected a number, found a condition; if\(condition, 1, 0\) is a number"),
    (
        {"columns": ["a = x > 1 & y > 2"]},
        r"columns: 'a = x > 1 & y > 2': .*'&' takes integers, and y is a float; join conditions by AND",
    ),
    ({"columns": ["a = n > 1 & m > 2"]}, "columns: .*'&' binds more tightly than comparisons; join conditions by AND"),
    ({"columns": ["if((x > 1) | (y > 2), 1, 0)"]}, r"columns: .*'\|' takes integers, not conditions; join conditions by OR"),
    (
        {"columns": ["r = sqrt(v)"]},
        r"columns: 'r = sqrt\(v\)': at character 10: there is no column 'v'; the columns are x, y, ",
    ),
    ({"columns": ["v"]}, "there is no column 'v'; the columns are x, y, "),
    ({"columns": ["u = x * 2"]}, r"columns: 'u = x \* 2': there is a column 'u'; name the expression otherwise"),
    ({"columns": ["Epoch = x * 2"]}, r"columns: 'Epoch = x \* 2': there is a column 'Epoch'; name the expression otherwise"),
    ({"columns": ["a = x", "a = y"]}, "columns: 'a = y' is listed twice"),
    ({"columns": ["x", "x = x"]}, "columns: 'x = x' is listed twice"),
    ({"columns": ["a:text = x"]}, "columns: 'a:text = x': .*'text' is not a number type"),
    ({"columns": ["a ="]}, "columns: 'a =': the expression is empty"),
    ({"columns": ["sqrt(x"]}, r"columns: 'sqrt\(x': at character"),
    ({"order": "x > 1"}, "order: 'x > 1': "),
    ({"order": "v"}, "there is no column 'v'"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED)
def test_wrong_expressions_are_refused_by_name(indexed, options, said):
    with pytest.raises(turbidite.UsageError, match=said):
        indexed.query(**options).to_numpy()


def test_what_needs_stored_columns_says_so(indexed):
    for call in (
        lambda: indexed.histogram("x * x", source="bounds"),
        lambda: indexed.histogram("x", weights="w * 2", level=1),
        lambda: indexed.quantiles("x * x", 0.5),
        lambda: indexed.get([1], id="id // 2").to_numpy(),
    ):
        with pytest.raises(turbidite.UsageError, match="' is an expression, and .*; name a stored column"):
            call()
    with pytest.raises(turbidite.UsageError, match="^weights: 'w [*] 2' is"):
        indexed.histogram("x", weights="w * 2", level=1)
    assert "name a stored column" in command("hist", indexed.path, "--column", "x*x", "--source", "bounds", expect=USAGE).stderr
    # A column keeps its own name, and has its type under another one.
    found = indexed.query("n = 7", columns=["x = x", "v = m"]).to_numpy()
    assert list(found) == ["x", "v"] and (found["x"].dtype, found["v"].dtype) == ("f4", "u2")
