"""Units of HDF5 datasets, in the form that the command understands: a factor and SI base units, such as ``1e-06 m``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

_UNITS = ("m", "kg", "s", "A", "K", "mol", "cd")
_ORDER_OF_UNITS = ("kg", "m", "s", "A", "K", "mol", "cd")
_TEXTS = ("unit", "units")
_SWIFT_FACTOR = "Conversion factor to CGS (not including cosmological corrections)"
_SWIFT_POWERS = {"L": "U_L exponent", "M": "U_M exponent", "t": "U_t exponent", "I": "U_I exponent", "T": "U_T exponent"}
_GADGET_POWERS = ("length_scaling", "mass_scaling", "velocity_scaling")
_COSMOLOGY = {"a": ("a-scale exponent", "a_scaling"), "h": ("h-scale exponent", "h_scaling")}


def si_unit(factor: float, dimension: Sequence[float]) -> str | None:
    """Returns a unit such as `1e-06 m` or `kg m s^-1`; none for a plain number. The dimension is openPMD's `unitDimension`."""
    powers = dict(zip(_UNITS, dimension, strict=True))
    parts = [] if factor == 1 else [repr(float(factor))]
    for name in _ORDER_OF_UNITS:
        if powers[name] != 0:
            parts.append(name if powers[name] == 1 else f"{name}^{powers[name]:g}")
    return " ".join(parts) or None


def unit_of(attributes: Mapping[str, Any]) -> str | None:
    """Returns the unit that a dataset's attributes state: as text, or as SWIFT, GADGET-4 and AREPO do."""
    for name in _TEXTS:
        stated = text(attributes.get(name))
        if stated:
            return stated
    if _SWIFT_FACTOR in attributes:
        powers = {symbol: number(attributes.get(name)) for symbol, name in _SWIFT_POWERS.items()}
        factor = number(attributes.get(_SWIFT_FACTOR))
        return _of_cgs(factor, powers["L"], powers["M"], powers["t"], powers["I"], powers["T"])
    if "to_cgs" in attributes and any(name in attributes for name in _GADGET_POWERS):
        length, mass, velocity = (number(attributes.get(name)) for name in _GADGET_POWERS)
        return _of_cgs(number(attributes.get("to_cgs")), length + velocity, mass, -velocity)
    return None


def cosmology_of(attributes: Mapping[str, Any]) -> str | None:
    """Returns a note on comoving values, which the unit leaves out, since the scale factor changes from epoch to epoch."""
    factors = []
    for symbol, names in _COSMOLOGY.items():
        power = next((number(attributes[name]) for name in names if name in attributes), 0.0)
        if power:
            factors.append(symbol if power == 1 else f"{symbol}^{power:g}")
    return f"values without the cosmological factor {' '.join(factors)}" if factors else None


def _of_cgs(factor: float, length: float, mass: float, time: float, current: float = 0, temperature: float = 0) -> str | None:
    """Returns the SI unit of values that have a factor to CGS. GADGET's factor is 0 for plain numbers."""
    centi, grams = 2 * length + 3 * mass, (length, mass, time, current, temperature)
    if not factor:
        return None
    if centi == int(centi) and abs(centi) <= 22:
        # Exact powers of ten, so that the factor is rounded once.
        factor = factor / 10.0 ** int(centi) if centi >= 0 else factor * 10.0 ** int(-centi)
    else:
        factor *= 10.0**-centi
    return si_unit(factor, (*grams, 0, 0))


def text(value: Any) -> str | None:
    """Returns an attribute's text, which files store in several forms."""
    if isinstance(value, numpy.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return re.sub(r"\0+$", "", value) if isinstance(value, str) else None


def number(value: Any) -> float:
    """Returns an attribute's number, or 0 for an attribute that has none."""
    found = numpy.asarray(0 if value is None else value)
    return float(found.reshape(-1)[0]) if found.size == 1 and found.dtype.kind in "biuf" else 0.0
