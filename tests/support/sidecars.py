"""A reader of the sidecars of bitmap indexes, written from FORMAT.md and from nothing of the product."""

import struct
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import numpy

ENCODINGS = ("bytes", "slices", "runs")


@dataclass(frozen=True)
class Section:
    """The bins of a column in a row group, and the bin of each row."""

    least: numpy.ndarray
    greatest: numpy.ndarray
    rows: numpy.ndarray
    encoding: str
    stored_bytes: int
    numbers: numpy.ndarray


@dataclass(frozen=True)
class Sidecar:
    dataset: UUID
    commit: UUID
    epoch: int
    part: tuple[int, int]
    # The sections of all columns of each row group.
    row_groups: list[list[Section]]


def read(path: Path, types: list[str]) -> Sidecar:
    """Reads a sidecar whose columns have these types of NumPy."""
    content = path.read_bytes()
    assert content[:8] == content[-8:] == b"TBITMAP1", path
    offset, length, _ = struct.unpack_from("<QQQ", content, len(content) - 32)
    assert offset + length == len(content) - 32
    epoch, rank, roll, columns, groups = struct.unpack_from("<QIIII", content, offset + 32)
    assert columns == len(types)
    at, row_groups = offset + 56, []
    for _ in range(groups):
        rows, zero = struct.unpack_from("<II", content, at)
        at += 8
        sections = []
        for kind in types:
            bins_at, _, bins_bytes, numbers_at, _, numbers_bytes, encoding, zeros = struct.unpack_from("<QQIQQIII", content, at)
            assert zero == zeros == 0
            at += 48
            bins = numpy.frombuffer(content[bins_at : bins_at + bins_bytes], [("least", kind), ("greatest", kind), ("rows", "<u4")])
            stored = content[numbers_at : numbers_at + numbers_bytes]
            numbers = decode(ENCODINGS[encoding], stored, rows, len(bins))
            sections.append(Section(bins["least"], bins["greatest"], bins["rows"], ENCODINGS[encoding], len(stored), numbers))
        row_groups.append(sections)
    assert at == offset + length
    dataset, commit = (UUID(bytes=content[offset + begin : offset + begin + 16]) for begin in (0, 16))
    return Sidecar(dataset, commit, epoch, (rank, roll), row_groups)


def decode(encoding: str, stored: bytes, rows: int, bins: int) -> numpy.ndarray:
    """The bin of each row."""
    if bins <= 1:
        assert not stored
        return numpy.zeros(rows, "u1")
    if encoding == "bytes":
        return numpy.frombuffer(stored, "u1", rows)
    if encoding == "slices":
        bits, words = (bins - 1).bit_length(), -(-rows // 64)
        slices = numpy.frombuffer(stored, "u1").reshape(bits, words * 8)
        planes = numpy.unpackbits(slices, axis=1, bitorder="little").astype("u2")
        assert not planes[:, rows:].any()
        return (planes[:, :rows] << numpy.arange(bits)[:, None]).sum(axis=0).astype("u1")
    numbers, at = [], 0
    while at < len(stored):
        number, length, shift = stored[at], 0, 0
        at += 1
        while True:
            length |= (stored[at] & 0x7F) << shift
            shift += 7
            at += 1
            if stored[at - 1] < 0x80:
                break
        numbers.append(numpy.full(length, number, "u1"))
    return numpy.concatenate(numbers)
