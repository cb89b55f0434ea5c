"""Checks of arguments. What is wrong is refused rather than rounded or cast."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy

from turbidite.errors import UsageError

Epochs = int | range | slice | Iterable[int] | None
"""The epochs of a query: a label, several, a slice of labels such as ``slice(100, 400)`` (both included), or all."""

Id = int | bytes | tuple[int | bytes, ...]
"""The id of a particle: a whole number, bytes as a column stores them, or a tuple of these if several columns identify it."""

Ids = Id | Iterable[Id]
"""The ids of particles. NumPy arrays may have two dimensions, or a field for each column."""


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


def column_named(name: str, known: Sequence[str]) -> str:
    """Returns the known column of this name, or else of this name in other letter case; an unknown name as it is."""
    return name if name in known else next((column for column in known if column.lower() == name.lower()), name)


def particle_ids(name: str, ids: Ids, columns: Sequence[str], known: Sequence[str]) -> list[Id]:
    """Returns ids of particles, which `columns` identify among the `known`: values, or tuples of values."""
    if isinstance(ids, (numpy.ndarray, numpy.void)) and ids.dtype.names is not None:
        tuples = _by_fields(name, numpy.asarray(ids), columns, known)
        return list(tuples) if len(columns) > 1 else [value for (value,) in tuples]
    if len(columns) > 1:
        return _tuples(name, ids, len(columns))
    if isinstance(ids, numpy.ndarray) and ids.dtype.kind in "iuSV":
        return _values(ids.reshape(-1))
    if isinstance(ids, str):
        raise UsageError(f"{name}: ids are whole numbers or bytes, not the text {ids!r}")
    if isinstance(ids, bytes) or not isinstance(ids, Iterable):
        ids = [ids]
    return [_value(name, one) for one in ids]


def _by_fields(name: str, ids: Any, columns: Sequence[str], known: Sequence[str]) -> list[tuple[int | bytes, ...]]:
    """Returns the ids of a structured array, whose fields are the columns in any order."""
    fields = {column_named(field, known): ids[field] for field in ids.dtype.names}
    if len(fields) < len(ids.dtype.names) or set(fields) != set(columns):
        stated, needed = ", ".join(ids.dtype.names), ", ".join(columns)
        raise UsageError(f"{name}: the array has the fields {stated}, but the columns that identify particles are {needed}")
    if any(field.shape != ids.shape for field in fields.values()):
        raise UsageError(f"{name}: each field of the array must have one value for each id, not several")
    rows = zip(*(_values(fields[column].reshape(-1)) for column in columns), strict=True)
    return [tuple(_value(name, value) for value in row) for row in rows]


def _tuples(name: str, ids: Any, columns: int) -> list[Id]:
    """Returns ids that are tuples of as many values as columns."""
    if isinstance(ids, numpy.ndarray) and ids.ndim == 2:
        found: list[Any] = [tuple(_values(row)) for row in ids]
    elif isinstance(ids, tuple) and not any(isinstance(one, (tuple, list)) for one in ids):
        found = [ids]
    else:
        found = list(ids) if isinstance(ids, Iterable) and not isinstance(ids, (str, bytes)) else [ids]
    for one in found:
        if not isinstance(one, (tuple, list, numpy.ndarray)) or len(one) != columns:
            raise UsageError(f"{name}: an id is a tuple of {columns} values here, not {one!r}")
    return [tuple(_value(name, value) for value in one) for one in found]


def _values(array: Any) -> list[Any]:
    """Returns the numbers or byte strings of an array."""
    if array.dtype.kind not in "SV":
        return list(array.tolist())
    # NumPy cuts off the zeros at the end of text, not those of opaque values.
    opaque = numpy.ascontiguousarray(array).view(f"V{array.dtype.itemsize}")
    return [value.tobytes() for value in opaque]


def _value(name: str, value: Any) -> int | bytes:
    if isinstance(value, numpy.void) and value.dtype.names is None:
        return value.tobytes()
    return bytes(value) if isinstance(value, bytes) else _particle_id(name, value)


def _particle_id(name: str, value: Any) -> int:
    found = whole(name, value)
    if not -(2**63) <= found < 2**64:
        raise UsageError(f"{name}: {found} needs more than 64 bits")
    return found
