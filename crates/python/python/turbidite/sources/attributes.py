"""Numbers that describe an epoch, such as its physical time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy

from turbidite.sources.units import number, text

Attributes = dict[str, dict[str, Any]]
"""The value and the unit of each attribute, by name, as the protocol sends them."""

_MOST = 64
"""The largest number of attributes of a file that are kept. The core keeps 256."""
_LONGEST = 128
"""The longest name and unit, in bytes, that the core keeps."""


def attribute(name: str, value: Any, unit: str | None = None) -> Attributes:
    """Returns an attribute, or nothing if its value is not a single finite number."""
    found = numpy.asarray(value)
    if found.size != 1 or found.dtype.kind not in "biuf" or not 1 <= len(name.encode()) <= _LONGEST:
        return {}
    number = float(found.reshape(-1)[0])
    kept = unit if unit and len(unit.encode()) <= _LONGEST else None
    return {name: {"value": number, "unit": kept}} if math.isfinite(number) else {}


def of_openpmd(stated: Mapping[str, Any]) -> Attributes:
    """Returns the time and the time step of an iteration with these attributes, in seconds if the file states the factor."""
    factor, unit = (number(stated["timeUnitSI"]), "s") if "timeUnitSI" in stated else (1.0, None)
    found: Attributes = {}
    for name in ("time", "dt"):
        for known in attribute(name, stated.get(name, ())).values():
            found |= attribute(name, known["value"] * factor, unit)
    return found


def of_mappings(*mappings: Mapping[str, Any]) -> Attributes:
    """Returns the attributes that are numbers, of later mappings in place of earlier ones; ``Time`` is the time."""
    found: Attributes = {}
    for mapping in mappings:
        for name in mapping:
            if name.lower() == "time":
                unit = next((text(mapping[one]) for one in mapping if one.lower() in ("time_unit", "time_units")), None)
                found |= attribute("time", mapping[name], unit)
            elif len(found) < _MOST:
                found |= attribute(name, mapping[name])
    return found
