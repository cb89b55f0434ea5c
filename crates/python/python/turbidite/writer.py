"""Writing: epochs from arrays."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from turbidite import _core
from turbidite.dataset import _natural

__all__ = ["Writer"]


class Writer:
    """Writes a dataset, epoch by epoch. Records are partitioned and sorted by `key` on their way to storage.

    `schema` names the columns and their types: the core's (``"f32"``, ``"fixed_bytes(16)"``) or whatever ``numpy.dtype``
    takes. The names ``"u8"`` and ``"i8"`` are refused, since they mean 8 bits in one and 8 bytes in the other. `ranks` is the number of threads that append at the same time, each as a rank of its own. `if_exists` says what
    to do with an epoch that exists: ``"error"``, ``"skip"`` or ``"replace"``.

    An epoch is visible to readers after its block has ended. An exception within the block aborts it: nothing of the epoch
    is stored.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Mapping[str, Any],
        *,
        key: str,
        ranks: int = 1,
        if_exists: str = "error",
        units: Mapping[str, str] | None = None,
    ) -> None:
        self.path = os.path.abspath(os.fsdecode(path))
        self.last: dict[str, Any] | None = None
        """The statistics of the last epoch written."""
        self._core = _core.Writer(self.path, dict(schema), key, ranks, if_exists, dict(units or {}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def epoch(self, epoch: int) -> Iterator[bool]:
        """Writes one epoch: ``with writer.epoch(200): writer.append(rows)``.

        The block gets False if the epoch exists and is skipped; what it appends is an error then.
        """
        begun = self._core.begin_epoch(_natural("epoch", epoch))
        try:
            yield begun
        except BaseException as error:
            if begun:
                self._abort(error)
            raise
        if begun:
            self.last = json.loads(self._core.end_epoch())

    def _abort(self, error: BaseException) -> None:
        """Aborts the epoch because of an exception, which stays the one that is raised."""
        try:
            cause = f"{type(error).__name__}: {error}".encode(errors="replace").decode()
        except Exception:  # noqa: BLE001
            # A user's __str__ may raise anything.
            cause = type(error).__name__
        try:
            self._core.abort_epoch(cause)
        except Exception as failed:  # noqa: BLE001
            # The user's exception is the one to raise.
            error.add_note(f"the epoch could not be aborted: {failed}")

    def append(self, rows: Any, *, rank: int = 0) -> int:
        """Appends rows: a dict of arrays, a structured array or a data frame. Returns their number.

        Arrays must have the types of the schema; nothing is converted. Strided arrays are read where they are, while the
        interpreter's lock is released: no other thread may write to them before the call returns.
        """
        return self._core.append(rows, _natural("rank", rank))

    def close(self) -> None:
        """Closes the dataset. Nothing is lost without it but the check that it was possible."""
        self._core.close()
