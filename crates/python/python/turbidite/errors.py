"""The exceptions of the package: one class per class of errors of the core. Messages are the core's."""

from __future__ import annotations

import re

__all__ = ["CorruptionError", "OperationError", "TurbiditeError", "UsageError"]


_OPTION = re.compile(r"'[^']*'|(?<![\w-])--([a-z]+(?:-[a-z]+)*)")
_ARGUMENTS = {"epoch": "epochs", "no-check": "check=False"}


def _with_arguments(message: str) -> str:
    """Returns a message of the command with Python's names of the arguments. Quotations, such as commands to run, stay."""

    def argument(found: re.Match[str]) -> str:
        option = found[1]
        return found[0] if option is None else _ARGUMENTS.get(option, option.replace("-", "_"))

    return _OPTION.sub(argument, message)


class TurbiditeError(Exception):
    """Any error of Turbidite."""

    def __init__(self, message: str = "") -> None:
        super().__init__(_with_arguments(message))


class OperationError(TurbiditeError):
    """An operation failed: storage, locks, missing epochs."""


class UsageError(TurbiditeError, ValueError):
    """A request is wrong: an unknown column, an expression that cannot be parsed, an array of another type."""


class CorruptionError(TurbiditeError):
    """Stored bytes are corrupt. Run ``turbidite verify`` on the dataset."""

    path: str
    """The corrupt file."""
    place: str | None
    """The place in the file: a run, a page with its rows, the footer."""
    page: int | None
    """The number of the page within its column chunk, if a page is corrupt."""

    def __init__(self, message: str, path: str = "", place: str | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.place = place
        found = re.search(r"\bpage (\d+)", place or "")
        self.page = int(found[1]) if found else None

    def __reduce__(self) -> tuple[type[CorruptionError], tuple[str, str, str | None]]:
        return type(self), (str(self), self.path, self.place)
