"""Spectra, profiles and movies: numbers and artists are compared with NumPy over the same rows."""

import warnings

import matplotlib
import numpy
import pytest
import turbidite
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.patches import StepPatch
from PIL import Image

matplotlib.use("Agg")

WILD = [0.0, -0.0, 1.0, 2.5, -3.0, 1e-3, numpy.nan, numpy.inf, -numpy.inf]
SCREEN = 24 * 80
LIGHT, ELECTRON = 299792458.0, 9.1093837139e-31


@pytest.fixture(autouse=True)
def figures_can_be_drawn():
    """No picture changes a setting of matplotlib or warns, and every figure can be drawn."""
    before = dict(matplotlib.rcParams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
        for number in pyplot.get_fignums():
            pyplot.figure(number).canvas.draw()
        pyplot.close("all")
    assert dict(matplotlib.rcParams) == before


def write(path, epochs: dict[int, dict[str, numpy.ndarray]], units=None) -> turbidite.Dataset:
    schema = {name: values.dtype for name, values in next(iter(epochs.values())).items()}
    with turbidite.Writer(path, schema, key=next(iter(schema)), units=units or {}) as writer:
        for label, rows in epochs.items():
            with writer.epoch(label):
                writer.append(rows)
    return turbidite.open(path)


def plasma(path, labels=(0, 500), rows=4000, units=None) -> turbidite.Dataset:
    """Particles at uniform places, whose energies grow with the epoch."""
    epochs = {}
    for label in labels:
        random = numpy.random.default_rng(label)
        epochs[label] = {
            "energy": random.exponential(1 + label / 500, rows),
            "x": random.random(rows).astype("f4"),
            "cell": random.integers(0, 101, rows).astype("i4"),
            "w": random.exponential(size=rows).astype("f4"),
        }
    return write(path, epochs, units)


def rows_of(dataset: turbidite.Dataset, label: int) -> dict[str, numpy.ndarray]:
    return {name: array.astype("f8") for name, array in dataset.query(epochs=label).to_numpy().items()}


def steps(ax) -> list[StepPatch]:
    return [patch for patch in ax.patches if isinstance(patch, StepPatch)]


def lines(ax) -> list[StepPatch]:
    return [patch for patch in steps(ax) if not patch.get_fill()]


def bands(ax) -> list[StepPatch]:
    return [patch for patch in steps(ax) if patch.get_fill()]


def entries(ax) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def colors(ax) -> list[str]:
    return [to_hex(line.get_edgecolor()) for line in lines(ax)]


def words(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


# Numbers


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), sizes=st.lists(st.sampled_from([0, 1, 40, 2000]), min_size=1, max_size=3), log=st.booleans())
def test_spectra_and_profiles_equal_numpy(tmp_path_factory, seed, sizes, log):
    random = numpy.random.default_rng(seed)
    epochs = {}
    for label, size in enumerate(sizes):
        energies = random.choice(WILD + random.normal(size=6).tolist(), size)
        epochs[label] = {"energy": energies, "w": random.normal(size=size), "v": random.normal(size=size) + 5}
    dataset = write(tmp_path_factory.mktemp("spectra") / "d.tbd", epochs)
    options = {"bins": 7, "log": log} | ({"range": (0.3, 2.0)} if random.random() < 0.5 else {})
    weighted = dataset.spectrum("energy", weights="w", **options)
    plain = dataset.spectrum("ENERGY", per_width=False, where="v > 5", **options)
    profile = dataset.profile("v", "energy", weights="w * w", **options)
    for found in (weighted, plain, profile):
        assert found.epochs == tuple(epochs) and found.counts.shape == (len(epochs), max(len(found.x.edges) - 1, 0))
        found.plot()
    pyplot.close("all")
    assert weighted.rows == sum(sizes) and weighted.outside == weighted.rows - weighted.counts.sum()
    everything = numpy.concatenate([one["energy"] for one in epochs.values()])
    usable = everything[numpy.isfinite(everything) & ((everything > 0) | (not log))]
    if len(weighted.x.edges) and "range" not in options and usable.min() < usable.max():
        assert (weighted.x.edges[0], weighted.x.edges[-1]) == (usable.min(), usable.max())
        expected = numpy.geomspace if log else numpy.linspace
        assert numpy.allclose(weighted.x.edges, expected(usable.min(), usable.max(), 8), rtol=1e-12, atol=1e-12)
    for number, rows in enumerate(epochs.values()):
        compare_epoch(number, rows, weighted, plain, profile)


def compare_epoch(number: int, rows, weighted, plain, profile) -> None:
    energy, w, v = rows["energy"], rows["w"], rows["v"]
    if len(weighted.x.edges):
        edges, inside = weighted.x.edges, numpy.isfinite(energy)
        widths = numpy.diff(edges)
        sums = numpy.histogram(energy[inside], edges, weights=w[inside])[0] / widths
        squares = numpy.histogram(energy[inside], edges, weights=w[inside] ** 2)[0]
        assert numpy.allclose(weighted.values[number], sums, rtol=1e-11, atol=1e-11)
        assert numpy.allclose(weighted.errors[number], numpy.sqrt(squares) / widths, rtol=1e-11, atol=1e-11)
        bin_of = numpy.digitize(energy, edges) - 1
        bin_of[energy == edges[-1]] = len(widths) - 1
        for place in range(len(widths)):
            compare_bin(v[bin_of == place], w[bin_of == place] ** 2, profile, number, place)
    if len(plain.x.edges):
        chosen = numpy.isfinite(energy) & (v > 5)
        counts = numpy.histogram(energy[chosen], plain.x.edges)[0]
        assert numpy.array_equal(plain.values[number], counts) and numpy.allclose(plain.errors[number], numpy.sqrt(counts))


def compare_bin(values, weights, profile, number: int, place: int) -> None:
    found = profile.means[number, place], profile.stds[number, place], profile.errors[number, place]
    if not len(values):
        assert numpy.isnan(found).all()
        return
    mean = numpy.average(values, weights=weights)
    std = numpy.sqrt(numpy.average((values - mean) ** 2, weights=weights))
    error = std * numpy.sqrt((weights**2).sum()) / weights.sum()
    assert numpy.allclose(found, (mean, std, error), rtol=1e-9, atol=1e-7)


def test_bins_of_integers_have_as_many_integers_each(tmp_path):
    cells = numpy.arange(101, dtype="i4").repeat(7)
    dataset = write(tmp_path / "d.tbd", {1: {"cell": cells, 'odd "name"': cells.astype("u8") * 2**40}})
    found = dataset.spectrum("cell", bins=30)
    # 101 integers in at most 30 bins: 26 bins of four, the last of which has one.
    assert numpy.array_equal(found.x.edges, numpy.arange(0, 105, 4.0))
    assert found.values[0].tolist() == [7.0] * 25 + [7 / 4] and found.outside == 0
    assert dataset.spectrum('odd "name"', bins=1, per_width=False).values.tolist() == [[707]]
    assert dataset.spectrum("cell * 2.0", bins=10, range=(0, 100)).counts.sum() == 51 * 7


def test_requests_that_make_no_sense_are_refused(tmp_path):
    dataset = plasma(tmp_path / "d.tbd", (0,), 50)
    for options in (
        {"bins": 0}, {"bins": [1, 2]}, {"range": 5}, {"range": (2, 1)}, {"range": (0, numpy.inf)}, {"log": True, "range": (0, 1)},
        {"log": "yes"}, {"weights": 5}, {"weights": "nothing"}, {"where": "energy >"}, {"per_width": 1},
    ):  # fmt: skip
        with pytest.raises(turbidite.UsageError):
            dataset.spectrum("energy", **options)
    with pytest.raises(turbidite.UsageError):
        dataset.profile("energy", "nothing")


# Pictures


def test_curves_of_one_call_are_the_epochs(tmp_path):
    dataset = plasma(tmp_path / "d.tbd", (0, 500, 1000), units={"energy": "MeV", "w": "C"})
    found = dataset.spectrum("energy", bins=20, log=True, weights="w")
    ax = found.plot()
    assert len(set(colors(ax))) == 3 and entries(ax) == ["epoch 0", "epoch 500", "epoch 1000"]
    assert ax.get_legend().get_title().get_text() == "bands: ± one standard error"
    for number, (line, band) in enumerate(zip(lines(ax), bands(ax), strict=True)):
        value, error = found.values[number], found.errors[number]
        assert numpy.array_equal(line.get_data().values, value) and numpy.array_equal(line.get_data().edges, found.x.edges)
        assert numpy.array_equal(band.get_data().values, value + error) and numpy.array_equal(band.get_data().baseline, value - error)
        assert to_hex(band.get_facecolor()) == to_hex(line.get_edgecolor())
    assert (ax.get_xscale(), ax.get_yscale(), ax.get_xlabel()) == ("log", "log", "energy (MeV)")
    assert ax.get_ylabel() == "d(w)/d(energy) (C/MeV)" and ax.get_title() == "3 epochs, 0 to 1000"
    least, most = ax.get_ylim()
    assert 0 < least < found.values[found.values > 0].min() and most > (found.values + found.errors).max()


def test_curves_of_several_calls_share_a_legend(tmp_path):
    one, other = plasma(tmp_path / "one.tbd"), plasma(tmp_path / "other.tbd")
    _, ax = pyplot.subplots()
    for dataset in (one, other):
        dataset.spectrum("energy", epochs=500, bins=20, range=(0, 4)).plot(ax)
    one.spectrum("energy", epochs=500, bins=30, where="x > 0.5").plot(ax)
    one.spectrum("energy", bins=30, weights="w").plot(ax, label="charge")
    one.histogram("energy", epochs=500, range=(0, 9)).plot(ax)
    assert len(set(colors(ax))) == len(colors(ax)) == 6
    names = ["epoch 500", "epoch 500, other.tbd", "epoch 500, x > 0.5", "charge, epoch 0", "charge, epoch 500"]
    assert entries(ax) == [*names, "epoch 500, rows per bin"]
    assert len([child for child in ax.get_children() if isinstance(child, matplotlib.legend.Legend)]) == 1
    assert ax.get_legend().get_title().get_text() == "bands: ± one standard error"
    # The axes have all curves, and the labels all quantities. Titles have what is not drawn, and no epoch of the last call.
    edges = numpy.concatenate([line.get_data().edges for line in lines(ax)])
    assert ax.get_xlim() == (edges.min(), edges.max())
    assert ax.get_ylabel() == "dN/d(energy); d(w)/d(energy); rows per bin" and "epoch" not in ax.get_title()
    assert ax.get_title().count("not drawn") >= 2


def test_many_epochs_have_a_colour_bar(tmp_path):
    labels = tuple(range(0, 2000, 100))
    dataset = plasma(tmp_path / "d.tbd", labels, 300)
    ax = dataset.spectrum("energy", bins=10, range=(0, 5)).plot()
    assert len(set(colors(ax))) == 20 and not bands(ax) and ax.get_legend() is None
    [_, bar] = ax.figure.axes
    assert bar.get_ylabel() == "epoch" and bar.get_ylim() == (0, 1900)
    # As many calls have as many colours, and a legend.
    _, ax = pyplot.subplots()
    for label in labels:
        dataset.spectrum("energy", epochs=label, bins=10, range=(0, 5)).plot(ax)
    assert len(set(colors(ax))) == 20 and len(entries(ax)) == 20
    profile = dataset.profile("energy", "x", bins=5).plot()
    assert len(lines(profile)) == 20 and not profile.containers


def test_error_bars_of_profiles_are_those_of_numpy(tmp_path):
    dataset = plasma(tmp_path / "d.tbd", (500,), units={"energy": "J"})
    ax = dataset.profile("energy", "x", bins=10, range=(0, 1)).plot(units={"energy": "keV"})
    rows, scale = rows_of(dataset, 500), 1 / 1.602176634e-16
    [bars] = [child for child in ax.collections if isinstance(child, LineCollection)]
    [line], [band] = lines(ax), bands(ax)
    for place, segment in enumerate(bars.get_segments()):
        chosen = rows["energy"][(rows["x"] >= line.get_data().edges[place]) & (rows["x"] < line.get_data().edges[place + 1])] * scale
        error = chosen.std() / numpy.sqrt(len(chosen))
        assert numpy.allclose(segment[:, 1], [chosen.mean() - error, chosen.mean() + error], rtol=1e-9)
        assert numpy.allclose(segment[:, 0], place / 10 + 0.05)
        assert numpy.isclose(band.get_data().values[place] - band.get_data().baseline[place], 2 * chosen.std(), rtol=1e-9)
    assert ax.get_ylabel() == "mean of energy (keV)" and ax.get_xlabel() == "x"
    assert ax.get_legend().get_title().get_text() == "bands: ± one standard deviation"


def test_a_uniform_plasma_looks_uniform(tmp_path):
    dataset = plasma(tmp_path / "d.tbd", (0,), 40_000)
    for column, bins in (("x", 25), ("cell", 17)):
        ax = dataset.spectrum(column, bins=bins).plot()
        [line] = lines(ax)
        values = line.get_data().values[:-1]
        low, high = ax.get_ylim()
        # The bins differ by their noise, and the axis does not magnify it.
        assert ax.get_yscale() == "linear" and low == 0 and numpy.ptp(values) < 0.2 * high


@pytest.mark.parametrize("weight", [0.0, -1.0, numpy.nan, numpy.inf, 1e300])
@pytest.mark.parametrize("log", [False, True])
def test_odd_weights_can_be_drawn(tmp_path, weight, log):
    rows = {"energy": numpy.linspace(0.1, 9, 60), "w": numpy.full(60, weight)}
    dataset = write(tmp_path / "d.tbd", {1: rows, 2: {"energy": numpy.zeros(0), "w": numpy.zeros(0)}})
    ax = dataset.spectrum("energy", bins=5, log=log, weights="w").plot()
    # Without weights the rows are uniform.
    assert ax.get_yscale() == "linear" and ax.get_xscale() == ("log" if log else "linear")
    low, high = ax.get_ylim()
    assert (low < 0 <= high) if weight == -1 else (low == 0 < high)
    [line, *_] = lines(ax)
    assert numpy.isfinite(line.get_data().values).all() == numpy.isfinite(weight)
    dataset.profile("energy", "energy", bins=5, log=log, weights="w").plot()


@pytest.mark.parametrize("value", [0.0, -3.5, 1e300, 5e-324, numpy.nan, numpy.inf])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_little_data_can_be_drawn(tmp_path, value, rows):
    dataset = write(tmp_path / "d.tbd", {1: {"x": numpy.full(rows, value), "n": numpy.full(rows, 7, "i8")}})
    for found in (
        dataset.spectrum("x", bins=4),
        dataset.spectrum("n"),
        dataset.profile("n", "x"),
        dataset.spectrum("x", where="n > 9"),
    ):
        ax = found.plot()
        assert ("no rows" in words(ax)) == (len(found.x.edges) == 0)
        assert found.counts.sum() + found.outside == found.rows and len(repr(found)) < SCREEN
    assert dataset.spectrum("x", bins=4).counts.sum() == (rows if numpy.isfinite(value) else 0)
    dataset.movie("x", "n", tmp_path / "movie.gif", bins=4)
    assert len(frames(tmp_path / "movie.gif")) == 1


def test_bins_with_open_bounds_are_bands(tmp_path):
    dataset = plasma(tmp_path / "d.tbd", (0,))
    histogram = dataset.histogram("x", bins=10, range=(0, 1), source="bounds")
    is_open = histogram.least < histogram.most
    assert histogram.source == "bounds" and is_open.any()
    ax = histogram.plot()
    [line], [band] = lines(ax), bands(ax)
    assert numpy.array_equal(numpy.isnan(line.get_data().values), is_open)
    assert numpy.array_equal(band.get_data().values, histogram.most) and numpy.array_equal(band.get_data().baseline, histogram.least)
    assert ax.get_legend().get_title().get_text() == "bands: guaranteed bounds"


@pytest.mark.parametrize("layout", [None, "constrained"])
@pytest.mark.parametrize("size", [(12, 3), (9, 5)])
def test_colour_bars_collide_with_nothing(tmp_path, layout, size):
    dataset = plasma(tmp_path / "d.tbd")
    figure, axes = pyplot.subplots(1, 3, figsize=size, layout=layout)
    for ax in axes:
        dataset.phase_space("x", "energy", bins=20, weights="w", epochs=0).plot(ax)
        # A second bar, of the same axes.
        dataset.tracks(of="energy > 2", at=0, id="cell").plot("x", "energy", color="w", ax=ax)
    for ax in axes:
        # Titles may be wider than narrow axes.
        ax.set_title("")
    figure.canvas.draw()
    found = [ax.get_tightbbox() for ax in figure.axes]
    assert len(found) == 9 and all(box.x1 <= figure.bbox.x1 + 1 for box in found)
    for number, box in enumerate(found):
        for other in found[:number]:
            width, height = min(box.x1, other.x1) - max(box.x0, other.x0), min(box.y1, other.y1) - max(box.y0, other.y0)
            assert width < 1 or height < 1, (box, other)


def test_units_are_those_of_physicists(tmp_path):
    momenta = numpy.linspace(-3, 3, 200) * ELECTRON * LIGHT
    rows = {"momentum_x": momenta, "z": numpy.linspace(0, 50, 200), "q": numpy.linspace(1, 2, 200), "id": numpy.arange(200)}
    units = {"momentum_x": "kg m s^-1", "z": "1e-06 m", "q": "mc"}
    dataset = write(tmp_path / "d.tbd", {1: rows, 2: rows}, units)
    space = dataset.phase_space("z", "momentum_x", bins=10)
    ax = space.plot(units={"momentum_x": "m_e c"})
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("z (µm)", r"momentum_x ($m_e\,c$)")
    assert numpy.allclose(ax.get_ylim(), (-3, 3), rtol=1e-9) and ax.get_xlim() == (0, 50)
    assert space.plot().get_ylabel() == r"momentum_x ($\mathrm{kg}\,\mathrm{m}\,\mathrm{s}^{-1}$)"
    ax = dataset.tracks(of="id < 9", at=1, id="id").plot("z", "momentum_x", color="q", units={"momentum_x": "MeV/c", "z": "mm", "q": "m_e c"})
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("z (mm)", r"momentum_x ($\mathrm{MeV}/c$)")
    [segments] = [child.get_segments() for child in ax.collections if isinstance(child, LineCollection)]
    assert numpy.allclose(segments[0][0][1], -3 * 0.51099895, rtol=1e-8) and ax.figure.axes[1].get_ylabel() == r"q ($m_e\,c$)"
    spectrum = dataset.spectrum("momentum_x", bins=10, epochs=1)
    ax = spectrum.plot(units={"momentum_x": "m_e c"})
    assert ax.get_ylabel() == r"dN/d(momentum_x) (1/($m_e\,c$))"
    # The integral does not depend on the unit.
    [line] = lines(ax)
    assert numpy.isclose((line.get_data().values * numpy.diff(line.get_data().edges)).sum(), 200)
    for wrong in ({"momentum_x": "m"}, {"momentum_x": "something"}, {"other": "m"}):
        with pytest.raises(turbidite.UsageError, match="units"):
            space.plot(units=wrong)


# Movies


def frames(path) -> list[numpy.ndarray]:
    found = []
    with Image.open(path) as image:
        for number in range(image.n_frames):
            image.seek(number)
            found.append(numpy.asarray(image.convert("RGB")).astype("i2"))
    return found


def test_a_movie_has_a_frame_for_each_epoch(tmp_path):
    dataset = plasma(tmp_path / "d.tbd", (0, 500, 1000, 1500))
    told = []
    dataset.progress = lambda done, total: told.append((done, total))
    path = dataset.movie("x", "energy", tmp_path / "movie.gif", bins=(20, 30), weights="w", units={"energy": "MeV"})
    dataset.progress = False
    assert path == str(tmp_path / "movie.gif") and [one.name for one in tmp_path.glob("*movie*")] == ["movie.gif"]
    assert told == [(done, 8) for done in range(1, 9)]
    with Image.open(path) as image:
        assert (image.info["loop"], image.info["duration"]) == (0, 200)
    found = frames(path)
    assert len(found) == 4
    assert all((one != other).any() for number, one in enumerate(found) for other in found[:number])
    # Ticks, labels and the colour bar stay: everything outside of the axes, below the title.
    height, width, _ = found[0].shape
    for frame in found[1:]:
        same = (frame == found[0]).all(axis=2)
        assert same[int(0.93 * height) :].all() and same[int(0.1 * height) :, : int(0.05 * width)].all()
        assert same[int(0.1 * height) :, int(0.87 * width) :].all()
    page = dataset.movie("x", "energy", tmp_path / "movie.html", bins=5, epochs=[500, 0], frames_per_second=10)
    assert (tmp_path / "movie.html").read_text().count("data:image/png;base64") == 2 and page.endswith(".html")


def test_a_value_has_one_colour_in_all_frames(tmp_path):
    """The colours are those that matplotlib's picture of the same arrays has."""
    grid = numpy.stack(numpy.meshgrid(numpy.arange(4.0), numpy.arange(4.0)), axis=-1).reshape(-1, 2) + 0.5
    counts = {1: 5, 2: 5, 3: 50}
    rows = {label: {"x": grid[:, 0].repeat(many), "y": grid[:, 1].repeat(many)} for label, many in counts.items()}
    dataset = write(tmp_path / "d.tbd", rows)
    dataset.movie("x", "y", tmp_path / "m.gif", bins=4, range=((0, 4), (0, 4)))
    norm = matplotlib.colors.LogNorm(1, 50)
    for frame, many in zip(frames(tmp_path / "m.gif"), counts.values(), strict=True):
        expected = 255 * numpy.array(matplotlib.colormaps["viridis"](norm(many)))[:3]
        height, width, _ = frame.shape
        inside = frame[int(0.2 * height) : int(0.8 * height), int(0.2 * width) : int(0.7 * width)].reshape(-1, 3)
        assert (inside == inside[0]).all() and abs(inside[0] - expected).max() <= 4


def test_equal_values_have_equal_colours_beside_any_others(tmp_path):
    cells = numpy.arange(400)
    rows = {}
    for label, counts in {1: cells + 1, 2: numpy.where(cells < 100, cells + 1, 400)}.items():
        rows[label] = {"x": (cells // 20 + 0.5).repeat(counts), "y": (cells % 20 + 0.5).repeat(counts)}
    dataset = write(tmp_path / "d.tbd", rows)
    dataset.movie("x", "y", tmp_path / "m.gif", bins=20, range=((0, 20), (0, 20)))
    one, other = frames(tmp_path / "m.gif")
    height, width, _ = one.shape
    left = slice(int(0.15 * height), int(0.85 * height)), slice(int(0.08 * width), int(0.24 * width))
    assert numpy.array_equal(one[left], other[left]) and not numpy.array_equal(one, other)


def test_axes_have_the_rows_of_all_epochs(tmp_path):
    rows = {label: {"x": numpy.linspace(0, label, 400), "y": numpy.tile(numpy.linspace(0, 1, 20), 20)} for label in (1, 2)}
    write(tmp_path / "d.tbd", rows).movie("x", "y", tmp_path / "m.gif", bins=10)
    one, other = frames(tmp_path / "m.gif")
    height, width, _ = one.shape
    right = slice(int(0.2 * height), int(0.8 * height)), slice(int(0.6 * width), int(0.8 * width))
    assert (one[right] > 250).all() and not (other[right] > 250).all()


def title_lines(frame: numpy.ndarray) -> int:
    """The number of lines of text above the axes."""
    # Numbers beside the axes reach above them.
    dark = (frame < 128).all(axis=2)[:, int(0.2 * frame.shape[1]) : int(0.7 * frame.shape[1])]
    top = int(numpy.flatnonzero(dark.mean(axis=1) > 0.5)[0])
    ink = dark[:top].any(axis=1)
    assert not ink[0], "the title is within the figure"
    return int((ink[1:] & ~ink[:-1]).sum())


def test_titles_of_frames_have_what_is_not_drawn(tmp_path):
    rows = {label: {"x": numpy.linspace(0, label, 50), "y": numpy.linspace(0, 1, 50)} for label in (1, 2)}
    dataset = write(tmp_path / "d.tbd", rows)
    ranges = ((0, 1), (0, 1))
    for where, lines_of_all in ((None, [1, 2]), ("y < 5", [2, 3])):
        dataset.movie("x", "y", tmp_path / "m.gif", bins=5, range=ranges, where=where)
        assert [title_lines(frame) for frame in frames(tmp_path / "m.gif")] == lines_of_all


def test_movies_that_make_no_sense_are_refused(tmp_path):
    dataset = plasma(tmp_path / "d.tbd", (0, 500), 50)
    for arguments in (
        {"path": "movie.mp4"}, {"path": "movie"}, {"frames_per_second": 0}, {"frames_per_second": "5"}, {"epochs": []}, {"bins": 0},
        {"units": {"other": "m"}}, {"where": "x >"},
    ):  # fmt: skip
        with pytest.raises(turbidite.UsageError):
            dataset.movie("x", "energy", **{"path": tmp_path / "movie.gif", **arguments})
    with pytest.raises(turbidite.OperationError):
        dataset.movie("x", "energy", tmp_path / "movie.gif", epochs=7)

    def interrupt(done, total):
        if done == total - 1:
            raise KeyboardInterrupt

    dataset.progress = interrupt
    for name in ("movie.gif", "movie.html"):
        (tmp_path / name).write_text("before")
        with pytest.raises(KeyboardInterrupt):
            dataset.movie("x", "energy", tmp_path / name)
        assert (tmp_path / name).read_text() == "before" and len(list(tmp_path.glob("*movie*"))) == 1
        (tmp_path / name).unlink()


# Texts


def test_texts_of_objects_are_a_screen_at_most(tmp_path):
    columns = {f"a_rather_long_name_of_column_{number}": numpy.arange(3.0) for number in range(2000)}
    wide = write(tmp_path / "wide.tbd", {1: columns})
    name = next(iter(columns))
    many = write(tmp_path / "many.tbd", {label: {"x": numpy.arange(3.0), "id": numpy.arange(3)} for label in range(300)})
    names = {f"aggregate number {number}": "count()" for number in range(3000)}
    ids = many.aggregate({"n": "count()"}, by=["epoch", "id"])
    objects = [
        wide, wide.schema, wide.query(), wide.query(columns=list(columns)), wide.query(" or ".join(f"{one} > 1" for one in columns)),
        wide.spectrum(" + ".join(list(columns)[:200])), wide.histogram(name), wide.histogram(name).x,
        wide.aggregate(names), wide.aggregate({"n" * 5000: "count()"}),
        many, many.query(epochs=list(range(1200))), many.tracks(ids=list(range(10**5)), id="id"), many.tracks(of="x > 1", at=3, id="id"),
        many.histogram("x", bins=1000), many.phase_space("x", "id"), many.spectrum("x", bins=800), many.profile("x", "id"), ids,
        many.quantiles("x", 0.5), many.head(),
    ]  # fmt: skip
    for one in objects:
        shown = repr(one)
        assert len(shown) <= SCREEN and shown.count("\n") < 24, shown[:200]
    assert repr(many).endswith("300 epochs, key x; x f64, id i64>") and "100,000 ids" in repr(many.tracks(ids=list(range(10**5)), id="id"))
    many.indexes.add("id")
    index = many.indexes["id"]
    assert "<Index" in repr(index) and len(repr(many.indexes)) < SCREEN
    for one in (wide, wide.schema, wide.query(columns=list(columns)), wide.aggregate(names), many, ids):
        assert one._repr_html_().count("<tr>") < 70
