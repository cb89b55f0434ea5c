"""The rule for HDF5 files, by h5py: each dataset is a column with equal values, or left out by name in the notes, or named by the
refusal of the file. No value is invented, and nothing is dropped in silence."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import h5py
import numpy

MAX_COMPONENTS = 16


@dataclass
class Dataset:
    """A dataset of a group, by the name of its link."""

    name: str
    rows: int | None
    columns: dict[str, numpy.ndarray] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """The names of fields that cannot be columns, or the dataset's own."""
    is_whole: bool = True
    is_readable: bool = True
    identity: tuple = ()
    """The same for all links to one dataset."""


@dataclass
class Contents:
    """The groups of a file with their datasets, and the links that lead nowhere, as group and name."""

    groups: dict[str, list[Dataset]] = field(default_factory=dict)
    dangling: list[tuple[str, str]] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    """Other paths of groups."""

    def with_columns(self) -> list[str]:
        return [group for group, datasets in self.groups.items() if any(one.columns for one in datasets)]


def contents(path: Path) -> Contents:
    """Walks a file, and follows its links."""
    found, seen, held = Contents(), {}, []
    with h5py.File(path, "r") as file:
        _walk(file, "", found, seen, held)
    return found


def _walk(group: h5py.Group, path: str, found: Contents, seen: dict, held: list) -> None:
    """`held` keeps objects open: files of external links that are opened again get another number."""
    identity = _identity(group)
    if identity in seen:
        found.aliases[path] = seen[identity]
        return
    seen[identity] = path
    found.groups[path] = []
    for name in group:
        try:
            item = group[name]
        except (KeyError, OSError):
            found.dangling.append((path, name))
            continue
        held.append(item)
        if isinstance(item, h5py.Group):
            _walk(item, f"{path}/{name}".strip("/"), found, seen, held)
        else:
            found.groups[path].append(_dataset(name, item))


def _identity(item: h5py.Group | h5py.Dataset) -> tuple:
    found = h5py.h5o.get_info(item.id)
    return found.fileno, found.addr


def _dataset(name: str, item: h5py.Dataset) -> Dataset:
    shape = item.shape or ()
    is_whole, is_readable = (bool(item.attrs.get(flag, True)) for flag in ("is_whole", "is_readable"))
    made = Dataset(name, shape[0] if shape else None, is_whole=is_whole, is_readable=is_readable, identity=_identity(item))
    dtype = item.dtype
    fields = {name: None} if dtype.names is None or len(shape) != 1 else {one: one for one in dtype.names}
    for own, place in fields.items():
        kind = dtype if place is None else dtype[place]
        inner = (shape[1:] if place is None else ()) + kind.shape
        if not shape or len(inner) > 1 or (inner and not 1 <= inner[0] <= MAX_COMPONENTS) or not _can_be_stored(kind.base):
            made.left_out.append(own)
            continue
        content = item[()] if is_readable else numpy.zeros((*shape, *kind.shape), kind.base)
        made.columns.update(columns_of(own, content if place is None else content[place]))
    return made


def _can_be_stored(kind: numpy.dtype) -> bool:
    if kind.names is not None or h5py.check_dtype(vlen=kind) or h5py.check_dtype(ref=kind):
        return False
    return kind.kind in "biuV" or (kind.kind == "f" and kind.itemsize <= 8) or (kind.kind == "c" and kind.itemsize <= 16)


def columns_of(name: str, content: numpy.ndarray) -> Iterator[tuple[str, numpy.ndarray]]:
    parts = {f"{name}_re": content.real, f"{name}_im": content.imag} if content.dtype.kind == "c" else {name: content}
    for own, part in parts.items():
        if part.dtype.kind == "b":
            part = part.astype("u1")
        elif part.dtype.kind == "f" and part.dtype.itemsize == 2:
            part = part.astype("f4")
        part = part.astype(part.dtype.newbyteorder("<"))
        if part.ndim == 1:
            yield own, part
            continue
        axes = "xyz" if part.shape[1] == 3 else range(part.shape[1])
        yield from ((f"{own}_{axis}", part[:, place]) for place, axis in enumerate(axes))


def says(text: str, *names: str) -> bool:
    """Whether a text has all names, as words."""
    return all(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) for name in names)


def judge_refusal(found: Contents, message: str, species: str | None, columns: list[str] | None) -> str | None:
    """Returns what is wrong with a refusal: no object of the file gives a reason for it, or the message has another name."""
    if "the reader failed with" in message:
        return "a crash"
    possible = found.with_columns() if species is None else [found.aliases.get(species, species)]
    reasons = []
    also = _also(found)

    def is_named(name: str) -> bool:
        # The root has no name.
        return not name or any(says(message, one) for one in (name, *also.get(name, [])))

    if species is None and not possible:
        # A null or scalar dataset in the way is a reason, too.
        reasons.append(_left_out(found)[:1])
    if species is None and len(possible) > 1:
        # Of groups with links to the same datasets, one is enough.
        identities = {group: {one.identity for one in found.groups[group] if one.columns} for group in possible}
        named = set().union(*(own for group, own in identities.items() if is_named(group)))
        if named == set().union(*identities.values()):
            return None
    for group in possible or list(found.groups):
        chosen = [one for one in found.groups[group] if columns is None or {*columns} & {*one.columns, *one.left_out}]
        reasons += [[one.name] for one in chosen if not (one.is_whole and one.is_readable)]
        sized = [one for one in chosen if one.columns]
        reasons += [[one.name, other.name] for one, other in combinations(sized, 2) if one.rows != other.rows]
        if columns is None:
            reasons += [[name] for place, name in found.dangling if place == group]
            if not any(one.columns for one in chosen):
                reasons += [[name] for one in chosen for name in one.left_out] or [[]]
                reasons += [[species]] if species else []
        names = [name for one in chosen for name in one.columns]
        reasons += [[name] for name in columns or names if names.count(name) > 1 or any(name in one.left_out for one in chosen)]
    if any(all(map(is_named, names)) for names in reasons):
        return None
    return f"a refusal without one of these reasons: {reasons}"


def _also(found: Contents) -> dict[str, list[str]]:
    """The other names of groups and datasets that have several links."""
    also = {group: [alias for alias, other in found.aliases.items() if other == group] for group in found.groups}
    datasets = [one for named in found.groups.values() for one in named]
    for one in datasets:
        also.setdefault(one.name, []).extend(other.name for other in datasets if other.identity == one.identity)
    return also


def _left_out(found: Contents) -> list[str]:
    return [name for datasets in found.groups.values() for one in datasets for name in one.left_out] + [name for _, name in found.dangling]


def in_place(expected: numpy.ndarray, values: numpy.ndarray) -> bool:
    """Whether two columns have the same bits."""
    return expected.tobytes() == values.tobytes()


def in_any_order(expected: numpy.ndarray, values: numpy.ndarray) -> bool:
    """Whether two columns have the same bits, row by row in any order."""
    width = expected.dtype.itemsize
    contents = [one.tobytes() for one in (expected, values)]
    rows, others = (sorted(text[first : first + width] for first in range(0, len(text), width)) for text in contents)
    return rows == others


def judge_reading(
    found: Contents, read: dict[str, numpy.ndarray], notes: str, species: str | None, columns: list[str] | None, is_same=in_place
) -> str | None:
    """Returns what is wrong with columns that were read, or `None` if nothing is."""
    if species is not None:
        return _judge_group(found, found.aliases.get(species, species), read, notes, columns, is_same)
    verdicts = []
    for group in found.with_columns():
        verdict = _judge_group(found, group, read, notes, columns, is_same)
        if verdict is None and columns is None:
            verdict = _judge_others(found, group, notes)
        if verdict is None:
            return None
        verdicts.append(f"as group '{group}': {verdict}")
    return "; ".join(verdicts) or f"columns {', '.join(read)} of a file that has none"


def _judge_group(
    found: Contents, group: str, read: dict[str, numpy.ndarray], notes: str, columns: list[str] | None, is_same
) -> str | None:
    candidates: dict[str, list[tuple[Dataset, numpy.ndarray]]] = {}
    for one in found.groups[group]:
        for name, values in one.columns.items():
            candidates.setdefault(name, []).append((one, values))
    if not read:
        return "no columns"
    for name, values in read.items():
        equal = [one for one, expected in candidates.get(name, []) if expected.dtype == values.dtype and is_same(expected, values)]
        if not equal:
            return f"column '{name}' has other values or types than the file, or is not in it"
        if not any(one.is_whole and one.is_readable for one in equal):
            return f"column '{name}' has values that were never written"
    if columns is not None:
        return None if list(read) == columns else f"the columns are {list(read)}"
    for name, those in candidates.items():
        # Of several columns of one name, one is read.
        if (name not in read or len(those) > 1) and not says(notes, name) and not any(says(notes, one.name) for one, _ in those):
            return f"'{name}' is dropped in silence"
    left_out = [name for one in found.groups[group] for name in one.left_out]
    left_out += [name for place, name in found.dangling if place == group]
    silent = [name for name in left_out if not says(notes, name)]
    return f"{silent} are left out in silence" if silent else None


def _judge_others(found: Contents, group: str, notes: str) -> str | None:
    """Returns the first thing in other groups that no note names: by its group, or by one of its own names."""
    known = {one.identity for one in found.groups[group]}
    known |= {one.identity for datasets in found.groups.values() for one in datasets if says(notes, one.name)}
    for other, datasets in found.groups.items():
        if other == group or (other and says(notes, other)):
            continue
        silent = [one.name for one in datasets if one.identity not in known]
        silent += [name for place, name in found.dangling if place == other and not says(notes, name)]
        if silent:
            return f"{silent} of the group '{other}' are left out in silence"
    return None
