"""Units of columns, as physicists write them: ``m_e c``, ``MeV/c``, ``kg m s^-1``, ``1e-06 m``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from turbidite.errors import UsageError

__all__ = ["Units", "in_math", "ratio"]

Units = Mapping[str, str]
"""The unit in which a picture shows each of some columns."""

_BASE = ("kg", "m", "s", "A", "K", "mol", "cd")
_Dimension = tuple[float, ...]


def _dimension(kg: float = 0, m: float = 0, s: float = 0, A: float = 0, K: float = 0) -> _Dimension:
    return (kg, m, s, A, K, 0, 0)


_SYMBOLS: dict[str, tuple[float, _Dimension]] = {
    "g": (1e-3, _dimension(kg=1)),
    **{name: (1.0, tuple(float(name == other) for other in _BASE)) for name in _BASE[1:]},
    "rad": (1.0, _dimension()),
    "Hz": (1.0, _dimension(s=-1)),
    "N": (1.0, _dimension(1, 1, -2)),
    "Pa": (1.0, _dimension(1, -1, -2)),
    "J": (1.0, _dimension(1, 2, -2)),
    "W": (1.0, _dimension(1, 2, -3)),
    "C": (1.0, _dimension(s=1, A=1)),
    "V": (1.0, _dimension(1, 2, -3, -1)),
    "T": (1.0, _dimension(1, 0, -2, -1)),
    "eV": (1.602176634e-19, _dimension(1, 2, -2)),
}
"""The factor to SI base units, and their powers. These symbols take prefixes."""

_CONSTANTS: dict[str, tuple[float, _Dimension]] = {
    "c": (299792458.0, _dimension(m=1, s=-1)),
    "e": (1.602176634e-19, _dimension(s=1, A=1)),
    "m_e": (9.1093837139e-31, _dimension(kg=1)),
    "m_p": (1.67262192595e-27, _dimension(kg=1)),
    "k_B": (1.380649e-23, _dimension(1, 2, -2, 0, -1)),
}
"""Constants in units. The masses are those of CODATA 2022."""

_PREFIXES = {
    "a": 1e-18, "f": 1e-15, "p": 1e-12, "n": 1e-9, "µ": 1e-6, "μ": 1e-6, "u": 1e-6, "m": 1e-3, "c": 1e-2, "k": 1e3, "M": 1e6,
    "G": 1e9, "T": 1e12, "P": 1e15,
}  # fmt: skip

_TERM = re.compile(r"(?P<symbol>[^\W\d]+)(?:(?:\^|\*\*)?(?P<power>[+-]?\d+(?:\.\d+)?))?")
_NUMBER = re.compile(r"\d[\d.]*(?:[eE][+-]?\d+)?")
_Term = tuple[str, float, bool]
"""A symbol, its power, and whether it is a divisor."""


def _terms(unit: str) -> tuple[float, list[_Term]] | None:
    """Returns the factor of a unit and its terms, or None for other text."""
    pieces = [piece for piece in re.split(r"\s*(/)\s*|\s*·\s*|\s*(?<!\*)\*(?!\*)\s*|\s+", unit.strip()) if piece]
    factor, is_divisor, terms = 1.0, False, list[_Term]()
    for number, piece in enumerate(pieces):
        found = _TERM.fullmatch(piece)
        if found and _symbol(found["symbol"]):
            terms.append((found["symbol"], float(found["power"] or 1), is_divisor))
        elif number == 0 and _NUMBER.fullmatch(piece):
            factor = float(piece)
        elif piece != "/" or is_divisor or number == 0:
            return None
        is_divisor = piece == "/"
    return (factor, terms) if terms and not is_divisor and 0 < factor < math.inf else None


def _symbol(symbol: str) -> tuple[float, _Dimension] | None:
    """Returns the factor and the dimension of a symbol, with or without a prefix."""
    if found := _CONSTANTS.get(symbol) or _SYMBOLS.get(symbol):
        return found
    prefix, of = _PREFIXES.get(symbol[0]), _SYMBOLS.get(symbol[1:])
    return (prefix * of[0], of[1]) if prefix and of else None


def _in_base(unit: str) -> tuple[float, _Dimension] | None:
    """Returns the factor of a unit to SI base units, and the powers of these."""
    if (parsed := _terms(unit)) is None:
        return None
    factor, dimension = parsed[0], _dimension()
    for symbol, stated, is_divisor in parsed[1]:
        scale, powers = _symbol(symbol) or (1.0, _dimension())
        power = -stated if is_divisor else stated
        factor *= scale**power
        dimension = tuple(one + power * other for one, other in zip(dimension, powers, strict=True))
    return factor, dimension


def ratio(name: str, stored: str | None, shown: str | None) -> float:
    """Returns the factor of a column's values to the unit to show.

    It is 1 if the column has no unit, or one that is not known: the picture then only takes over the name.
    """
    source = None if stored is None else _in_base(stored)
    if source is None or shown is None or stored == shown:
        return 1.0
    target = _in_base(shown)
    if target is None or source[1] != target[1]:
        raise UsageError(f"units: '{name}' is in '{stored}', which does not convert to '{shown}'")
    return source[0] / target[0]


def in_math(unit: str) -> str | None:
    """Returns a unit as a formula of matplotlib, if it has powers or constants, and nothing but known symbols."""
    parsed = _terms(unit)
    if parsed is None or not any(power != 1 or symbol in _CONSTANTS for symbol, power, _ in parsed[1]):
        return None
    factor, terms = parsed
    written = "" if factor == 1 and not terms[0][2] else _factor(factor)
    for symbol, power, is_divisor in terms:
        letters = symbol if symbol in _CONSTANTS else rf"\mathrm{{{symbol}}}"
        written += "/" if is_divisor else r"\," if written else ""
        written += letters if power == 1 else f"{letters}^{{{power:g}}}"
    return f"${written}$"


def _factor(factor: float) -> str:
    digits, _, exponent = f"{factor:.6g}".partition("e")
    return rf"{digits}\times10^{{{int(exponent)}}}" if exponent else digits
