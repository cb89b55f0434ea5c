"""Plain HDF5 by h5py: the one-dimensional datasets of a group, of equal length, are the columns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from turbidite.sources.catalogue import MOST_COMPONENTS, Array, Catalogue, Epoch, Options
from turbidite.sources.errors import SourceError, failed, listing, missing, of_hdf5, usage
from turbidite.sources.signatures import HDF5 as HDF5_SUFFIXES
from turbidite.sources.tables import Member, TableSource

_OPEN_FILES = 8
_UNITS = ("unit", "units")


class HDF5(TableSource):
    """A series of HDF5 files without a schema of their own."""

    name = "HDF5"
    suffixes = HDF5_SUFFIXES
    strict = False

    def __init__(self, catalogue: Catalogue) -> None:
        super().__init__(catalogue)
        self._files: dict[str, Any] = {}

    @classmethod
    def members(cls, path: str, options: Options) -> tuple[list[Member], Any]:
        with _errors(path), _open(path) as file:
            group = _group(file, path, options.species)
            places = {name: dataset.name for name, dataset in group.items()}
            return [_member(name, dataset, path) for name, dataset in group.items()], places

    def rows(self, epoch: Epoch, place: Any, member: str, first: int, rows: int) -> Array:
        with _errors(epoch.path):
            file = self._files.pop(epoch.path, None) or _open(epoch.path)
            while len(self._files) >= _OPEN_FILES:
                self._files.pop(next(iter(self._files))).close()
            self._files[epoch.path] = file
            dataset = file[place[member]]
            if dataset.shape[0] != epoch.records:
                raise failed(f"the dataset '{member}' has changed since the source was opened; run again", epoch.path)
            found: Array = dataset[first : first + rows]
            return found


def _open(path: str) -> Any:
    try:
        import h5py
    except ImportError:
        raise missing("an HDF5 file", "h5py", "hdf5") from None
    # Registers its filters.
    with suppress(ImportError):
        import hdf5plugin  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    # Blocks are whole chunks where that matters; a cache of chunks would only copy them.
    return h5py.File(path, "r", rdcc_nbytes=0)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Turns errors of the library into errors of the file."""
    try:
        yield
    except SourceError:
        raise
    except (OSError, RuntimeError, KeyError) as error:
        raise of_hdf5(error, path) from None


def _member(name: str, dataset: Any, path: str) -> Member:
    shape = () if dataset.shape is None else tuple(int(length) for length in dataset.shape)
    texts = [dataset.attrs.get(unit) for unit in _UNITS]
    texts = [text.decode(errors="replace") if isinstance(text, bytes) else text for text in texts]
    unit = next((text for text in texts if isinstance(text, str) and text), None)
    chunk = int(dataset.chunks[0]) if dataset.chunks else 0
    compressed = dataset.id.get_create_plist().get_nfilters() > 0
    missing_values = _missing_values(dataset, path) if dataset.is_virtual else None
    return Member(name, dataset.dtype, shape, unit, chunk, compressed, missing=missing_values)


def _missing_values(dataset: Any, path: str) -> str | None:
    """Returns which values of a virtual dataset no source has. HDF5 returns the fill value for them, without an error."""
    mapped = 0
    for source in dataset.virtual_sources():
        mapped += int(source.vspace.get_select_npoints())
        if source.file_name == "." or "%" in source.file_name:
            continue
        found = _source_of(source.file_name, path)
        if found is None:
            return f"the virtual dataset '{dataset.name}' lacks its source {source.file_name}: put the file back"
        with _open(found) as file:
            if source.dset_name not in file:
                return f"the virtual dataset '{dataset.name}' lacks its source '{source.dset_name}' in {found}"
    if mapped < dataset.size:
        return f"the virtual dataset '{dataset.name}' has sources for {mapped} of its {dataset.size} values only"
    return None


def _source_of(name: str, path: str) -> str | None:
    """Returns the path of a source of a virtual dataset, where HDF5 looks for it, or `None` if there is no such file."""
    folder = os.path.dirname(os.path.abspath(path))
    prefix = os.environ.get("HDF5_VDS_PREFIX", "").replace("${ORIGIN}", folder)
    places = [os.path.join(place, name) for place in (prefix, folder) if place] + [name]
    return next((place for place in places if os.path.exists(place)), None)


def _group(file: Any, path: str, species: str | None) -> dict[str, Any]:
    """Returns the datasets of the group to read: the stated one, the root, or the only one that has columns."""
    groups = _groups(file)
    if species is not None:
        found = groups.get(species.strip("/"))
        if found is not None:
            return found
        dataset = file.get(species)
        if dataset is not None and hasattr(dataset, "shape"):
            return {dataset.name.rsplit("/", 1)[-1]: dataset}
        known = listing((name or "/" for name in groups), 20) or "none"
        raise usage(f"--species: there is no group '{species}' with columns; the groups with columns are {known}", path)
    if len(groups) == 1 or ("" in groups and len({dataset.shape[0] for dataset in _columns(groups[""])}) == 1):
        return groups[""] if "" in groups else next(iter(groups.values()))
    if not groups:
        raise failed("the file has no one-dimensional datasets of numbers", path)
    names = listing((name or "/" for name in groups), 20)
    raise usage(f"several groups have columns; choose one with --species: {names}", path)


def _groups(file: Any) -> dict[str, dict[str, Any]]:
    """Returns the datasets of each group that has columns. The root is ''."""
    found: dict[str, dict[str, Any]] = {}

    def visit(name: str, item: Any) -> None:
        if hasattr(item, "shape"):
            group, _, own = name.rpartition("/")
            found.setdefault(group, {})[own] = item

    file.visititems(visit)
    return {name: datasets for name, datasets in found.items() if _columns(datasets)}


def _columns(datasets: dict[str, Any]) -> list[Any]:
    def is_column(dataset: Any) -> bool:
        numbers = dataset.dtype.kind in "biufcV"
        return bool(
            numbers
            and dataset.shape
            and (len(dataset.shape) == 1 or (len(dataset.shape) == 2 and 1 <= dataset.shape[1] <= MOST_COMPONENTS))
        )

    return [dataset for dataset in datasets.values() if is_column(dataset)]
