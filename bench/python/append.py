"""Appends arrays through the package, as `append.c` does through the C interface.

Usage: append.py DATASET COLUMNS EPOCHS ROWS_PER_APPEND

COLUMNS holds the values of each column of VPIC's particles and the energy, one column after the other. Prints a line of JSON
with the seconds of each epoch from its begin to its commit.
"""

import json
import sys
import time
from pathlib import Path

import numpy
import turbidite

TYPES = {"dx": "f4", "dy": "f4", "dz": "f4", "i": "i4", "ux": "f4", "uy": "f4", "uz": "f4", "w": "f4", "energy": "f4"}


def main() -> None:
    path, columns, epochs, step = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    rows = columns.stat().st_size // (4 * len(TYPES))
    content = numpy.memmap(columns, "u4", "r", shape=(len(TYPES), rows))
    arrays = {name: numpy.asarray(column.view(dtype)) for (name, dtype), column in zip(TYPES.items(), content)}
    epoch_s = []
    with turbidite.Writer(path, TYPES, key="energy") as writer:
        for epoch in range(epochs):
            began = time.perf_counter()
            with writer.epoch(epoch):
                for first in range(0, rows, step):
                    writer.append({name: array[first : first + step] for name, array in arrays.items()})
            epoch_s.append(time.perf_counter() - began)
    print(json.dumps({"epoch_s": epoch_s}))


if __name__ == "__main__":
    main()
