"""The epochs of a source, as a scan finds them: which are read, whether they are whole, and the parts that each has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from turbidite.schema import Column
from turbidite.sources.errors import SourceError, failed, listing
from turbidite.sources.inventory import Epoch, LeftOut, Options, in_order, same_columns
from turbidite.sources.patterns import File, Part

_OTHER_STEPS = "; the parts of an epoch have the same steps: --allow-missing-ranks reads those that exist"
_NO_PARTS = (
    "; if the files are parts, put {rank} into the pattern in place of the part's number; if they repeat steps, as after a "
    "restart, --if-repeated last reads the last occurrence of each"
)


@dataclass(frozen=True)
class Counts:
    """Counts that the header of a part states."""

    group: str
    """The group that has the records."""
    here: int
    total: int
    files: int


@dataclass(frozen=True)
class _Found:
    file: File
    epoch: Epoch
    columns: list[Column]
    counts: Counts | None


class Epochs:
    """The epochs that a scan has found."""

    def __init__(self, files: list[File], options: Options, notes: list[str], *, files_have_steps: bool) -> None:
        """`files_have_steps` says that the files name their epochs, so that the text of ``*`` may name a part."""
        self._files, self._options, self._notes, self.files_have_steps = files, options, notes, files_have_steps
        self._found: list[_Found] = []
        self._labels: set[int] = set()
        self._left_out: dict[int | None, LeftOut] = {}

    def selects(self, label: int) -> bool:
        """Returns whether an epoch is read. Remembers that it exists."""
        self._labels.add(label)
        return self._options.selects(label)

    def add(self, file: File, epoch: Epoch, columns: list[Column], counts: Counts | None = None) -> None:
        """Adds an epoch of a file, if it is read."""
        if self.selects(epoch.epoch):
            self._found.append(_Found(file, epoch, columns, counts))

    @contextmanager
    def judged(self, label: int | None, path: str) -> Iterator[None]:
        """Ignores errors of an epoch that is not read, and notes those of one that is not whole, if it may be left out."""
        try:
            yield
        except (SourceError, OSError) as error:
            if label is not None and not self.selects(label):
                return
            if not self._options.complete_only or (isinstance(error, SourceError) and error.kind == "usage"):
                raise
            said = str(error) if isinstance(error, SourceError) else f"cannot be read: {error.strerror or error}"
            self.leave_out(label, path, said)

    def leave_out(self, label: int | None, path: str, message: str) -> None:
        """Leaves out an epoch that is not whole."""
        self._left_out.setdefault(label, LeftOut(label, path, message))

    def finish(self) -> tuple[list[Epoch], list[Column]]:
        """Returns the epochs and their parts, ascending, and their columns."""
        found = self._in_parts()
        found = [one for one in found if one.epoch.epoch not in self._left_out]
        found = self._whole(found)
        described = [one for one in found if one.columns]
        filled = [one for one in described if one.epoch.records] if self.files_have_steps else described
        columns = same_columns(
            sorted(((one.epoch.epoch, one.epoch.path, one.columns) for one in filled or described), key=lambda one: one[0]),
            self._options.columns,
        )
        return in_order((one.epoch for one in found), self._options, self._notes), columns

    @property
    def labels(self) -> list[int]:
        """The epochs that the source has, ascending."""
        return sorted(label for label in self._labels if label >= 0)

    @property
    def left_out(self) -> list[LeftOut]:
        """The epochs that are not whole."""
        return list(self._left_out.values())

    def _in_parts(self) -> list[_Found]:
        """Returns what was found with the number of each part."""
        if all(file.part for file in self._files):
            self._check_steps({file.path: file.part.series for file in self._files if file.part}, _OTHER_STEPS)
            return [_numbered(one, one.file.part) for one in self._found]
        others = {file.path: file.other for file in self._files if file.other}
        is_part = self.files_have_steps or all(file.states_epoch for file in self._files)
        files: dict[int, set[str]] = defaultdict(set)
        for one in self._found:
            files[one.epoch.epoch].add(one.file.path)
        shared = next((sorted(paths) for _, paths in sorted(files.items()) if len(paths) > 1), None)
        if self._options.complete_only and others and is_part and self._labels:
            last = max(self._labels)
            self.leave_out(
                last, next(iter(others)), "* may name its parts, of which not all may exist; put {rank} or {epoch} there"
            )
        if not others or not is_part or shared is None or self._options.if_repeated is not None:
            return self._found
        self._check_steps({path: part.series for path, part in others.items()}, _NO_PARTS)
        self._notes.append(f"files that match * are read as parts of an epoch, such as {listing(shared, 3)}")
        if all(part.number is not None for part in others.values()):
            return [_numbered(one, one.file.other) for one in self._found]
        order = {label: sorted(paths) for label, paths in files.items()}
        return [replace(one, epoch=replace(one.epoch, rank=order[one.epoch.epoch].index(one.file.path))) for one in self._found]

    def _check_steps(self, series: dict[str, str], remedy: str) -> None:
        """Raises an error, or leaves epochs out, unless the parts of a series have the same steps."""
        if not self.files_have_steps or self._options.allow_missing_ranks:
            return
        steps: dict[str, dict[str, set[int]]] = defaultdict(dict)
        for path, name in series.items():
            steps[name][path] = set()
        for one in self._found:
            steps[series[one.file.path]][one.file.path].add(one.epoch.epoch)
        for parts in steps.values():
            every: set[int] = set().union(*parts.values())
            for path, own in parts.items():
                missing = sorted(every - own - self._left_out.keys())
                if not missing:
                    continue
                other = next(path for path, its in parts.items() if missing[0] in its)
                # A part of a running simulation may lack the last steps, and no others.
                if not self._options.complete_only or missing[0] < max(own, default=0):
                    said = f"does not have the steps {listing(missing)}, which {other} has{remedy}"
                    raise failed(said, path)
                for label in missing:
                    self.leave_out(label, path, f"does not have step {label}, which {other} has")

    def _whole(self, found: list[_Found]) -> list[_Found]:
        """Returns the epochs whose parts have as many records as their headers state."""
        parts: dict[int, list[tuple[_Found, Counts]]] = defaultdict(list)
        for one in found:
            if one.counts is not None:
                parts[one.epoch.epoch].append((one, one.counts))
        if self._options.allow_missing_ranks or self._options.if_repeated is not None:
            return found
        for label, these in parts.items():
            first, counts = these[0]
            here = sum(part.here for _, part in these)
            # Files that are missing are named by the command.
            if here != counts.total and not (first.epoch.numbered and len(these) < counts.files):
                with self.judged(label, first.epoch.path):
                    raise failed(_fewer(first, counts, here, len(these)), first.epoch.path)
        return [one for one in found if one.epoch.epoch not in self._left_out]


def _numbered(found: _Found, part: Part | None) -> _Found:
    if part is None or part.number is None:
        return found
    files = found.counts.files if found.counts is not None else None
    return replace(found, epoch=replace(found.epoch, rank=part.number, numbered=part.series, parts=files))


def _fewer(found: _Found, counts: Counts, here: int, files: int) -> str:
    """Returns the message on an epoch that has another number of records than its headers state."""
    which = "the file has" if files == 1 else f"the {files} files of epoch {found.epoch.epoch} have"
    said = f"{which} {here} of {counts.total} records of {counts.group}"
    if files < counts.files:
        said += (
            f": the epoch has {counts.files} files, of which a pattern has {{rank}} in place of the number; "
            "--allow-missing-ranks reads what there is"
        )
    return said
