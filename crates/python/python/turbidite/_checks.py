"""Checks of arguments. What is wrong is refused rather than rounded or cast."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy

from turbidite.errors import UsageError

Epochs = int | range | slice | Iterable[int] | None
"""The epochs of a query: a label, several, a slice of labels such as ``slice(100, 400)`` (both included), or all."""


def natural(name: str, value: Any) -> int:
    """Returns a whole number from 0 on."""
    try:
        found = operator.index(value)
    except TypeError:
        found = None
    if found is None or isinstance(value, (bool, numpy.bool_)):
        raise UsageError(f"{name}: a whole number is needed, not {value!r}")
    if found < 0:
        raise UsageError(f"{name}: {found} is negative")
    return found


def optional(name: str, value: Any) -> int | None:
    """Returns a whole number from 0 on, or `None`."""
    return None if value is None else natural(name, value)


def names(name: str, columns: Sequence[str] | None) -> list[str] | None:
    """Returns a list of names, or `None`."""
    if isinstance(columns, str):
        raise UsageError(f"{name}: give a list of names, such as ['id', 'energy']")
    return None if columns is None else list(columns)


def selection(epochs: Epochs) -> list[int] | slice | None:
    """Checks the epochs of a request. A slice stays one: each use applies it to the epochs that exist then."""
    if epochs is None:
        return None
    if isinstance(epochs, slice):
        if epochs.step is not None:
            raise UsageError("epochs: a slice of labels has no step")
        return slice(optional("epochs", epochs.start), optional("epochs", epochs.stop))
    if isinstance(epochs, (str, bytes)):
        raise UsageError(f"epochs: labels are numbers, not the text {epochs!r}")
    if isinstance(epochs, Iterable):
        return [natural("epochs", label) for label in epochs]
    return [natural("epochs", epochs)]
