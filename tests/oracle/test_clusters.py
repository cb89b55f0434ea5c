"""Random boxes in three dimensions against NumPy, of places that no simulation's grid has: blobs, planes, filaments, an outlier
at 1e30, and coordinates that are infinite or NaN. Half of the boxes are periodic, and half have a predicate."""

from dataclasses import dataclass
from fractions import Fraction

import numpy
import pytest
import turbidite

from support import raw
from support.command import turbidite as command
from support.sweeps import IS_WHOLE, taken

ROWS, EPOCHS, BOXES = 20_000, (1, 2), 200
RECORD = numpy.dtype([("id", "<u8"), ("x", "<f4"), ("y", "<f8"), ("z", "<f4"), ("energy", "<f4"), ("kind", "<i4")])
AXES = ("x", "y", "z")
BLOB, PLANE, FILAMENT, EDGE = range(4)
# Coordinates, bounds and periods are multiples of this, so that their sums are exact in the columns' types.
GRID = 2.0**-14
PREDICATES = {
    "energy > 1.5": lambda rows: rows["energy"] > numpy.float32(1.5),
    "kind = 2 OR energy < 0.1": lambda rows: (rows["kind"] == FILAMENT) | (rows["energy"] < numpy.float32(0.1)),
    "NOT (z > 0) AND id % 3 = 1": lambda rows: ~(rows["z"] > 0) & (rows["id"] % 3 == 1),
    "y - x > 2": lambda rows: rows["y"] - rows["x"].astype("f8") > 2,
}


def on_grid(values: numpy.ndarray) -> numpy.ndarray:
    return numpy.round(values / GRID) * GRID


def draw_records(epoch: int) -> numpy.ndarray:
    random = numpy.random.default_rng(epoch)
    rows = numpy.empty(ROWS, RECORD)
    rows["id"] = random.permutation(ROWS)
    rows["energy"] = random.exponential(size=ROWS)
    rows["kind"] = random.choice(4, ROWS, p=[0.5, 0.25, 0.24, 0.01])
    centres = random.uniform(-30, 30, (8, 3))
    places = centres[random.integers(8, size=ROWS)] + random.normal(size=(ROWS, 3)) * random.choice([0.01, 0.3, 3], (ROWS, 1))
    plane, filament = rows["kind"] == PLANE, rows["kind"] == FILAMENT
    places[plane] = random.uniform(-30, 30, (plane.sum(), 3))
    places[plane, 2] = 7.5
    turns = random.uniform(0, 6, filament.sum())
    places[filament] = numpy.stack([10 * numpy.cos(turns), 10 * numpy.sin(turns), 9 * turns - 27], axis=1)
    places[filament] += random.normal(size=(filament.sum(), 3)) / 100
    places = on_grid(places)
    edge = numpy.flatnonzero(rows["kind"] == EDGE)
    strange = numpy.array([numpy.nan, numpy.inf, -numpy.inf, 0.0, -0.0, 1e-30])
    places[edge, random.integers(3, size=len(edge))] = random.choice(strange, len(edge))
    places[edge[0]] = 1e30
    for axis, name in enumerate(AXES):
        rows[name] = places[:, axis]
    return rows


@pytest.fixture(scope="module")
def epochs() -> dict[int, numpy.ndarray]:
    return {epoch: draw_records(epoch) for epoch in EPOCHS}


@pytest.fixture(scope="module", params=["energy", "x", "hash:id", "space:x,y,z"])
def dataset(request, epochs, scratch) -> turbidite.Dataset:
    """Clustered by a column that is no coordinate, by one that is, by neither, and by space; in many row groups and pages."""
    name = request.param.replace(":", "-")
    raw.write_source(scratch / f"{name}-source", {epoch: numpy.array_split(rows, 4) for epoch, rows in epochs.items()})
    small = ("--ranks", 4, "--memtable", "64KiB", "--page-rows", 128)
    command(*raw.ingest_arguments(scratch / f"{name}-source", scratch / f"{name}.tbd", request.param, *small))
    return turbidite.open(scratch / f"{name}.tbd")


def between(values: numpy.ndarray, low: float | None, high: float | None) -> numpy.ndarray:
    inside = ~numpy.isnan(values)
    if low is not None:
        inside &= values >= low
    return inside & (values < high) if high is not None else inside


def in_period(values: numpy.ndarray, low: float, high: float, period: float) -> numpy.ndarray:
    """Exact: by sums on the grid, and one value after the other in fractions where it lies elsewhere."""
    inside = numpy.zeros(len(values), bool)
    near = numpy.abs(values) < 1000
    wide = values[near].astype("f8")
    shifts = numpy.floor((low - wide) / period).astype("i8")
    for more in range(-1, 2):
        moved = wide + (shifts + more) * period
        inside[near] |= (moved >= low) & (moved < high)
    exact = numpy.flatnonzero(numpy.isfinite(values) & (~near | (values != on_grid(values))))
    for place in exact:
        distance = (Fraction(float(values[place])) - Fraction(low)) % Fraction(period)
        inside[place] = distance < Fraction(high) - Fraction(low)
    return inside


@dataclass(frozen=True)
class Drawn:
    """A random box."""

    box: dict[str, tuple[float | None, float | None]]
    period: dict[str, float]

    def mask(self, rows: numpy.ndarray) -> numpy.ndarray:
        inside = numpy.ones(len(rows), bool)
        for axis, (low, high) in self.box.items():
            if axis in self.period and low is not None:
                inside &= in_period(rows[axis], low, high, self.period[axis])
            else:
                inside &= between(rows[axis], low, high)
        return inside


def draw(random: numpy.random.Generator, rows: numpy.ndarray, is_periodic: bool) -> Drawn:
    """A box around a record, or around the outlier, with sides of very different widths, some of them open."""
    box, period = {}, {}
    finite = rows[numpy.isfinite(rows["x"]) & numpy.isfinite(rows["y"]) & numpy.isfinite(rows["z"])]
    middle = random.choice(finite)
    for axis in AXES:
        centre = float(middle[axis]) if abs(middle[axis]) < 1000 else 0.0
        width = float(10 ** random.uniform(-0.5, 1.7))
        low = float(on_grid(numpy.float64(centre - width * random.random())))
        high = float(on_grid(numpy.float64(centre + width * random.random()))) + GRID
        if is_periodic and random.random() < 0.7:
            period[axis] = float(random.choice([4.0, 10.0, 12.5, 64.0]))
            # Any image of the box is the box.
            turns = int(random.integers(-3, 4))
            low, high = low + turns * period[axis], high + turns * period[axis]
        if random.random() < 0.2:
            low, high = (None, None) if axis in period else [(None, high), (low, None), (None, None)][random.integers(3)]
        box[axis] = (low, high)
    return Drawn(box, period)


@pytest.mark.parametrize("is_periodic", [False, True])
def test_random_boxes_of_clusters_match_a_full_scan(dataset, epochs, is_periodic):
    random = numpy.random.default_rng(35 + is_periodic)
    sizes = []
    labels = [EPOCHS[number % len(EPOCHS)] for number in range(BOXES // 2)]
    cases = [(number, label, draw(random, epochs[label], is_periodic)) for number, label in enumerate(labels)]
    for number, label, drawn in taken(cases, 4):
        rows = epochs[label]
        mask = drawn.mask(rows)
        where = list(PREDICATES)[number // 2 % len(PREDICATES)] if number % 2 else None
        if where:
            with numpy.errstate(invalid="ignore"):
                mask &= PREDICATES[where](rows)
        query = dataset.query(where, box=drawn.box, period=drawn.period or None, epochs=label, columns=[*RECORD.names])
        what = f"box {number}: {drawn}, where {where}, epoch {label}"
        found = query.to_numpy()
        order, expected = numpy.argsort(found["id"]), numpy.sort(rows[mask], order="id")
        for name in RECORD.names:
            assert found[name][order].tobytes() == expected[name].tobytes(), what
        assert query.count() == len(expected), what
        shared = [piece.count() for rank in range(3) for piece in dataset.share(rank, 3, query)]
        assert sum(shared) == len(expected), what
        sizes.append(len(expected))
    sizes = numpy.array(sizes)
    print(f"{len(sizes)} boxes, {(sizes == 0).sum()} empty, median {numpy.median(sizes):.0f} rows, most {sizes.max()}")
    assert (sizes > 0).sum() > len(sizes) / 2
    assert not IS_WHOLE or (sizes > ROWS / 50).sum() >= 5 and (sizes < ROWS / 500).sum() >= 5


def test_strange_coordinates_are_in_the_boxes_that_the_language_defines(dataset, epochs):
    rows = epochs[1]
    outlier = rows["x"] == numpy.float32(1e30)
    assert outlier.sum() == 1 and all(numpy.isnan(rows[axis]).any() and numpy.isinf(rows[axis]).any() for axis in AXES)
    count = lambda **options: dataset.query(epochs=1, **options).count()
    assert count(box={"x": (1e29, None)}) == (outlier | (rows["x"] == numpy.inf)).sum()
    assert count(box={"x": (1e29, 2e30), "y": (1e29, 2e30), "z": (1e29, 2e30)}) == 1
    for axis in AXES:
        assert count(box={axis: (None, None)}) == (~numpy.isnan(rows[axis])).sum()
        # A whole period contains every finite coordinate.
        assert count(box={axis: (0, 8)}, period={axis: 8}) == numpy.isfinite(rows[axis]).sum()
        halves = [count(box={axis: (low, low + 4)}, period={axis: 8}) for low in (0, 4)]
        assert sum(halves) == numpy.isfinite(rows[axis]).sum()
