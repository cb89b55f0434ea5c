"""Trajectories: the rows of particles through the epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turbidite import _core
from turbidite._arguments import TrackArguments
from turbidite._result import Result

if TYPE_CHECKING:
    from turbidite.dataset import Dataset

__all__ = ["Tracks"]


class Tracks(Result):
    """The trajectories of particles: rows ordered by particle, then by epoch."""

    def __init__(self, dataset: Dataset, selection: list[int] | slice | None, arguments: TrackArguments) -> None:
        self._dataset = dataset
        self._selection = selection
        self._arguments = arguments

    def _start(self) -> _core.Stream:
        return self._dataset._core.tracks({**self._arguments, "epochs": self._dataset._labels(self._selection)})

    def __reduce__(self) -> tuple[Any, ...]:
        return Tracks, (self._dataset, self._selection, self._arguments)
