"""Reads a file by a reader other than Turbidite's: pandas and MDAnalysis for LAMMPS text, MDAnalysis for H5MD, openPMD-beamphysics for its
own files.

Usage: python native.py FILE OUT.npz. Writes an array for each step and column, named STEP/COLUMN.
"""

import bz2
import io
import sys
import warnings
from pathlib import Path

import numpy

warnings.simplefilter("ignore")
AXES = "xyz"


def lammps(path: Path) -> dict[str, numpy.ndarray]:
    """The numbers of LAMMPS text by pandas, and the coordinates once more by MDAnalysis, which may shift the origin."""
    import MDAnalysis
    import pandas

    content = bz2.decompress(path.read_bytes()) if path.suffix == ".bz2" else path.read_bytes()
    found, steps = {}, []
    for part in content.decode().split("ITEM: TIMESTEP")[1:]:
        head, _, rows = part.partition("ITEM: ATOMS ")
        table = pandas.read_csv(io.StringIO(rows), sep=r"\s+").select_dtypes("number")
        steps.append((int(head.split()[0]), table))
        found |= {f"{steps[-1][0]}/{name}": table[name].to_numpy() for name in table.columns}
    trajectory = MDAnalysis.Universe(str(path), format="LAMMPSDUMP", topology_format="LAMMPSDUMP").trajectory
    assert len(trajectory) == len(steps)
    for frame, (step, table) in zip(trajectory, steps, strict=True):
        assert frame.data["step"] == step and frame.n_atoms == len(table)
        if {*AXES} <= {*table.columns}:
            shift = frame.positions - table.sort_values("id")[[*AXES]].to_numpy()
            assert abs(shift - shift[0]).max() < 1e-4, shift
    return found


def h5md(path: Path) -> dict[str, numpy.ndarray]:
    from MDAnalysis.coordinates.H5MD import H5MDReader

    found = {}
    for frame in H5MDReader(str(path), convert_units=False):
        for axis, name in enumerate(AXES):
            found[f"{frame.data['step']}/position_{name}"] = frame.positions[:, axis].copy()
    return found


def beam(path: Path) -> dict[str, numpy.ndarray]:
    from beamphysics import ParticleGroup

    group = ParticleGroup(str(path))
    # Momenta are in eV/c in the package, and in SI units in the file.
    columns = {"position_x": group.x, "position_y": group.y, "time": group.t, "weight": group.weight}
    return {f"0/{name}": values for name, values in columns.items()}


source, target = map(Path, sys.argv[1:])
reader = h5md if source.suffix == ".h5md" else beam if source.name.startswith("beam") else lammps
numpy.savez(target, **reader(source))
