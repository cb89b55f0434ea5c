"""Checks of arguments. What is wrong is refused rather than rounded or cast."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy

from turbidite import _core
from turbidite.errors import UsageError

Selection = list[int] | range | str | None
"""The epochs of a request as it keeps them: labels, or text that each use applies to the epochs that exist then."""

Epochs = int | range | slice | str | Iterable[int] | None
"""The epochs of a query: a label, several, a slice of labels such as ``slice(100, 400)`` or ``slice(0, 4000, 100)`` (both ends
included), a text as the command accepts it, such as ``"0..4000..100"``, ``"500,700"`` or ``"last"``, or all. ``-1`` is the last epoch."""

Id = int | bytes | tuple[int | bytes, ...]
"""The id of a particle: a whole number, bytes as a column stores them, or a tuple of these if several columns identify it."""

Ids = Id | Iterable[Id]
"""The ids of particles, any number of them. NumPy arrays may have two dimensions, or a field for each column. Arrow arrays and series
of pandas and Polars are taken, too."""


def whole(name: str, value: Any) -> int:
    """Returns a whole number."""
    try:
        found = operator.index(value)
    except TypeError:
        found = None
    if found is None or isinstance(value, (bool, numpy.bool_)):
        raise UsageError(f"{name}: a whole number is needed, not {value!r}")
    return found


def natural(name: str, value: Any, bits: int = 64) -> int:
    """Returns a whole number from 0 on that fits into this number of bits."""
    found = whole(name, value)
    if found < 0:
        raise UsageError(f"{name}: {found} is negative")
    if found >= 2**bits:
        raise UsageError(f"{name}: {found} needs more than {bits} bits")
    return found


def optional(name: str, value: Any) -> int | None:
    """Returns a whole number from 0 on, or `None`."""
    return None if value is None else natural(name, value)


def real(value: Any) -> int | float | None:
    """Returns a number, or `None` for anything else. Integers that the core can hold stay exact."""
    if isinstance(value, (bool, numpy.bool_, str, bytes)):
        return None
    with suppress(TypeError):
        found = operator.index(value)
        if abs(found) < 2**127:
            return found
    with suppress(TypeError, ValueError, OverflowError):
        return float(value)
    return None


def reals(name: str, values: Any, needed: str) -> list[float]:
    """Returns a list of numbers, of one if a number is given."""
    try:
        found = [real(value) for value in values]
    except TypeError:
        found = [real(values)]
    stated = [float(value) for value in found if value is not None]
    if isinstance(values, (str, bytes)) or len(stated) < len(found):
        raise UsageError(f"{name}: {needed} needed, not {values!r}")
    return stated


def ends(value: Any) -> tuple[float, float] | None:
    """Returns the ends of a range, or `None` if the value is not a pair of numbers."""
    if not isinstance(value, (Sequence, numpy.ndarray)) or isinstance(value, (str, bytes)) or len(value) != 2:
        return None
    low, high = real(value[0]), real(value[1])
    return None if low is None or high is None else (low, high)


def bin_count(value: Any) -> int | None:
    """Returns a number of bins from 1 on, or `None` for anything else, such as their edges."""
    found = real(value)
    return found if isinstance(found, int) and 1 <= found < 2**64 else None


def bins_or_edges(value: Any) -> int | list[float] | None:
    """Returns a number of bins, their edges, or `None` for anything else."""
    if (count := bin_count(value)) is not None:
        return count
    if not isinstance(value, (Sequence, numpy.ndarray)) or isinstance(value, (str, bytes)) or len(value) < 2:
        return None
    found = [real(edge) for edge in value]
    return None if None in found else [edge for edge in found if edge is not None]


def source(value: Any, *, has_level: bool = False, sources: Sequence[str] = ("exact", "bounds", "levels")) -> str:
    """Returns the source of numbers: exact ones by default, or those of a level that is stated."""
    found = value if value is not None else "levels" if has_level else "exact"
    if found not in sources:
        raise UsageError(f"source: {', '.join(map(repr, sources))} are possible, not {value!r}")
    if has_level and found != "levels":
        raise UsageError(f"level: estimates exclude source={value!r}")
    return str(found)


def budget(value: Any) -> int:
    """Returns a size in bytes."""
    found = real(value)
    if found is None or not 0 <= found < 2**64:
        raise UsageError(f"budget: a number of bytes is needed, such as 4e9, not {value!r}")
    return int(found)


def flag(name: str, value: Any) -> bool:
    """Returns a truth value."""
    if not isinstance(value, (bool, numpy.bool_)):
        raise UsageError(f"{name}: True or False is needed, not {value!r}")
    return bool(value)


def text(name: str, value: Any, example: str) -> str:
    """Returns a text."""
    if not isinstance(value, str):
        raise UsageError(f"{name}: a text such as {example!r} is needed, not {value!r}")
    return value


def optional_text(name: str, value: Any, example: str) -> str | None:
    """Returns a text, or `None`."""
    return None if value is None else text(name, value, example)


def order(value: Any) -> str | None:
    """Returns the columns that order rows, as one text, or `None`."""
    if isinstance(value, (list, tuple)):
        columns = texts("order", value, "give a list of names, such as ['energy desc', 'id']")
        for column in columns:
            if _core.split_list(column) != [column.strip()]:
                raise UsageError(f"order: '{column}' has a comma; put the name in double quotes, or give one text")
        return ", ".join(columns)
    return optional_text("order", value, "key")


def predicate(name: str, value: Any) -> str | None:
    """Returns an expression, or `None`."""
    return optional_text(name, value, "energy > 1")


def access(name: str, value: Any) -> str | None:
    """Returns the name of an index or ``"scan"``, or `None`."""
    return optional_text(name, value, "scan")


def column_name(name: str, value: Any) -> str:
    """Returns the name of a column."""
    if not isinstance(value, str):
        raise UsageError(f"{name}: the name of a column is needed, not {value!r}")
    return value


def optional_column(name: str, value: Any) -> str | None:
    """Returns the name of a column, or `None`."""
    return None if value is None else column_name(name, value)


def texts(name: str, values: Any, needed: str) -> list[str]:
    """Returns a list of texts."""
    listed = None if isinstance(values, str) or not isinstance(values, Iterable) else list(values)
    if listed is None or not all(isinstance(one, str) for one in listed):
        raise UsageError(f"{name}: {needed}, not {values!r}")
    return listed


def names(name: str, columns: Any) -> list[str] | None:
    """Returns a list of names, or `None`."""
    return None if columns is None else texts(name, columns, "give a list of names, such as ['id', 'energy']")


def column_option(columns: Sequence[str] | None) -> list[str]:
    """Returns the command's option for a list of columns, which are separated by commas there."""
    if columns is None:
        return []
    if not columns:
        raise UsageError("columns: name at least one")
    for name in columns:
        if _core.split_list(name) != [name.strip()]:
            raise UsageError(
                f"columns: '{name}' has a comma, and the command would take it as several names; leave `columns` out"
            )
    return [f"--columns={','.join(columns)}"]


def selection(epochs: Epochs) -> Selection:
    """Checks the epochs of a request."""
    if epochs is None:
        return None
    if isinstance(epochs, slice):
        first = "0" if epochs.start is None else str(whole("epochs", epochs.start))
        last = "last" if epochs.stop is None else str(whole("epochs", epochs.stop))
        chosen = f"{first}..{last}" if epochs.step is None else f"{first}..{last}..{whole('epochs', epochs.step)}"
    elif isinstance(epochs, str):
        chosen = epochs
    else:
        several = epochs if isinstance(epochs, Iterable) and not isinstance(epochs, bytes) else [epochs]
        labels = [whole("epochs", label) for label in several]
        if all(label >= 0 for label in labels):
            if isinstance(epochs, range) and labels:
                return epochs
            return [natural("epochs", label) for label in labels]
        chosen = ",".join(map(str, labels))
    _core.check_epochs(chosen)
    return chosen


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
    if not isinstance(ids, (numpy.ndarray, numpy.generic)) and hasattr(ids, "__array__"):
        # Arrow arrays, Polars and pandas series.
        ids = numpy.asarray(ids)
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
