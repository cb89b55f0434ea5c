"""The particle-in-cell example is real physics, whatever the number of ranks: what it dumps is read here with NumPy and
judged by laws that hold for any plasma in a periodic box, none of which is taken from the program."""

import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy
import pytest

from support.examples import build_example, run_ranks

NX, NY, PER_CELL, STEPS, INTERVAL = 32, 25, 16, 300, 30  # an odd number of rows: strips of different heights
PARTICLES = NX * NY * PER_CELL
DUMPS = list(range(INTERVAL, STEPS + 1, INTERVAL))

# The 32 fields of VPIC's header and the records, from the description of the format.
HEADER = struct.Struct("<5bHIfd6i10f2iif3i")
NAMES = "step nx ny nz dt dx dy dz x0 y0 z0 cvac eps0 damp rank ranks species charge_per_mass".split()
NAMES += ["element_bytes", "dimensions", "count"]
VPIC = numpy.dtype([(name, "<i4" if name == "i" else "<f4") for name in ("dx", "dy", "dz", "i", "ux", "uy", "uz", "w")])
TAGGED = numpy.dtype(VPIC.descr + [("id", "<i8"), ("origin", "<i8")])


@dataclass(frozen=True)
class Step:
    """All files of one dump: headers by rank, particles with global positions, ordered by id where they have one."""

    headers: list[dict]
    particles: numpy.ndarray
    x: numpy.ndarray
    y: numpy.ndarray


@dataclass(frozen=True)
class Run:
    ranks: int
    figures: dict
    steps: dict[int, Step]


def read_header(content: bytes) -> dict:
    fields = HEADER.unpack_from(content)
    assert HEADER.size == 115
    assert fields[:9] == (8, 2, 4, 4, 8, 0xCAFE, 0xDEADBEEF, 1.0, 1.0)
    assert fields[9:11] == (0, 3), "version 0, a dump of particles"
    return dict(zip(NAMES, fields[11:], strict=True))


def read_file(path: Path, record: numpy.dtype) -> tuple[dict, numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    content = path.read_bytes()
    header = read_header(content)
    assert header["element_bytes"] == record.itemsize and header["dimensions"] == 1
    assert len(content) == HEADER.size + header["count"] * record.itemsize, path
    particles = numpy.frombuffer(content, record, header["count"], HEADER.size)
    # The cell in a grid with one layer of ghosts on every side; no particle may be in a ghost.
    cell = particles["i"].astype(numpy.int64)
    columns, rows = header["nx"] + 2, header["ny"] + 2
    ix, iy, iz = cell % columns, cell // columns % rows, cell // columns // rows
    assert ix.min() >= 1 and ix.max() <= header["nx"], path
    assert iy.min() >= 1 and iy.max() <= header["ny"] and (iz == 1).all(), path
    for name in ("dx", "dy", "dz"):
        assert numpy.abs(particles[name]).max() <= 1, path
    x = header["x0"] + (ix - 1 + (particles["dx"].astype(numpy.float64) + 1) / 2) * header["dx"]
    y = header["y0"] + (iy - 1 + (particles["dy"].astype(numpy.float64) + 1) / 2) * header["dy"]
    return header, particles, x, y


def read_step(folder: Path, step: int, ranks: int, record: numpy.dtype = TAGGED) -> Step:
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"eparticle.{step}.{rank}" for rank in range(ranks))
    files = [read_file(folder / f"eparticle.{step}.{rank}", record) for rank in range(ranks)]
    headers = [file[0] for file in files]
    particles, x, y = (numpy.concatenate([file[part] for file in files]) for part in (1, 2, 3))
    if "id" in record.names:
        order = numpy.argsort(particles["id"], kind="stable")
        particles, x, y = particles[order], x[order], y[order]
    return Step(headers, particles, x, y)


@pytest.fixture(scope="module")
def pic_files(tmp_path_factory) -> Path:
    return build_example("pic", "pic_files", tmp_path_factory.mktemp("pic"))


@pytest.fixture(scope="module")
def runs(pic_files, tmp_path_factory) -> dict[int, Run]:
    """The same plasma on 1, 3 and 4 ranks."""
    found = {}
    for ranks in (1, 3, 4):
        out = tmp_path_factory.mktemp(f"pic-{ranks}")
        done = run_ranks(
            ranks, pic_files, "--out", out, "--grid", f"{NX},{NY}", "--per-cell", PER_CELL, "--steps", STEPS,
            "--dump", INTERVAL, "--seed", 7,
        )  # fmt: skip
        assert sorted(path.name for path in (out / "particle").iterdir()) == sorted(f"T.{step}" for step in DUMPS)
        steps = {step: read_step(out / "particle" / f"T.{step}", step, ranks) for step in DUMPS}
        found[ranks] = Run(ranks, json.loads(done.stdout), steps)
    return found


@pytest.fixture(params=[1, 3, 4])
def run(request, runs) -> Run:
    return runs[request.param]


def energies(particles: numpy.ndarray) -> numpy.ndarray:
    ux, uy, uz = (particles[name].astype(numpy.float64) for name in ("ux", "uy", "uz"))
    return numpy.sqrt(1 + ux * ux + uy * uy + uz * uz) - 1


def test_headers_tile_the_box(run):
    for step, dump in run.steps.items():
        y_next = 0.0
        for rank, header in enumerate(dump.headers):
            assert (header["step"], header["rank"], header["ranks"]) == (step, rank, run.ranks)
            assert (header["nx"], header["nz"], header["x0"], header["z0"]) == (NX, 1, 0, 0)
            assert (header["cvac"], header["eps0"], header["damp"]) == (1, 1, 0)
            assert (header["species"], header["charge_per_mass"]) == (0, -1)
            assert header["dx"] == header["dy"] == header["dz"] == numpy.float32(0.2)
            assert header["dt"] < header["dx"] / numpy.sqrt(2), "the limit of Yee's scheme"
            assert header["y0"] == pytest.approx(y_next, abs=1e-5)
            y_next = header["y0"] + header["ny"] * header["dy"]
        rows = [header["ny"] for header in dump.headers]
        assert sum(rows) == NY and max(rows) - min(rows) <= 1


def test_every_particle_is_there_once_in_every_step(run):
    for dump in run.steps.values():
        assert numpy.array_equal(dump.particles["id"], numpy.arange(PARTICLES))
        assert (dump.particles["w"] == numpy.float32(0.2**3 / PER_CELL)).all()
    origins = [dump.particles["origin"] for dump in run.steps.values()]
    assert all(numpy.array_equal(origins[0], later) for later in origins[1:])
    assert sorted(set(origins[0])) == list(range(run.ranks))
    if run.ranks > 1:
        last = run.steps[DUMPS[-1]]
        holders = numpy.searchsorted([header["y0"] for header in last.headers[1:]], last.y, side="right")
        assert 0.3 < numpy.mean(holders != last.particles["origin"]) < 0.95, "particles migrate"


def test_nothing_moves_faster_than_light(run):
    header = run.steps[DUMPS[0]].headers[0]
    box = numpy.array([NX * header["dx"], NY * header["dy"]])
    for before, after in zip(DUMPS, DUMPS[1:], strict=False):
        first, second = run.steps[before], run.steps[after]
        moved = numpy.stack([second.x - first.x, second.y - first.y], axis=1)
        moved -= box * numpy.round(moved / box)
        distance = numpy.hypot(moved[:, 0], moved[:, 1])
        assert distance.max() <= INTERVAL * header["dt"] * 1.0001
        assert numpy.median(distance) > 0.1 * INTERVAL * header["dt"], "particles move"


def test_the_plasma_does_not_know_of_the_ranks(runs):
    """Ranks add up currents in another order, so results differ by rounding, which grows as in any plasma; a lost ghost
    or particle would show at once."""
    for step in DUMPS[:3]:
        alone = runs[1].steps[step]
        for ranks in (3, 4):
            shared = runs[ranks].steps[step]
            for name in ("ux", "uy", "uz"):
                numpy.testing.assert_allclose(shared.particles[name], alone.particles[name], rtol=0, atol=1e-3)
            for axis, length in ((shared.x - alone.x, NX * 0.2), (shared.y - alone.y, NY * 0.2)):
                assert numpy.abs(axis - length * numpy.round(axis / length)).max() < 1e-3


def test_energy_is_conserved(run):
    figures = run.figures
    assert figures["particles"] == PARTICLES and figures["ranks"] == run.ranks and figures["dumps"] == len(DUMPS)
    assert figures["output"] == "files" and 0 < figures["output_s"] < figures["wall_s"]
    assert figures["energy_tolerance"] == 0.01 and figures["energy_error"] <= 0.01
    assert figures["gauss_error"] <= figures["gauss_tolerance"] == 1e-9 and figures["ghost_error"] == 0
    # What the program says of the particles is what its dumps hold: momenta are dumped at the time of the positions.
    last = run.steps[STEPS].particles
    assert numpy.sum(last["w"] * energies(last)) == pytest.approx(figures["kinetic_last"], rel=1e-6)
    total = figures["kinetic_last"] + figures["field_last"]
    assert figures["drive_work"] > 0.3 * total, "the antenna matters"
    assert figures["kinetic_first"] + figures["drive_work"] == pytest.approx(total, rel=0.01)


def test_the_energy_distribution_drifts(run):
    first, last = (numpy.quantile(energies(run.steps[step].particles), [0.5, 0.99]) for step in (DUMPS[0], DUMPS[-1]))
    assert (last >= 2 * first).all(), (first, last)


@pytest.fixture(scope="module", params=[0, 1], ids=["unmagnetised", "magnetised"])
def each_step(request, pic_files, tmp_path_factory) -> tuple[int, dict[int, Step]]:
    """A magnetic field along z, and the dumps of every timestep."""
    out = tmp_path_factory.mktemp("each-step")
    arguments = ("--grid", f"{NX},{NY}", "--per-cell", PER_CELL, "--steps", 51, "--dump", 1)
    run_ranks(1, pic_files, "--out", out, *arguments, "--magnetic", request.param)
    return request.param, {
        step: read_step(out / "particle" / f"T.{step}", step, 1) for step in (1, 2, 3, 29, 30, 31, 49, 50, 51)
    }


def test_momenta_are_dumped_at_the_time_of_the_positions(each_step):
    """The velocity of a dump is the slope of the positions around it. Momenta that were half a step off, in the
    electric or in the magnetic field, would differ by at least four times the bound."""
    magnetic, steps = each_step
    bound = 0.002 if magnetic else 0.0003
    dt = steps[1].headers[0]["dt"]
    for step in (30, 50):
        here = steps[step].particles
        lorentz = 1 + energies(here)
        for axis, momentum, length in (("x", "ux", NX * 0.2), ("y", "uy", NY * 0.2)):
            moved = getattr(steps[step + 1], axis) - getattr(steps[step - 1], axis)
            moved -= length * numpy.round(moved / length)
            assert numpy.median(numpy.abs(moved / (2 * dt) - here[momentum] / lorentz)) < bound


def test_electrons_gyrate_as_they_should(each_step):
    """Before fields build up, electrons turn anticlockwise about z at the field over their Lorentz factor."""
    magnetic, steps = each_step
    before, after = steps[2].particles, steps[3].particles
    angle = numpy.angle((after["ux"] + 1j * after["uy"]) / (before["ux"] + 1j * before["uy"]))
    assert numpy.median(angle * (1 + energies(before))) / steps[2].headers[0]["dt"] == pytest.approx(magnetic, abs=0.01)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_wave_grows_as_fast_as_theory_says(pic_files, tmp_path, ranks):
    """The two-stream instability of cold beams, from the dispersion relation
    1 = (w / 2) / (omega - k v)^2 + (w / 2) / (omega + k v)^2, where w = 1 / gamma^3 for motion along the beams."""
    mode, columns, drift = 6, 64, 0.2041
    arguments = ("--grid", f"{columns},8", "--per-cell", 32, "--drift", drift, "--drive", 0, "--wave", mode)
    run_ranks(ranks, pic_files, "--out", tmp_path, *arguments, "--steps", 100, "--dump", 10)
    k, lorentz = 2 * numpy.pi * mode / (columns * 0.2), numpy.sqrt(1 + drift**2)
    doppler, beam = (k * drift / lorentz) ** 2, 0.5 / lorentz**3
    expected = numpy.roots([1, 0, -2 * (doppler + beam), 0, doppler**2 - 2 * beam * doppler]).imag.max()
    assert expected == pytest.approx(0.343, abs=0.001)

    times, amplitudes = [], []
    for number in range(40, 101, 10):
        step = read_step(tmp_path / "particle" / f"T.{number}", number, ranks)
        forward = step.particles["id"] % 2 == 1
        amplitudes.append(abs(numpy.mean(step.particles["ux"][forward] * numpy.exp(-1j * k * step.x[forward]))))
        times.append(number * step.headers[0]["dt"])
    assert amplitudes[-1] > 10 * amplitudes[0]
    assert numpy.polyfit(times, numpy.log(amplitudes), 1)[0] == pytest.approx(expected, rel=0.03)


def test_energy_that_is_not_conserved_is_an_error(pic_files, tmp_path):
    """One particle per cell is too few: the grid heats it within 200 steps, and the program must not pass that over."""
    arguments = ("--grid", "32,25", "--per-cell", 1, "--drive", 0, "--steps", 200, "--dump", 200)
    done = run_ranks(1, pic_files, "--out", tmp_path, *arguments, expect=3)
    assert json.loads(done.stdout)["energy_error"] > 0.01
    assert "not conserved" in done.stderr


def test_plain_records_are_the_same_without_their_tags(pic_files, runs, tmp_path):
    arguments = ("--grid", f"{NX},{NY}", "--per-cell", PER_CELL, "--steps", INTERVAL, "--dump", INTERVAL, "--seed", 7)
    run_ranks(1, pic_files, "--out", tmp_path, "--plain", "--sync", *arguments)
    plain = read_step(tmp_path / "particle" / f"T.{INTERVAL}", INTERVAL, 1, VPIC)
    tagged = runs[1].steps[INTERVAL].particles
    assert len(plain.particles) == PARTICLES
    for name in VPIC.names:
        assert numpy.array_equal(numpy.sort(plain.particles[name]), numpy.sort(tagged[name])), name


def test_seeds_make_other_plasmas(pic_files, runs, tmp_path):
    arguments = ("--grid", f"{NX},{NY}", "--per-cell", PER_CELL, "--steps", INTERVAL, "--dump", INTERVAL)
    run_ranks(1, pic_files, "--out", tmp_path, *arguments, "--seed", 8)
    other = read_step(tmp_path / "particle" / f"T.{INTERVAL}", INTERVAL, 1)
    assert numpy.mean(other.particles["ux"] == runs[1].steps[INTERVAL].particles["ux"]) < 0.01


@pytest.mark.parametrize(
    "arguments", [(), ("--grid", "32"), ("--steps", "many"), ("--grid", "32,5"), ("--dump", "0"), ("--nothing",)]
)
def test_wrong_options_are_refused(pic_files, tmp_path, arguments):
    out = ("--out", tmp_path / "out") if arguments else ()
    done = run_ranks(3, pic_files, *out, *arguments, expect=2)
    assert not done.stdout and done.stderr.count("pic") == 1
    assert not (tmp_path / "out").exists()
