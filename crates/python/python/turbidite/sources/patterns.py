"""Series of files: a file, a folder, or a pattern such as ``diags/openpmd_%T.h5``.

Placeholders are ``%T`` (``%06T`` has at least six digits) and ``{epoch}`` for the epoch, and ``*`` and ``?`` as in a
shell. Without a placeholder for the epoch, it is the one number in the text that ``*`` matches.
"""

from __future__ import annotations

import difflib
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from turbidite.sources.errors import failed, listing, usage
from turbidite.sources.signatures import ADIOS2

_PLACEHOLDER = re.compile(r"%(\d*)T|\{epoch\}|[*?]")


@dataclass(frozen=True)
class File:
    """A file of a series."""

    path: str
    numbers: tuple[int, ...] = ()
    """The candidates for the epoch in the file's name; it has an epoch if there is one candidate."""


def is_dataset(path: str) -> bool:
    """Returns whether a folder is one file of ADIOS2."""
    return os.path.isdir(path) and (path.rstrip("/").endswith(ADIOS2) or os.path.exists(os.path.join(path, "md.idx")))


def is_pattern(path: str) -> bool:
    """Returns whether a path has placeholders and is not the name of an existing file."""
    return _PLACEHOLDER.search(path) is not None and not os.path.exists(path)


def files_of(path: str, suffixes: tuple[str, ...], notes: list[str] | None = None) -> list[File]:
    """Returns the files that a path names, ordered by name. In a folder, those with one of the suffixes.

    Adds a note on other files of the folder.
    """
    if is_pattern(path):
        found = [file for file in _matches(path) if not os.path.isdir(file.path) or is_dataset(file.path)]
        if not found:
            raise usage(f"no file matches{_closest(path)}", path)
    elif os.path.isdir(path) and not is_dataset(path):
        visible = sorted(name for name in os.listdir(path) if not name.startswith("."))
        found = [File(os.path.join(path, name), _numbers(name)) for name in visible if name.endswith(suffixes)]
        others = [name for name in visible if not name.endswith(suffixes) and os.path.isfile(os.path.join(path, name))]
        if notes is not None and others:
            notes.append(f"files that do not end in {', '.join(suffixes)} are left out: {listing(others)}")
        if not found:
            raise usage(f"the folder has no files that end in {listing(suffixes, 20)}{_series(path)}", path)
    elif os.path.exists(path):
        found = [File(path)]
    else:
        raise usage(f"there is no such file{_closest(path)}", path)
    return sorted(found, key=lambda file: file.path)


def epoch_of(file: File, stated: int | None, count: int) -> int:
    """Returns the epoch of a file whose content does not name it: from its name, or `stated` for a single file."""
    if stated is not None:
        if count > 1:
            raise usage(f"--epoch names the epoch of a single file, and the source has {count} files", file.path)
        return stated
    if len(file.numbers) == 1:
        if file.numbers[0] < 0:
            raise usage(f"the number in the file's name, {file.numbers[0]}, is negative, but epochs are not", file.path)
        return file.numbers[0]
    if not file.numbers:
        raise usage("the epoch of the file is not known: give --epoch, or a pattern with {epoch} in the file's name", file.path)
    numbers = listing(file.numbers)
    raise usage(f"the file's name has several numbers ({numbers}): put {{epoch}} into the pattern in place of one", file.path)


def _numbers(name: str) -> tuple[int, ...]:
    stem = re.sub(r"\.(h5|bp[45]?|npz|npy|gz|hdf5)\b", "", name)
    return _integers(stem)


def _integers(text: str) -> tuple[int, ...]:
    """Returns the integers in a text. A minus sign between two words is none."""
    return tuple(int(digits) for digits in re.findall(r"(?:(?<![0-9A-Za-z])-)?\d+", text))


def _expression(part: str) -> re.Pattern[str]:
    """Returns the expression for one component of a path."""
    made, end = "", 0
    for found in _PLACEHOLDER.finditer(part):
        made += re.escape(part[end : found.start()])
        end = found.end()
        if found[0] in "*?":
            made += "([^/]*)" if found[0] == "*" else "([^/])"
        else:
            made += rf"(?P<epoch{found.start()}>\d{{{int(found[1] or 1)},}})"
    return re.compile(made + re.escape(part[end:]))


def _matches(pattern: str) -> Iterator[File]:
    """Yields the files that match a pattern, component by component."""
    root = "/" if pattern.startswith("/") else ""
    states: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = [(root, (), ())]
    for part in (part for part in pattern.split("/") if part):
        states = [new for state in states for new in _step(state, part)]
    for path, stated, other in states:
        labels = tuple(dict.fromkeys(stated))
        if len(labels) <= 1:
            yield File(path, labels or other)


def _step(
    state: tuple[str, tuple[int, ...], tuple[int, ...]], part: str
) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    folder, stated, other = state
    if not _PLACEHOLDER.search(part):
        path = os.path.join(folder, part)
        if os.path.exists(path):
            yield path, stated, other
        return
    expression = _expression(part)
    try:
        names = sorted(os.listdir(folder or "."))
    except NotADirectoryError:
        return
    for name in names:
        found = expression.fullmatch(name)
        if found is None or (name.startswith(".") and not part.startswith(".")):
            continue
        labels = tuple(int(text) for text in found.groupdict().values())
        texts = [text for place, text in enumerate(found.groups(), 1) if place not in expression.groupindex.values()]
        numbers = tuple(number for text in texts for number in _integers(text))
        yield os.path.join(folder, name), stated + labels, other + numbers


def _series(folder: str) -> str:
    """Returns the advice on a folder with files such as ``dump.melt.100``: a pattern of the most names that differ in a
    number only."""
    patterns = Counter(re.sub(r"\d+(?!.*\d)", "{epoch}", name) for name in os.listdir(folder) if not name.startswith("."))
    common = [(count, name) for name, count in patterns.items() if "{epoch}" in name]
    if not common:
        return ""
    count, name = max(common)
    return f"; give the pattern '{os.path.join(folder, name)}' for {count} of its files"


def _closest(path: str) -> str:
    """Returns the advice on a path that does not exist: the closest names in the deepest folder that does."""
    folder, name = os.path.split(path.rstrip("/"))
    while folder and not os.path.isdir(folder):
        folder, name = os.path.split(folder)
    try:
        names = os.listdir(folder or ".")
    except OSError as error:
        raise failed(f"cannot be listed: {error.strerror}", folder) from None
    close = difflib.get_close_matches(_PLACEHOLDER.sub("0", name), names, 3, 0.3)
    place = folder or "the working folder"
    return f"; {place} has {listing(sorted(close))}" if close else f"; {place} has no file with a similar name"
