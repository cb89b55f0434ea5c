"""The datasets of an HDF5 file that are read, left out or refused: one rule for all readers of HDF5.

- Soft and external links are followed. A group is listed once, and not at all if it only has other names of datasets.
- Links to nothing, and datasets whose type or shape has no columns, are left out with a note, unless they are chosen.
- Values that were never written are refused, since HDF5 returns fill values for them without an error.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy

from turbidite.sources.errors import listing
from turbidite.sources.hdf5_files import errors, filtered, opened, source_file
from turbidite.sources.tables import Member, Table
from turbidite.sources.units import cosmology_of, unit_of

_VALUE, _STEP, _TIME = "value", "step", "time"
_REMEDY = "HDF5 returns fill values for them; --nulls fill reads these"


@dataclass(frozen=True)
class Leaf:
    """A dataset of a group, or the values of a group for each of several steps, or a link to nothing."""

    place: str
    """The path in the file."""
    dataset: Any = None
    target: str | None = None
    """The target of a soft or an external link."""
    steps: Any = None
    """The group with `step` or `time`, if the first dimension of the dataset is that of steps."""

    @property
    def is_column(self) -> bool:
        """Returns whether the values have the type and the shape of columns."""
        if self.dataset is None:
            return False
        table = Table()
        table.add(member(self.place, self, ""))
        return bool(table.parts)


def contents(group: Any, place: str) -> tuple[dict[str, Leaf], dict[str, tuple[Any, bool]]]:
    """Returns the leaves of a group, and its groups with whether they are linked. `place` is the group's path."""
    leaves: dict[str, Leaf] = {}
    groups: dict[str, tuple[Any, bool]] = {}
    for name in group:
        item, target = followed(group, name)
        own = f"{place}/{name}"
        if item is None or hasattr(item, "shape"):
            leaves[name] = Leaf(own, item, target)
        elif hasattr(item, "keys"):
            leaf = leaf_of_steps(item, own)
            if leaf is None:
                groups[name] = item, target is not None
            else:
                leaves[name] = leaf
    return leaves, groups


def followed(group: Any, name: str) -> tuple[Any, str | None]:
    """Returns an object of a group, or `None`, and the target if its name is a soft or an external link."""
    import h5py

    link = group.get(name, getlink=True)
    if isinstance(link, h5py.HardLink):
        return group[name], None
    target = str(link.path) if isinstance(link, h5py.SoftLink) else f"{link.filename}:{link.path}"
    try:
        return group[name], target
    except (KeyError, OSError):
        return None, target


def leaf_of_steps(group: Any, place: str) -> Leaf | None:
    """Returns the leaf of a group with a dataset `value`, of shape (T, N) or (T, N, components), and its `step` or `time`."""
    import h5py

    value = group.get(_VALUE)
    if not isinstance(value, h5py.Dataset) or value.shape is None or len(value.shape) not in (2, 3):
        return None
    return Leaf(f"{place}/{_VALUE}", value, steps=group) if _STEP in group or _TIME in group else None


def tree(file: Any) -> dict[str, dict[str, Leaf]]:
    """Returns the leaves of all groups by the group's path. That of the root is ''.

    Groups that only have other names of leaves are left out.
    """
    found: dict[str, dict[str, Leaf]] = {}
    seen: set[tuple[Any, ...]] = set()
    todo: list[tuple[str, Any]] = [("", file["/"])]
    linked: list[tuple[str, Any]] = []
    while todo or linked:
        # Linked objects last, so that those with hard links keep their own names.
        place, group = todo.pop(0) if todo else linked.pop(0)
        if _is_new(group, seen):
            found[place], groups = contents(group, place)
            for name, (item, is_linked) in groups.items():
                (linked if is_linked else todo).append((f"{place}/{name}", item))
    leaves = [(place, leaf) for place, named in found.items() for leaf in named.values()]
    own = {place for place, leaf in leaves if leaf.target is None and _is_new(leaf.dataset, seen)}
    own |= {
        place for place, leaf in leaves if leaf.target is not None and (leaf.dataset is None or _is_new(leaf.dataset, seen))
    }
    return {place.strip("/"): named for place, named in found.items() if place in own}


def _is_new(item: Any, seen: set[tuple[Any, ...]]) -> bool:
    import h5py

    about = h5py.h5g.get_objinfo(item.id)
    identity = about.fileno, about.objno
    is_new = identity not in seen
    seen.add(identity)
    return is_new


def member(name: str, leaf: Leaf, path: str) -> Member:
    """Returns the array of a leaf. That of steps has the shape of one step."""
    if leaf.dataset is None:
        problem = f"is a link to '{leaf.target}', which does not exist"
        return Member(name, numpy.dtype("u1"), (), problem=problem)
    dataset = leaf.dataset
    try:
        dtype = dataset.dtype
    except TypeError as error:
        return Member(name, numpy.dtype("u1"), (), problem=f"has an unsupported type ({error})")
    if dataset.shape is None:
        return Member(name, dtype, (), problem="has no values (its dataspace is null)")
    axis = 0 if leaf.steps is None else 1
    shape = tuple(int(length) for length in dataset.shape[axis:])
    chunk = int(dataset.chunks[axis]) if dataset.chunks else 0
    lacks = Gaps(dataset, leaf.place, path).of
    return Member(
        name, dtype, shape, unit_of(dataset.attrs), chunk, filtered(dataset), None, lacks, cosmology_of(dataset.attrs)
    )


Rows = list[tuple[int, int]]
"""Ranges of rows, with both ends."""


class Gaps:
    """The values of a dataset that were never written, or that no source of a virtual dataset has."""

    def __init__(self, dataset: Any, place: str, path: str) -> None:
        self._dataset, self._place, self._path = dataset, place, path

    def of(self, frame: int | None = None) -> str | None:
        """Returns which values are absent, of one step if the first dimension is that of steps."""
        import h5py

        with errors(self._path):
            dataset = self._dataset
            for number in range(dataset.id.get_create_plist().get_nfilters()):
                code = dataset.id.get_create_plist().get_filter(number)[0]
                if not h5py.h5z.filter_avail(code):
                    return f"the dataset '{self._place}' needs the HDF5 filter {code}, which is not installed: pip install hdf5plugin"
            if dataset.is_virtual:
                # Unlimited sources that are absent make it empty.
                return self._of_sources(frame)
            if dataset.size == 0:
                return None
            raw = _short_raw_file(dataset, self._path)
            if raw is not None:
                return f"the dataset '{self._place}' lacks values in {raw}; {_REMEDY}"
            rows = self.rows(frame)
            if not rows:
                return None
            part = _in_words(rows) + ("" if frame is None else f" of frame {frame}")
            return f"the dataset '{self._place}' has no values in {part}, which were never written; {_REMEDY}"

    def rows(self, frame: int | None = None) -> Rows:
        """Returns the rows that have values that were never written."""
        if self._written is None:
            return []
        if self._written is False:
            return [(0, self._dataset.shape[0 if frame is None else 1] - 1)]
        chunks, written = self._dataset.chunks, self._written
        axis = 0 if frame is None else 1
        if frame is not None:
            written = written[frame // chunks[0]]
        length, step = self._dataset.shape[axis], chunks[axis]
        absent = numpy.flatnonzero(~written.reshape(len(written), -1).all(axis=1)).tolist()
        runs = [[number for _, number in run] for _, run in groupby(enumerate(absent), lambda one: one[1] - one[0])]
        return [(run[0] * step, min(length, (run[-1] + 1) * step) - 1) for run in runs]

    @cached_property
    def _written(self) -> Any:
        """Whether each chunk was written; `None` if all values were, `False` if none was."""
        dataset = self._dataset
        if not dataset.chunks:
            return None if dataset.external or dataset.id.get_storage_size() else False
        grid = tuple(math.ceil(length / chunk) for length, chunk in zip(dataset.shape, dataset.chunks, strict=True))
        if dataset.id.get_num_chunks() == math.prod(grid):
            return None
        written = numpy.zeros(grid, bool)
        for offset in _chunk_offsets(dataset):
            written[tuple(first // chunk for first, chunk in zip(offset, dataset.chunks, strict=True))] = True
        return written

    def _of_sources(self, frame: int | None) -> str | None:
        name, mapped = f"the virtual dataset '{self._place}'", 0
        axis = 0 if frame is None else 1
        for source in self._dataset.virtual_sources():
            frames, rows = _bounds(source.vspace, 0), _bounds(source.vspace, axis)
            # HDF5 computes the extent of unlimited sources from the files that exist.
            mapped += self._dataset.size if frames is None else int(source.vspace.get_select_npoints())
            if "%" in source.file_name or (frame is not None and frames is not None and not frames[0] <= frame <= frames[1]):
                continue
            place = f" for {_in_words([rows])}" if rows is not None else ""
            found = source_file(source.file_name, self._dataset.file.filename)
            if found is None:
                return f"{name} lacks its source {source.file_name}{place}: put the file back; {_REMEDY}"
            why = _gap_of_source(found, source)
            if why is not None:
                return f"{name} {why}{place}; {_REMEDY}"
        if mapped < self._dataset.size:
            return f"{name} has sources for {mapped} of its {self._dataset.size} values only; {_REMEDY}"
        return None


def _gap_of_source(path: str, source: Any) -> str | None:
    """Returns what a source of a virtual dataset lacks of the values that it should have."""
    with errors(path), opened(path) as file:
        found: Any = followed(file, source.dset_name)[0] if source.dset_name in file else None
        if not getattr(found, "shape", None):
            return f"lacks its source '{source.dset_name}' in {path}"
        if found.is_virtual:
            return Gaps(found, source.dset_name, path).of()
        first, last = _bounds(source.src_space, 0) or _all_rows(source, found)
        if last >= found.shape[0]:
            return f"needs {last + 1} rows of its source '{source.dset_name}' in {path}, which has {found.shape[0]},"
        absent = [rows for rows in Gaps(found, source.dset_name, path).rows() if rows[0] <= last and rows[1] >= first]
        return f"has values that were never written of its source '{source.dset_name}' in {path}" if absent else None


def _bounds(space: Any, axis: int) -> tuple[int, int] | None:
    """Returns the first and the last index of a selection along an axis, or `None` if it is unlimited, or all of a source."""
    try:
        first, last = space.get_select_bounds()
    except (RuntimeError, ValueError):
        return None
    return int(first[axis]), int(last[axis])


def _all_rows(source: Any, found: Any) -> tuple[int, int]:
    """Returns the rows of a source that is mapped completely, by the size of its place."""
    if _bounds(source.vspace, 0) is None:
        return 0, int(found.shape[0]) - 1
    return 0, int(source.vspace.get_select_npoints()) // math.prod(found.shape[1:]) - 1


def _chunk_offsets(dataset: Any) -> Iterator[tuple[int, ...]]:
    """Yields the offsets of the chunks that the file has."""
    offsets: list[tuple[int, ...]] = []

    def note(chunk: Any) -> None:
        offsets.append(chunk.chunk_offset)

    dataset.id.chunk_iter(note)
    yield from offsets


def _short_raw_file(dataset: Any, path: str) -> str | None:
    """Returns the file outside of HDF5 that has values of a dataset, if it is too short. HDF5 reports absent ones itself."""
    prefix = os.environ.get("HDF5_EXTFILE_PREFIX", "").replace("${ORIGIN}", os.path.dirname(os.path.abspath(path)))
    rest = dataset.nbytes
    for name, offset, length in dataset.external or ():
        # The last file may be of any length.
        needed = min(length, rest)
        rest -= needed
        found = os.path.join(prefix, name)
        if os.path.exists(found) and os.path.getsize(found) < offset + needed:
            return f"{found}, which has {os.path.getsize(found)} of {offset + needed} bytes"
    return None


def _in_words(rows: Rows) -> str:
    return "rows " + listing((f"{first} to {last}" for first, last in rows), 4)
