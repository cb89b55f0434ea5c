"""Follows particles through a dataset. Usage: tracks.py DATASET THRESHOLD AT ROUNDS OUT.npz

Prints the seconds of each round, after one to warm up, and keeps the rows for a comparison with those of `tracks_viewer.py`.
"""

import json
import sys
import time

import numpy
import turbidite

COLUMNS = ["position_x", "position_z", "momentum_z"]


def main() -> None:
    path, threshold, at, rounds, out = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    dataset = turbidite.open(path)
    seconds = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        found = dataset.tracks(of=f"momentum_z > {threshold!r}", at=at, id="id", columns=COLUMNS).to_numpy()
        seconds.append(time.perf_counter() - began)
    numpy.savez(out, **found)
    print(json.dumps(seconds[1:]))


if __name__ == "__main__":
    main()
