"""Series of files: a file, a folder, or a pattern such as ``diags/openpmd_%T.h5``.

Placeholders are ``%T`` (``%06T`` has at least six digits) and ``{epoch}`` for the epoch, ``{rank}`` for the number of a part
of an epoch, and ``*`` and ``?`` as in a shell. Without a placeholder for the epoch, it is the one number in the text that ``*``
matches. Where something else names the epoch, that text may name a part.
"""

from __future__ import annotations

import difflib
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from turbidite.sources.errors import absent, failed, listing, usage
from turbidite.sources.signatures import ADIOS2

_PLACEHOLDER = re.compile(r"%(\d*)T|\{epoch\}|\{rank\}|[*?]")
_NUMBER = re.compile(r"(?:(?<![0-9A-Za-z])-)?\d+")
_RANK = "{rank}"


@dataclass(frozen=True)
class Part:
    """The place of a file among the parts of an epoch."""

    number: int | None
    """The part's number, or `None` for text without one number."""
    series: str
    """The path with ``{rank}`` in place of the number, or ``*`` in place of the text."""


@dataclass(frozen=True)
class File:
    """A file of a series."""

    path: str
    numbers: tuple[int, ...] = ()
    """The candidates for the epoch in the file's name; it has an epoch if there is one candidate."""
    part: Part | None = None
    """By ``{rank}``."""
    other: Part | None = None
    """By ``*`` or ``?``. A part only if something else names the epoch."""
    states_epoch: bool = False
    """Whether the pattern has a placeholder for the epoch."""

    @property
    def stated_epoch(self) -> int | None:
        """The epoch that the file's name states."""
        return self.numbers[0] if self.states_epoch else None


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
            raise absent(f"no file matches{_closest(path)}", path)
    elif os.path.isdir(path) and not is_dataset(path):
        visible = sorted(name for name in os.listdir(path) if not name.startswith("."))
        found = [File(os.path.join(path, name), _numbers(name)) for name in visible if name.endswith(suffixes)]
        others = [name for name in visible if not name.endswith(suffixes) and os.path.isfile(os.path.join(path, name))]
        if notes is not None and others:
            notes.append(f"files that do not end in {', '.join(suffixes)} are left out: {listing(others)}")
        if not found:
            raise absent(f"the folder has no files that end in {listing(suffixes, 20)}{_series(path)}", path)
    elif os.path.exists(path):
        found = [File(path)]
    else:
        raise absent(f"there is no such file{_closest(path)}", path)
    return sorted(found, key=lambda file: file.path)


def epoch_of(file: File, stated: int | None, files: Sequence[File]) -> int:
    """Returns the epoch of a file whose content does not name it: from its name, or `stated` for a single file or its parts."""
    if stated is not None:
        series = {one.part.series if one.part else one.path for one in files}
        if len(series) > 1:
            raise usage(f"--epoch names the epoch of a single file, and the source has {len(series)} files", file.path)
        return stated
    if len(file.numbers) == 1:
        if file.numbers[0] < 0:
            raise usage(f"the number in the file's name, {file.numbers[0]}, is negative, but epochs are not", file.path)
        return file.numbers[0]
    if not file.numbers:
        raise usage("the epoch of the file is not known: give --epoch, or a pattern with {epoch} in the file's name", file.path)
    numbers = listing(file.numbers)
    raise usage(
        f"the file's name has several numbers ({numbers}): put {{epoch}} into the pattern in place of one, and {{rank}} in place of "
        f"the number of a part{_proposal(file.path)}",
        file.path,
    )


def _numbers(name: str) -> tuple[int, ...]:
    stem = re.sub(r"\.(h5|bp[45]?|npz|npy|gz|hdf5)\b", "", name)
    return _integers(stem)


def _integers(text: str) -> tuple[int, ...]:
    """Returns the integers in a text. A minus sign between two words is none."""
    return tuple(int(digits) for digits in _NUMBER.findall(text))


def _expression(part: str) -> re.Pattern[str]:
    """Returns the expression for one component of a path."""
    made, end = "", 0
    for found in _PLACEHOLDER.finditer(part):
        made += re.escape(part[end : found.start()])
        end = found.end()
        if found[0] in "*?":
            made += "([^/]*)" if found[0] == "*" else "([^/])"
        elif found[0] == _RANK:
            made += rf"(?P<rank{found.start()}>\d+)"
        else:
            made += rf"(?P<epoch{found.start()}>\d{{{int(found[1] or 1)},}})"
    return re.compile(made + re.escape(part[end:]))


@dataclass(frozen=True)
class _Match:
    """A path that matches the first components of a pattern."""

    path: str
    epochs: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    texts: tuple[tuple[int, str], ...] = ()
    """The texts of ``*`` and ``?``, with their places in the path."""
    numbered: str = ""
    """The path with ``{rank}`` in place of the number of a part."""

    def files(self) -> Iterator[File]:
        """Yields the file, unless two occurrences of a placeholder have different numbers."""
        labels, ranks = tuple(dict.fromkeys(self.epochs)), set(self.ranks)
        if len(labels) > 1 or len(ranks) > 1:
            return
        numbers = labels or tuple(number for _, text in self.texts for number in _integers(text))
        part = Part(self.ranks[0], self.numbered) if ranks else None
        yield File(self.path, numbers, part, self._other() if self.texts else None, bool(labels))

    def _other(self) -> Part:
        found = [(place + number.start(), number[0]) for place, text in self.texts for number in _NUMBER.finditer(text)]
        if len(found) == 1 and found[0][1].isdigit():
            [(place, digits)] = found
            return Part(int(digits), self.path[:place] + _RANK + self.path[place + len(digits) :])
        path = self.path
        for place, text in reversed(self.texts):
            path = f"{path[:place]}*{path[place + len(text) :]}"
        return Part(None, path)


def _matches(pattern: str) -> Iterator[File]:
    """Yields the files that match a pattern, component by component."""
    root = "/" if pattern.startswith("/") else ""
    states = [_Match(root, numbered=root)]
    for part in (part for part in pattern.split("/") if part):
        states = [new for state in states for new in _step(state, part)]
    for state in states:
        yield from state.files()


def _step(state: _Match, part: str) -> Iterator[_Match]:
    if not _PLACEHOLDER.search(part):
        path = os.path.join(state.path, part)
        if os.path.exists(path):
            yield replace(state, path=path, numbered=os.path.join(state.numbered, part))
        return
    expression = _expression(part)
    try:
        names = sorted(os.listdir(state.path or "."))
    except NotADirectoryError:
        return
    for name in names:
        found = expression.fullmatch(name)
        if found is None or (name.startswith(".") and not part.startswith(".")):
            continue
        path = os.path.join(state.path, name)
        begin, numbered = len(path) - len(name), name
        stated = sorted(expression.groupindex.items(), key=lambda one: -one[1])
        for group, _ in stated:
            if group.startswith("rank"):
                numbered = numbered[: found.start(group)] + _RANK + numbered[found.end(group) :]
        places = expression.groupindex.values()
        yield _Match(
            path,
            state.epochs + tuple(int(found[group]) for group, _ in stated if group.startswith("epoch")),
            state.ranks + tuple(int(found[group]) for group, _ in stated if group.startswith("rank")),
            state.texts
            + tuple((begin + found.start(place), text) for place, text in enumerate(found.groups(), 1) if place not in places),
            os.path.join(state.numbered, numbered),
        )


def _proposal(path: str) -> str:
    """Returns the pattern for a name such as ``snap_012.0.hdf5``, if it has two numbers."""
    folder, name = os.path.split(path)
    found = list(re.finditer(r"\d+", os.path.splitext(name)[0]))
    if len(found) != 2:
        return ""
    first, second = found
    made = name[: first.start()] + "{epoch}" + name[first.end() : second.start()] + _RANK + name[second.end() :]
    return f", as in '{os.path.join(folder, made)}'"


def pattern_of_parts(one: str, other: str) -> str | None:
    """Returns the pattern of two paths that differ in one number of the file's name."""
    folder, name = os.path.split(one)
    if folder != os.path.dirname(other):
        return None
    pieces, others = re.split(r"(\d+)", name), re.split(r"(\d+)", os.path.basename(other))
    places = [place for place, (mine, its) in enumerate(zip(pieces, others, strict=False)) if mine != its]
    if len(pieces) != len(others) or len(places) != 1 or places[0] % 2 == 0 or int(pieces[places[0]]) == int(others[places[0]]):
        return None
    pieces[places[0]] = _RANK
    return os.path.join(folder, "".join(pieces))


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
