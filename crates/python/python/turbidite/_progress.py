"""Progress bars on request, and the callables of users in their place."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from turbidite.errors import UsageError

__all__ = ["Progress", "Tell", "checked", "watching"]

Tell = Callable[[int, int], object]
"""Called with what is done, and with the total."""

Progress = bool | Tell
"""Whether to draw a bar, or what to call in its place."""

_DELAY_S = 0.3
"""Shorter calls draw nothing."""
_INTERVAL_S = 0.1
_BAR_CHARACTERS = 30
_DEFAULT_COLUMNS = 80
"""The width of a notebook's output, and of terminals that do not state theirs."""


def checked(progress: Progress) -> Progress:
    """Returns what was stated, or refuses it."""
    if isinstance(progress, bool) or callable(progress):
        return progress
    raise UsageError(f"progress: True, False or a function of (done, total) is needed, not {progress!r}")


@contextmanager
def watching(progress: Progress, unit: str) -> Iterator[Tell | None]:
    """Returns what to call while the block runs: nothing, the callable, or a bar that is erased at the end.

    `unit` says what is counted.
    """
    if not isinstance(progress, bool):
        yield progress
    elif progress and _is_seen():
        bar = _Bar(unit)
        try:
            yield bar
        finally:
            bar.erase()
    else:
        yield None


def _is_seen() -> bool:
    """Returns whether somebody looks at standard error: on a terminal, or in a notebook."""
    stream = sys.stderr
    if stream is None:
        return False
    # IPython knows its kernel; a kernel's streams are no terminals.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and hasattr(shell, "kernel"):
        return True
    # A replacement of standard error may have no `isatty`, or be closed.
    with suppress(AttributeError, OSError, ValueError):
        return bool(stream.isatty())
    return False


def _columns() -> int:
    """Returns the width of standard error's terminal. `shutil.get_terminal_size` would return that of standard output."""
    with suppress(AttributeError, OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or _DEFAULT_COLUMNS
    return _DEFAULT_COLUMNS


def _amount(number: int, unit: str) -> str:
    if unit != "bytes":
        return f"{number:,}"
    value, name = float(number), "bytes"
    for name in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if value < 999.5 or name == "PB":
            break
        value /= 1000
    return f"{value:.3g} {name}"


class _Bar:
    """One line on standard error."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._began = time.monotonic()
        self._next = self._began + _DELAY_S
        self._drawn = 0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if total == 0 or now < self._next:
            return
        self._next = now + _INTERVAL_S
        filled = "#" * int(_BAR_CHARACTERS * done / total)
        left = (now - self._began) * (total - done) / done if done else None
        amounts = f"{_amount(done, self._unit)} of {_amount(total, self._unit)}"
        line = f"[{filled:.<{_BAR_CHARACTERS}}] {amounts}{'' if self._unit == 'bytes' else ' ' + self._unit}"
        self._draw(line + ("" if left is None else f", {left:.0f} s left"))

    def _draw(self, line: str) -> None:
        # A full line would wrap, and the next one would not erase it.
        line = line[: _columns() - 1]
        # A closed terminal is no reason to end a query.
        with suppress(OSError, ValueError):
            sys.stderr.write("\r" + line.ljust(self._drawn) + ("" if line else "\r"))
            sys.stderr.flush()
        self._drawn = len(line)

    def erase(self) -> None:
        """Removes the line."""
        if self._drawn:
            self._draw("")
