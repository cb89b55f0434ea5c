"""NumPy's files: ``.npz`` of arrays of equal length, and ``.npy`` of one array, which may be structured.

Values are read from the place where the file has them. Compressed arrays are decompressed once into a temporary folder.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy

from turbidite.sources import scratch
from turbidite.sources.errors import corrupt, failed, usage
from turbidite.sources.inventory import Array, Epoch, Options
from turbidite.sources.patterns import File
from turbidite.sources.signatures import NPZ
from turbidite.sources.tables import Found, Member, TableSource

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_NPY = ".npy"
_BAD = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, struct.error)


class Npz(TableSource):
    """A series of ``.npz`` or ``.npy`` files."""

    name = "npz"
    suffixes = NPZ
    strict = True

    def __init__(self, inventory: Any) -> None:
        super().__init__(inventory)
        self._headers: dict[tuple[str, int], tuple[tuple[int, ...], bool, numpy.dtype[Any], int]] = {}

    @classmethod
    def tables(cls, file: File, options: Options, notes: list[str], surveyed: Any) -> Iterator[Found]:
        yield Found(file, *cls._members(file.path, options))

    @classmethod
    def _members(cls, path: str, options: Options) -> tuple[list[Member], Any]:
        if options.species is not None:
            raise usage("--species: a file of NumPy has no species; omit the option", path)
        with open(path, "rb") as file:
            try:
                if file.read(6) == b"\x93NUMPY":
                    name = os.path.basename(path).removesuffix(_NPY)
                    if options.epoch is None:
                        # The number is the epoch, so that the column is the same in all files.
                        name = re.sub(r"[-_.]?\d+$", "", name) or name
                    file.seek(0)
                    return [_member(name, file, path)], {name: [path, 0]}
                return _archived(path)
            except _BAD as error:
                raise corrupt(f"is not a complete file of NumPy: {error}; write it again", path) from None

    @classmethod
    def check_whole(cls, path: str) -> None:
        # An archive has its directory at the end.
        with open(path, "rb") as file:
            if file.read(6) != b"\x93NUMPY":
                return
            file.seek(0)
            try:
                shape, _, dtype = _header(file)
            except _BAD as error:
                raise corrupt(f"is not a complete file of NumPy: {error}; write it again", path) from None
            end = file.tell() + dtype.itemsize * int(numpy.prod(shape))
            if os.fstat(file.fileno()).st_size < end:
                raise corrupt(f"the file ends before offset {end}; is another process still writing it?", path)

    @classmethod
    def prepare(cls, path: str, place: Any, members: Sequence[str]) -> Any:
        packed = [name for name in members if place[name] is None]
        found = {name: place[name] for name in members if place[name] is not None}
        if not packed:
            return found
        with zipfile.ZipFile(path) as archive:
            entries = {name: archive.getinfo(name + _NPY) for name in packed}
            folder = scratch.folder(sum(entry.file_size for entry in entries.values()))
            for number, (name, entry) in enumerate(entries.items()):
                target = os.path.join(folder, f"{number}{_NPY}")
                try:
                    with archive.open(entry) as source, open(target, "wb") as copy:
                        shutil.copyfileobj(source, copy, 1 << 20)
                except _BAD as error:
                    raise corrupt(f"the array '{name}' cannot be decompressed: {error}; write the file again", path) from None
                found[name] = [target, 0]
        return found

    def rows(self, epoch: Epoch, place: Any, member: str, first: int, rows: int) -> Array:
        path, offset = place[member]
        with open(path, "rb") as file:
            if (path, offset) not in self._headers:
                file.seek(offset)
                self._headers[path, offset] = (*_header(file), file.tell())
            shape, by_columns, dtype, begin = self._headers[path, offset]
            components = int(numpy.prod(shape[1:]))
            if not by_columns or len(shape) == 1:
                values = _read(file, epoch, dtype, begin + first * components * dtype.itemsize, rows * components)
                return values.reshape((rows, *shape[1:]))
            found = numpy.empty((rows, components), dtype, order="F")
            for component in range(components):
                found[:, component] = _read(file, epoch, dtype, begin + (component * shape[0] + first) * dtype.itemsize, rows)
            return found


def _archived(path: str) -> tuple[list[Member], dict[str, Any]]:
    """Returns the arrays of an archive, with the place of those that are not compressed."""
    members: list[Member] = []
    place: dict[str, Any] = {}
    with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
        for entry in archive.infolist():
            name = entry.filename.removesuffix(_NPY)
            if entry.flag_bits & 1:
                raise failed(f"the array '{name}' is encrypted; write the file without a password", path)
            if name == entry.filename:
                raise failed(f"the archive has '{name}', which is not an array of NumPy; write it with numpy.savez", path)
            if name in place:
                raise corrupt(f"the archive has several arrays called '{name}'; write it again", path)
            with archive.open(entry) as content:
                members.append(_member(name, content, path))
            place[name] = [path, _begin(file, entry)] if entry.compress_type == zipfile.ZIP_STORED else None
    return members, place


def _begin(file: BinaryIO, entry: zipfile.ZipInfo) -> int:
    """Returns the offset of a stored entry's content."""
    file.seek(entry.header_offset)
    magic, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    if magic != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"the entry '{entry.filename}' has no header at offset {entry.header_offset}")
    return int(entry.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes)


def _header(file: Any) -> tuple[tuple[int, ...], bool, numpy.dtype[Any]]:
    """Returns the shape, whether the array is stored by columns, and the type."""
    version = numpy.lib.format.read_magic(file)
    if version == (1, 0):
        return numpy.lib.format.read_array_header_1_0(file)
    return numpy.lib.format.read_array_header_2_0(file)


def _member(name: str, file: Any, path: str) -> Member:
    shape, _, dtype = _header(file)
    if dtype.hasobject:
        raise failed(
            f"the array '{name}' has Python objects, which only a pickle can load and which cannot be stored; "
            "write it with a numeric type, such as array.astype('f8')",
            path,
        )
    return Member(name, dtype, shape)


def _read(file: Any, epoch: Epoch, dtype: numpy.dtype[Any], offset: int, count: int) -> Array:
    values = numpy.empty(count * dtype.itemsize, numpy.uint8)
    file.seek(offset)
    if file.readinto(values.data) != len(values):
        end = offset + len(values)
        raise corrupt(f"the file ends before offset {end}; is another process still writing it?", epoch.path)
    return values.view(dtype)
