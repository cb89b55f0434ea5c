"""VPIC's particles, all of them: their trajectories, and their way through the formats of other codes.

The dumps are the full ones where they lie beside the checkout, else the sample in the repository.
"""

import time

import numpy
import pytest
import turbidite

from support import vpic
from support.source_files import write_lammps, write_openpmd

Rows = dict[str, numpy.ndarray]

OPENPMD_NAMES = {
    "dx": "position_x",
    "dy": "position_y",
    "dz": "position_z",
    "ux": "momentum_x",
    "uy": "momentum_y",
    "uz": "momentum_z",
}
SOURCES = {"openPMD HDF5": "v_%T.h5", "openPMD ADIOS2": "v.bp", "LAMMPS": "v.lammpstrj", "npz": "v_{epoch}.npz"}


@pytest.fixture(scope="module")
def dataset(dumps, scratch) -> turbidite.Dataset:
    turbidite.ingest(dumps, scratch / "vpic.tbd", key="energy", derive=vpic.DERIVATIONS, ranks=4)
    return turbidite.open(scratch / "vpic.tbd")


def stored(dataset: turbidite.Dataset, label: int) -> Rows:
    """The rows of an epoch, ordered by particle."""
    rows = dataset.query(epochs=label).to_numpy()
    assert (rows.pop("epoch") == label).all()
    order = numpy.argsort(rows["id"])
    return {name: values[order] for name, values in rows.items()}


def assert_same(found: Rows, expected: Rows) -> None:
    """The columns are the same, bit for bit: NaNs and infinities are among the values."""
    assert sorted(found) == sorted(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype and found[name].tobytes() == values.tobytes(), name


def test_all_trajectories(dataset, dumps):
    epochs = vpic.read_dumps(dumps)
    particles = {len(rows) for rows in epochs.values()}
    assert len(particles) == 1, "every particle is in every dump"
    began = time.monotonic()
    tracks = dataset.tracks(of="true", at=max(epochs), id="id")
    found = tracks.to_numpy()
    print(f"{particles.pop():,} trajectories, {len(found['id']):,} rows, in {time.monotonic() - began:.2f} s")
    joined = numpy.concatenate([epochs[label] for label in sorted(epochs)])
    labels = numpy.concatenate([numpy.full(len(epochs[label]), label, "i8") for label in sorted(epochs)])
    order = numpy.lexsort((labels, joined["id"]))
    assert_same(found, {name: joined[name][order] for name in joined.dtype.names} | {"epoch": labels[order]})
    grid = tracks.to_xarray()
    assert grid["present"].all()
    assert numpy.array_equal(grid["energy"].values.ravel(), joined["energy"][order])


@pytest.mark.parametrize("form", SOURCES)
def test_the_dataset_comes_back_from_every_format(dataset, dumps, scratch, form):
    epochs = {label: stored(dataset, label) for label in dataset.epochs}
    renamed = {
        label: {OPENPMD_NAMES.get(name, name): values for name, values in rows.items()} for label, rows in epochs.items()
    }
    source = scratch / SOURCES[form]
    if form == "LAMMPS":
        write_lammps(source, renamed)
    elif form == "npz":
        for label, rows in renamed.items():
            numpy.savez(scratch / f"v_{label}.npz", **rows)
    else:
        write_openpmd(source, renamed)
    report = turbidite.ingest(source, scratch / f"{form}.tbd", key="energy", ranks=3, threads=2)
    print(f"{form}: {report['rows']:,} records in {report['wall_s']:.2f} s, {report['mb_per_s']:.0f} MB/s")
    again = turbidite.open(scratch / f"{form}.tbd")
    assert again.epochs == sorted(vpic.read_dumps(dumps))
    for label, dumped in vpic.read_dumps(dumps).items():
        rows = stored(again, label)
        order = numpy.argsort(dumped["id"])
        expected = {OPENPMD_NAMES.get(name, name): dumped[name][order] for name in dumped.dtype.names}
        if form == "LAMMPS":
            # Numbers in text are f64, which has every f32 and i32, or i64. NaN in text has no sign.
            rows = {name: values.astype(expected[name].dtype) for name, values in rows.items()}
            expected["slope"][numpy.isnan(expected["slope"])] = numpy.nan
        assert_same(rows, expected)
