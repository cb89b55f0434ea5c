"""Pictures and tables: figures are read back and compared with NumPy over the same rows."""

import json
import subprocess
import sys
import warnings

import matplotlib
import numpy
import pytest
import turbidite
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.collections import LineCollection, PathCollection, PolyCollection, QuadMesh
from matplotlib.patches import StepPatch

from support.command import AMPLE_S, ROOT

matplotlib.use("Agg")

HOSTILE = [0.0, -0.0, 1.0, -1.0, 1e300, -1e300, 5e-324, numpy.nan, numpy.inf, -numpy.inf]


@pytest.fixture(autouse=True)
def settings_stay():
    """No picture changes a setting of matplotlib or warns, and every figure can be drawn."""
    before = dict(matplotlib.rcParams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
        for number in pyplot.get_fignums():
            pyplot.figure(number).canvas.draw()
        pyplot.close("all")
    assert dict(matplotlib.rcParams) == before


def write(path, epochs: dict[int, dict[str, numpy.ndarray]], key: str, units=None) -> turbidite.Dataset:
    schema = {name: values.dtype for name, values in next(iter(epochs.values())).items()}
    with turbidite.Writer(path, schema, key=key, units=units or {}) as writer:
        for label, rows in epochs.items():
            with writer.epoch(label):
                writer.append(rows)
    return turbidite.open(path)


def only(ax, kind):
    [found] = [artist for artist in ax.get_children() if isinstance(artist, kind)]
    return found


def words(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def counted(x, y, x_edges, y_edges, weights=None):
    usable = numpy.isfinite(x.astype("f8")) & numpy.isfinite(y.astype("f8"))
    weights = None if weights is None else weights[usable]
    return numpy.histogram2d(x[usable], y[usable], bins=[x_edges, y_edges], weights=weights)[0]


# Two-dimensional histograms


def test_phase_space_equals_numpy(indexed):
    dataset = turbidite.open(indexed.path)
    labels = sorted(indexed.epochs)[:2]
    rows = numpy.concatenate([indexed.epochs[label] for label in labels])
    hot = rows[rows["energy"] > 0.25]
    space = dataset.phase_space("ux", "uz", where="energy > 0.25", epochs=labels, bins=(30, 20), weights="energy")
    for edges, name, bins in ((space.x.edges, "ux", 30), (space.y.edges, "uz", 20)):
        assert len(edges) == bins + 1 and (edges[0], edges[-1]) == (hot[name].min(), hot[name].max())
        assert numpy.allclose(edges, numpy.histogram_bin_edges(hot[name].astype("f8"), bins), rtol=1e-12)
    assert space.counts.dtype == numpy.uint64 and space.counts.shape == (30, 20)
    assert numpy.array_equal(space.counts, counted(hot["ux"], hot["uz"], space.x.edges, space.y.edges))
    expected = counted(hot["ux"], hot["uz"], space.x.edges, space.y.edges, hot["energy"].astype("f8"))
    assert numpy.allclose(space.sums, expected, rtol=1e-9)
    assert space.rows == len(hot) and (space.outside, space.infinite, space.nan) == (0, 0, 0)
    part = dataset.phase_space("ux", "uz", epochs=labels, bins=7, range=((-0.5, 0.5), None))
    inside = abs(rows["ux"]) <= 0.5
    assert numpy.array_equal(part.counts, counted(rows["ux"], rows["uz"], part.x.edges, part.y.edges))
    assert (part.outside, part.rows) == (len(rows) - int(inside.sum()), len(rows))


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), size=st.sampled_from([1, 2, 50, 3000]), log=st.booleans())
def test_random_values_equal_numpy(tmp_path_factory, seed, size, log):
    random = numpy.random.default_rng(seed)
    x = random.choice(HOSTILE + random.normal(size=5).tolist(), size)
    y = random.integers(-5, 9, size).astype("i8")
    w = random.choice([1.0, 2.0, 0.5], size).astype("f4")
    rows = {"x": x, "y": y, "w": w}
    dataset = write(tmp_path_factory.mktemp("random") / "d.tbd", {1: rows}, "x")
    ranges = ((0.5, 1e10), (1, 6)) if log else ((-2.0, 3.0), None)
    space = dataset.phase_space("x", "y", bins=(9, 4), range=ranges, log=log, weights="w")
    assert numpy.array_equal(space.counts, counted(x, y, space.x.edges, space.y.edges))
    assert numpy.array_equal(space.sums, counted(x, y, space.x.edges, space.y.edges, w.astype("f8")))
    assert space.nan == numpy.isnan(x).sum() and space.infinite == numpy.isinf(x).sum() and space.rows == size
    space.plot()
    dataset.phase_space("x", "y", bins=5).plot()
    pyplot.close("all")


def test_integers_beyond_2_to_the_53_are_exact(tmp_path):
    begin = 2**63 + 1
    ids = begin + numpy.arange(40, dtype="u8")
    dataset = write(tmp_path / "d.tbd", {1: {"id": ids, "t": numpy.arange(40, dtype="i8") - 2**62}}, "id")
    space = dataset.phase_space("id", "t", bins=(4, 40))
    assert space.x.edges.dtype == numpy.uint64 and space.y.edges.dtype == numpy.int64
    assert space.x.edges.tolist() == [begin, begin + 10, begin + 20, begin + 30, begin + 39]
    assert numpy.array_equal(space.counts, numpy.repeat(numpy.eye(4), 10, axis=1).astype("u8"))
    narrow = dataset.phase_space("id", "t", bins=2, range=((begin, begin + 1), None))
    assert (narrow.counts.sum(axis=1).tolist(), narrow.outside) == ([1, 1], 38)


def test_requests_that_make_no_sense_are_refused(default_dataset):
    dataset = turbidite.open(default_dataset.path)
    for options in (
        {"bins": 0}, {"bins": 2.5}, {"bins": (1, 3, 2)}, {"bins": True}, {"bins": "10"}, {"bins": (60000, 60000)}, {"range": (0, 1)},
        {"range": ((2, 1), None)}, {"range": ((0, numpy.inf), None)}, {"range": ((0.0, 1.0), None), "log": True}, {"where": "ux >"},
        {"weights": "nothing"}, {"threads": 0},
    ):  # fmt: skip
        with pytest.raises(turbidite.UsageError):
            dataset.phase_space("ux", "uy", **options)
    with pytest.raises(turbidite.UsageError, match="label"):
        dataset.phase_space("ux", "epoch")
    with pytest.raises(turbidite.OperationError):
        dataset.phase_space("ux", "uy", epochs=1)
    with pytest.raises(turbidite.UsageError):
        dataset.key_profile(max(dataset.epochs), [50, 10])


# Figures


def test_the_mesh_has_the_counts(tmp_path):
    random = numpy.random.default_rng(1)
    rows = {"position_z": random.normal(size=10**6).astype("f4"), "momentum_z": random.normal(size=10**6)}
    units = {"position_z": "1e-06 m", "momentum_z": "kg m s^-1"}
    dataset = write(tmp_path / "d.tbd", {200: rows}, "momentum_z", units)
    space = dataset.phase_space("position_z", "momentum_z", epochs=200, where="momentum_z > 0")
    _, ax = pyplot.subplots()
    assert space.plot(ax, cmap="magma") is ax
    mesh = only(ax, QuadMesh)
    assert mesh.get_array().shape == (200, 300) and mesh.get_rasterized() and mesh.cmap.name == "magma"
    assert numpy.array_equal(mesh.get_array().filled(0), space.counts.T)
    assert numpy.array_equal(mesh.get_coordinates()[0, :, 0], space.x.edges)
    assert isinstance(mesh.norm, matplotlib.colors.LogNorm) and mesh.norm.vmax == space.counts.max()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("position_z (µm)", r"momentum_z ($\mathrm{kg}\,\mathrm{m}\,\mathrm{s}^{-1}$)")
    assert ax.get_title() == "epoch 200\nmomentum_z > 0" and mesh.colorbar.ax.get_ylabel() == "rows per bin"


def test_weights_have_a_scale_of_their_own(tmp_path):
    rows = {"x": numpy.array([0.0, 1, 1, 2]), "w": numpy.array([-3.0, 1, 1, numpy.nan])}
    dataset = write(tmp_path / "d.tbd", {1: rows}, "x", {"w": "C"})
    space = dataset.phase_space("x", "x", bins=3, weights="W")
    ax = space.plot()
    mesh = only(ax, QuadMesh)
    assert (mesh.norm.vmin, mesh.norm.vmax) == (-3, 2) and mesh.colorbar.ax.get_ylabel() == "w (C), summed per bin"
    assert numpy.diag(space.sums)[:2].tolist() == [-3, 2] and numpy.isnan(space.sums[2, 2])


def test_histograms_show_counts_and_bounds(default_dataset):
    dataset = turbidite.open(default_dataset.path)
    epoch = max(dataset.epochs)
    for exact in (False, True):
        histogram = dataset.histogram("energy", bins=12, range=(0.1, 3), log=True, epochs=epoch, source="exact" if exact else "bounds")
        ax = histogram.plot()
        band, steps = (child for child in ax.get_children() if isinstance(child, StepPatch))
        # Bins of which only bounds are known have no line.
        expected = numpy.where(histogram.least < histogram.most, numpy.nan, histogram.counts)
        assert numpy.array_equal(steps.get_data().values, expected, equal_nan=True)
        assert numpy.array_equal(steps.get_data().edges, histogram.x.edges)
        if not exact:
            assert numpy.array_equal(band.get_data().values, histogram.most)
            assert numpy.array_equal(band.get_data().baseline, histogram.least)
        assert (ax.get_xscale(), ax.get_yscale(), ax.get_xlabel()) == ("log", "log", "energy")
        assert ax.get_title().startswith(f"epoch {epoch}\nnot drawn: ")


def test_partitions_are_the_row_groups(default_dataset):
    dataset = turbidite.open(default_dataset.path)
    epoch = max(dataset.epochs)
    groups = dataset.row_groups(epoch)
    rows = default_dataset.epochs[epoch]
    assert sum(group["rows"] for group in groups) == len(rows)
    assert min(group["keys"][0] for group in groups) == rows["energy"].min()
    assert max(group["keys"][1] for group in groups) == rows["energy"].max()
    ax = dataset.plot_partitions(epoch)
    boxes = [box for child in ax.get_children() if isinstance(child, PolyCollection) for box in child.get_paths()]
    ends = sorted((float(box.vertices[:, 0].min()), float(box.vertices[:, 0].max())) for box in boxes)
    assert numpy.allclose(ends, sorted(group["keys"] for group in groups))
    [_, loads] = ax.figure.axes
    drawn = max(box.vertices[:, 0].max() for child in loads.get_children() if isinstance(child, PolyCollection) for box in child.get_paths())
    by_rank = {group["rank"]: 0 for group in groups}
    for group in groups:
        by_rank[group["rank"]] += group["rows"]
    assert drawn == max(by_rank.values())


def test_selectivity_is_the_key_profile(default_dataset):
    dataset = turbidite.open(default_dataset.path)
    epoch = max(dataset.epochs)
    groups, energy = dataset.row_groups(epoch), numpy.sort(default_dataset.epochs[epoch]["energy"])
    ax = dataset.plot_selectivity(epoch)
    curve = ax.lines[0]
    for percentile, share in zip(*curve.get_data(), strict=True):
        point = dataset.key_profile(epoch, [percentile])["points"][0]
        assert share == 100 * point["share"]
        touched = sum(group["rows"] for group in groups if group["keys"][0] <= numpy.float32(point["key"]) <= group["keys"][1])
        assert abs(share - 100 * touched / len(energy)) < 1e-9
        # Positions are counted from 1.
        position = max(int(numpy.ceil(len(energy) * percentile / 100)), 1)
        assert point["key_least"] <= energy[position - 1] <= point["key_most"]
    [right] = ax.child_axes
    assert right.get_ylabel() == "read amplification"


TRACKS = {
    # id: (epoch, x, y); 7 misses epoch 2, 8 lives for one epoch, 9 has a value that is not finite, 5 occurs twice.
    3: [(0, 0, 0), (1, 1, 1), (2, 2, 4), (3, 3, 9)],
    5: [(0, 5, 0), (0, 5, 1), (1, 6, 0)],
    7: [(0, 0, 5), (1, 1, 5), (3, 3, 5)],
    8: [(1, 8, 8)],
    9: [(0, 9, 0), (1, 9, numpy.nan), (2, 9, 2), (3, 9, 3)],
}


def tracks(path, which=tuple(TRACKS)) -> turbidite.Tracks:
    rows = [(epoch, identity, x, y) for identity in which for epoch, x, y in TRACKS[identity]]
    epochs = {}
    for label in range(4):
        of = numpy.array([row[1:] for row in rows if row[0] == label], "f8").reshape(-1, 3)
        epochs[label] = {"id": of[:, 0].astype("u8"), "x": of[:, 1], "y": of[:, 2].astype("f4"), "k": (of[:, 0] * 2).astype("i4")}
    dataset = write(path, epochs, "k", {"x": "1e-06 m"})
    return dataset.tracks(of="id > 0", at=0 if 8 not in which else 1, id="id")


def lines(ax) -> list[list]:
    return sorted(segment.tolist() for segment in only(ax, LineCollection).get_segments())


def test_lines_have_gaps_and_lone_points(tmp_path):
    # The predicate holds at epoch 1, where every particle exists.
    ax = tracks(tmp_path / "d.tbd").plot("x", "y", color="k")
    expected = [[[0, 0], [1, 1]], [[1, 1], [2, 4]], [[2, 4], [3, 9]], [[0, 5], [1, 5]], [[9, 2], [9, 3]]]
    assert lines(ax) == sorted(expected)
    points = only(ax, PathCollection)
    assert sorted(points.get_offsets().tolist()) == sorted([[5, 0], [5, 1], [6, 0], [3, 5], [8, 8], [9, 0]])
    assert points.norm is only(ax, LineCollection).norm, "points and lines have one colour scale"
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("x (µm)", "y", "4 epochs, 0 to 3\n5 tracks")
    assert only(ax, LineCollection).colorbar.ax.get_ylabel() == "k"


def test_lines_end_at_periodic_boundaries(tmp_path):
    columns, places = {"id": "uint64", "x": "f8", "y": "f4"}, [(9.0, 0.0), (9.9, 1.0), (0.3, 2.0), (1.0, 9.5), (1.5, 0.5)]
    with turbidite.Writer(tmp_path / "d.tbd", columns, key="space:x,y", period={"x": 10}) as writer:
        for label, (x, y) in enumerate(places):
            with writer.epoch(label):
                writer.append({"id": numpy.uint64([1]), "x": numpy.array([x]), "y": numpy.array([y], "f4")})
    found = turbidite.open(tmp_path / "d.tbd").tracks(of="id = 1", at=0, id="id")
    ends = [[places[0], places[1]], [places[2], places[3]], [places[3], places[4]]]
    # y is not periodic, and neither is the epoch.
    assert lines(found.plot("x", "y")) == sorted([list(one) for one in segment] for segment in ends)
    assert len(lines(found.plot("epoch", "y"))) == 4 and len(lines(found.plot("y", "X"))) == 3


def test_tracks_over_time_are_limited(tmp_path):
    found = tracks(tmp_path / "d.tbd", (3, 7))
    ax = found.plot("epoch", "Y", limit=1)
    assert lines(ax) == [[[0, 0], [1, 1]], [[1, 1], [2, 4]], [[2, 4], [3, 9]]]
    assert ax.get_xlabel() == "epoch" and ax.get_title().endswith("\nfirst 1 track")
    assert "first" not in found.plot("epoch", "id", limit=2).get_title()
    with pytest.raises(turbidite.UsageError):
        found.plot("x", "y", limit=0)
    with pytest.raises(turbidite.UsageError, match="nothing"):
        found.plot("x", "nothing")


def test_thousands_of_tracks_are_one_artist(tmp_path):
    ids = numpy.arange(5000, dtype="u8")
    epochs = {label: {"id": ids, "x": numpy.random.default_rng(label).normal(size=5000)} for label in range(6)}
    dataset = write(tmp_path / "d.tbd", epochs, "x")
    ax = dataset.tracks(of="id >= 0", at=0, id="id", epochs=slice(1, 5)).plot("epoch", "x", color="id", limit=5000)
    assert len(only(ax, LineCollection).get_segments()) == 4 * 5000


def test_xarray_has_a_grid_of_particles_and_epochs(tmp_path):
    grid = tracks(tmp_path / "d.tbd", (3, 7, 8)).to_xarray()
    assert dict(grid.sizes) == {"id": 3, "epoch": 4} and grid["x"].attrs == {"units": "1e-06 m"}
    assert (grid["id"].dtype, grid["y"].dtype, grid["k"].dtype) == ("u8", "f4", "i4")
    for identity in (3, 7, 8):
        for epoch in range(4):
            [row] = [row for row in TRACKS[identity] if row[0] == epoch] or [None]
            cell = grid.sel(id=identity, epoch=epoch)
            assert bool(cell["present"]) == (row is not None)
            assert int(cell["k"]) == (0 if row is None else 2 * identity)
            assert (row is None and numpy.isnan(cell["x"])) or (cell["x"], cell["y"]) == row[1:]
    with pytest.raises(turbidite.UsageError, match="id 5 occurs twice in epoch 0"):
        tracks(tmp_path / "twice.tbd").to_xarray()


HOSTILE_NAMES = ["<b>", "a$b$c", "$x^2$", "_under", "\\alpha $", "µ & \"q\""]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_are_neither_formulas_nor_markup(tmp_path, name):
    rows = {name: numpy.linspace(0, 1, 50), "id": numpy.arange(50, dtype="i8")}
    dataset = write(tmp_path / "d.tbd", {1: rows, 2: rows}, name, {name: "$m$ <i>"})
    figures = [
        dataset.histogram(name).plot(),
        dataset.phase_space(name, name, bins=3, weights=name).plot(),
        dataset.plot_partitions(1),
        dataset.plot_selectivity(1),
        dataset.tracks(of="id < 9", at=1, id="id").plot(name, name, color=name),
    ]
    for ax in figures:
        assert name in ax.get_xlabel().replace("\\$", "$")
    for table in (dataset, dataset.schema, dataset.query(columns=[name]), dataset.histogram(name)):
        markup = table._repr_html_()
        assert "<b>" not in markup.replace(f"<b>{tmp_path}", "") and "<i>" not in markup and "<table" in markup


@pytest.mark.parametrize("value", [0.0, -3.5, 1e300, 5e-324, numpy.nan, numpy.inf, -numpy.inf])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_little_data_can_be_drawn(tmp_path, value, rows):
    column = numpy.full(rows, value)
    dataset = write(tmp_path / "d.tbd", {1: {"x": column, "id": numpy.arange(rows, dtype="u8")}}, "x")
    space = dataset.phase_space("x", "x", bins=4)
    assert space.rows == rows and int(space.counts.sum()) == (rows if numpy.isfinite(value) else 0)
    axes = [
        space.plot(),
        dataset.phase_space("x", "id", log=True, bins=2).plot(),
        dataset.histogram("x").plot(),
        dataset.plot_partitions(1),
        dataset.plot_selectivity(1),
        dataset.tracks(of="id >= 0", at=1, id="id").plot("x", "id", color="x"),
    ]
    if not rows:
        assert all("no rows" in words(ax) for ax in axes)
    dataset._repr_html_()
    dataset.histogram("x")._repr_html_()


# Tables


def test_tables_are_short(tmp_path):
    epochs = {label: {"x": numpy.arange(label + 1.0)} for label in range(0, 300, 3)}
    dataset = write(tmp_path / "d.tbd", epochs, "x", {"x": "1e-06 m"})
    html = dataset._repr_html_()
    assert html.count("<tr>") == 2 + 14 and "100 epochs" in html and "µm" in html and "f64" in html and "key" in html
    query = dataset.query("x > 1", epochs=slice(3, None), columns=["x"], limit=7)
    table = query._repr_html_()
    assert "x &gt; 1" in table and "3..last" in table and "7" in table and str(dataset.path) in table
    assert "…" in dataset.histogram("x", bins=20)._repr_html_()
    assert repr(query).startswith("<Query") and repr(dataset).startswith("<Dataset") and "key x;" in repr(dataset)


def test_all_columns_of_a_key_are_named(tmp_path):
    columns = {"id": "uint64", "y": "f4", "x": "f4"}
    with turbidite.Writer(tmp_path / "d.tbd", columns, key="space:x,y") as writer, writer.epoch(1):
        writer.append({name: numpy.ones(3, dtype) for name, dtype in columns.items()})
    dataset = turbidite.open(tmp_path / "d.tbd")
    assert (dataset.schema.key, dataset.schema.keys) == ("x", ("x", "y")) and "key space:x,y;" in repr(dataset)
    assert dataset.schema._repr_html_().count(">key<") == 2


# Packages


def test_matplotlib_is_imported_at_the_first_picture(default_dataset, tmp_path):
    program = f"""
import sys, turbidite
dataset = turbidite.open({str(default_dataset.path)!r})
dataset._repr_html_()
assert not {{"matplotlib", "xarray", "pandas"}} & set(sys.modules)
tracks = dataset.tracks(of="energy > 1", at=dataset.epochs[-1], id="id")
sys.modules.update(matplotlib=None, xarray=None)
for call, extra in ((lambda: dataset.plot_selectivity(dataset.epochs[-1]), "pictures"), (tracks.to_xarray, "xarray")):
    try:
        call()
    except ImportError as error:
        assert f"pip install 'turbidite[{{extra}}]'" in str(error), error
    else:
        raise SystemExit("no error")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=AMPLE_S, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_tour_runs(tmp_path):
    """Runs the cells of the notebook as a program: a kernel would need 90 MB of packages."""
    notebook = json.loads((ROOT / "docs" / "tour.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 10 and not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    program = "import matplotlib; matplotlib.use('Agg')\n" + "\n".join("".join(cell["source"]) for cell in cells)
    program = program.replace("../testdata", str(ROOT / "testdata"))
    strict = [sys.executable, "-W", "error::UserWarning", "-c", program]
    done = subprocess.run(strict, capture_output=True, text=True, timeout=AMPLE_S, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "epoch 4000" in done.stdout
