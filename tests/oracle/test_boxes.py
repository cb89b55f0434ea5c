"""Random boxes of particles' positions, in periodic domains and others, against a full scan of the dumps in NumPy."""

from dataclasses import dataclass

import numpy
import pytest
import turbidite

from support import vpic
from support.command import USAGE, answer
from support.command import turbidite as command
from support.predicates import Generator
from support.sweeps import IS_WHOLE, taken

BOXES = 120
AXES = ("x", "y", "z")
# The domain of the run: its lowest corner, and its size.
CORNER, SIZE = {"x": 0.0, "y": -0.5, "z": -32.0}, {"x": 128.0, "y": 1.0, "z": 64.0}
DERIVATIONS = [
    *vpic.DERIVATIONS,
    "y=header.y0+(floor(i/(header.nx+2))%(header.ny+2)-1+(dy+1)/2)*header.dy",
    "z=header.z0+(floor(i/((header.nx+2)*(header.ny+2)))-1+(dz+1)/2)*header.dz",
]


def placed(path) -> numpy.ndarray:
    """The particles of a dump with the positions that its README defines."""
    rows = vpic.read_dump(path)
    fields = vpic.HEADER.unpack_from(path.read_bytes())
    nx, ny = fields[12:14]
    (dy, dz), (y0, z0) = fields[17:19], fields[20:22]
    cell = rows["i"].astype("f8")
    out = numpy.empty(len(rows), numpy.dtype(rows.dtype.descr + [("y", "<f4"), ("z", "<f4")]))
    for name in rows.dtype.names:
        out[name] = rows[name]
    out["y"] = y0 + (cell // (nx + 2) % (ny + 2) - 1 + (rows["dy"].astype("f8") + 1) / 2) * dy
    out["z"] = z0 + (cell // ((nx + 2) * (ny + 2)) - 1 + (rows["dz"].astype("f8") + 1) / 2) * dz
    return out


@pytest.fixture(scope="module")
def epochs(dumps) -> dict[int, numpy.ndarray]:
    folders = {int(folder.name[2:]): folder for folder in dumps.glob("T.*")}
    return {step: numpy.concatenate([placed(path) for path in sorted(folders[step].iterdir())]) for step in sorted(folders)}


@pytest.fixture(scope="module", params=["energy", "z", "space:x,y,z"])
def dataset(request, dumps, scratch) -> turbidite.Dataset:
    """The run clustered by a column that is no coordinate, by one that is, and by space."""
    path = scratch / f"{request.param.replace(':', '-')}.tbd"
    turbidite.ingest(dumps, path, key=request.param, derive=DERIVATIONS, ranks=4)
    return turbidite.open(path)


@dataclass(frozen=True)
class Drawn:
    """A random box, and what it contains according to NumPy."""

    box: dict[str, tuple[float | None, float | None]]
    period: dict[str, float]

    def mask(self, rows: numpy.ndarray) -> numpy.ndarray:
        inside = numpy.ones(len(rows), bool)
        for axis, (low, high) in self.box.items():
            # Products of a period are exact in this type, as are their sums with an f32.
            values = rows[axis].astype(numpy.longdouble)
            low, high = (None if end is None else numpy.longdouble(numpy.float32(end)) for end in (low, high))
            if axis not in self.period:
                inside &= ~numpy.isnan(values) if low is None else values >= low
                inside &= numpy.ones(len(rows), bool) if high is None else values < high
                continue
            shifts = (turns * numpy.longdouble(self.period[axis]) for turns in range(-4, 5))
            inside &= numpy.any([(values + shift >= low) & (values + shift < high) for shift in shifts], axis=0)
        return inside


def draw(random: numpy.random.Generator, rows: numpy.ndarray) -> Drawn:
    """A box around a particle, with sides of very different widths, some of them open or across a boundary."""
    box, period = {}, {}
    for axis in random.permutation(AXES)[: random.integers(1, 4)].tolist():
        width = float(SIZE[axis] * 10 ** random.uniform(-3, 0.2))
        middle = float(random.choice(rows[axis]))
        low, high = middle - width * float(random.random()), middle + width * float(random.random()) + width / 64
        if random.random() < 0.5:
            period[axis] = SIZE[axis]
            turns = int(random.integers(-2, 3)) * SIZE[axis]
            low, high = low + turns, high + turns
        elif random.random() < 0.3:
            low, high = [(None, high), (low, None), (None, None)][random.integers(3)]
        box[axis] = (low, high)
    return Drawn(box, period)


def test_random_boxes_match_a_full_scan(dataset, epochs):
    random = numpy.random.default_rng(20261125)
    generator = Generator(seed=35, epochs=epochs)
    shares, wrapped = [], 0
    cases = []
    for number in range(BOXES):
        label = int(random.choice(list(epochs)))
        cases.append((number, label, draw(random, epochs[label]), generator.predicate() if number % 3 == 0 else None))
    for number, label, drawn, predicate in taken(cases, 4):
        rows = epochs[label]
        mask = drawn.mask(rows) if predicate is None else drawn.mask(rows) & predicate.mask(rows)
        where = None if predicate is None else predicate.text
        query = dataset.query(where, box=drawn.box, period=drawn.period or None, epochs=label, columns=["id", *AXES])
        what = f"box {number}: {drawn}, where {where}, epoch {label}"
        found = query.to_numpy()
        order, expected = numpy.argsort(found["id"]), numpy.sort(rows[mask], order="id")
        assert numpy.array_equal(found["id"][order], expected["id"]), what
        assert all(found[axis][order].tobytes() == expected[axis].tobytes() for axis in AXES), what
        assert query.count() == len(expected), what
        shares.append(len(expected) / len(rows))
        inside = rows[drawn.mask(rows)]
        crosses = (
            ((inside[axis] < low) | (inside[axis] >= high)).any() for axis in drawn.period for low, high in [drawn.box[axis]]
        )
        wrapped += any(crosses)
    shares = numpy.array(shares)
    print(
        f"{len(shares)} boxes, {wrapped} across a boundary, {int((shares == 0).sum())} empty, median {numpy.median(shares[shares > 0]):.2%}"
    )
    # The draw must cover what it claims to; a part of it may not.
    assert not IS_WHOLE or wrapped > BOXES / 20 and (shares > 0.1).sum() > BOXES / 20
    assert not IS_WHOLE or ((shares > 0) & (shares < 0.01)).sum() > BOXES / 20


def test_the_command_and_every_request_agree(dataset, epochs, scratch):
    label = max(epochs)
    rows = epochs[label]
    drawn = Drawn({"x": (120.0, 138.0), "z": (-5.0, 5.5)}, {"x": 128.0})
    inside = rows[drawn.mask(rows) & (rows["energy"] > 1)]
    assert len(inside) > 10 and (inside["x"] < 10).any() and (inside["x"] >= 120).any()
    options = ["--box", "x=120:138,z=-5:5.5", "--period", "128,"]
    selected = ["--where", "energy > 1", "--epoch", label, *options]
    assert answer("query", dataset.path, *selected, "--count")["count"] == len(inside)
    plan = answer("query", dataset.path, *selected, "--explain")
    assert plan["filter"].startswith("energy > 1.0 AND (x % 128 >= 120 OR"), plan["filter"]
    counted = answer("hist", dataset.path, "--column", "uz", "--bins", 7, *selected)
    assert counted["rows"] == len(inside)
    expected, _ = numpy.histogram(inside["uz"], 7)
    # NumPy rounds its edges.
    assert numpy.abs(numpy.array([one["least"] for one in counted["bins"]]) - expected).max() <= 1

    place = {"box": drawn.box, "period": drawn.period}
    again = dataset.histogram("uz", bins=7, where="energy > 1", epochs=label, **place)
    assert again.counts.tolist() == [one["least"] for one in counted["bins"]]
    space = dataset.phase_space("x", "z", where="energy > 1", epochs=label, bins=4, **place)
    assert space.counts.sum() == len(inside)
    tracks = dataset.tracks(of="energy > 1", at=label, id="id", **place)
    assert numpy.unique(tracks.to_numpy()["id"]).tolist() == numpy.sort(inside["id"]).tolist()
    selection = ["--of", "energy > 1", "--at", label, "--id", "id", *options]
    followed = answer("tracks", dataset.path, *selection, "-o", scratch / "tracks.arrow")
    assert followed["ids"] == len(inside)
    everyone = dataset.tracks(at=label, id="id", **place).to_numpy()["id"]
    assert len(numpy.unique(everyone)) == drawn.mask(rows).sum()
    pieces = dataset.pieces(dataset.query("energy > 1", epochs=label, **place))
    sent = [turbidite.Piece.from_json(piece.to_json()) for piece in pieces]
    assert sum(piece.count() for piece in sent) == len(inside)
    written = dataset.query("energy > 1", epochs=label, **place).write(scratch / "corner.parquet")
    assert written["rows"] == len(inside)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--box", "x=5:5"], "--box 'x=5:5': the side is empty"),
        (
            ["--box", "z=-1:1,x=120:10", "--period", ",128"],
            "--box 'x=120:10': the bounds are in descending order; to cross the period, write x=120:138",
        ),
        (["--box", "x=0:1", "--period", "0"], "--period '0': a period is finite and above zero"),
        (["--period", "128"], "--box"),
        (["--box", "x=0:1", "--where", "energy >"], "--where 'energy >': at character"),
    ],
)
def test_mistakes_name_the_option(dataset, options, message):
    for subcommand in (["query"], ["hist"]):
        failed = command(subcommand[0], dataset.path, *subcommand[1:], *options, expect=USAGE)
        assert message in failed.stderr, failed.stderr


def test_mistakes_of_arguments_are_refused(dataset):
    for arguments, message in [
        ({"box": {}}, "a range for each of its columns"),
        ({"box": {"x": 5}}, "a range (low, high) of 'x' is needed"),
        ({"box": {"x": (1, 2, 3)}}, "a range (low, high) of 'x' is needed"),
        ({"box": {"x": ("0", 1)}}, "box: a number is needed, not '0'"),
        ({"box": {"x": (True, 2)}}, "box: a number is needed, not True"),
        ({"box": {3: (0, 1)}}, "a side is named by its column"),
        ({"period": {"x": 1}}, "period: there is no box"),
        ({"box": {"x": (0, 1)}, "period": {"y": 1}}, "the box has no side 'y'"),
        ({"box": {"x": (0, 1)}, "period": 128}, "a period by column is needed"),
        ({"box": {"x": (0, 1)}, "period": {"x": float("nan")}}, "a period is finite and above zero"),
        ({"box": {"x": (float("nan"), 1)}}, "a bound is NaN"),
        ({"box": {"x": (0, numpy.inf)}}, "is infinite; leave it out"),
        ({"box": {"no such": (0, 1)}}, "there is no column 'no such'"),
    ]:
        with pytest.raises(turbidite.UsageError) as raised:
            dataset.query(**arguments).count()
        assert message in str(raised.value), arguments
    bounded = dataset.histogram("x", box={"x": (0, 1)}, bins=3, range=(-1, 2), source="bounds")
    exact = dataset.histogram("x", box={"x": (0, 1)}, bins=3, range=(-1, 2))
    assert (bounded.least <= exact.counts).all() and (exact.counts <= bounded.most).all()
    with pytest.raises(turbidite.UsageError, match="state either ids, or at with of or box"):
        dataset.tracks(box={"x": (0, 1)}, ids=[1], id="id")


def test_scalars_of_numpy_are_bounds(dataset, epochs):
    label = min(epochs)
    low, high = epochs[label]["x"][:2]
    box = {"x": (min(low, high), max(low, high)), "i": (numpy.int64(0), numpy.uint32(2**31))}
    expected = (epochs[label]["x"] >= min(low, high)) & (epochs[label]["x"] < max(low, high))
    assert dataset.query(box=box, epochs=label).count() == expected.sum() > 0
