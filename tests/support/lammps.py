"""Reads LAMMPS' binary dumps by hand; shares nothing with the product's reader."""

import struct

import numpy

BOX = ("xlo", "xhi", "ylo", "yhi", "zlo", "zhi", "xy", "xz", "yz")


class Step:
    """One step of a file: its number, its box, its atoms as rows of doubles named by column."""

    def __init__(self, content: bytes, place: int):
        self.content, self.place = content, place
        (negative,) = self.unpack("<q")
        assert negative < 0, "the release that is tested writes a magic"
        magic = self.unpack(f"{-negative}s")[0]
        assert magic in (b"DUMPCUSTOM", b"DUMPATOM")
        order, revision, self.number, self.atoms, tilted = self.unpack("<iiqqi")
        assert (order, revision) == (1, 2)
        self.unpack("<6i")
        self.box = dict(zip(BOX, self.unpack("<9d" if tilted else "<6d") + (() if tilted else (0.0, 0.0, 0.0))))
        width, units = self.unpack("<ii")
        self.units = self.unpack(f"{units}s")[0].decode()
        (has_time,) = self.unpack("<b")
        self.time = self.unpack("<d")[0] if has_time else None
        (length,) = self.unpack("<i")
        names = self.unpack(f"{length}s")[0].decode().split()
        assert len(names) == width
        (chunks,) = self.unpack("<i")
        self.chunks = [self.doubles() for _ in range(chunks)]
        self.rows = numpy.concatenate(self.chunks).view([(name, "<f8") for name in names])
        assert len(self.rows) == self.atoms

    def unpack(self, form: str) -> tuple:
        values = struct.unpack_from(form, self.content, self.place)
        self.place += struct.calcsize(form)
        return values

    def doubles(self) -> numpy.ndarray:
        (count,) = self.unpack("<i")
        values = numpy.frombuffer(self.content, "<f8", count, self.place)
        self.place += 8 * count
        return values


def steps(content: bytes) -> list[Step]:
    """All steps of a file, which has nothing else."""
    found, place = [], 0
    while place < len(content):
        found.append(Step(content, place))
        place = found[-1].place
    assert place == len(content)
    return found
