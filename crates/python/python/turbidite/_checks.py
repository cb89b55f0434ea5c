"""Checks of arguments. What is wrong is refused rather than rounded or cast."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy

from turbidite.errors import UsageError

Epochs = int | range | slice | Iterable[int] | None
"""The epochs of a query: a label, several, a slice of labels such as ``slice(100, 400)`` (both included), or all."""

Ids = int | bytes | Iterable[int | bytes]
"""The ids of particles: whole numbers, or bytes as columns store them."""


def whole(name: str, value: Any) -> int:
    """Returns a whole number."""
    try:
        found = operator.index(value)
    except TypeError:
        found = None
    if found is None or isinstance(value, (bool, numpy.bool_)):
        raise UsageError(f"{name}: a whole number is needed, not {value!r}")
    return found


def natural(name: str, value: Any) -> int:
    """Returns a whole number from 0 on."""
    found = whole(name, value)
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


def particle_ids(name: str, ids: Ids) -> list[int | bytes]:
    """Returns ids of particles: whole numbers, or bytes as columns store them."""
    if isinstance(ids, numpy.ndarray) and ids.dtype.kind in "iu":
        numbers: list[int | bytes] = ids.reshape(-1).tolist()
        return numbers
    if isinstance(ids, numpy.ndarray) and ids.dtype.kind in "SV":
        # NumPy cuts off the zeros at the end of text, not those of opaque values.
        opaque = numpy.ascontiguousarray(ids).reshape(-1).view(f"V{ids.dtype.itemsize}")
        return [value.tobytes() for value in opaque]
    if isinstance(ids, str):
        raise UsageError(f"{name}: ids are whole numbers or bytes, not the text {ids!r}")
    if isinstance(ids, bytes) or not isinstance(ids, Iterable):
        ids = [ids]
    return [bytes(one) if isinstance(one, (bytes, numpy.void)) else _particle_id(name, one) for one in ids]


def _particle_id(name: str, value: Any) -> int:
    found = whole(name, value)
    if not -(2**63) <= found < 2**64:
        raise UsageError(f"{name}: {found} needs more than 64 bits")
    return found
