"""Temporary folders for decompressed files.

The reader that scans a source decompresses its files once, and further readers find them by the index. The folder is
removed when that reader ends. A reader that was killed leaves its folder, which the next one removes: each folder has a
locked file for as long as its reader lives.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile

from turbidite.sources.errors import failed

_PREFIX = f"turbidite-sources-{os.getuid()}-"
_LOCK = "lock"
_folders: dict[str, int] = {}


def folder(needed_bytes: int = 0) -> str:
    """Returns a new folder of this reader. Raises an error if the file system lacks the space."""
    root = tempfile.gettempdir()
    _remove_left(root)
    free = shutil.disk_usage(root).free
    if free < needed_bytes:
        raise failed(
            f"{root} has {free >> 20} MiB free, and the decompressed file needs {needed_bytes >> 20} MiB; "
            "set TMPDIR to a folder with more, or decompress the file yourself"
        )
    made = tempfile.mkdtemp(prefix=_PREFIX, dir=root)
    lock = os.open(os.path.join(made, _LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    _folders[made] = lock
    return made


def remove() -> None:
    """Removes the folders of this reader."""
    while _folders:
        made, lock = _folders.popitem()
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


def _remove_left(root: str) -> None:
    """Removes the folders of readers that were killed."""
    for entry in os.scandir(root):
        if not entry.name.startswith(_PREFIX) or entry.path in _folders:
            continue
        try:
            lock = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry.path, ignore_errors=True)
        except OSError:
            pass
        finally:
            os.close(lock)
