"""The folder of a dataset that is open for reading, for the results that are read from it."""

from __future__ import annotations

import os
from typing import Any

import numpy

from turbidite import _core
from turbidite._checks import Selection, natural, whole
from turbidite._progress import Progress, checked
from turbidite.errors import OperationError, UsageError
from turbidite.schema import Column, Schema

__all__ = ["OpenDataset"]


class OpenDataset:
    """The base of `Dataset`: path, epochs and columns. Queries and trajectories keep it, and `Dataset` makes them."""

    def __init__(self, path: str | os.PathLike[str], *, progress: Progress = False) -> None:
        self.path = os.path.abspath(os.fsdecode(path))
        """The folder of the dataset: absolute, so that it stays the same if the program changes its directory."""
        self.progress = progress
        self._core = _core.Dataset(self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    @property
    def progress(self) -> Progress:
        """Whether calls that read row groups draw a bar, or the function that they call. Queries keep the value at their creation."""
        return self._progress

    @progress.setter
    def progress(self, progress: Progress) -> None:
        self._progress = checked(progress)

    @property
    def epochs(self) -> list[int]:
        """The labels of the epochs, ascending; new ones appear as they are committed."""
        return self._core.epochs()

    @property
    def times(self) -> numpy.ndarray[Any, Any]:
        """The physical times of the epochs, in their order: in seconds if their units were known, NaN where there is none."""
        return numpy.array(self._core.times(), "f8")

    @property
    def schema(self) -> Schema:
        """The columns, the key and, if records are clustered by space, the periods."""
        columns, key, periods = self._core.schema()
        return Schema(tuple(Column(*column) for column in columns), key, dict(periods), tuple(self._core.key_columns()))

    def attributes(self, epoch: int) -> dict[str, tuple[float, str | None]]:
        """Returns the numbers that describe an epoch, such as its ``"time"``: their values and units, by name.

        >>> dataset.attributes(200)
        {}
        """
        return self._core.attributes(self._label("epoch", epoch))

    def _reopen(self) -> None:
        self._core = _core.Dataset(self.path)

    def _labels(self, selection: Selection) -> list[int] | None:
        """Returns the labels of a selection; None stands for all."""
        if isinstance(selection, range):
            known = set(self.epochs)
            missing = next((label for label in selection if label not in known), None)
            if missing is not None:
                ends = f"{min(selection)}, {max(selection)}"
                raise OperationError(
                    f"epochs: epoch {missing} of {selection} does not exist; slice({ends}) has those that exist between its ends"
                )
            return list(selection)
        return self._core.select(selection) if isinstance(selection, str) else selection

    def _label(self, name: str, epoch: int) -> int:
        """Returns the label of an epoch. A negative number counts from the last epoch."""
        stated = whole(name, epoch)
        if stated >= 0:
            return natural(name, epoch)
        labels = self.epochs
        if -stated > len(labels):
            raise UsageError(f"{name}: {stated} is before the first of {len(labels)} epochs")
        return labels[stated]
