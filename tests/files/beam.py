"""Writes particles by openPMD-beamphysics. Usage: python beam.py FOLDER"""

import sys
from pathlib import Path

import numpy
from beamphysics import ParticleGroup

ROWS = 2000
random = numpy.random.default_rng(7)
rows = {name: random.normal(size=ROWS) for name in ("x", "px", "y", "py", "z", "pz", "t")}
rows |= {"status": numpy.ones(ROWS, int), "weight": random.random(ROWS) * 1e-12, "species": "electron"}
ParticleGroup(data=rows).write(str(Path(sys.argv[1]) / "beam.h5"))
