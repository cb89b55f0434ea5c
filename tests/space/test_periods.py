"""Periods that a dataset states: boxes wrap by the command, in Python, under mpiexec and of dumps that the preload library indexed,
as NumPy says; other periods, wild ones and those of other keys are refused."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy
import pytest
import turbidite

from support import raw, vpic
from support.command import AMPLE_S, CORRUPTION, FAILED, USAGE, answer
from support.command import turbidite as command
from support.examples import build_example
from support.libraries import prefix
from support.mpi import run as run_tool
from support.preload import VPIC, configure
from support.preload import run as run_preloaded

AXES, PERIODS = ("x", "y", "z"), {"x": 128.0, "z": 0.75}
RECORD = numpy.dtype([("id", "<u8"), ("x", "<f4"), ("y", "<f4"), ("z", "<f8"), ("ux", "<f4")])
ROWS, RANKS = 20_000, 4


@pytest.fixture(scope="module")
def rows() -> numpy.ndarray:
    """Particles in several periods of the domain, some of them nowhere."""
    random = numpy.random.default_rng(5)
    made = numpy.empty(ROWS, RECORD)
    for name, size in {"x": 400, "y": 10, "z": 3, "ux": 1}.items():
        made[name] = (random.random(ROWS) - 0.3) * size
    made["x"][::500], made["z"][::700] = numpy.nan, numpy.inf
    made["id"] = numpy.arange(ROWS)
    return made


@pytest.fixture(scope="module")
def source(rows, scratch) -> Path:
    root = scratch / "periods-source"
    raw.write_source(root, {3: numpy.array_split(rows, RANKS)})
    return root


def ingest(source: Path, target: Path, *more, **options):
    return command(*raw.ingest_arguments(source, target, "space:x,y,z", *more), **options)


@pytest.fixture(scope="module")
def by_command(source, scratch) -> turbidite.Dataset:
    ingest(source, scratch / "by-command", "--period", "128,,0.75", "--levels", 2)
    return turbidite.open(scratch / "by-command")


@pytest.fixture(scope="module")
def by_python(rows, scratch) -> turbidite.Dataset:
    schema = {name: RECORD[name] for name in RECORD.names} | {"id": "u64"}
    with turbidite.Writer(scratch / "by-python", schema, key="space:x,y,z", period=PERIODS, ranks=2) as writer, writer.epoch(3):
        writer.append(rows)
    return turbidite.open(scratch / "by-python")


@pytest.fixture(scope="module")
def by_python_ingest(source, scratch) -> turbidite.Dataset:
    path, layout = scratch / "by-python-ingest", source / "layout.toml"
    turbidite.ingest(source, path, key="space:x,y,z", layout=layout, period=PERIODS, levels="auto")
    return turbidite.open(path)


def inside(rows: numpy.ndarray, box: dict, periods: dict) -> numpy.ndarray:
    found = numpy.ones(len(rows), bool)
    for axis, (low, high) in box.items():
        low, high = (RECORD[axis].type(end).astype(numpy.longdouble) for end in (low, high))
        values = rows[axis].astype(numpy.longdouble)
        shifts = [0.0] if axis not in periods else numpy.arange(-20, 21) * numpy.longdouble(periods[axis])
        found &= numpy.any([(values + shift >= low) & (values + shift < high) for shift in shifts], axis=0)
    return found


def boxes(count: int) -> list[dict]:
    random = numpy.random.default_rng(9)
    sizes = {"x": 128.0, "y": 10.0, "z": 0.75}
    drawn = []
    for _ in range(count):
        axes = random.permutation(AXES)[: random.integers(1, 4)].tolist()
        lows = {axis: float((random.random() * 4 - 2) * sizes[axis]) for axis in axes}
        drawn.append({axis: (low, low + float(random.random()) * 0.8 * sizes[axis]) for axis, low in lows.items()})
    return drawn


def sides(box: dict) -> str:
    return ",".join(f"{axis}={low!r}:{high!r}" for axis, (low, high) in box.items())


def same(found: numpy.ndarray, rows: numpy.ndarray, mask: numpy.ndarray) -> bool:
    return numpy.array_equal(numpy.sort(found), numpy.sort(rows["id"][mask]))


@pytest.mark.parametrize("made", ["by_command", "by_python", "by_python_ingest"])
def test_boxes_match_numpy(made, rows, request):
    dataset = request.getfixturevalue(made)
    assert dataset.schema.periods == PERIODS
    wrapped = 0
    for number, box in enumerate(boxes(30)):
        mask, plain = inside(rows, box, PERIODS), inside(rows, box, {})
        wrapped += int(mask.sum() > plain.sum())
        query = dataset.query(box=box, columns=["id"])
        assert same(query.to_numpy()["id"], rows, mask) and query.count() == mask.sum(), box
        # Of those that the query states, None is no period.
        stated = {axis: [None, 64.0][number % 2] for axis in list(box)[:1]}
        held = {axis: period for axis, period in (PERIODS | stated).items() if period is not None}
        assert dataset.query(box=box, period=stated).count() == inside(rows, box, held).sum(), (box, stated)
        if number % 10 == 0:
            histogram = dataset.histogram("ux", box=box, bins=5)
            assert numpy.array_equal(histogram.counts, numpy.histogram(rows["ux"][mask], histogram.x.edges)[0]), box
            pieces = [piece for share in range(3) for piece in dataset.share(share, 3, query)]
            assert sum(piece.count() for piece in pieces) == mask.sum()
    assert wrapped > 10, wrapped
    assert "period 128.0" in dataset.schema._repr_html_()


def test_the_command_wraps(by_command, rows, scratch):
    path = by_command.path
    for box in boxes(4):
        for periods, held in [((), PERIODS), (("--period", ",".join(["none"] * len(box))), {})]:
            expected = int(inside(rows, box, held).sum())
            assert int(command("query", path, "--box", sides(box), *periods, "--count").stdout) == expected
            assert answer("hist", path, "--column", "ux", "--box", sides(box), *periods)["rows"] == expected
    explained = command("query", path, "--box", "120:138,:,:", "--explain").stdout
    assert "x % 128 >= 120 OR x % 128 >= -8 AND x % 128 < 10" in explained
    # A cursor near to a point across the boundary.
    found = command("query", path, "--rows", 1, "--near", "127.9,1,0.1", "--columns", "x").stdout
    assert found.splitlines()[0] == "x"
    described = command("inspect", path).stdout
    assert "periodic, so that boxes wrap: x by 128, z by 0.75" in described
    assert answer("inspect", path)["periods"] == [128.0, None, 0.75]
    assert "periodic, so that boxes wrap: x by 128, z by 0.75" in command("stats", path).stdout
    command("report", path, "-o", scratch / "periods.html")
    page = ElementTree.fromstring((scratch / "periods.html").read_text())
    terms = [one.text for one in page.iter() if one.tag.endswith("}dt") or one.tag.endswith("}dd")]
    assert terms[terms.index("periodic, so that boxes wrap") + 1] == "x by 128, z by 0.75"
    refused = command("query", path, "--box", "120:,:,:", expect=USAGE).stderr
    assert "or the period 'none': the dataset states that of 'x'" in refused


def test_indexes_by_space_wrap(by_command, rows, scratch):
    path = scratch / "indexed-periods"
    shutil.copytree(by_command.path, path)
    command("index", "add", path, "space:z,ux", "--levels", 1)
    assert answer("inspect", path / "_turbidite" / "index" / "space:z,ux")["periods"] == [0.75, None]
    dataset = turbidite.open(path)
    box = {"z": (0.6, 0.9), "x": (120.0, 140.0)}
    mask = inside(rows, box, PERIODS)
    assert same(dataset.query(box=box, columns=["id"], use="space:z,ux").to_numpy()["id"], rows, mask)
    assert command("query", path, "--epoch", 3, "--box", sides(box), "--use", "space:z,ux", "--quality", 1, "--columns", "id").stdout.count("\n") == mask.sum() + 1


def test_a_dataset_keeps_its_periods(source, rows, scratch):
    path = scratch / "kept"
    ingest(source, path, "--period", "128,,0.75")
    ingest(source, path, "--if-exists", "replace")
    ingest(source, path, "--if-exists", "replace", "--period", "128.0, ,75e-2")
    for periods, found in [("128,,", "'128,,'"), (",1,", "',1,'")]:
        refused = ingest(source, path, "--if-exists", "replace", "--period", periods, expect=FAILED)
        assert f"it has the periods '128,,0.75', but {found} were requested" in refused.stderr
    with pytest.raises(turbidite.OperationError, match="it has the periods '128,,0.75', but '64,,' were requested"):
        turbidite.Writer(path, {name: RECORD[name] for name in RECORD.names} | {"id": "u64"}, key="space:x,y,z", period={"x": 64})
    assert turbidite.open(path).schema.periods == PERIODS
    command("verify", path)
    plain = scratch / "plain-periods"
    ingest(source, plain)
    command("report", plain, "-o", scratch / "plain.html")
    assert "periodic" not in (scratch / "plain.html").read_text()
    refused = ingest(source, plain, "--if-exists", "replace", "--period", "128,,", expect=FAILED)
    assert "it has no periods, but '128,,' were requested" in refused.stderr
    assert answer("inspect", plain)["periods"] is None and turbidite.open(plain).schema.periods == {}


@pytest.mark.parametrize(
    ("key", "periods", "words"),
    [
        ("space:x,y,z", "0,,", "a period is finite and above zero, not 0"),
        ("space:x,y,z", "-1,,", "a period is finite and above zero, not -1"),
        ("space:x,y,z", "nan,,", "a period is finite and above zero, not NaN"),
        ("space:x,y,z", "inf,,", "a period is finite and above zero, not inf"),
        ("space:x,y,z", ",,", "no coordinate has a period"),
        ("space:x,y,z", "128", "the key has 3 coordinates, not 1"),
        ("space:x,y,z", "1,1,1,1", "the key has 3 coordinates, not 4"),
        ("space:x,y,z", "none,1,1", "'none' is not a number"),
        ("space:x,y,z", "1e-60,1,1", "a period is 0 when rounded"),
        ("x", "128", "only a key by space has periods"),
        ("hash:id", "128", "only a key by space has periods"),
    ],
)
def test_impossible_periods_are_refused(source, tmp_path, key, periods, words):
    refused = command(*raw.ingest_arguments(source, tmp_path / "ds", key, "--period", periods), expect=USAGE).stderr
    assert words in refused and "--period" in refused, refused
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize(
    ("key", "period", "words"),
    [
        ("space:x,y", {"x": 0}, "finite and above zero, not 0"),
        ("space:x,y", {"x": float("nan")}, "finite and above zero"),
        ("space:x,y", {"x": "128"}, "period: a number is needed"),
        ("space:x,y", {"z": 1.0}, "period: 'z' is not a coordinate; the coordinates are x, y"),
        ("space:x,y", {}, "no coordinate has a period"),
        ("space:x,y", {"x": None}, "no coordinate has a period"),
        ("space:x,y", "128,", "period: a period by column is needed"),
        ("x", {"x": 1.0}, "period: only a key by space has periods"),
    ],
)
def test_python_refuses_impossible_periods(tmp_path, key, period, words):
    with pytest.raises(turbidite.UsageError, match=words):
        turbidite.Writer(tmp_path / "ds", {"x": "f4", "y": "f4"}, key=key, period=period)
    assert not (tmp_path / "ds").exists()


def test_wild_periods_are_named(by_command, scratch):
    """A changed description is corrupt by its checksum, so nothing is read with other periods."""
    path = scratch / "wild-periods"
    shutil.copytree(by_command.path, path)
    description = path / "_turbidite" / "dataset.json"
    assert json.loads(description.read_text())["requires"] == ["levels", "periods"]
    description.write_text(description.read_text().replace("128.0", "-12.0"))
    refused = command("query", path, "--count", expect=CORRUPTION).stderr
    assert "dataset.json" in refused and "checksum" in refused


def test_ranks_agree_on_periods(source, rows, scratch):
    folder = Path(os.environ.get("TURBIDITE_MPI_BIN") or Path(sys.executable).parent)

    def under_mpiexec(*more) -> None:
        arguments = raw.ingest_arguments(source, scratch / "mpi-periods", "space:x,y,z", *more)
        run_tool(folder / "mpiexec", "-n", "3", prefix() / "bin" / "turbidite", *arguments, timeout=AMPLE_S)

    under_mpiexec("--period", "128,,0.75")
    # Ranks that state no periods go on with those of the dataset.
    under_mpiexec("--if-exists", "replace")
    dataset = turbidite.open(scratch / "mpi-periods")
    assert dataset.schema.periods == PERIODS
    box = {"x": (100.0, 140.0)}
    assert dataset.query(box=box).count() == inside(rows, box, PERIODS).sum()


def test_the_preload_library_states_periods(tmp_path):
    program = build_example("dump", "serial_dump", tmp_path)
    config = configure(tmp_path / "c.toml", (replace(VPIC, key="space:ux,uy"), tmp_path / "ds", {"period": "0.5,"}))
    run_preloaded([program, vpic.sample_dumps(), tmp_path / "out", "--steps", "500"], config)
    assert turbidite.open(tmp_path / "ds").schema.periods == {"ux": 0.5}
