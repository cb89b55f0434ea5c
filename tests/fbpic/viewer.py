"""Particles and trajectories as openPMD-viewer reads them: python viewer.py SERIES REQUESTS.json OUT.npz.

A request is an iteration, and bounds of quantities that select particles at that iteration. The arrays of all particles are
named `ITERATION/QUANTITY`, and those of the trajectories `track REQUEST/ITERATION/QUANTITY`.
"""

import json
import sys

import numpy
from openpmd_viewer import OpenPMDTimeSeries, ParticleTracker

QUANTITIES = ["id", "x", "y", "z", "ux", "uy", "uz", "w"]

series = OpenPMDTimeSeries(sys.argv[1], backend="h5py")
arrays = {"iterations": numpy.array(series.iterations)}
for iteration in series.iterations:
    found = series.get_particle(QUANTITIES, species="electrons", iteration=int(iteration))
    arrays |= {f"{iteration}/{name}": values for name, values in zip(QUANTITIES, found, strict=True)}
with open(sys.argv[2]) as file:
    requests = json.load(file)
for place, (at, bounds) in enumerate(requests):
    tracker = ParticleTracker(series, species="electrons", iteration=at, select=bounds, preserve_particle_index=True)
    arrays[f"track {place}/ids"] = tracker.selected_pid
    for iteration in series.iterations:
        # The viewer cannot follow particles into an iteration without any.
        if len(arrays[f"{iteration}/id"]):
            found = series.get_particle(QUANTITIES[1:], species="electrons", select=tracker, iteration=int(iteration))
            arrays |= {f"track {place}/{iteration}/{name}": values for name, values in zip(QUANTITIES[1:], found, strict=True)}
numpy.savez(sys.argv[3], **arrays)
