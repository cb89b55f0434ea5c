"""Has the kernel read files before their blocks are read.

A file stores each column apart, so that a block lies in many places, which the kernel does not foresee. Without this, a
reader waits for storage with each block, and the command waits for the reader.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import threading
from collections.abc import Sequence

from turbidite.sources.inventory import Epoch

_STEP_BYTES = 128 << 10
"""The kernel reads no more than its own read-ahead for a request, and ignores the rest."""

_MAX_BYTES = 1 << 30
"""Maximum length that is read of a file. What is not used soon would only displace other files from memory."""

_SHARE_OF_MEMORY = 8


class ReadAhead:
    """The read-ahead of a source's files, one epoch ahead of the blocks."""

    def __init__(self, epochs: Sequence[Epoch]) -> None:
        paths = list(dict.fromkeys(epoch.path for epoch in epochs))
        self._next = dict(itertools.pairwise(paths))
        self._current: str | None = None

    def follow(self, path: str) -> None:
        """Reads the file ahead, and then the one of the next epoch. Called before each block that is read from `path`."""
        if path == self._current:
            return
        self._current = path
        following = self._next.get(path)
        files = [path] if following is None else [path, following]
        threading.Thread(target=self._read, args=(path, files), name="read ahead", daemon=True).start()

    def _read(self, current: str, paths: list[str]) -> None:
        for path in paths:
            # Whatever is wrong with a file, reading a block reports it.
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    for first in range(0, _length(descriptor), _STEP_BYTES):
                        if self._current != current:
                            return
                        os.posix_fadvise(descriptor, first, _STEP_BYTES, os.POSIX_FADV_WILLNEED)
                finally:
                    os.close(descriptor)


def _length(descriptor: int) -> int:
    """Returns the number of bytes to read ahead: none of what is not a file, such as the folder of an ADIOS2 series."""
    found = os.fstat(descriptor)
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(found.st_size, _MAX_BYTES, memory_bytes // _SHARE_OF_MEMORY) if stat.S_ISREG(found.st_mode) else 0
