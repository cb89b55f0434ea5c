"""Indexes of a dataset: columns by whose values records are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from turbidite._command import run
from turbidite._tables import clipped
from turbidite.errors import UsageError

__all__ = ["Index", "Indexes"]


@dataclass(frozen=True, repr=False)
class Index:
    """An index: its name, and what it has."""

    name: str
    definition: str
    """The column, with the method that clusters the entries: ``id`` or ``hash:id``. Or ``space:x,y,z,levels=3``."""
    epochs: int
    """The number of epochs whose records it has."""
    missing: tuple[int, ...]
    """The epochs that it lacks, or of which it has entries of replaced records. `Indexes.add` makes them."""
    entries: int
    bytes: int
    """The size of its files."""
    problem: str | None = None
    """Why it, or an epoch of it, cannot be read. Queries go on without it; `Indexes.drop` and `Indexes.add` make it again."""

    def __repr__(self) -> str:
        missing = f", {len(self.missing):,} missing" if self.missing else ""
        problem = f"; {self.problem}" if self.problem else ""
        return clipped(f"<Index {self.definition}: {self.epochs:,} epochs{missing}, {self.entries:,} entries{problem}>")


class Indexes:
    """The indexes of a dataset. Queries use them where they read less; the rows are the same."""

    def __init__(self, path: str, reopen: Callable[[], None]) -> None:
        self._path = path
        self._reopen = reopen

    def add(self, column: str) -> Index:
        """Makes the index of a column, or completes it: ``"id"``, or ``"hash:id"`` for single values only.

        ``"bitmap:ux,uy,uz"`` makes a bitmap index, which answers conditions on several columns. ``"space:x,y,z"`` copies the
        records by place, with levels of detail, for boxes and cursors; ``"space:x,y,z,levels=2"`` states their number.
        ``"overview"`` copies the highest level of detail of the dataset into few files, with which cursors begin.

        Reads the column of every epoch that the index lacks. Datasets that are open elsewhere use the index when they are
        opened again.

        >>> dataset.indexes.add("id").entries
        2002
        """
        name: str = run(["index", "add", "--json", "--", self._path, _text(column)])["name"]
        self._reopen()
        return self[name]

    def drop(self, name: str) -> None:
        """Removes an index.

        >>> dataset.indexes.drop("id")
        """
        run(["index", "drop", "--json", "--", self._path, _text(name)])
        self._reopen()

    def _listed(self) -> list[Index]:
        listed = run(["index", "list", "--json", "--", self._path])["indexes"]
        return [Index(**{**index, "missing": tuple(index["missing"])}) for index in listed]

    def __getitem__(self, name: str) -> Index:
        found = [index for index in self._listed() if index.name == name]
        if not found:
            raise KeyError(name)
        return found[0]

    def __iter__(self) -> Iterator[Index]:
        return iter(self._listed())

    def __len__(self) -> int:
        return len(self._listed())

    def __repr__(self) -> str:
        return clipped(f"<Indexes of {self._path}: {', '.join(index.definition for index in self) or 'none'}>")


def _text(name: object) -> str:
    if not isinstance(name, str):
        raise UsageError(f"an index is named by its column, not by {name!r}")
    return name
