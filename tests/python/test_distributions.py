"""Histograms and quantiles are exact by default, and equal NumPy's; beyond a budget they are refused with their cost."""

import itertools
import math

import numpy
import pytest
import turbidite
from hypothesis import given
from hypothesis import strategies as st
from support.command import USAGE, answer
from support.command import turbidite as command
from support.layouts import EPOCHS, LAYOUTS, Rows, drawn, whole, write
from support.ranks import value_at
from support.sweeps import generated

# The bins of an axis: arguments of a histogram, and whether edges are computed from the range of the rows.
BINS = {
    "x": [
        {"bins": 7, "range": (-2, 2)},
        {"bins": 4, "range": (0.125, 4), "log": True},
        {"bins": [-1.5, -1, 0, 0.3, 2]},
        {"bins": 5},
        {"bins": 3, "range": (50, 60)},
    ],
    "y": [{"bins": 3, "range": (999_998, 1_000_001)}, {"bins": [999_999, 1e6, 1_000_000.25]}, {"bins": 9}],
    "q": [{"bins": 4, "range": (-3, 3)}, {"bins": [-2.5, 0, 3]}, {"bins": 20}],
    "id": [{"bins": 4, "range": (0, 2**64 - 1)}, {"bins": [0, 10, 2**53 + 1, 2**64 - 1]}],
}
AXES = [(column, options) for column, each in BINS.items() for options in each]
WHERE = "q > -2 and y < 1000001"


def places(values: numpy.ndarray, edges: numpy.ndarray) -> numpy.ndarray:
    """The bin of each value, or -1. Integers are compared as those of Python."""
    exact = numpy.array(edges.tolist(), values.dtype)
    found = numpy.searchsorted(exact, values, side="right") - 1
    found[values == exact[-1]] = len(exact) - 2
    found[(values < exact[0]) | (values > exact[-1]) | (values != values)] = -1
    return found


def joined(axes: list) -> dict:
    """The arguments of the axes, as pairs if there are two."""
    names = sorted({name for _, options in axes for name in options})
    if len(axes) == 1:
        return axes[0][1]
    defaults = {"bins": 20, "range": None, "log": False}
    return {name: tuple(options.get(name, defaults[name]) for _, options in axes) for name in names}


def check_histogram(dataset: turbidite.Dataset, rows: Rows, axes: list, weights: str | None, **options) -> None:
    columns = [column for column, _ in axes]
    found = dataset.histogram(*columns, weights=weights, **joined(axes), **options)
    assert found.source == "exact" and found.rows == len(rows["x"])
    assert (found.least == found.counts).all() and (found.counts == found.most).all()
    stated = [found.x] if found.y is None else [found.x, found.y]
    if any(len(axis.edges) == 0 for axis in stated):
        assert found.counts.size == 0
        return
    cells = [places(rows[axis.name], axis.edges) for axis in stated]
    inside = numpy.logical_and.reduce([cell >= 0 for cell in cells])
    shape = tuple(len(axis.edges) - 1 for axis in stated)
    place = tuple(cell[inside] for cell in cells)
    w = numpy.ones(len(rows["x"])) if weights is None else rows[weights].astype("f8")

    def summed(values: numpy.ndarray) -> numpy.ndarray:
        total = numpy.zeros(shape, "longdouble")
        numpy.add.at(total, place, values[inside])
        return total.astype("f8")

    assert numpy.array_equal(found.counts, summed(numpy.ones(len(w))))
    sums, squares, sizes = summed(w), summed(w * w), summed(abs(w))
    assert (abs(found.values - sums) <= 1e-12 * sizes).all()
    assert (abs(found.error_bars - numpy.sqrt(squares)) <= 1e-12 * numpy.sqrt(squares)).all()
    if weights is None:
        assert found.sums is None and found.squares is None and found.errors is None
    check_forms(found, stated)


def check_forms(found: turbidite.Histogram, axes: list) -> None:
    """Densities are those of NumPy, where it has widths of the bins, too."""
    for axis in axes:
        if axis.edges.dtype.kind == "f":
            assert axis.widths.tolist() == numpy.diff(axis.edges).tolist()
        else:
            assert (axis.widths >= 1).all()
    area = axes[0].widths if len(axes) == 1 else numpy.outer(axes[0].widths, axes[1].widths)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        assert numpy.array_equal(found.per_width, found.values / area, equal_nan=True)
    up_to = found.values.cumsum() if len(axes) == 1 else found.values.cumsum(0).cumsum(1)
    assert numpy.array_equal(found.cumulative, up_to)
    total = found.values.sum()
    if total != 0:
        centres = [axis.edges[:-1].astype("f8") + axis.widths / 2 for axis in axes]
        edges = [numpy.append(axis.edges[:-1].astype("f8"), axis.edges[-2] + axis.widths[-1]) for axis in axes]
        if all((numpy.diff(one) > 0).all() for one in edges) and all(abs(one).max() < 2**40 for one in edges):
            samples = numpy.array(list(itertools.product(*centres)))
            density, _ = numpy.histogramdd(samples, edges, weights=found.values.ravel(), density=True)
            assert numpy.allclose(found.density, density, rtol=1e-9, atol=0)
    else:
        assert not numpy.isfinite(found.density).any()


def check_quantiles(dataset: turbidite.Dataset, rows: Rows, column: str, shares: list[float], **options) -> None:
    found = dataset.quantiles(column, shares, **options)
    values = sorted(value for value in rows[column].tolist() if not math.isnan(value))
    assert len(found) == (len(shares) if values else 0)
    for one in found:
        assert one.source == "exact" and one.least == one.estimate == one.most == value_at(values, one.share)
    if values and column in "xy":
        kept = numpy.array(values)
        steps = [share for share in shares if share in (0, 0.25, 0.5, 1)]
        wanted = dict(zip(steps, numpy.quantile(kept, steps, method="inverted_cdf"), strict=True))
        assert all(one.estimate == wanted[one.share] for one in found if one.share in wanted)


@pytest.fixture(scope="module")
def epochs() -> dict[int, Rows]:
    random = numpy.random.default_rng(54)
    return {label: drawn(random, count) for label, count in zip(EPOCHS, (4000, 2500, 0), strict=True)}


@pytest.fixture(scope="module")
def datasets(epochs, tmp_path_factory) -> dict[str, turbidite.Dataset]:
    folder = tmp_path_factory.mktemp("distributions")
    return {name: write(folder / f"{name}.tbd", layout, epochs) for name, layout in LAYOUTS.items()}


def chosen_rows(epochs: dict[int, Rows], chosen: list[int], where: str | None) -> Rows:
    rows = whole({label: epochs[label] for label in chosen})
    if where is None:
        return rows
    matching = (rows["q"].astype("f8") > -2) & (rows["y"] < 1_000_001)
    return {name: array[matching] for name, array in rows.items()}


some_axes = st.lists(st.sampled_from(AXES), min_size=1, max_size=2, unique_by=lambda axis: axis[0])
some_epochs = st.lists(st.sampled_from(EPOCHS), min_size=1, unique=True).map(sorted)
some_shares = st.lists(st.sampled_from([0, 0.07, 0.25, 0.5, 0.9, 1]), min_size=1, max_size=4)


@generated(20, parts=8)
@given(axes=some_axes, weights=st.sampled_from([None, None, "w", "v", "q"]), where=st.sampled_from([None, WHERE]), chosen=some_epochs)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_histograms_are_those_of_numpy(layout, datasets, epochs, axes, weights, where, chosen):
    rows = chosen_rows(epochs, chosen, where)
    check_histogram(datasets[layout], rows, axes, weights, where=where, epochs=chosen)


@generated(10, parts=8)
@given(column=st.sampled_from(["x", "y", "q", "id"]), shares=some_shares, chosen=some_epochs)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_quantiles_are_those_of_the_inverted_distribution(layout, datasets, epochs, column, shares, chosen):
    check_quantiles(datasets[layout], chosen_rows(epochs, chosen, None), column, shares, epochs=chosen)


SPECIAL = [0.0, -0.0, 1.0, -2.5, 0.3, 1e-300, -1e15, math.nan, math.inf, -math.inf]
few_rows = st.lists(
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
@given(
    rows=few_rows,
    layout=st.sampled_from(list(LAYOUTS)),
    axes=some_axes,
    weights=st.sampled_from([None, "w", "v"]),
    shares=some_shares,
)
def test_few_rows_with_special_values(tmp_path_factory, rows, layout, axes, weights, shares):
    names = ["x", "y", "w", "v", "q", "id"]
    epoch = {name: numpy.array([row[name] for row in rows], "u8" if name == "id" else None) for name in names}
    dataset = write(tmp_path_factory.mktemp("few") / "d.tbd", LAYOUTS[layout], {10: epoch})
    check_histogram(dataset, whole({10: epoch}), axes, weights)
    check_quantiles(dataset, whole({10: epoch}), axes[0][0], shares)


def test_sums_are_the_same_with_any_number_of_threads(datasets):
    for axes in (AXES[:1], [AXES[0], AXES[5]]):
        found = [
            datasets["range"].histogram(*(column for column, _ in axes), weights="y", threads=threads, **joined(axes))
            for threads in (1, 2, 4)
        ]
        assert all(one.sums.tobytes() == found[0].sums.tobytes() for one in found)
        assert all(one.squares.tobytes() == found[0].squares.tobytes() for one in found)


def test_integers_without_given_edges_are_counted_by_their_number(datasets):
    found = datasets["range"].histogram("q", bins=4, range=(0, 3))
    assert found.x.edges.tolist() == [0, 1, 2, 3, 3] and found.x.widths.tolist() == [1, 1, 1, 1]
    assert numpy.array_equal(found.per_width, found.counts)
    given = datasets["range"].histogram("q", bins=[0, 1, 3])
    assert given.x.widths.tolist() == [1, 2]
    assert given.per_width.tolist() == numpy.divide(given.counts, [1, 2]).tolist()


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> tuple[turbidite.Dataset, int]:
    """A dataset whose row groups all have values on both sides of 0 in each column but the key."""
    random, rows = numpy.random.default_rng(3), 60_000
    path = tmp_path_factory.mktemp("budget") / "d.tbd"
    with turbidite.Writer(path, {"t": "f8", "x": "f4", "y": "f8", "n": "i2"}, key="t") as writer:
        for label in (1, 2):
            with writer.epoch(label):
                writer.append(
                    {
                        "t": random.random(rows),
                        "x": random.normal(size=rows).astype("f4"),
                        "y": random.normal(size=rows),
                        "n": random.integers(-9, 9, rows).astype("i2"),
                    }
                )
    return turbidite.open(path), 2 * rows


REQUESTS = {
    "one column": ({"column": "x", "range": (-1, 1)}, 4),
    "two columns": ({"column": "x", "by": "y", "range": ((-1, 1), (-1, 1))}, 12),
    "weights": ({"column": "x", "weights": "n", "range": (-1, 1)}, 6),
    "an expression": ({"column": "x * n", "range": (-1, 1)}, 6),
    # The range of an expression is that of the rows, which are read twice.
    "an unknown range": ({"column": "y * 2", "weights": "x"}, 20),
    "an expression of two columns": ({"column": "x * n", "weights": "x"}, 12),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_budget_is_compared_with_the_bytes_of_the_columns(plain, name):
    (dataset, rows), (request, row_bytes) = plain, REQUESTS[name]
    cost = rows * row_bytes
    assert dataset.histogram(**request, budget=cost).rows == rows
    counted = rows if "unknown" not in name and "expression of" not in name else 2 * rows
    with pytest.raises(turbidite.UsageError) as refused:
        dataset.histogram(**request, budget=cost - 1)
    words = str(refused.value)
    assert words.startswith("budget: exact numbers would read up to ") and f"({counted} rows)" in words, words
    sufficient = int(words.split("raise it to ")[1].split(" bytes")[0])
    assert cost <= sufficient < 1.1 * cost + 1
    assert dataset.histogram(**request, budget=sufficient).rows == rows
    # There are no levels, and nothing bounds sums and expressions.
    assert ("'bounds'" in words) == (name in ("one column", "two columns")) and "'levels'" not in words


def test_one_epoch_costs_less_than_all(plain):
    dataset, rows = plain
    half = rows * 4 // 2
    assert dataset.histogram("x", range=(-1, 1), epochs=1, budget=half).rows == rows // 2
    with pytest.raises(turbidite.UsageError, match="budget"):
        dataset.histogram("x", range=(-1, 1), budget=half)


def test_what_statistics_decide_costs_nothing(plain):
    dataset, rows = plain
    assert dataset.histogram("x", bins=1, range=(-100, 100), budget=0).counts.tolist() == [rows]
    assert dataset.histogram("x", "y", where="t > 2", range=((-1, 1), (-1, 1)), budget=0).rows == 0
    # Few pages of the key have an edge, or the median.
    assert dataset.histogram("t", bins=4, range=(0, 1), budget=rows * 8 // 4).counts.sum() == rows
    [median] = dataset.quantiles("t", 0.5, budget=rows * 8 // 4)
    assert median.source == "exact" and median.least == median.most
    with pytest.raises(turbidite.UsageError, match="budget"):
        dataset.quantiles("t", 0.5, budget=0)


def test_quantiles_have_a_budget(plain):
    dataset, rows = plain
    assert dataset.quantiles("y", 0.5, budget=rows * 8)[0].source == "exact"
    with pytest.raises(turbidite.UsageError, match=rf"up to 960 kB of columns \({rows} rows\), .* is 960 kB; .*'bounds'"):
        dataset.quantiles("y", 0.5, budget=rows * 8 - 1)
    [median] = dataset.quantiles("y", 0.5, budget=0, source="bounds")
    assert median.source == "bounds" and median.least < median.estimate < median.most


def test_bounds_must_be_asked_for(plain):
    """A plateau of bounds is no distribution."""
    dataset, rows = plain
    exact = dataset.histogram("x", bins=20, range=(-4, 4))
    bounded = dataset.histogram("x", bins=20, range=(-4, 4), source="bounds", budget=0)
    assert (exact.source, bounded.source) == ("exact", "bounds")
    assert (exact.least == exact.most).all() and (bounded.least < bounded.most).any()
    assert exact.counts.max() > 50 * max(exact.counts.min(), 1) and bounded.counts.max() < 50 * max(bounded.counts.min(), 1)


def test_the_command_has_sources_and_a_budget(plain):
    dataset, rows = plain
    one = ["hist", dataset.path, "--column", "x", "--range", "-4..4", "--bins", 4]
    exact, bounded = answer(*one), answer(*one, "--source", "bounds")
    assert (exact["source"], bounded["source"]) == ("exact", "bounds")
    assert [bin["least"] for bin in exact["bins"]] == dataset.histogram("x", bins=4, range=(-4, 4)).counts.tolist()
    assert exact["cost"]["bytes_read"] > 0 == bounded["cost"]["bytes_read"]
    refused = command(*one, "--budget", "100kB", expect=USAGE).stderr
    assert f"up to 480 kB of columns ({rows} rows), and the budget is 100 kB; raise it to 480000 bytes" in refused
    assert answer(*one, "--budget", "480kB")["bins"] == exact["bins"]
    quantiles = ["quantiles", dataset.path, "--column", "y", "--at", "0.5"]
    assert answer(*quantiles)["source"] == "exact"
    assert "960000 bytes" in command(*quantiles, "--budget", "1kB", expect=USAGE).stderr
    assert answer(*quantiles, "--budget", "1kB", "--source", "bounds")["source"] == "bounds"


def test_the_command_has_edges_and_forms(plain):
    dataset, _ = plain
    edges = [-1, 0, 0.5, 3]
    one = ["hist", dataset.path, "--column", "x", "--edges", "-1,0,0.5,3", "--weights", "n"]
    found = dataset.histogram("x", bins=edges, weights="n")
    for form in ("per_width", "density", "cumulative"):
        told = answer(*one, "--as", form.replace("_", "-"))
        assert [bin["from"] for bin in told["bins"]] + [told["bins"][-1]["to"]] == edges
        assert numpy.allclose([bin[form] for bin in told["bins"]], getattr(found, form), rtol=1e-14)
        assert [bin["squares"] for bin in told["sums"]["bins"]] == found.squares.tolist()
        assert form.replace("_", " ") in command(*one, "--as", form.replace("_", "-")).stdout
    pairs = answer(*one, "--by", "n", "--by-edges", "-9,0,9")
    both = dataset.histogram("x", "n", bins=(edges, [-9, 0, 9]), weights="n")
    assert pairs["sums"]["squares"] == both.squares.tolist() and pairs["estimate"] == both.counts.tolist()
    for wrong in (["--bins", 3], ["--range", "0..1"], ["--log"], ["--edges", "1,0"], ["--edges", "1"]):
        command("hist", dataset.path, "--column", "x", "--edges", "0,1", *wrong, expect=USAGE)


def test_levels_are_the_finest_within_the_budget(datasets, epochs):
    dataset, rows = datasets["levels"], whole(epochs)
    ends = {"bins": 5, "range": (-2, 2)}
    sizes = [dataset.histogram("x", level=level, **ends).sampled for level in (0, 1, 2)]
    assert sizes[1] > sizes[2] > 0
    # Each row of a level has the value of x.
    finest = dataset.histogram("x", source="levels", **ends)
    assert (finest.source, finest.level, finest.sampled) == ("levels", 1, sizes[1])
    coarse = dataset.histogram("x", source="levels", budget=4 * sizes[2], **ends)
    assert (coarse.level, coarse.sampled) == (2, sizes[2])
    with pytest.raises(turbidite.UsageError, match="budget"):
        dataset.histogram("x", source="levels", budget=4 * sizes[2] - 1, **ends)
    with pytest.raises(turbidite.UsageError, match="budget: .* 'bounds' or 'levels'"):
        dataset.histogram("x", budget=4 * sizes[1], **ends)
    weighted = dataset.histogram("x", level=0, weights="w", **ends)
    inside = (rows["x"] >= -2) & (rows["x"] <= 2)
    squares, _ = numpy.histogram(rows["x"][inside], weighted.x.edges, weights=rows["w"][inside] ** 2)
    assert numpy.allclose(weighted.squares, squares, rtol=1e-12)
    with pytest.raises(turbidite.UsageError, match="no levels of detail"):
        datasets["range"].histogram("x", source="levels")


def test_indexes_cost_what_they_leave_to_read(tmp_path):
    """Bins of a bitmap index on edges leave nothing to read; a value index finds few rows."""
    random, rows = numpy.random.default_rng(9), 50_000
    values = {"t": random.random(rows), "x": random.normal(size=rows).astype("f4"), "id": random.permutation(rows).astype("u8")}
    with turbidite.Writer(tmp_path / "d.tbd", {"t": "f8", "x": "f4", "id": "uint64"}, key="t", indexes=["bitmap:x", "hash:id"]) as writer:
        with writer.epoch(1):
            writer.append(values)
    dataset = turbidite.open(tmp_path / "d.tbd")
    found = dataset.histogram("x", bins=4, range=(-2, 2), budget=0)
    assert found.counts.tolist() == numpy.histogram(values["x"], found.x.edges)[0].tolist()
    with pytest.raises(turbidite.UsageError, match="budget"):
        dataset.histogram("x", bins=4, range=(-2, 1.99771), budget=1000)
    with pytest.raises(turbidite.UsageError, match="budget"):
        dataset.histogram("x", bins=4, range=(-2, 2), use="scan", budget=1000)
    few = dataset.histogram("t", weights="t", where="id in (17, 9000)", range=(0, 1), budget=rows * 4)
    assert few.rows == 2
    with pytest.raises(turbidite.UsageError, match="budget"):
        dataset.histogram("t", weights="t", where="id in (17, 9000)", range=(0, 1), use="scan", budget=rows * 4)
