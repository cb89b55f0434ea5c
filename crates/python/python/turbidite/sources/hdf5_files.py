"""Files of HDF5: opening, blocks of rows with a bounded cache of chunks, and the library's errors."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy

from turbidite.sources.errors import SourceError, failed, missing, of_hdf5
from turbidite.sources.inventory import Array, Epoch, Inventory
from turbidite.sources.signatures import HDF5
from turbidite.sources.tables import TableSource

CACHE_BYTES = 256 << 20
"""Maximum size of the decompressed chunks that a reader keeps for the next block."""
_OPEN_FILES = 8
_SLOTS = 4093
_PREEMPTION = 0.75
"""HDF5's default: chunks that were read completely are replaced first."""


def opened(path: str) -> Any:
    """Opens a file."""
    try:
        import h5py
    except ImportError:
        raise missing("an HDF5 file", "h5py", "hdf5") from None
    # Registers its filters.
    with suppress(ImportError):
        import hdf5plugin  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    # `_Open` caches chunks where blocks share them. Elsewhere a cache would only copy them.
    return h5py.File(path, "r", rdcc_nbytes=0)


@contextmanager
def errors(path: str) -> Iterator[None]:
    """Turns errors of the library into errors of the file."""
    try:
        yield
    except SourceError:
        raise
    except (OSError, RuntimeError, KeyError) as error:
        raise of_hdf5(error, path) from None


def filtered(dataset: Any) -> bool:
    """Returns whether a dataset's chunks are compressed or otherwise filtered."""
    return int(dataset.id.get_create_plist().get_nfilters()) > 0


class Hdf5Source(TableSource):
    """A source of HDF5 files. The place of an array is a dataset, or one of its frames, or a constant."""

    suffixes = HDF5
    strict = False
    nulls = "fill"
    may_state_epochs = True

    def __init__(self, inventory: Inventory) -> None:
        super().__init__(inventory)
        self._open = _Open()

    @classmethod
    def prepare(cls, path: str, place: Any, members: Sequence[str]) -> Any:
        return {name: place[name] for name in members}

    def rows(self, epoch: Epoch, place: Any, member: str, first: int, rows: int) -> Array:
        with errors(epoch.path):
            self._open.keep(epoch, {name for where in place.values() for name in _datasets(where)})
            return self._values(epoch, place[member], member, first, rows)

    def _values(self, epoch: Epoch, where: dict[str, Any], member: str, first: int, rows: int) -> Array:
        if "constant" in where:
            return numpy.full(rows, numpy.frombuffer(bytes.fromhex(where["constant"]), where["dtype"])[0])
        frame = where.get("frame")
        dataset = self._open.dataset(epoch, where["dataset"], frame)
        lengths = (dataset.shape or ())[0 if frame is None else 1 :]
        if not lengths or lengths[0] != epoch.records:
            raise failed(f"the dataset '{member}' has changed since the source was opened; run again", epoch.path)
        part = slice(first, first + rows)
        found: Array = dataset[part] if frame is None else dataset[frame, part]
        return found


def _datasets(where: dict[str, Any]) -> Iterator[str]:
    """Yields the datasets of an array: its own, and that of openPMD's offset."""
    if "dataset" in where:
        yield where["dataset"]
    if where.get("offset"):
        yield from _datasets(where["offset"])


def constant(value: Any) -> dict[str, Any]:
    """Returns the place of an array of equal values. JSON has no NaN, so that the value is its bytes."""
    return {"constant": numpy.asarray(value).tobytes().hex(), "dtype": numpy.asarray(value).dtype.str}


class _Open:
    """The files that a reader has open, and the datasets of the epoch that it reads."""

    def __init__(self) -> None:
        self._files: dict[str, Any] = {}
        self._datasets: dict[tuple[str, str], tuple[Any, int]] = {}

    def keep(self, epoch: Epoch, names: set[str]) -> None:
        """Closes all datasets but those of an epoch, and thereby frees their chunks."""
        for path, name in [*self._datasets]:
            if path != epoch.path or name not in names:
                del self._datasets[path, name]

    def dataset(self, epoch: Epoch, name: str, frame: int | None) -> Any:
        key = epoch.path, name
        if key not in self._datasets:
            file = self._file(epoch.path)
            needed = _shared_chunk_bytes(file[name], epoch, frame)
            # A part of them would be replaced before it is used again.
            cached = needed if needed <= CACHE_BYTES - sum(size for _, size in self._datasets.values()) else 0
            self._datasets[key] = _opened_dataset(file, name, cached), cached
        return self._datasets[key][0]

    def _file(self, path: str) -> Any:
        file = self._files.pop(path, None) or opened(path)
        while len(self._files) >= _OPEN_FILES:
            self._files.pop(next(iter(self._files))).close()
        self._files[path] = file
        return file


def _opened_dataset(file: Any, name: str, cache_bytes: int) -> Any:
    """Opens a dataset with a cache of chunks."""
    import h5py

    if not cache_bytes:
        return file[name]
    access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
    access.set_chunk_cache(_SLOTS, cache_bytes, _PREEMPTION)
    return h5py.Dataset(h5py.h5d.open(file.id, name.encode(), access))


def _shared_chunk_bytes(dataset: Any, epoch: Epoch, frame: int | None) -> int:
    """Returns the size of the decompressed chunks that blocks share, or 0 if none does."""
    if dataset.is_virtual:
        sources = dataset.virtual_sources()
        found = source_file(sources[0].file_name, dataset.file.filename) if sources else None
        if found is None:
            return 0
        with opened(found) as file:
            source = file.get(sources[0].dset_name)
            # Each source has a cache of this size.
            return _chunk_bytes(source, 0) * len(sources) if source is not None and filtered(source) else 0
    if not dataset.chunks or not filtered(dataset):
        return 0
    axis = 0 if frame is None else 1
    one = _chunk_bytes(dataset, axis)
    if frame is not None and dataset.chunks[0] > 1:
        # The next frame begins with the first rows again.
        return one * -(-int(dataset.shape[1]) // int(dataset.chunks[1]))
    is_shared = epoch.block_rows % dataset.chunks[axis] and epoch.block_rows < epoch.records
    return one if is_shared else 0


def _chunk_bytes(dataset: Any, axis: int) -> int:
    """Returns the size of the decompressed chunks that have one row."""
    shape, chunks = dataset.shape[axis + 1 :], dataset.chunks
    across = math.prod(math.ceil(length / chunk) for length, chunk in zip(shape, chunks[axis + 1 :], strict=True))
    return int(across * math.prod(chunks) * dataset.dtype.itemsize)


def source_file(name: str, path: str) -> str | None:
    """Returns the path of a source of a virtual dataset, where HDF5 looks for it, or `None` if there is no such file."""
    if name == ".":
        return path
    folder = os.path.dirname(os.path.abspath(path))
    prefix = os.environ.get("HDF5_VDS_PREFIX", "").replace("${ORIGIN}", folder)
    places = [os.path.join(place, name) for place in (prefix, folder) if place] + [name]
    return next((place for place in places if os.path.exists(place)), None)
