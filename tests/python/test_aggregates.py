"""Aggregates against their definitions: sums in Python's exact arithmetic, or in extended precision."""

import itertools
import json
import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy
import pytest
import turbidite
from hypothesis import given
from hypothesis import strategies as st
from support.command import USAGE
from support.command import turbidite as command
from support.layouts import COLUMNS, EPOCHS, LAYOUTS, Rows, drawn, whole, write
from support.sweeps import generated

# Texts of the language, and the same in NumPy. Columns are floats in 64 bits, or Python's integers.
FLOATS = {
    "x": lambda rows: rows["x"],
    "y": lambda rows: rows["y"],
    "x * w": lambda rows: rows["x"] * rows["w"],
    "y - 1e6": lambda rows: rows["y"] - 1e6,
    "x + q": lambda rows: rows["x"] + rows["q"].astype("f8"),
    "if(q > 0, x, -y)": lambda rows: numpy.where(rows["q"].astype("f8") > 0, rows["x"], -rows["y"]),
}
INTEGERS = {
    "q": lambda rows: rows["q"],
    "id": lambda rows: rows["id"],
    "3 * q - 1": lambda rows: 3 * rows["q"] - 1,
    "id % 5": lambda rows: rows["id"] % 5,
}
WEIGHTS = {"w": lambda rows: rows["w"], "v": lambda rows: rows["v"], "q": lambda rows: rows["q"].astype("f8")}
GROUPS = ["q", "id % 5", "id", "epoch % 20"]
BINS = [("x", -2, 2, 7), ("y", 999_998, 1_000_001, 3), ("q", -3, 4, 5), ("id", 0, 2**64, 4), ("x * w", 0, 1, 2)]
SHARES = ["0", "0.07", "0.25", "0.5", "0.9", "1"]


@dataclass
class Group:
    """The rows of a group, and what tells it from others."""

    key: tuple
    rows: Rows


@dataclass
class Request:
    """A request, and where its reference is found."""

    by: list = field(default_factory=list)
    aggregates: list = field(default_factory=list)
    where: bool = False

    def text_of_group(self, term) -> str:
        return term if isinstance(term, str) else f"bins({', '.join(map(str, term))})"


def number(text: str, rows: Rows) -> numpy.ndarray:
    with numpy.errstate(all="ignore"):
        return {**FLOATS, **INTEGERS}[text](rows)


def edges(term) -> list[float]:
    column, low, high, count = term
    found = numpy.linspace(float(low), float(high), count + 1)
    return [float(edge) for edge in (found.astype("f4") if column == "x" else found)]


def bin_of(value, ends: list[float]) -> int | None:
    """The bin of a value; Python compares integers and floats exactly."""
    for bin, (low, high) in enumerate(itertools.pairwise(ends)):
        if low <= value < high or (bin == len(ends) - 2 and value == high):
            return bin
    return None


def grouped(request: Request, rows: Rows, epochs: list[int]) -> tuple[list[Group], int]:
    """The groups in ascending order, and the number of rows that have none."""
    keys = []
    for term in request.by:
        if term == "epoch":
            keys.append(rows["epoch"])
        elif isinstance(term, str):
            keys.append(rows["epoch"] % 20 if term == "epoch % 20" else number(term, rows))
        else:
            ends = edges(term)
            keys.append([bin_of(value, ends) for value in number(term[0], rows)])
    found: dict[tuple, list[int]] = {}
    outside = 0
    for row in range(len(rows["epoch"])):
        key = tuple(key[row] for key in keys)
        if None in key:
            outside += 1
        else:
            found.setdefault(key, []).append(row)
    is_integer = [isinstance(term, str) and term != "epoch" for term in request.by]
    # Bins are complete for each epoch and tuple of integers that has rows, or for each epoch.
    tuples = {tuple(part for part, term in zip(key, request.by, strict=True) if isinstance(term, str)) for key in found}
    if not any(is_integer):
        tuples = {(epoch,) for epoch in epochs} if "epoch" in request.by else {()}
    bins = [range(term[3]) for term in request.by if not isinstance(term, str)]
    keys_of_groups = []
    for one in tuples:
        for cell in itertools.product(*bins):
            parts, cells = iter(one), iter(cell)
            keys_of_groups.append(tuple(next(parts) if isinstance(term, str) else next(cells) for term in request.by))
    groups = []
    for key in sorted(keys_of_groups):
        own = numpy.array(found.get(key, []), dtype=int)
        groups.append(Group(key, {name: array[own] for name, array in rows.items()}))
    return groups, outside


def exact_sum(values) -> float:
    """The sum of floats, correctly rounded, or as IEEE 754 adds infinities."""
    with numpy.errstate(invalid="ignore"):
        return math.fsum(values) if numpy.isfinite(values).all() else float(numpy.sum(values))


# A quotient by 0.
NOT_FINITE = -1.0


@dataclass
class Wanted:
    """A result, and how far the other may be from it."""

    value: object
    within: float = 0.0


def reference(aggregate: tuple, rows: Rows) -> Wanted:
    kind, *arguments = aggregate
    count = len(rows["epoch"])
    if kind == "count":
        return Wanted(count)
    if kind == "error(count)":
        return Wanted(math.sqrt(count), 1e-15 * count)
    if kind == "n_eff":
        weights = WEIGHTS[arguments[0]](rows).astype("f8")
        squares = exact_sum(weights * weights)
        size = exact_sum(abs(weights)) ** 2 / squares if squares else 0
        return Wanted(exact_sum(weights) ** 2 / squares if squares else math.nan, 3e-12 * size)
    values = number(arguments[0], rows)
    is_integer = arguments[0] in INTEGERS
    if kind in ("min", "max"):
        kept = list(values) if is_integer else [value for value in values if not math.isnan(value)]
        empty = None if is_integer else math.nan
        return Wanted((min if kind == "min" else max)(kept, default=empty))
    if kind == "nan":
        return Wanted(0 if is_integer else int(numpy.isnan(values).sum()))
    if kind == "sum" and is_integer:
        return Wanted(sum(values))
    if kind == "quantile":
        return Wanted(None)
    if kind == "mean" and is_integer and len(arguments) == 1:
        return Wanted(float(Fraction(sum(values), count)) if count else math.nan, abs(sum(values)) * 1e-15)
    floats = values.astype("f8")
    with numpy.errstate(all="ignore"):
        if kind == "sum":
            return Wanted(exact_sum(floats), 1e-12 * exact_sum(abs(floats)))
        if kind == "error(sum)":
            squares = exact_sum(floats * floats)
            return Wanted(math.sqrt(squares), 1e-12 * math.sqrt(squares))
    weights = WEIGHTS[arguments[-1]](rows).astype("f8") if len(arguments) > (2 if kind == "cov" else 1) else numpy.ones(count)
    weight = exact_sum(weights)
    if kind == "mean":
        with numpy.errstate(all="ignore"):
            products = floats * weights
        size = exact_sum(abs(products)) + abs(exact_sum(products) / weight if weight else 0) * exact_sum(abs(weights))
        return Wanted(exact_sum(products) / weight, 1e-12 * size / abs(weight)) if weight else Wanted(math.nan, NOT_FINITE)
    other = number(arguments[1], rows).astype("f8") if kind == "cov" else floats
    return moment(kind, floats, other, weights)


def moment(kind: str, a: numpy.ndarray, b: numpy.ndarray, weights: numpy.ndarray) -> Wanted:
    """A variance, deviation or covariance in extended precision."""
    if not (numpy.isfinite(a).all() and numpy.isfinite(b).all()) or not len(a) or exact_sum(weights) == 0:
        return Wanted(math.nan)
    a, b, weights = (array.astype("longdouble") for array in (a, b, weights))
    total = weights.sum()
    means = (weights * a).sum() / total, (weights * b).sum() / total
    value = (weights * (a - means[0]) * (b - means[1])).sum() / total
    # Weights of both signs leave the mean anywhere, and its distance from the values cancels.
    size = (abs(weights) * (abs(a - means[0]) + abs(a[0] - means[0])) * (abs(b - means[1]) + abs(b[0] - means[1]))).sum()
    within = 1e-11 * float(size / abs(total))
    # The mean is rounded, even where all values are equal.
    within += 1e-30 * float(abs(means[0] * means[1]))
    if kind == "std":
        value = max(value, 0) if (weights >= 0).all() else value
        root = math.sqrt(value) if value >= 0 else math.nan
        return Wanted(root, within / root if root else math.sqrt(within))
    return Wanted(float(value), within)


def is_quantile(found, aggregate: tuple, rows: Rows) -> bool:
    """Whether a value is that of the inverted distribution, whose steps rounding may move."""
    _, text, share, *weights = aggregate
    values = number(text, rows)
    weight = WEIGHTS[weights[0]](rows).astype("f8") if weights else numpy.ones(len(values))
    pairs = [(value, Fraction(one)) for value, one in zip(values, weight, strict=True) if one > 0]
    pairs = [(value, one) for value, one in pairs if text in INTEGERS or not math.isnan(value)]
    if not pairs:
        return found is None if text in INTEGERS else math.isnan(found)
    wanted = Fraction(share) * sum(one for _, one in pairs)
    below = sum(one for value, one in pairs if value < found)
    up_to = sum(one for value, one in pairs if value <= found)
    slack = Fraction(1, 10**12) if weights else 0
    return (
        below < up_to
        and up_to >= wanted * (1 - slack)
        and (below <= wanted * (1 + slack) if slack else below < wanted or below == 0)
    )


def text_of(aggregate: tuple) -> str:
    kind, *arguments = aggregate
    if kind.startswith("error"):
        return f"error({kind[6:-1]}({', '.join(arguments)}))"
    return f"{kind}({', '.join(arguments)})"


def check(dataset: turbidite.Dataset, request: Request, epochs: dict[int, Rows], chosen: list[int], **options) -> None:
    rows = whole({label: epochs[label] for label in chosen})
    if request.where:
        matching = (rows["q"].astype("f8") > -2) & (rows["y"] < 1_000_001)
        rows = {name: array[matching] for name, array in rows.items()}
        options = {**options, "where": "q > -2 and y < 1000001"}
    groups, outside = grouped(request, rows, chosen)
    named = {f"a{place}": text_of(aggregate) for place, aggregate in enumerate(request.aggregates)}
    by = [request.text_of_group(term) for term in request.by]
    large = [
        aggregate
        for aggregate in request.aggregates
        if aggregate[0] == "sum" and aggregate[1] in INTEGERS
        for group in groups
        if not (0 if aggregate[1] == "id" else -(2**63))
        <= reference(aggregate, group.rows).value
        < 2 ** (63 + (aggregate[1] == "id"))
    ]
    if large:
        with pytest.raises(turbidite.UsageError, match="exceeds 64 bits"):
            dataset.aggregate(named, by, epochs=chosen, **options)
        return
    found = dataset.aggregate(named, by, epochs=chosen, **options)
    table = found.to_arrow().to_pydict()
    assert (found.rows, found.outside) == (len(rows["epoch"]), outside)
    assert len(found) == len(groups)
    check_keys(request, groups, list(table.values())[: len(table) - len(named)])
    for name, aggregate in zip(named, request.aggregates, strict=True):
        for group, value in zip(groups, table[name], strict=True):
            if aggregate[0] == "quantile":
                assert is_quantile(value, aggregate, group.rows), (named[name], group.key, value)
                continue
            wanted = reference(aggregate, group.rows)
            if wanted.within == NOT_FINITE:
                assert not math.isfinite(value), (named[name], group.key, value)
                continue
            same = value == wanted.value or (value is not None and math.isnan(value) and math.isnan(wanted.value))
            close = math.isfinite(wanted.within) and value is not None and abs(float(value) - float(wanted.value)) <= wanted.within
            assert same or close, (named[name], group.key, value, wanted)
            assert str(value) != "-0.0", named[name]
    arrays = [dataset.aggregate(named, by, epochs=chosen, threads=threads, **options).to_numpy() for threads in (1, 2, 4)]
    for name, column in arrays[0].items():
        assert all(other[name].tobytes() == column.tobytes() for other in arrays), (name, "depends on threads")


def check_keys(request: Request, groups: list[Group], columns: list) -> None:
    wanted: list[list] = []
    for place, term in enumerate(request.by):
        keys = [group.key[place] for group in groups]
        if isinstance(term, str):
            wanted.append(keys)
        else:
            ends = edges(term)
            wanted += [[ends[key] for key in keys], [ends[key + 1] for key in keys]]
    assert columns == wanted


@pytest.fixture(scope="module")
def epochs() -> dict[int, Rows]:
    random = numpy.random.default_rng(53)
    return {label: drawn(random, count) for label, count in zip(EPOCHS, (4000, 2500, 0), strict=True)}


@pytest.fixture(scope="module")
def datasets(epochs, tmp_path_factory) -> dict[str, turbidite.Dataset]:
    folder = tmp_path_factory.mktemp("aggregates")
    return {name: write(folder / f"{name}.tbd", layout, epochs) for name, layout in LAYOUTS.items()}


def any_aggregate(integers=tuple(INTEGERS)) -> st.SearchStrategy[tuple]:
    floats, wholes = st.sampled_from(list(FLOATS)), st.sampled_from(integers)
    values, weights = floats | wholes, st.sampled_from(list(WEIGHTS))
    weighted = st.sampled_from(["mean", "var", "std"])
    return st.one_of(
        st.tuples(st.sampled_from(["count", "error(count)"])),
        st.tuples(st.sampled_from(["sum", "error(sum)", "mean", "var", "std", "min", "max", "nan"]), values),
        st.tuples(weighted, values, weights),
        st.tuples(st.just("cov"), floats, floats),
        st.tuples(st.just("cov"), floats, values, weights),
        st.tuples(st.just("n_eff"), weights),
        st.tuples(st.just("quantile"), values, st.sampled_from(SHARES)),
        st.tuples(st.just("quantile"), values, st.sampled_from(SHARES), st.just("w")),
    )


def any_groups() -> st.SearchStrategy[list]:
    few = st.lists(st.sampled_from(["epoch", "q", "id % 5", "epoch % 20", *BINS]), max_size=3, unique=True)
    many = st.sampled_from([["id"], ["epoch", "id"], ["id", "epoch"]])
    return few | few | few | many


requests = st.builds(
    Request, by=any_groups(), aggregates=st.lists(any_aggregate(), min_size=1, max_size=4), where=st.booleans()
)


@generated(20, parts=8)
@given(asked=requests, chosen=st.lists(st.sampled_from(EPOCHS), min_size=1, unique=True).map(sorted), scans=st.booleans())
@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_are_those_of_the_definitions(layout, datasets, epochs, asked, chosen, scans):
    check(datasets[layout], asked, epochs, chosen, **({"use": "scan"} if scans else {}))


SPECIAL = [0.0, -0.0, 1.0, -2.5, 0.3, 1e-300, -1e15, math.nan, math.inf, -math.inf]
small_rows = st.lists(
    st.fixed_dictionaries(
        {
            "x": st.sampled_from(SPECIAL),
            "y": st.sampled_from(SPECIAL),
            "w": st.sampled_from([0.0, 1.0, 0.5, 3.0]),
            "v": st.sampled_from([0.0, 1.0, -1.0, -0.5]),
            "q": st.sampled_from([-(2**31), -4, 0, 1, 3, 2**31 - 1]),
            "id": st.sampled_from([0, 1, 2**53 + 1, 2**63, 2**64 - 1]),
        }
    ),
    max_size=12,
)


@generated(40, parts=8)
@given(rows=st.lists(small_rows, min_size=1, max_size=3), layout=st.sampled_from(list(LAYOUTS)), asked=requests)
def test_few_rows_with_special_values(tmp_path_factory, rows, layout, asked):
    epochs = {
        label: {name: numpy.array([row[name] for row in of_epoch], "u8" if name == "id" else None) for name in COLUMNS}
        for label, of_epoch in zip(EPOCHS, rows, strict=False)
    }
    dataset = write(tmp_path_factory.mktemp("few") / "d.tbd", LAYOUTS[layout], epochs)
    check(dataset, asked, epochs, list(epochs))


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> turbidite.Dataset:
    random = numpy.random.default_rng(1)
    epochs = {label: drawn(random, 100) for label in EPOCHS}
    return write(tmp_path_factory.mktemp("small") / "d.tbd", LAYOUTS["range"], epochs)


def test_the_command_prints_what_python_returns(small):
    options = ["--by", "epoch", "--by", "slice=bins(y, 999999, 1000001, 2)", "--agg", "n=count()", "--agg", "most=max(q)"]
    options += ["--where", "q >= 3 and x > 1.5", "--json"]
    printed = command("aggregate", small.path, *options)
    lines = [json.loads(line) for line in printed.stdout.splitlines()]
    by = ["epoch", "slice = bins(y, 999999, 1000001, 2)"]
    found = small.aggregate({"n": "count()", "most": "max(q)"}, by, where="q >= 3 and x > 1.5")
    assert lines == found.to_arrow().to_pylist()
    assert any(line["n"] == 0 and line["most"] is None for line in lines), "a group without rows is printed"
    totals = json.loads(printed.stderr)
    assert (totals["groups"], totals["rows"], totals["outside"]) == (len(found), found.rows, found.outside)
    csv = command("aggregate", small.path, *options[:-1], "--format", "csv").stdout.splitlines()
    assert csv[0] == "epoch,slice_from,slice_to,n,most"
    empty = next(line for line in lines if line["n"] == 0)
    assert f"{empty['epoch']},{empty['slice_from']},{empty['slice_to']},0," in csv


def test_bits_do_not_depend_on_threads_where_several_indexes_may_be_read(tmp_path):
    """The cost of an index depends on the threads that read it. Aggregates are planned without regard to them."""
    random, count = numpy.random.default_rng(5), 600_000
    rows = {name: random.normal(size=count) for name in ("e", "x", "y")} | {"id": random.permutation(count)}
    schema = {"e": "f8", "x": "f8", "y": "f8", "id": "int64"}
    with turbidite.Writer(tmp_path / "d.tbd", schema, key="e") as writer, writer.epoch(0):
        writer.append(rows)
    for index in ("id", "space:x,y"):
        turbidite.open(tmp_path / "d.tbd").indexes.add(index)
    dataset = turbidite.open(tmp_path / "d.tbd")
    for wanted in range(20, 90, 5):
        ids = ", ".join(map(str, random.choice(count, wanted, replace=False)))
        for bound in (-1, -0.7, -0.6, -0.5, -0.4, -0.3, -0.2, 0):
            where = f"id IN ({ids}) AND x < {bound} AND y < {bound}"
            by_threads = [dataset.aggregate({"c": "cov(x, e)"}, where=where, threads=threads) for threads in (1, 4, 16)]
            assert len({one["c"].tobytes() for one in by_threads}) == 1, (wanted, bound)


def test_integers_without_a_value_keep_the_digits_of_the_others(tmp_path):
    ids = numpy.array([2**64 - 1, 2**63 + 1], "u8")
    with turbidite.Writer(tmp_path / "d.tbd", {"x": "f4", "id": "uint64"}, key="x") as writer:
        for epoch, rows in ((0, ids), (1, ids[:0])):
            with writer.epoch(epoch):
                writer.append({"x": numpy.zeros(len(rows), "f4"), "id": rows})
    found = turbidite.open(tmp_path / "d.tbd").aggregate({"most": "max(id)", "middle": "quantile(id, 0.5)"}, by="epoch")
    for name, value in (("most", 2**64 - 1), ("middle", 2**63 + 1)):
        assert found[name].tolist() == found.to_numpy()[name].tolist() == [value, None]
        assert found.to_pandas()[name].tolist()[0] == value and found.to_pandas()[name].isna().tolist() == [False, True]


def test_bins_are_called_as_they_are_written(small):
    named = {"bins(y*2, 0, 1, 2)": "y*2", "bins( if(x>0.5,x,-x) , 0, 1, 2)": "if(x>0.5,x,-x)", "bins(X, 0, 1, 2)": "x"}
    for by, name in named.items():
        assert list(small.aggregate({"n": "count()"}, by).to_numpy()) == [f"{name}_from", f"{name}_to", "n"]
    for twice in (["q", "q"], ["bins(x, 0, 1, 2)", "bins(x, 0, 1, 3)"]):
        with pytest.raises(turbidite.UsageError, match="^by: two groups are called '[qx]'; name one of them"):
            small.aggregate({"n": "count()"}, twice)
    with pytest.raises(turbidite.UsageError, match=r"^by: 'bins\(x, 1, 1.0000001, 5\)': the bins are narrower"):
        small.aggregate({"n": "count()"}, "bins(x, 1, 1.0000001, 5)")


def test_tables_have_the_forms_of_results(small):
    found = small.aggregate({"n": "count()", "most": "max(id)"}, by="bins(x, 0, 100, 4)", epochs=10)
    assert found.to_polars()["most"].null_count() == 3 and found.to_arrow()["most"].null_count == 3
    frame = found.to_pandas()["most"]
    assert found["most"].dtype == "uint64" and numpy.ma.count_masked(found["most"]) == 3
    assert frame.dtype == "UInt64" and frame.isna().sum() == 3
    [exact] = [value for value in found.to_arrow()["most"].to_pylist() if value is not None]
    assert int(frame[0]) == int(found["most"][0]) == exact and str(exact) in repr(found)
    assert found["n"].dtype == "int64" and found["n"][1:].tolist() == [0, 0, 0]
    shown = repr(found).splitlines()
    assert shown[0] == f"<Aggregates: 4 groups of 100 rows, {found.outside} of them outside the bins>" and len(shown) == 6
    assert "<table>" in found._repr_html_()
    one = small.aggregate({"n": "count()"})
    assert one.to_numpy()["n"].tolist() == [300] and repr(one).splitlines()[0] == "<Aggregates: 1 group of 300 rows>"


@pytest.mark.parametrize(
    ("aggregates", "by", "message"),
    [
        ({}, None, "state at least one; the aggregates are count"),
        ({"a": "x"}, None, "'x': write an aggregate of it; the aggregates are count"),
        ({"a": "avg(x)"}, None, "there is no aggregate or function 'avg'; the aggregates are count"),
        ({"a": "sum(z)"}, None, "'sum\\(z\\)': at character 5: there is no column 'z'"),
        ({"a": "sum(x, w)"}, None, "sum takes other arguments; the aggregates are count"),
        ({"a": "sum(mean(x))"}, None, "at character 5: mean is an aggregate, not a number"),
        ({"a": "quantile(x, 2)"}, None, "the share of a quantile is a number from 0 to 1"),
        ({"a": "quantile(x, 0.5, v)"}, None, "weights of a quantile must be finite and 0 or more, not -"),
        ({"a": "error(mean(x))"}, None, "write error\\(count\\(\\)\\) or error\\(sum\\(e\\)\\)"),
        ({"a": "sum(id // 0)"}, None, "id // 0 divides by zero; exclude such rows by a predicate"),
        ({"a": "max(3 * id)"}, None, "'a' is [0-9]*, which exceeds 64 bits; multiply the integer by 1.0"),
        ({"a": "count()"}, "x", "'x' is a float, which groups by bins: bins\\(x, from, to, count\\)"),
        ({"a": "count()"}, "bins(x, 0, 1)", "write bins\\(expression, from, to, count\\)"),
        ({"a": "count()"}, "bins(x, 1, 1, 4)", "by: .bins.x, 1, 1, 4.*: bins need a finite ascending range"),
        ({"a": "count()"}, "bins(x, 0, 1, 1000001)", "there may be 1 to 1000000 bins, not 1000001"),
        ({"a": "count()"}, ["bins(x, 0, 1, 1000)", "bins(y, 0, 1, 1001)"], "1001000 bins are more than 1000000"),
        ({"a": "count()"}, ["epoch", "bins(x, 0, 1, 400000)"], "more than 1000000 groups"),
        ({"epoch": "count()"}, "epoch", "two columns of the result are called 'epoch'"),
        ("count()", None, "aggregates: give a dict of names and aggregates"),
        ({"a": "count()"}, 5, "by: give a list of groups"),
    ],
)
def test_refusals_name_the_argument(small, aggregates, by, message):
    with pytest.raises(turbidite.UsageError, match=message):
        small.aggregate(aggregates, by)


def test_refusals_name_the_option(small):
    refused = command("aggregate", small.path, "--agg", "avg(x)", expect=USAGE)
    assert "--agg 'avg(x)': there is no aggregate or function 'avg'" in refused.stderr
    refused = command("aggregate", small.path, "--agg", "count()", "--by", "x", expect=USAGE)
    assert "--by 'x' is a float, which groups by bins" in refused.stderr
    refused = command("aggregate", small.path, "--agg", "count()", "--where", "z > 1", expect=USAGE)
    assert "--where 'z > 1': at character 1: there is no column 'z'" in refused.stderr
