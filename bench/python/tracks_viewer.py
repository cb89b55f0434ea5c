"""Follows particles through openPMD files by openPMD-viewer. Usage: tracks_viewer.py SERIES THRESHOLD AT ROUNDS OUT.npz

As `tracks.py`. The series is opened before the clock starts, and a round before the first compiles what Numba compiles.
"""

import json
import sys
import time

import numpy
from openpmd_viewer import OpenPMDTimeSeries, ParticleTracker

# openPMD-viewer states momenta as multiples of this, of the mass in `series.py`.
MOMENTUM_UNIT = 9.1093837015e-31 * 299792458.0
QUANTITIES = ["x", "z", "uz"]
SPECIES = "electrons"


def main() -> None:
    path, threshold, at, rounds, out = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    series = OpenPMDTimeSeries(path, check_all_files=False)
    seconds = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        select = {"uz": [threshold / MOMENTUM_UNIT, None]}
        tracker = ParticleTracker(series, species=SPECIES, iteration=at, select=select)
        found = [
            series.get_particle(QUANTITIES, species=SPECIES, iteration=label, select=tracker) for label in series.iterations
        ]
        seconds.append(time.perf_counter() - began)
    columns = {"epoch": numpy.repeat(series.iterations, [len(one[0]) for one in found])}
    columns |= {name: numpy.concatenate(parts) for name, parts in zip(QUANTITIES, zip(*found))}
    by_iteration = [series.get_particle(["id"], species=SPECIES, iteration=label, select=tracker)[0] for label in series.iterations]
    numpy.savez(out, id=numpy.concatenate(by_iteration), **columns)
    print(json.dumps(seconds[1:]))


if __name__ == "__main__":
    main()
