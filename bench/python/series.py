"""Writes a series of openPMD files as WarpX does: HDF5 by openpmd-api, each box storing its particles as one chunk.

Usage: series.py FOLDER BYTES

Electrons drift through the boxes. They lie in the files box by box, so that a particle's place changes between iterations,
and its id stays. Prints the threshold of momentum_z that 1,000 particles of the last iteration exceed, the iterations, and
the bytes of the particles' datasets.
"""

import json
import sys
from pathlib import Path

import numpy
import openpmd_api

BOXES, ITERATIONS, STEP = 16, 5, 100
COLUMNS = ("position_x", "position_y", "position_z", "momentum_x", "momentum_y", "momentum_z", "weighting", "id")
MASS, CHARGE, LIGHT = 9.1093837015e-31, -1.602176634e-19, 299792458.0
TRACKED = 1000


def store(series, label: int, rows: dict[str, numpy.ndarray], boxes: numpy.ndarray) -> None:
    iteration = series.write_iterations()[label]
    iteration.time, iteration.dt, iteration.time_unit_SI = label * 1e-16, 1e-16, 1.0
    electrons = iteration.particles["electrons"]
    count = len(boxes)
    ends = numpy.searchsorted(boxes, numpy.arange(1, BOXES + 1))
    for name, values in rows.items():
        record, _, axis = name.partition("_")
        component = electrons[record][axis or openpmd_api.Record_Component.SCALAR]
        component.reset_dataset(openpmd_api.Dataset(values.dtype, [count]))
        for first, end in zip([0, *ends[:-1]], ends):
            if end > first:
                component.store_chunk(values[first:end], [int(first)], [int(end - first)])
    electrons["position"].unit_dimension = {openpmd_api.Unit_Dimension.L: 1}
    electrons["momentum"].unit_dimension = {
        openpmd_api.Unit_Dimension.L: 1,
        openpmd_api.Unit_Dimension.M: 1,
        openpmd_api.Unit_Dimension.T: -1,
    }
    constants = [("positionOffset", axis, 0.0) for axis in "xyz"]
    constants += [(name, openpmd_api.Record_Component.SCALAR, value) for name, value in (("charge", CHARGE), ("mass", MASS))]
    for record, component, value in constants:
        constant = electrons[record][component]
        constant.reset_dataset(openpmd_api.Dataset(numpy.dtype("f8"), [count]))
        constant.make_constant(value)
    iteration.close()


def main() -> None:
    folder, total_bytes = Path(sys.argv[1]), int(sys.argv[2])
    count = total_bytes // ITERATIONS // (8 * len(COLUMNS))
    rng = numpy.random.default_rng(1)
    position = rng.random((3, count)) * 1e-4
    momentum = rng.standard_normal((3, count)) * MASS * LIGHT
    # As WarpX has it: the upper half of an id is that of the process that created the particle.
    ids = (rng.integers(0, BOXES, count).astype("u8") << numpy.uint64(32)) + numpy.arange(count, dtype="u8")
    folder.mkdir()
    labels = [STEP * (number + 1) for number in range(ITERATIONS)]
    series = openpmd_api.Series(str(folder / "openpmd_%06T.h5"), openpmd_api.Access.create)
    for label in labels:
        position = (position + momentum / (MASS * LIGHT) * 1e-6) % 1e-4
        box = (position[2] / 1e-4 * BOXES).astype("i4").clip(0, BOXES - 1)
        order = numpy.argsort(box, kind="stable")
        values = [*position, *momentum, numpy.full(count, 1e4), ids]
        store(series, label, {name: column[order] for name, column in zip(COLUMNS, values)}, box[order])
    series.close()
    slowest, fastest = numpy.sort(momentum[2])[-TRACKED - 1 : -TRACKED + 1] if count > TRACKED else (-numpy.inf, -1)
    stated = {"threshold": (slowest + fastest) / 2, "iterations": labels, "bytes": ITERATIONS * count * 8 * len(COLUMNS)}
    print(json.dumps(stated))


if __name__ == "__main__":
    main()
