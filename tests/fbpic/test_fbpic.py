"""From FBPIC's files to a figure of energetic electrons, with the values that openPMD-viewer reads."""

import json
import os
import re
import subprocess
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy
import pytest
import turbidite
from matplotlib.collections import LineCollection

from support.command import AMPLE_S, ROOT

HERE = Path(__file__).parent
LIGHT = 299792458.0
LAST = 1200
NAMES = {"id": "id", "position_x": "x", "position_y": "y", "position_z": "z", "weighting": "w"}
"""Columns of the dataset, and their names in openPMD-viewer."""
MOMENTA = {"momentum_x": "ux", "momentum_y": "uy", "momentum_z": "uz"}
"""The same for momenta, which openPMD-viewer divides by m c."""
REQUESTS = [
    (LAST, f"momentum_z > 15 * mass * {LIGHT}", {"uz": [15, None]}),
    (400, f"momentum_z > 2 * mass * {LIGHT} and abs(position_y) < 2e-6", {"uz": [2, None], "y": [-2e-6, 2e-6]}),
]
"""Electrons to follow: trapped ones, of which some were not in the first windows, and ones that mostly fall behind."""


def python(environment: Path, *arguments) -> None:
    """Runs a program in FBPIC's environment, on one thread: FFTW's threads spin, which takes minutes on busy cores."""
    threads = {f"{library}_NUM_THREADS": "1" for library in ("NUMBA", "OPENBLAS", "OMP")} | {"FBPIC_DISABLE_THREADING": "1"}
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(part) for part in (environment / "bin" / "python", *arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=AMPLE_S, env=clean | threads)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@dataclass(frozen=True)
class Wakefield:
    """A simulation, as the guide's example and openPMD-viewer read it."""

    example: dict[str, Any]
    dataset: turbidite.Dataset
    viewed: dict[str, numpy.ndarray]

    def epoch(self, label: int) -> dict[str, numpy.ndarray]:
        """The particles of an iteration by openPMD-viewer, ordered by id, with their energies in MeV."""
        order = numpy.argsort(self.viewed[f"{label}/id"])
        rows = {name: self.viewed[f"{label}/{name}"][order] for name in (*NAMES.values(), *MOMENTA.values())}
        square = rows["ux"] ** 2 + rows["uy"] ** 2 + rows["uz"] ** 2
        return rows | {"energy": 0.51099895 * (numpy.sqrt(1 + square) - 1)}

    def hot(self) -> numpy.ndarray:
        """The ids that the guide's example follows."""
        rows = self.epoch(LAST)
        return rows["id"][rows["energy"] > 6]


@pytest.fixture(scope="module")
def wakefield(scratch) -> Wakefield:
    environment = Path(os.environ["TURBIDITE_FBPIC"])
    began = time.monotonic()
    python(environment, HERE / "wakefield.py", scratch / "diags")
    print(f"FBPIC: {time.monotonic() - began:.0f} s")
    [block] = re.findall(r"```python openpmd\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)
    matplotlib.use("Agg")
    example: dict[str, Any] = {"turbidite": turbidite}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(scratch)
        exec(block, example)
        # Later uses of the example's objects are in other folders.
        example["figure"] = Path("wakefield.png").read_bytes()
    dataset = turbidite.open(scratch / "wakefield.tbd")
    (scratch / "requests.json").write_text(json.dumps([(at, bounds) for at, _, bounds in REQUESTS]))
    series = scratch / "diags" / "hdf5"
    python(environment, HERE / "viewer.py", series, scratch / "requests.json", scratch / "viewed.npz")
    with numpy.load(scratch / "viewed.npz") as viewed:
        return Wakefield(example, dataset, dict(viewed))


def assert_same(found: dict[str, numpy.ndarray], viewed: dict[str, numpy.ndarray]) -> None:
    """The numbers are the same, and NaN where the particle is missing."""
    for name, other in NAMES.items():
        assert numpy.array_equal(found[name], viewed[other], equal_nan=name != "id"), name
    for name, other in MOMENTA.items():
        assert numpy.array_equal(found[name] * (1 / (found["mass"] * LIGHT)), viewed[other], equal_nan=True), name


def test_every_particle_has_the_viewers_values(wakefield):
    dataset = wakefield.dataset
    assert dataset.epochs == wakefield.viewed["iterations"].tolist() == list(range(0, LAST + 1, 100))
    columns = {column.name: (column.type, column.unit) for column in dataset.schema.columns}
    assert columns["position_z"] == ("f64", "m") and columns["momentum_x"] == ("f64", "kg m s^-1")
    assert columns["id"] == ("u64", None) and columns["charge"] == ("f64", "s A")
    for label in dataset.epochs:
        rows = dataset.query(epochs=label).to_numpy()
        rows = {name: values[numpy.argsort(rows["id"])] for name, values in rows.items()}
        viewed = wakefield.epoch(label)
        # The plasma begins behind the first window.
        assert len(rows["id"]) == len(viewed["id"]) and (len(rows["id"]) > 10_000) == (label > 100)
        assert_same(rows, viewed)
        assert (rows["charge"] == -1.602176634e-19).all()
        assert numpy.allclose(rows["energy"], viewed["energy"], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("place", range(len(REQUESTS)), ids=["trapped", "left behind"])
def test_trajectories_are_the_viewers(wakefield, place):
    at, of, _ = REQUESTS[place]
    grid = wakefield.dataset.tracks(of=of, at=at, id="id").to_xarray()
    ids = wakefield.viewed[f"track {place}/ids"]
    assert len(ids) > 50 and numpy.array_equal(grid["id"], ids)
    missing = 0
    for label in wakefield.dataset.epochs:
        here = {name: values.values for name, values in grid.sel(epoch=label).items()} | {"id": ids}
        if label == 0:
            assert not here["present"].any()
            continue
        viewed = {name: wakefield.viewed[f"track {place}/{label}/{name}"] for name in [*NAMES.values(), *MOMENTA.values()][1:]}
        assert numpy.array_equal(here["present"], ~numpy.isnan(viewed["x"]))
        assert_same(here, viewed | {"id": ids})
        missing += int(numpy.isnan(viewed["x"]).sum())
    assert missing > 50
    print(f"{at}: {len(ids)} trajectories, missing at {missing} places")


def test_tables_of_the_example(wakefield):
    frame, grid = wakefield.example["frame"], wakefield.example["grid"]
    hot = wakefield.hot()
    assert len(hot) > 50 and numpy.array_equal(grid["id"], hot)
    assert int(grid["present"].sum()) == len(frame)
    assert numpy.array_equal(frame.sort_values(["id", "epoch"]).index, frame.index)
    for label in wakefield.dataset.epochs:
        viewed = wakefield.epoch(label)
        followed = numpy.isin(viewed["id"], hot)
        rows = frame[frame["epoch"] == label]
        assert_same(
            {name: rows[name].to_numpy() for name in (*NAMES, *MOMENTA, "mass")},
            {name: values[followed] for name, values in viewed.items()},
        )


def test_figure_of_the_example(wakefield):
    ax = wakefield.example["ax"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("position_z (m)", "position_x (m)")
    [lines] = [artist for artist in ax.get_children() if isinstance(artist, LineCollection)]
    epochs = [wakefield.epoch(label) for label in wakefield.dataset.epochs]
    steps = []
    for before, after in pairwise(epochs):
        both = numpy.intersect1d(numpy.intersect1d(before["id"], after["id"]), wakefield.hot())
        ends = [(rows, numpy.isin(rows["id"], both)) for rows in (before, after)]
        steps.append(numpy.stack([rows[axis][here] for rows, here in ends for axis in ("z", "x")], axis=-1))
    expected = numpy.concatenate(steps)
    drawn = numpy.array(lines.get_segments()).reshape(-1, 4)
    assert numpy.array_equal(drawn[numpy.lexsort(drawn.T)], expected[numpy.lexsort(expected.T)])
    out = Path(os.environ["TURBIDITE_FBPIC_FIGURE"])
    out.write_bytes(wakefield.example["figure"])
    print(f"{len(wakefield.hot())} trajectories, {len(drawn)} lines: {out}")
