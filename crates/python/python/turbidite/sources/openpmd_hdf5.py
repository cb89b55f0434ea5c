"""openPMD in HDF5, by h5py: files of openpmd-api, and those that it refuses, such as those of openPMD-beamphysics.

Each file is opened by itself. The label of an epoch is the iteration's number in the file, whatever the file is called.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy

from turbidite.sources.attributes import Attributes, of_openpmd
from turbidite.sources.epochs import Epochs
from turbidite.sources.errors import failed, usage
from turbidite.sources.hdf5_content import Leaf, followed, member
from turbidite.sources.hdf5_files import Hdf5Source, constant, errors, opened
from turbidite.sources.inventory import Array, Epoch, Options
from turbidite.sources.patterns import File
from turbidite.sources.tables import Found, Member, named_epoch
from turbidite.sources.units import number, si_unit, text

_POSITION, _OFFSET, _PATCHES = "position", "positionOffset", "particlePatches"
_ITERATION = "%T"
_NOWHERE = "particles"


@dataclass(frozen=True)
class _Particles:
    """The particles of an iteration."""

    label: int | None
    """The iteration, or `None` in a file without iterations."""
    species: dict[str, tuple[str, Any]]
    """The path and the group of each species."""
    attributes: Attributes


@dataclass(frozen=True)
class _Survey:
    """Properties common to the iterations that are read."""

    species: str
    widened: set[str]
    """The axes with a positionOffset in some iteration."""


class OpenPMDInHDF5(Hdf5Source):
    """A series of openPMD files in HDF5."""

    name = "openPMD"

    @classmethod
    def survey(cls, files: list[File], options: Options, epochs: Epochs) -> _Survey | None:
        known: set[str] = set()
        widened: set[str] = set()
        is_read = False
        for file in files:
            with epochs.judged(named_epoch(file, options, files), file.path):
                for one in _iterations(file):
                    if one.label is not None and not epochs.selects(one.label):
                        continue
                    is_read = True
                    known |= {*one.species}
                    chosen = one.species.get(options.species) if options.species else next(iter(one.species.values()), None)
                    widened |= set(_offsets(chosen[1])) if chosen else set()
        return _Survey(_species(known, options), widened) if is_read else None

    @classmethod
    def tables(cls, file: File, options: Options, notes: list[str], surveyed: _Survey | None) -> Iterator[Found]:
        for one in _iterations(file):
            if surveyed is None or (one.label is not None and not options.selects(one.label)):
                continue
            found = _table(file, one, surveyed.species, surveyed.widened)
            if found.epoch is None and options.epoch is None and not file.numbers:
                notes.append(f"{file.path} has no iterations, and is epoch 0; --epoch states another one")
                found = replace(found, epoch=0)
            yield found

    @classmethod
    def no_records(cls, surveyed: _Survey) -> str:
        return f"no iteration has particles of the species '{surveyed.species}'"

    def _values(self, epoch: Epoch, where: dict[str, Any], member: str, first: int, rows: int) -> Array:
        values = super()._values(epoch, where, member, first, rows)
        if "offset" not in where:
            return values
        values = values.astype(numpy.float64)
        if where["offset"] is None:
            # A position without an offset in this iteration, and with one in others.
            return values
        offset = super()._values(epoch, where["offset"], f"{_OFFSET} of {member}", first, rows)
        shifted: Array = values + offset.astype(numpy.float64) * where["factor"]
        return shifted


def _iterations(file: File) -> Iterator[_Particles]:
    """Yields the particles of each iteration of a file, which is open meanwhile."""
    with errors(file.path), opened(file.path) as content:
        base, particles = (text(content.attrs.get(name)) for name in ("basePath", "particlesPath"))
        if base is None:
            raise failed("has no attribute 'basePath', which openPMD needs; read it as plain HDF5: --format hdf5", file.path)
        before, is_series, after = base.partition(_ITERATION)
        folder = content.get(before.rstrip("/") or "/") if is_series else None
        labels: dict[int | None, str] = {None: ""}
        if is_series:
            labels = {int(name): name for name in folder or () if name.isdecimal()}
        for label in sorted(labels, key=lambda one: one or 0):
            iteration = posixpath.normpath("/" + f"{before}{labels[label]}{after}".lstrip("/"))
            place = posixpath.normpath(f"{iteration}/{particles or _NOWHERE}")
            group, stated = content.get(place), of_openpmd(content[iteration].attrs if iteration in content else {})
            yield _Particles(label, {} if group is None else _species_of(group, place), stated)


def _species_of(group: Any, place: str) -> dict[str, tuple[str, Any]]:
    """Returns the species in a group, which may be a single species itself."""
    groups = {}
    for name in group:
        item = followed(group, name)[0]
        if hasattr(item, "shape") or (item is not None and _is_record(name, item)):
            own = text(group.attrs.get("speciesType")) or posixpath.basename(place)
            return {own: (place, group)}
        if hasattr(item, "keys"):
            groups[name] = f"{place}/{name}", item
    return groups


def _is_record(name: str, item: Any) -> bool:
    return name == _POSITION or "unitDimension" in item.attrs or "value" in item.attrs


def _species(known: set[str], options: Options) -> str:
    """Returns the species to read."""
    names = ", ".join(sorted(known))
    if not known:
        raise failed("the source has no particles", options.path)
    if options.species is None:
        if len(known) > 1:
            raise usage(f"the source has several species; choose one with --species: {names}", options.path)
        return next(iter(known))
    if options.species not in known:
        raise usage(f"--species: there is no species '{options.species}'; the source has {names}", options.path)
    return options.species


def _table(file: File, particles: _Particles, species: str, widened: set[str]) -> Found:
    """Returns the table of an iteration, without arrays if the species has no particles."""
    place, group = particles.species.get(species, ("", None))
    records = sorted(name for name in group or () if name not in (_OFFSET, _PATCHES))
    made = [one for name in records for one in _components(group, name, place, file.path)]
    # FBPIC gives its constants the length 1. They apply to every particle.
    single = {one.name for one, where in made if "constant" in where and one.shape == (1,)}
    lengths = [one.shape[0] for one, _ in made if one.shape and one.name not in single] or [1 for _ in single]
    members, places = [], {}
    for one, where in made:
        axis = one.name.removeprefix(f"{_POSITION}_")
        if one.name in single:
            one = replace(one, shape=(max(lengths),))
        if one.name != axis and axis in widened and one.problem is None:
            one = replace(one, dtype=numpy.dtype("f8"), remark="positionOffset is added, as f64")
            where = where | _offset(group, place, axis, file.path)
        members.append(one)
        places[one.name] = where
    return Found(file, members if any(lengths) else [], places, particles.label, attributes=particles.attributes)


def _components(group: Any, name: str, place: str, path: str) -> list[tuple[Member, dict[str, Any]]]:
    """Returns the components of a record, with their places."""
    item, target = followed(group, name)
    own = f"{place}/{name}"
    if item is None or hasattr(item, "shape") or "value" in item.attrs:
        return [_component(name, item, target, own, (), path)]
    found = [_component(f"{name}_{axis}", *followed(item, axis), f"{own}/{axis}", item.attrs, path) for axis in item]
    return found or [(Member(name, numpy.dtype("u1"), (), problem="is an empty group"), {})]


def _component(name: str, item: Any, target: str | None, place: str, record: Any, path: str) -> tuple[Member, dict[str, Any]]:
    """Returns a component: a dataset, or a group with the constant `value`."""
    unit = None if item is None else _unit(item.attrs, record)
    if item is None or hasattr(item, "shape"):
        return replace(member(name, Leaf(place, item, target), path), unit=unit), {"dataset": place}
    value = numpy.asarray(item.attrs.get("value", ()))
    if value.shape not in ((), (1,)):
        return Member(name, value.dtype, (), problem="has neither values nor a constant 'value'"), {}
    shape = tuple(int(length) for length in numpy.atleast_1d(item.attrs.get("shape", 1)))
    return Member(name, value.dtype, shape, unit), constant(value.reshape(()))


def _unit(component: Any, record: Any) -> str | None:
    dimension = (
        component.get("unitDimension") if "unitDimension" in component else record.get("unitDimension") if record else None
    )
    factor = number(component["unitSI"]) if "unitSI" in component else 1.0
    return si_unit(factor, (0,) * 7 if dimension is None else [float(power) for power in dimension])


def _offsets(group: Any) -> Iterator[str]:
    """Yields the components with a positionOffset that is not constant zero."""
    record: Any = followed(group, _OFFSET)[0] if _OFFSET in group else None
    if not hasattr(record, "keys"):
        return
    for axis in record:
        item = followed(record, axis)[0]
        if item is not None and (item.size if hasattr(item, "shape") else number(item.attrs.get("value"))):
            yield axis


def _offset(group: Any, place: str, axis: str, path: str) -> dict[str, Any]:
    """Returns the place of a component's positionOffset, and the factor from its unit to that of the position."""
    if axis not in _offsets(group):
        return {"offset": None}
    item = followed(group, f"{_OFFSET}/{axis}")[0]
    _, where = _component(axis, item, None, f"{place}/{_OFFSET}/{axis}", None, path)
    units = [number(one.attrs.get("unitSI", 1)) for one in (item, group[f"{_POSITION}/{axis}"])]
    return {"offset": where, "factor": units[0] / units[1]}
