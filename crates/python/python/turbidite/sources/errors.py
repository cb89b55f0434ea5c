"""The errors of a reader, which the command reports as its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

_WAIT = "--complete-only reads the epochs that are whole"
INCOMPLETE = f"if the file is incomplete, copy it again; {_WAIT}"
"""The remedy for a file that a library cannot open."""
_OTHERS = {
    b"CDF": "netCDF-3: convert it to netCDF-4",
    b"\x0e\x03\x13\x01": "HDF4: convert it to HDF5",
    b"PK": "a zip archive, as .npz is: --format npz",
    b"\x1f\x8b": "compressed by gzip: decompress it",
    b"version https://git-lfs": "a pointer of Git LFS: fetch the file itself",
}

ErrorClass = Literal["usage", "failed", "corrupt"]


class SourceError(Exception):
    """An error of a source. The message states the problem and what to do, and does not repeat `path`."""

    def __init__(self, kind: ErrorClass, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.kind: ErrorClass = kind
        self.path = path


def usage(message: str, path: str | None = None) -> SourceError:
    """Creates the error of options that do not fit the source."""
    return SourceError("usage", message, path)


class Absent(SourceError):
    """The error of a source without any file. A running simulation may be about to write the first."""


def absent(message: str, path: str) -> SourceError:
    """Creates the error of a source without any file."""
    return Absent("usage", message, path)


def failed(message: str, path: str | None = None) -> SourceError:
    """Creates the error of a file that cannot be read as it is."""
    return SourceError("failed", message, path)


def corrupt(message: str, path: str | None = None) -> SourceError:
    """Creates the error of a file whose content contradicts itself."""
    return SourceError("corrupt", message, path)


def of_hdf5(error: Exception, path: str) -> SourceError:
    """Creates the error of a file that h5py cannot read, with advice on its cause."""
    message = " ".join(str(error).split())
    if "unable to lock file" in message:
        return failed(
            "is locked by another process, which may be writing it: wait until it has closed the file; if no process writes it, "
            "as on some network file systems, set HDF5_USE_FILE_LOCKING=FALSE",
            path,
        )
    if "already open for write" in message:
        return failed(
            "is marked as open for writing: wait until its writer has closed it; if the writer was killed, HDF5's tool h5clear removes "
            "the mark",
            path,
        )
    if "filter" in message or "plugin" in message:
        return failed(
            f"needs an HDF5 filter that is not installed: pip install hdf5plugin, or omit the compressed columns ({message})",
            path,
        )
    if "signature not found" in message:
        return failed(f"is not HDF5, as h5py needs, but {_content(path)}", path)
    if "truncated" in message:
        lengths = re.search(r"eof = (\d+).*stored_eof = (\d+)", message)
        extent = f"has {lengths[1]} of {lengths[2]} bytes" if lengths else message
        return corrupt(f"is cut: it {extent}, as h5py found; copy it again, or wait for its writer: {_WAIT}", path)
    return failed(f"cannot be read by h5py: {message}; {INCOMPLETE}", path)


def _content(path: str) -> str:
    """Returns the content of a file that is not HDF5, with advice on it."""
    with open(path, "rb") as file:
        start = file.read(24)
    if not start:
        return f"empty: is its writer still running? {_WAIT}"
    known = (content for magic, content in _OTHERS.items() if start.startswith(magic))
    return next(known, f"begins with {start[:8]!r}; --format names its format")


def missing(what: str, package: str, extra: str) -> SourceError:
    """Creates the error of a package that is needed and not installed."""
    return failed(f"{what} needs {package}: pip install 'turbidite[{extra}]'")


def listing(names: Iterable[object], most: int = 8) -> str:
    """Returns names for a message: all of them, or the first with the number of the others."""
    texts = [str(name) for name in names]
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")
