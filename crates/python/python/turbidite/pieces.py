"""Pieces of a query, for other processes."""

from __future__ import annotations

import json
from typing import Any

from turbidite import _core
from turbidite._arguments import Arguments
from turbidite._progress import Tell
from turbidite._result import Result
from turbidite.errors import UsageError

__all__ = ["Piece"]

_VERSION = 1


class Piece(Result):
    """A part of a query: some row groups of one commit of an epoch.

    A piece is data: it pickles, and is JSON, so that multiprocessing, mpi4py, Dask or Ray can send it to other processes,
    which see the dataset under the same path.
    """

    def __init__(self, path: str, arguments: Arguments) -> None:
        self.path = path
        """The folder of the dataset."""
        self._arguments = arguments
        stated = json.loads(arguments["piece"] or "{}")
        self.epoch: int = stated.get("epoch", 0)
        """The epoch of the rows."""
        self.rows_most: int = stated.get("rows_most", 0)
        """The piece returns at most so many rows."""
        self.bytes_most: int = stated.get("bytes_most", 0)
        """The values that the piece reads have at most so many bytes."""

    def _opened(self) -> _core.Dataset:
        return _core.Dataset(self.path)

    def _start(self, tell: Tell | None = None) -> _core.Stream:
        return self._opened().stream(self._arguments, tell)

    def count(self) -> int:
        """Counts the rows. Reads only the pages that statistics leave open.

        >>> [piece.count() for piece in dataset.pieces("energy >= 9.99")]
        [2, 2]
        """
        return self._opened().count(self._arguments)

    def to_json(self) -> str:
        """Returns the piece as text, for `Piece.from_json` in another process.

        >>> dataset.pieces("energy >= 9.99")[0].to_json()[:13]
        '{"version": 1'
        """
        return json.dumps({"version": _VERSION, "path": self.path, **self._arguments})

    @classmethod
    def from_json(cls, text: str) -> Piece:
        """Returns the piece that `to_json` has written.

        >>> [piece] = dataset.pieces(hot)
        >>> turbidite.Piece.from_json(piece.to_json()).count()
        2
        """
        try:
            stated: dict[str, Any] = json.loads(text)
            version, path = stated.pop("version"), stated.pop("path")
        except (AttributeError, KeyError, TypeError, ValueError):
            raise UsageError("from_json: this is not a piece of a query") from None
        if version != _VERSION:
            raise UsageError(f"from_json: the piece has version {version}, but this release reads {_VERSION}")
        # Earlier releases state neither access paths nor boxes.
        for name in ("use", "box", "period"):
            stated.setdefault(name, None)
        known = set(stated) == set(Arguments.__annotations__)
        if not known or not isinstance(path, str) or not isinstance(stated["piece"], str):
            raise UsageError("from_json: this is not a piece of a query")
        arguments: Arguments = stated  # type: ignore[assignment]
        return cls(path, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return Piece.from_json, (self.to_json(),)

    def __repr__(self) -> str:
        return f"<Piece of {self.path}: epoch {self.epoch}, at most {self.rows_most} rows>"
