"""The errors of a reader, which the command reports as its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

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
    if "filter" in message or "plugin" in message:
        return failed(
            f"needs an HDF5 filter that is not installed: pip install hdf5plugin, or omit the compressed columns ({message})",
            path,
        )
    kind = corrupt if "truncated" in message else failed
    return kind(f"cannot be read by h5py: {message}; if the file is incomplete, copy it again or leave it out", path)


def missing(what: str, package: str, extra: str) -> SourceError:
    """Creates the error of a package that is needed and not installed."""
    return failed(f"{what} needs {package}: pip install 'turbidite[{extra}]'")


def listing(names: Iterable[object], most: int = 8) -> str:
    """Returns names for a message: all of them, or the first with the number of the others."""
    texts = [str(name) for name in names]
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")
