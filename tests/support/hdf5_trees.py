"""Random HDF5 files for Hypothesis: groups, links, types, shapes, and how values are stored, or were never written."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy
from hypothesis import strategies as st

FLAT = numpy.dtype([("fa", "<f4"), ("fb", ">i8"), ("fc", "?"), ("fd", "<f2"), ("fe", "<f8", (3,))])
NESTED = numpy.dtype([("na", "<f8"), ("nb", [("inner", "<i4")])])
WORDED = numpy.dtype([("wa", ">u2"), ("wb", "S3")])
NUMBERS = {
    **{name: numpy.dtype(name) for name in ("i1", "<i2", ">i4", "<i8", "u1", ">u2", "<u8", "<f2", ">f2", "<f4", ">f8", "?")},
    "complex": numpy.dtype("c8"),
    "big complex": numpy.dtype(">c16"),
    "enum": h5py.enum_dtype({"OFF": 0, "ON": 1}, "i2"),
    "opaque": numpy.dtype("V5"),
    "compound": FLAT,
    "array": numpy.dtype("(3,)f4"),
}
"""Types that can be stored, whole or in part."""
OTHERS = {
    "long double": numpy.dtype("g"),
    "text": numpy.dtype("S4"),
    "any text": h5py.string_dtype(),
    "lists": h5py.vlen_dtype(numpy.dtype("i4")),
    "references": h5py.ref_dtype,
    "nested": NESTED,
    "worded": WORDED,
}
SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "vector": lambda rows: (rows,),
    "rows of 3": lambda rows: (rows, 3),
    "rows of 1": lambda rows: (rows, 1),
    "rows of 16": lambda rows: (rows, 16),
}
ODD_SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "rows of 17": lambda rows: (rows, 17),
    "rows of 0": lambda rows: (rows, 0),
    "cube": lambda rows: (rows, 2, 2),
    "scalar": lambda rows: (),
    "one": lambda rows: (1,),
    "other": lambda rows: (rows + 1,),
}
WHOLE = ("contiguous", "chunked", "gzip", "lzf", "checked", "growable", "virtual", "virtual here", "external")
UNWRITTEN = ("never", "no chunk", "some chunks", "grown", "no source", "no member", "half mapped", "hollow source", "short external")
UNREADABLE = ("no filter",)
UNKNOWN_FILTER = 32_011
UNITS = (None, "m", b"kg", numpy.array(["s"], "S1"), 3.0)
NAMES = ("mass", "px", "py", "rho", "vel", "Energy é", "T e", "v-1", "uid", "spin")
GROUPS = ("particles", "PartType0", "fields", "fields/deep", "Header")


@dataclass(frozen=True)
class Leaf:
    """A dataset. `shape` is None for a null dataspace."""

    type: str
    shape: str | None
    storage: str
    seed: int
    unit: int = 0

    @property
    def dtype(self) -> numpy.dtype:
        return (NUMBERS | OTHERS)[self.type]

    def extent(self, rows: int) -> tuple[int, ...]:
        return (SHAPES | ODD_SHAPES)[self.shape](rows)

    def stored(self, rows: int) -> str:
        """How the values are stored: other than drawn where nothing can be missing."""
        shape = self.extent(rows)
        plain = not shape or 0 in shape or self.type in OTHERS or self.dtype.subdtype is not None
        return "contiguous" if plain or (shape[0] < 2 and self.storage in ("some chunks", "half mapped")) else self.storage


@dataclass(frozen=True)
class Link:
    """A link to a path: hard, soft, or external, where the path is in the file itself or in another one."""

    kind: str
    target: str


@dataclass(frozen=True)
class Tree:
    """A file: the datasets by group and name, and the links by path."""

    rows: int
    groups: dict[str, dict[str, Leaf]]
    links: dict[str, Link] = field(default_factory=dict)
    latest: bool = False
    """Whether the file has the structures of HDF5's latest release, such as other indexes of chunks."""


def leaves(types=tuple(NUMBERS), shapes=tuple(SHAPES), storages=WHOLE):
    return st.builds(
        Leaf, st.sampled_from(types), st.sampled_from(shapes), st.sampled_from(storages), st.integers(0, 999), st.integers(0, len(UNITS) - 1)
    )


PLAIN_LEAVES = leaves()
ODD_LEAVES = st.one_of(
    leaves(types=tuple(OTHERS), storages=("contiguous",)),
    leaves(shapes=(*ODD_SHAPES, None)),
    leaves(storages=UNWRITTEN),
    leaves(types=("<f4", "u1", "?"), shapes=("vector", "rows of 3"), storages=UNREADABLE),
)


@st.composite
def trees(draw) -> Tree:
    """Mostly a group with columns of one length, beside which a few things are odd."""
    names = st.sampled_from(NAMES)
    main = draw(st.sampled_from(["", "", *GROUPS]))
    groups = {main: draw(st.dictionaries(names, PLAIN_LEAVES, min_size=1, max_size=4))}
    if draw(st.booleans()):
        groups[main] |= draw(st.dictionaries(names, ODD_LEAVES, min_size=1, max_size=2))
    for other in draw(st.lists(st.sampled_from(["", *GROUPS]), max_size=2, unique=True)):
        groups.setdefault(other, {}).update(draw(st.dictionaries(names, st.one_of(PLAIN_LEAVES, ODD_LEAVES), max_size=2)))
    tree = Tree(draw(st.sampled_from([0, 1, 2, 7, 60, 5000])), groups, {}, draw(st.booleans()))
    for number in range(draw(st.sampled_from([0, 0, 1, 2]))):
        tree.links.update(draw(links(tree, number)))
    return tree


@st.composite
def links(draw, tree: Tree, number: int) -> dict[str, Link]:
    datasets = [f"{group}/{name}".strip("/") for group, named in tree.groups.items() for name in named]
    targets = [*datasets, *(group for group in tree.groups if group), "nothing", "nothing/at all"]
    target = draw(st.sampled_from(targets))
    kinds = ("soft", "external", "external file", "external self") if target.startswith("nothing") else ("hard", "soft", "external")
    place = draw(st.sampled_from(list(tree.groups)))
    return {f"{place}/link{number}".strip("/"): Link(draw(st.sampled_from(kinds)), target)}


def write(tree: Tree, folder: Path) -> Path:
    """Writes the file, and those that it refers to. Each dataset has the attribute `is_whole`."""
    path = folder / "tree.h5"
    with h5py.File(path, "w", libver="latest" if tree.latest else "earliest") as file:
        for group, named in tree.groups.items():
            place = file.require_group(group) if group else file
            for name, leaf in named.items():
                _write_leaf(place, name, leaf, tree.rows, folder)
        for place, link in tree.links.items():
            if link.kind == "hard":
                file[place] = file[link.target]
            elif link.kind == "soft":
                file[place] = h5py.SoftLink(f"/{link.target}")
            else:
                other = {"external file": "missing.h5", "external self": "tree.h5"}.get(link.kind, "linked.h5")
                file[place] = h5py.ExternalLink(other, f"/{link.target}")
    external = [link.target for link in tree.links.values() if link.kind == "external"]
    if external:
        _write_linked(tree, external, folder)
    return path


def _write_linked(tree: Tree, targets: list[str], folder: Path) -> None:
    """Writes the other file of external links, with other values."""
    with h5py.File(folder / "linked.h5", "w") as file:
        for target in targets:
            group, _, name = target.rpartition("/")
            if target in tree.groups:
                file.require_group(target)
                for own in tree.groups[target]:
                    if own not in file[target]:
                        file[f"{target}/{own}"] = numpy.arange(tree.rows) + 0.5
            elif name in tree.groups.get(group, {}) and target not in file:
                file[target] = numpy.arange(tree.rows) + 0.25
        for found in _datasets(file):
            found.attrs["is_whole"] = True


def _datasets(file: h5py.File) -> list[h5py.Dataset]:
    found = []
    file.visititems(lambda _, item: found.append(item) if isinstance(item, h5py.Dataset) else None)
    return found


def _write_leaf(place: h5py.Group, name: str, leaf: Leaf, rows: int, folder: Path) -> None:
    if leaf.shape is None:
        made = place.create_dataset(name, data=h5py.Empty("f4"))
        made.attrs["is_whole"] = True
        return
    shape, storage = leaf.extent(rows), leaf.stored(rows)
    made = _stored(place, name, values(leaf, shape), leaf.dtype, storage, folder)
    made.attrs["is_whole"] = storage not in UNWRITTEN
    made.attrs["is_readable"] = storage not in UNREADABLE
    unit = UNITS[leaf.unit]
    if unit is not None:
        made.attrs["units" if leaf.seed % 2 else "unit"] = unit


def values(leaf: Leaf, shape: tuple[int, ...]) -> numpy.ndarray:
    """Random values of a type, of which half are small numbers, and the others any bits."""
    random, dtype = numpy.random.default_rng(leaf.seed), leaf.dtype
    if leaf.type in ("any text", "lists", "references"):
        made = numpy.empty(shape, object)
        one = {"any text": "text", "lists": numpy.arange(2, dtype="i4"), "references": h5py.Reference()}[leaf.type]
        for place in numpy.ndindex(shape):
            made[place] = one
        return made
    if dtype.subdtype is not None:
        base, inner = dtype.subdtype
        return random.random((*shape, *inner)).astype(base)
    if dtype.kind == "b":
        return random.random(shape) > 0.5
    if leaf.type == "enum":
        return random.integers(0, 2, shape).astype("i2")
    if dtype.kind in "SV" or leaf.seed % 2:
        size = int(numpy.prod(shape))
        made = numpy.frombuffer(random.bytes(size * dtype.itemsize), dtype, size).reshape(shape).copy()
        if dtype == FLAT:
            made["fc"] = random.random(shape) > 0.5
        return made
    return (random.random(shape) * 100).astype(dtype)


def _stored(place: h5py.Group, name: str, content: numpy.ndarray, dtype, storage: str, folder: Path) -> h5py.Dataset:
    """Creates a dataset with the content, or parts of it."""
    shape = content.shape[: content.ndim - len(dtype.shape)]
    chunks = (max(1, shape[0] // 3), *shape[1:]) if shape else None
    filters = {
        "chunked": {"chunks": chunks},
        "gzip": {"chunks": chunks, "compression": "gzip", "compression_opts": 1, "shuffle": True},
        "lzf": {"chunks": chunks, "compression": "lzf"},
        "checked": {"chunks": chunks, "fletcher32": True},
        "growable": {"chunks": chunks, "maxshape": (None, *shape[1:])},
    }
    if storage == "contiguous" or storage in filters:
        if dtype.subdtype is None:
            return place.create_dataset(name, shape, dtype, data=content, **filters.get(storage, {}))
        made = place.create_dataset(name, shape, dtype)
        if content.size:
            made[...] = content
        return made
    if storage in ("never", "no chunk"):
        return place.create_dataset(name, shape, dtype, chunks=chunks if storage == "no chunk" else None, fillvalue=None)
    if storage == "some chunks":
        made = place.create_dataset(name, shape, dtype, chunks=(max(1, shape[0] // 2), *shape[1:]))
        made[: made.chunks[0]] = content[: made.chunks[0]]
        return made
    if storage == "grown":
        made = place.create_dataset(name, shape, dtype, data=content, chunks=chunks, maxshape=(None, *shape[1:]))
        # To the last chunk's end values would be there, of fill values.
        made.resize(shape[0] + 2 * chunks[0], axis=0)
        return made
    if "external" in storage:
        raw = folder / f"{place.name.strip('/').replace('/', '-')}-{name}.raw"
        made = place.create_dataset(name, shape, dtype, data=content, external=[(str(raw), 0, h5py.h5f.UNLIMITED)])
        if storage == "short external":
            raw.write_bytes(raw.read_bytes()[: content.nbytes // 2])
        return made
    if storage == "no filter":
        return _filtered(place, name, content, chunks)
    return _virtual(place, name, content, dtype, storage, folder)


def _filtered(place: h5py.Group, name: str, content: numpy.ndarray, chunks) -> h5py.Dataset:
    """A dataset whose chunks have passed a filter that no library has."""
    options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    options.set_chunk(chunks)
    options.set_filter(UNKNOWN_FILTER, h5py.h5z.FLAG_OPTIONAL, (1,))
    kind = h5py.h5t.py_create(content.dtype, logical=True)
    own = h5py.h5d.create(place.id, name.encode(), kind, h5py.h5s.create_simple(content.shape), options)
    made = h5py.Dataset(own)
    for first in range(0, len(content), chunks[0]):
        padded = numpy.zeros(chunks, content.dtype)
        part = content[first : first + chunks[0]]
        padded[: len(part)] = part
        own.write_direct_chunk((first, *[0] * (content.ndim - 1)), padded.tobytes(), 0)
    return made


def _virtual(place: h5py.Group, name: str, content: numpy.ndarray, dtype, storage: str, folder: Path) -> h5py.Dataset:
    """A virtual dataset of two sources."""
    layout = h5py.VirtualLayout(content.shape, dtype)
    middle = len(content) // 2
    for part, (first, last) in enumerate([(0, middle), (middle, len(content))]):
        if first == last or (storage == "half mapped" and part):
            continue
        source = folder / f"{place.name.strip('/').replace('/', '-')}-{name}-{part}.h5"
        shape = (last - first, *content.shape[1:])
        if storage == "virtual here":
            hidden = f"sources{place.name.replace('/', '-')}-{name}-{part}"
            place.file.create_dataset(hidden, data=content[first:last], dtype=dtype).attrs["is_whole"] = True
            layout[first:last] = h5py.VirtualSource(".", hidden, shape, dtype)
            continue
        layout[first:last] = h5py.VirtualSource(source.name, "there", shape, dtype)
        if part and storage == "no source":
            continue
        with h5py.File(source, "w") as file:
            if part and storage == "no member":
                continue
            if part and storage == "hollow source":
                file.create_dataset("there", shape, dtype, chunks=shape)
            else:
                file.create_dataset("there", data=content[first:last], dtype=dtype)
    return place.create_virtual_dataset(name, layout)
