"""HDF5 by h5py: the datasets of a group, of equal length, are the columns.

Several steps of a file are read from groups such as H5Part's ``Step#0``, or from datasets of shape (T, N) and (T, N, 3) as
in H5MD.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy

from turbidite.sources import gadget
from turbidite.sources.attributes import Attributes, attribute, of_mappings
from turbidite.sources.errors import failed, listing, usage
from turbidite.sources.hdf5_content import Gaps, Leaf, contents, followed, leaf_of_steps, member, tree
from turbidite.sources.hdf5_files import Hdf5Source, constant, errors, opened
from turbidite.sources.inventory import Options
from turbidite.sources.patterns import File
from turbidite.sources.tables import Found, Member, is_about_steps
from turbidite.sources.units import number, text

_PLACEHOLDER = re.compile(r"%\d*T|\{epoch\}")
_H5PART = "Step#{epoch}"
_GADGET = re.compile(r"PartType(\d)$")
_MASSES = "Masses"


class HDF5(Hdf5Source):
    """A series of HDF5 files without a schema of their own."""

    name = "HDF5"

    @classmethod
    def tables(cls, file: File, options: Options, notes: list[str], surveyed: Any) -> Iterator[Found]:
        with errors(file.path), opened(file.path) as content:
            pattern = options.species
            if pattern is None and any(re.fullmatch(r"Step#\d+", name) for name in content):
                pattern = _H5PART
            if pattern is not None and _PLACEHOLDER.search(pattern):
                yield from _of_groups(file, content, pattern, options, notes)
            elif pattern is not None and gadget.is_empty(content, pattern):
                yield Found(file, [], {}, counts=gadget.counts(content, pattern), attributes=_of_file(content))
            else:
                yield from _of_group(file, content, options, notes)


def _of_groups(file: File, content: Any, pattern: str, options: Options, notes: list[str]) -> Iterator[Found]:
    """Yields the tables of a file that has a group for each step. Of steps that are not read, only their labels."""
    found: list[tuple[str, Any, int | None]] = [("", content, None)]
    for part in pattern.strip("/").split("/"):
        found = [new for place, group, label in found for new in _matching(place, group, label, part)]
    if not found:
        known = listing((name or "/" for name, leaves in tree(content).items() if _has_columns(leaves)), 20) or "none"
        raise usage(f"--species: no group matches '{pattern}'; the groups with columns are {known}", file.path)
    if pattern == _H5PART and len(found) < len(content):
        others = [name for name in content if not name.startswith("Step#")]
        notes.append(f"only the groups '{pattern}' are read; left out: {listing(others)}")
    for place, group, label in sorted(found, key=lambda one: one[2] or 0):
        if label is not None and not options.selects(label):
            yield Found(file, [], {}, label)
            continue
        leaves, groups = contents(group, place)
        if groups and pattern == _H5PART:
            notes.append(f"groups of '{pattern}' are left out: {listing(groups)}")
        arrays = _arrays(file, content, place, leaves)
        yield Found(file, *arrays, label, f"--species '{pattern}'", of_mappings(content.attrs, group.attrs))


def _matching(place: str, group: Any, label: int | None, part: str) -> Iterator[tuple[str, Any, int | None]]:
    """Yields the groups that match one component of a pattern, with the step."""
    if not _PLACEHOLDER.search(part):
        names = [part] if part in group else []
        expression = re.compile("()" + re.escape(part))
    else:
        names = list(group)
        expression = re.compile(r"(\d+)".join(re.escape(text) for text in _PLACEHOLDER.split(part)))
    for name in names:
        match = expression.fullmatch(name)
        item = followed(group, name)[0] if match else None
        if match and hasattr(item, "keys"):
            yield f"{place}/{name}", item, int(match[1]) if match[1] else label


def _of_group(file: File, content: Any, options: Options, notes: list[str]) -> Iterator[Found]:
    """Yields the table of one group, or one for each of its steps."""
    place, leaves = _chosen_group(content, file.path, options, notes)
    members, places = _arrays(file, content, place, leaves)
    timed = {name: leaf for name, leaf in leaves.items() if leaf.steps is not None}
    if not timed:
        yield Found(file, members, places, counts=gadget.counts(content, place), attributes=_of_file(content))
        return
    labels = {name: _steps(leaf, notes) for name, leaf in timed.items()}
    # The steps are those of the first array that is read.
    read = [name for name in timed if options.columns is None or any(_is_of(column, name) for column in options.columns)]
    reference = min(read or timed, key=lambda name: name != "position")
    steps = labels[reference]
    if isinstance(steps, str):
        raise failed(f"'{reference}' {steps}", file.path)
    others = {
        name: own if isinstance(own, str) else f"has other steps than '{reference}'"
        for name, own in labels.items()
        if own != steps
    }
    members = [replace(one, problem=others.get(one.name, one.problem)) for one in members]
    gaps = {name: Gaps(leaf.dataset, leaf.place, file.path) for name, leaf in timed.items()}
    absent = _absent_particles(timed["id"], file.path) if "id" in timed else None
    for frame, label in enumerate(steps):
        of_step = [
            replace(one, lacks=partial(_lacks, gaps[one.name], frame, absent)) if one.name in timed else one for one in members
        ]
        these = {name: {**where, "frame": frame} if name in timed else where for name, where in places.items()}
        stated = _of_file(content) | _time(timed[reference], frame, len(steps))
        yield Found(file, of_step, these, label, f"the 'step' of '{reference}'", stated)


def _of_file(content: Any) -> Attributes:
    """Returns the attributes of a file and of GADGET's header."""
    header = content.get("Header")
    return of_mappings(content.attrs, header.attrs if hasattr(header, "attrs") else {})


def _time(leaf: Leaf, frame: int, frames: int) -> Attributes:
    """Returns the time of a frame of H5MD, if it has one. A single number is the distance of times."""
    stored: Any = leaf.steps.get("time") if leaf.steps is not None else None
    if not hasattr(stored, "shape"):
        return {}
    if stored.shape == ():
        value = number(stored.attrs.get("offset")) + number(stored[()]) * frame
    elif stored.shape == (frames,):
        value = stored[frame]
    else:
        return {}
    return attribute("time", value, text(stored.attrs.get("unit")))


def _lacks(gaps: Gaps, frame: int, absent: Callable[[int], str | None] | None) -> str | None:
    return gaps.of(frame) or (absent(frame) if absent is not None else None)


def _is_of(column: str, name: str) -> bool:
    """Returns whether a column may belong to an array."""
    return column.strip() == name or column.strip().startswith(f"{name}_")


def _steps(leaf: Leaf, notes: list[str]) -> list[int] | str:
    """Returns the steps of the frames, or why there are none. A single number is their distance, as H5MD has it."""
    frames = int(leaf.dataset.shape[0])
    stored = leaf.steps.get("step")
    if stored is None:
        notes.append(f"'{leaf.place}' has times without steps; the epochs are the numbers of its frames")
        return list(range(frames))
    values = numpy.asarray(stored[()])
    if values.ndim == 0:
        values = int(number(stored.attrs.get("offset"))) + int(values) * numpy.arange(frames)
    if values.shape != (frames,):
        return f"has {frames} frames, and its 'step' has {values.size} values; is it still being written?"
    if values.dtype.kind not in "iu" and not numpy.array_equal(values, numpy.floor(values)):
        return "has steps that are not integers, and cannot be epochs"
    return [int(value) for value in values]


def _absent_particles(leaf: Leaf, path: str) -> Callable[[int], str | None] | None:
    """Returns a function for the rows of a step without a particle, which H5MD marks by the fill value of `id`."""
    import h5py

    dataset = leaf.dataset
    if dataset.id.get_create_plist().fill_value_defined() != h5py.h5d.FILL_VALUE_USER_DEFINED:
        return None

    @lru_cache(maxsize=1)
    def of(frame: int) -> str | None:
        with errors(path):
            count = int(numpy.count_nonzero(dataset[frame] == dataset.fillvalue))
        marked = f"{count} rows of frame {frame} have no particle: '{leaf.place}' is its fill value {dataset.fillvalue}"
        return f"{marked}; --nulls fill reads them" if count else None

    return of


def _arrays(file: File, content: Any, place: str, leaves: dict[str, Leaf]) -> tuple[list[Member], dict[str, Any]]:
    """Returns the arrays of a group, with GADGET's mass of particles that all have the same."""
    members = [member(name, leaf, file.path) for name, leaf in leaves.items()]
    places: dict[str, Any] = {name: {"dataset": leaf.place} for name, leaf in leaves.items()}
    kind = _GADGET.search(place)
    lengths = [one.shape[0] for one in members if one.shape]
    if kind is not None and _MASSES not in leaves and lengths and "Header" in content:
        masses = numpy.atleast_1d(content["Header"].attrs.get("MassTable", ()))
        if masses.dtype.kind in "fiu" and int(kind[1]) < len(masses) and masses[int(kind[1])] > 0:
            mass = masses[int(kind[1])]
            members.append(
                Member(_MASSES, mass.dtype, (max(lengths, key=lengths.count),), remark="the constant of Header/MassTable")
            )
            places[_MASSES] = constant(mass)
    return members, places


def _chosen_group(content: Any, path: str, options: Options, notes: list[str]) -> tuple[str, dict[str, Leaf]]:
    """Returns the group to read: the stated one, the root, the one with steps, or the only one that has columns."""
    if options.species is not None:
        return _stated(content, path, options.species)
    groups = tree(content)
    having = {name: leaves for name, leaves in groups.items() if _has_columns(leaves)}
    useful = {name: leaves for name, leaves in having.items() if not all(map(is_about_steps, _columns(leaves)))} or having
    timed = [name for name, leaves in useful.items() if any(leaf.steps is not None for leaf in leaves.values())]
    # H5MD has arrays of other things beside the particles.
    timed = [name for name in timed if name.startswith("particles/")] or timed
    lengths = {leaf.dataset.shape[0] for leaf in _columns(useful.get("", {})).values()}
    if len(timed) == 1 or len(useful) == 1:
        name = timed[0] if len(timed) == 1 else next(iter(useful))
    elif len(lengths) == 1:
        name = ""
    elif not useful:
        found = listing(f"{place}/{leaf}".strip("/") for place, leaves in groups.items() for leaf in leaves)
        raise failed(f"the file has no one-dimensional datasets of numbers; it has {found or 'no datasets'}", path)
    else:
        names = listing((name or "/" for name in useful), 20)
        raise usage(f"several groups have columns; choose one with --species: {names}{_steps_among(useful)}", path)
    others = [f"{place}/{leaf}".strip("/") for place, leaves in groups.items() if place != name for leaf in leaves]
    if others and options.columns is None:
        if all(map(is_about_steps, _columns(groups[name]))):
            read = list(_columns(groups[name]))
            raise failed(
                f"only {', '.join(read)} can be read, and not {listing(others)}; --columns {','.join(read)} reads these", path
            )
        notes.append(f"only the group '{name or '/'}' is read; left out: {listing(others)}")
    return f"/{name}" if name else "", groups[name]


def _stated(content: Any, path: str, species: str) -> tuple[str, dict[str, Leaf]]:
    name = species.strip("/")
    item, target = followed(content, name) if name and name in content else (None if name else content, None)
    place = f"/{name}" if name else ""
    if target is not None and item is None:
        raise usage(f"--species: '{species}' is a link to '{target}', which does not exist", path)
    own = place.rpartition("/")[2]
    if hasattr(item, "shape"):
        return place.rpartition("/")[0], {own: Leaf(place, item)}
    if hasattr(item, "keys"):
        leaf = leaf_of_steps(item, place)
        leaves = contents(item, place)[0] if leaf is None else {own: leaf}
        if _has_columns(leaves):
            return place, leaves
    known = listing((name or "/" for name, leaves in tree(content).items() if _has_columns(leaves)), 20) or "none"
    raise usage(f"--species: there is no group '{species}' with columns; the groups with columns are {known}", path)


def _columns(leaves: dict[str, Leaf]) -> dict[str, Leaf]:
    return {name: leaf for name, leaf in leaves.items() if leaf.is_column}


def _has_columns(leaves: dict[str, Leaf]) -> bool:
    return bool(_columns(leaves))


def _steps_among(names: Iterable[str]) -> str:
    """Returns the advice on groups whose names differ in a number only."""
    patterns = Counter(re.sub(r"\d+", "{epoch}", name, count=1) for name in names if not _GADGET.search(name))
    [(pattern, count)] = patterns.most_common(1) or [("", 0)]
    return f"; if the number is the step, --species '{pattern}'" if count > 1 else ""
