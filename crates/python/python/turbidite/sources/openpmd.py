"""openPMD in ADIOS2, by openpmd-api, in every encoding that the library reads in random order.

Each file is opened by itself. The label of an epoch is the iteration's number in the file, whatever the file is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy

from turbidite.schema import Column
from turbidite.sources.attributes import Attributes, of_openpmd
from turbidite.sources.epochs import Epochs
from turbidite.sources.errors import INCOMPLETE, SourceError, corrupt, failed, listing, missing, usage
from turbidite.sources.inventory import (
    Array,
    Epoch,
    Inventory,
    Options,
    Source,
    block_rows,
    choose,
    in_words,
    packed,
    same_columns,
)
from turbidite.sources.patterns import File, files_of
from turbidite.sources.quiet import plain, quiet
from turbidite.sources.signatures import ADIOS2
from turbidite.sources.tables import axes_of
from turbidite.sources.units import si_unit

_SKIPPED = re.compile(
    r"^(Cannot read .*?) and will skip it due to read error:\n((?:.*\n)*?)(?=Cannot read|\Z|\[)", re.MULTILINE
)
_OPEN_FILES = 8
_POSITION, _OFFSET = "position", "positionOffset"


@dataclass(frozen=True)
class _Component:
    """A component of a species in one iteration."""

    column: Column
    record: str
    component: str
    offset: bool
    """Whether the iteration has a positionOffset for it that is not constant zero."""
    axis: str | None
    """Of complex numbers, ``real`` or ``imag``."""


@dataclass(frozen=True)
class _Iteration:
    label: int
    file: File
    species: dict[str, tuple[int, list[_Component], dict[str, str]]]
    """Of each species: records, components, and the reasons why others cannot be read."""
    attributes: Attributes

    @property
    def path(self) -> str:
        return self.file.path


class OpenPMD(Source):
    """A series of openPMD files in ADIOS2."""

    name = "openPMD"

    @classmethod
    def scan(cls, options: Options) -> Inventory:
        iterations: list[_Iteration] = []
        notes: list[str] = []
        files = files_of(options.path, ADIOS2, notes)
        epochs = Epochs(files, options, notes, files_have_steps=True)
        for file in files:
            with epochs.judged(file.stated_epoch, file.path):
                iterations += _iterations(file, options.species, epochs)
        if not iterations and (epochs.labels or epochs.left_out):
            return Inventory(cls.name, [], [], notes, labels=epochs.labels, left_out=epochs.left_out)
        species = _species(iterations, options)
        return _inventory(iterations, species, options, notes, epochs)

    def __init__(self, inventory: Inventory) -> None:
        super().__init__(inventory)
        self._series: dict[str, Any] = {}

    def read(self, epoch: Epoch, first: int, rows: int) -> Sequence[Array]:
        names = self.inventory.details["components"]
        added = set(self.inventory.details["offsets"])
        with _errors(epoch.path):
            records = self._opened(epoch).particles[self.inventory.details["species"]]
            arrays, offsets = [], {}
            for column, (record, component, _) in zip(self.inventory.columns, names, strict=True):
                found = records[record][component]
                if found.shape[0] != epoch.records and not found.constant:
                    raise failed(f"column '{column.name}' has changed since the source was opened; run again", epoch.path)
                arrays.append(_chunk(found, first, rows))
                if column.name in added and _OFFSET in records and component in records[_OFFSET]:
                    other = records[_OFFSET][component]
                    offsets[column.name] = _chunk(other, first, rows), other.unit_SI / found.unit_SI
            self._series[epoch.path].flush()
        return [
            _stored(numpy.broadcast_to(getattr(array, axis) if axis else array, rows), column, offsets.get(column.name))
            for column, array, (_, _, axis) in zip(self.inventory.columns, arrays, names, strict=True)
        ]

    def _opened(self, epoch: Epoch) -> Any:
        series = self._series.pop(epoch.path, None)
        if series is None:
            series = _open(epoch.path)
            while len(self._series) >= _OPEN_FILES:
                self._series.pop(next(iter(self._series))).close()
        self._series[epoch.path] = series
        iteration = series.iterations[epoch.epoch]
        iteration.open()
        return iteration


def _chunk(component: Any, first: int, rows: int) -> Any:
    """Requests rows of a component. Of a constant it is one value, since FBPIC gives constants the length 1."""
    return component.load_chunk([0], [1]) if component.constant else component.load_chunk([first], [rows])


def _stored(array: Array, column: Column, offset: tuple[Array, float] | None) -> Array:
    if offset is not None:
        return packed(array.astype(numpy.float64) + offset[0].astype(numpy.float64) * offset[1])
    if column.type == "f64" and array.dtype != numpy.float64:
        # A position without an offset in this iteration, and with one in others.
        array = array.astype(numpy.float64)
    return packed(array)


def _open(path: str) -> Any:
    try:
        import openpmd_api
    except ImportError:
        raise missing("an openPMD file", "openpmd-api", "openpmd") from None
    # A species without particles has no extents; those of others are compared by `_components`.
    options = '{"defer_iteration_parsing": true, "verify_homogeneous_extents": false}'
    return openpmd_api.Series(path, openpmd_api.Access.read_only, options)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Turns errors of the library into errors of the file."""
    try:
        with quiet() as printed:
            yield
    except (SourceError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - the library raises whatever its backends throw
        raise failed(f"cannot be read by openpmd-api: {plain(error, path)}; {INCOMPLETE}", path) from None
    skipped = _SKIPPED.search(printed.text)
    if skipped:
        reason = "; ".join(line.strip() for line in skipped[2].splitlines() if line.strip())
        raise failed(f"openpmd-api: {skipped[1][0].lower()}{skipped[1][1:]}: {reason}", path)


def _iterations(file: File, species: str | None, epochs: Epochs) -> list[_Iteration]:
    """Returns the iterations of one file that are read."""
    found, path = [], file.path
    with _errors(path):
        series = _open(path)
        for label in series.iterations:
            if not epochs.selects(int(label)):
                continue
            iteration = series.iterations[label]
            iteration.open()
            names = [name for name in iteration.particles if species is None or name == species]
            others: dict[str, tuple[int, list[_Component], dict[str, str]]] = {
                name: (0, [], {}) for name in iteration.particles if name not in names
            }
            read = {name: _components(iteration.particles[name], series, path, int(label)) for name in names}
            stated = {name: iteration.get_attribute(name) for name in iteration.attributes}
            found.append(_Iteration(int(label), file, {**others, **read}, of_openpmd(stated)))
        series.close()
    return found


def _components(species: Any, series: Any, path: str, label: int) -> tuple[int, list[_Component], dict[str, str]]:
    """Returns the records, the components and the unreadable components of a species."""
    components: list[_Component] = []
    unreadable: dict[str, str] = {}
    lengths: dict[str, int] = {}
    # Constants of length 1, as FBPIC writes them. They apply to every particle, so that only the other lengths must agree.
    single: set[str] = set()
    for record in species:
        if record == _OFFSET:
            continue
        for component in species[record]:
            found = species[record][component]
            name = record if component == found.SCALAR else f"{record}_{component}"
            if len(found.shape) != 1:
                unreadable[name] = f"has {len(found.shape)} dimensions, and records have one"
                continue
            lengths[name] = int(found.shape[0])
            if found.constant and lengths[name] == 1:
                single.add(name)
            dtype = numpy.dtype(found.dtype)
            axes, stored = axes_of(name, dtype)
            if stored is None:
                unreadable[name] = f"has the unsupported type {in_words(dtype)}"
                continue
            unit = si_unit(found.unit_SI, species[record].unit_dimension)
            offset = record == _POSITION and lengths[name] > 0 and _has_offset(species, component, series)
            components += [_Component(Column(own, stored, unit), record, component, offset, axis) for axis, own in axes.items()]
    decisive = {name: length for name, length in lengths.items() if name not in single} or lengths
    if len(set(decisive.values())) > 1:
        ones = ", ".join(f"'{name}' has {length}" for name, length in decisive.items())
        raise corrupt(f"the records of iteration {label} differ in length: {ones}", path)
    return next(iter(decisive.values()), 0), components, unreadable


def _has_offset(species: Any, component: str, series: Any) -> bool:
    if _OFFSET not in species or component not in species[_OFFSET]:
        return False
    offset = species[_OFFSET][component]
    if not offset.constant:
        return True
    value = offset.load_chunk([0], [1])
    series.flush()
    return bool(value[0] != 0)


def _species(iterations: list[_Iteration], options: Options) -> str:
    """Returns the species to read."""
    known = sorted({name for iteration in iterations for name in iteration.species})
    if not known:
        raise failed("the source has no particles" if iterations else "the source has no iterations", options.path)
    if options.species is None:
        if len(known) > 1:
            raise usage(f"the source has several species; choose one with --species: {', '.join(known)}", options.path)
        return known[0]
    if options.species not in known:
        raise usage(f"--species: there is no species '{options.species}'; the source has {', '.join(known)}", options.path)
    return options.species


def _inventory(iterations: list[_Iteration], species: str, options: Options, notes: list[str], epochs: Epochs) -> Inventory:
    if options.epoch is not None:
        raise usage("--epoch: the epochs of openPMD are the iterations in its files; omit the option", options.path)
    filled = [iteration for iteration in iterations if _records(iteration, species)]
    empty = [iteration for iteration in iterations if not _records(iteration, species)]
    if not filled:
        raise failed(f"no iteration has particles of the species '{species}'", options.path)
    offsets = {one.column.name for iteration in filled for one in iteration.species[species][1] if one.offset}
    chosen: dict[int, list[_Component]] = {}
    for iteration in filled:
        _, components, unreadable = iteration.species[species]
        by_name = {one.column.name: one for one in components}
        known = sorted(by_name) if options.columns is None else by_name
        names = choose(known, options.columns, unreadable, iteration.path)
        chosen[id(iteration)] = [by_name[name] for name in names]
        notes += [f"'{name}' {why}; it is left out" for name, why in unreadable.items() if options.columns is None]
    columns = same_columns(
        (
            (iteration.label, iteration.path, [_widened(one.column, offsets) for one in chosen[id(iteration)]])
            for iteration in filled
        ),
        options.columns,
    )
    added = [column.name for column in columns if column.name in offsets]
    if added:
        notes.append(f"positionOffset is added, as f64: {', '.join(added)}")
    if empty:
        labels = listing(sorted(iteration.label for iteration in empty))
        notes.append(f"the iterations without particles of the species '{species}' are empty epochs: {labels}")
    row_bytes = sum(numpy.dtype(_dtype(column.type)).itemsize for column in columns)
    for iteration in iterations:
        records = _records(iteration, species)
        epoch = Epoch(iteration.label, iteration.path, records, block_rows(row_bytes), attributes=iteration.attributes)
        epochs.add(iteration.file, epoch, [])
    reference = {one.column.name: one for one in chosen[id(filled[0])]}
    parts = [reference[column.name] for column in columns]
    places = [[part.record, part.component, part.axis] for part in parts]
    details = {"species": species, "components": places, "offsets": added}
    ordered, _ = epochs.finish()
    return Inventory(OpenPMD.name, columns, ordered, list(dict.fromkeys(notes)), details, epochs.labels, epochs.left_out)


def _records(iteration: _Iteration, species: str) -> int:
    return iteration.species[species][0] if species in iteration.species else 0


def _widened(column: Column, offsets: set[str]) -> Column:
    return Column(column.name, "f64", column.unit) if column.name in offsets else column


def _dtype(stored: str) -> str:
    return f"V{stored[12:-1]}" if stored.startswith("fixed_bytes") else f"{stored[0]}{int(stored[1:]) // 8}"
