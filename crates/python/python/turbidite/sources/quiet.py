"""Holds back what native libraries print on standard error, since the errors that follow say the same."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_DECORATION = re.compile(r"\x1b\[[0-9;]*m|\[[^]]*\d{2}:\d{2}:\d{2}[^]]*\]|\[ADIOS2 EXCEPTION\]|: iostream error")


class Printed:
    """The text that was held back."""

    def __init__(self) -> None:
        self.text = ""


@contextmanager
def quiet() -> Iterator[Printed]:
    """Redirects standard error for the block. The text is complete once the block has ended."""
    printed = Printed()
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield printed
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            printed.text = file.read().decode(errors="replace")


def plain(error: BaseException, path: str) -> str:
    """Returns a library's message about a file on one line, without colours, dates and the file's path."""
    folder, name = os.path.split(path.rstrip("/"))
    text = _DECORATION.sub("", str(error)).replace(os.path.join(folder or ".", name), name)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return "; ".join(line for line in lines if line)
