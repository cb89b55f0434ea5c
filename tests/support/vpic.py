"""A reader of VPIC particle dumps, written from the description of the format and from nothing of the product."""

import os
import struct
from functools import cache
from pathlib import Path

import numpy

from support.command import ROOT

HEADER = struct.Struct("<5bHIfd6i10f2iif3i")
PARTICLE = numpy.dtype(
    [("dx", "<f4"), ("dy", "<f4"), ("dz", "<f4"), ("i", "<i4"), ("ux", "<f4"), ("uy", "<f4"), ("uz", "<f4"), ("w", "<f4")]
)
FIRST_WEIGHT_BITS = int(numpy.float32(8192 / 229376).view(numpy.int32))

# What the tests derive, as the command is told, and beside it the same in NumPy: in float64, stored as float32 unless
# typed. `slope` is there for its infinities and NaNs, `x` for the header's constants.
DERIVATIONS = [
    "energy=sqrt(1+ux*ux+uy*uy+uz*uz)-1",
    f"id:i32=bits_i32(w)-{FIRST_WEIGHT_BITS}",
    "x=header.x0+(i%(header.nx+2)-1+(dx+1)/2)*header.dx",
    "slope:f64=sqrt(uy)/floor(abs(ux))",
]


def full_dumps() -> Path | None:
    """The full dumps that lie beside the checkout, where there are any."""
    path = Path(os.environ.get("TURBIDITE_DUMPS", ROOT.parent / "shared" / "data" / "vpic"))
    return path if path.is_dir() else None


def sample_dumps() -> Path:
    """The sample in the repository."""
    return ROOT / "testdata" / "vpic"


def read_dump(path: Path) -> numpy.ndarray:
    """The particles of one file with the derived columns, in file order."""
    return read_dump_content(path, path.read_bytes())


def read_dump_content(path: Path | str, content: bytes) -> numpy.ndarray:
    """The same of a file that was read; `path` is for complaints."""
    fields = HEADER.unpack_from(content)
    assert fields[5:9] == (0xCAFE, 0xDEADBEEF, 1.0, 1.0), path
    element_bytes, count = fields[-3], fields[-1]
    assert element_bytes == PARTICLE.itemsize and len(content) == HEADER.size + count * element_bytes, path
    nx = fields[12]
    dx, x0 = fields[16], fields[19]
    stored = numpy.frombuffer(content, PARTICLE, count, HEADER.size)

    wide = {name: stored[name].astype(numpy.float64) for name in ("dx", "ux", "uy", "uz", "i")}
    ux, uy, uz = wide["ux"], wide["uy"], wide["uz"]
    out = numpy.empty(count, numpy.dtype(PARTICLE.descr + [("energy", "<f4"), ("id", "<i4"), ("x", "<f4"), ("slope", "<f8")]))
    for name in PARTICLE.names:
        out[name] = stored[name]
    out["energy"] = numpy.sqrt(1 + ux * ux + uy * uy + uz * uz) - 1
    out["id"] = stored["w"].view(numpy.int32) - FIRST_WEIGHT_BITS
    out["x"] = x0 + (wide["i"] % (nx + 2) - 1 + (wide["dx"] + 1) / 2) * dx
    with numpy.errstate(divide="ignore", invalid="ignore"):
        out["slope"] = numpy.sqrt(uy) / numpy.floor(numpy.abs(ux))
    return out


@cache
def read_dumps(root: Path) -> dict[int, numpy.ndarray]:
    """All particles of a dump directory, by epoch."""
    steps = sorted(int(folder.name[2:]) for folder in root.glob("T.*"))
    epochs = {}
    for step in steps:
        files = sorted((root / f"T.{step}").iterdir(), key=lambda path: int(path.suffix[1:]))
        epochs[step] = numpy.concatenate([read_dump(path) for path in files])
    return epochs
