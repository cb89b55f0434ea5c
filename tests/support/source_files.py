"""Writes the same rows in the formats that the package's readers read."""

from pathlib import Path

import h5py
import numpy
import openpmd_api
import pyarrow

SCALAR = openpmd_api.Record_Component.SCALAR
AXES = ("x", "y", "z")


def write_openpmd(
    path,
    epochs: dict[int, dict[str, numpy.ndarray]],
    *,
    species: str = "electrons",
    unit: float = 1.0,
    constants: dict[str, float] | None = None,
    constant_length: int | None = None,
    offset=None,
    offset_unit: float = 1.0,
    encoding=None,
) -> None:
    """A series with a species of which each column is a record, or a component such as `position_x`.

    `offset` has the positionOffset of an iteration: a number for a constant, or an array. Constants have the length of the
    other records, or `constant_length`.
    """
    series = openpmd_api.Series(str(path), openpmd_api.Access.create)
    if encoding is not None:
        series.set_iteration_encoding(encoding)
    for label, rows in epochs.items():
        iteration = series.write_iterations()[label]
        particles = iteration.particles[species]
        count = len(next(iter(rows.values()))) if rows else 0
        length = count if constant_length is None else constant_length
        kept = []
        for name, values in rows.items():
            record, _, axis = name.rpartition("_")
            component = particles[record][axis] if axis in AXES and record else particles[name][SCALAR]
            component.reset_dataset(openpmd_api.Dataset(values.dtype, [count]))
            kept.append(numpy.ascontiguousarray(values))
            if count:
                component.store_chunk(kept[-1])
            if record == "position":
                component.unit_SI = unit
        if any(name.startswith("position_") for name in rows):
            particles["position"].unit_dimension = {openpmd_api.Unit_Dimension.L: 1}
        for name, value in (constants or {}).items():
            component = particles[name][SCALAR]
            component.reset_dataset(openpmd_api.Dataset(numpy.dtype("f8"), [length]))
            component.make_constant(value)
            particles[name].unit_dimension = {openpmd_api.Unit_Dimension.I: 1, openpmd_api.Unit_Dimension.T: 1}
        if offset is not None and count:
            for axis in AXES:
                component = particles["positionOffset"][axis]
                one = offset(label, axis) if callable(offset) else offset
                shape = [count if numpy.ndim(one) else length]
                component.reset_dataset(openpmd_api.Dataset(numpy.asarray(one).dtype, shape))
                component.unit_SI = offset_unit
                if numpy.ndim(one):
                    kept.append(one)
                    component.store_chunk(one)
                else:
                    component.make_constant(one)
        iteration.close()
    series.close()


def replace_record(path, epoch: int, name: str, values: numpy.ndarray, **options) -> None:
    """Puts other values into an HDF5 series' record of electrons, whose attributes stay. `options` are h5py's."""
    with h5py.File(path, "a") as file:
        place = file[f"data/{epoch}/particles/electrons"]
        attributes = dict(place[name].attrs)
        del place[name]
        place.create_dataset(name, data=values, **options).attrs.update(attributes)


def write_lammps(path: Path, epochs: dict[int, dict[str, numpy.ndarray]], text: str | None = None) -> None:
    """A text dump of several steps, as LAMMPS writes it: each line ends with a space."""
    with open(path, "w") as file:
        for label, rows in epochs.items():
            names = [*rows, *(["element"] if text else [])]
            file.write(f"ITEM: TIMESTEP\n{label}\nITEM: NUMBER OF ATOMS\n{len(next(iter(rows.values())))}\n")
            file.write("ITEM: BOX BOUNDS pp pp pp\n0 1\n0 1\n0 1\n")
            file.write(f"ITEM: ATOMS {' '.join(names)} \n")
            words = [[repr(value) for value in values.tolist()] for values in rows.values()]
            file.writelines(" ".join(row) + (f" {text} \n" if text else " \n") for row in zip(*words, strict=True))


def zstandard(content: bytes) -> bytes:
    target = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(target, "zstd") as stream:
        stream.write(content)
    return target.getvalue().to_pybytes()


def structure(rows: dict[str, numpy.ndarray]) -> numpy.ndarray:
    """The rows as a structured array."""
    made = numpy.empty(len(next(iter(rows.values()))), [(name, values.dtype) for name, values in rows.items()])
    for name, values in rows.items():
        made[name] = values
    return made


def write_beam(path, count: int, *, base: str = "/", group: str = "") -> dict[str, numpy.ndarray]:
    """A bunch as ParticleGroup.write of openPMD-beamphysics writes it: a group for each constant. Returns the rows.

    With `group`, the records lie there without a species, as Bmad writes them.
    """
    random = numpy.random.default_rng(count)
    length, mass, momentum, time = (1, 0, 0), (0, 1, 0), (1, 1, -1), (0, 0, 1)
    rows = {f"position/{axis}": (random.normal(size=count), length, 1.0, "m") for axis in AXES}
    rows |= {f"momentum/{axis}": (random.normal(size=count), momentum, 5.344285992678308e-28, "eV/c") for axis in AXES}
    rows["momentum/z"] = (numpy.full(count, 1e6), *rows["momentum/z"][1:])
    rows["time"] = numpy.zeros(count), time, 1.0, "s"
    rows["particleStatus"] = numpy.ones(count, int), (0, 0, 0), 1.0, "1"
    rows["mass"] = numpy.full(count, numpy.nan), mass, 1.0, "kg"
    with h5py.File(path, "w") as file:
        stated = {"basePath": base, "dataType": "openPMD", "openPMD": "2.0.0", "openPMDextension": "BeamPhysics;SpeciesType"}
        for name, text in {**stated, "particlesPath": "./" if group else "particles"}.items():
            file.attrs[name] = numpy.bytes_(text)
        species = file.create_group(group or "particles/electron")
        species.attrs.update({"speciesType": numpy.bytes_("electron"), "numParticles": count, "totalCharge": 1e-12})
        for name, (values, dimension, factor, symbol) in rows.items():
            if (values == values[0]).all() or numpy.isnan(values).all():
                item = species.create_group(name)
                item.attrs.update({"value": values[0], "shape": values.shape})
            else:
                item = species.create_dataset(name, data=values)
            unit = {"unitSI": factor, "unitSymbol": symbol, "unitDimension": (*map(float, dimension), 0.0, 0.0, 0.0, 0.0)}
            item.attrs.update(unit)
        species["id"] = numpy.arange(count) + 1
    return {name.replace("/", "_"): values[0] for name, values in rows.items()} | {"id": numpy.arange(count) + 1}
