"""The box of a LAMMPS step: the periods of the coordinates in its dump."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

_AXES = ("x", "y", "z")
_TRICLINIC = "the box is triclinic"
_OTHER_FORMS = {"s": "scaled coordinates", "u": "unwrapped coordinates", "su": "scaled and unwrapped coordinates"}


def box_periods(header: bytes, bounds: Sequence[bytes], names: Iterable[str]) -> dict[str, float | str]:
    """Returns the period of each coordinate among the columns of a step, or the reason why it has none.

    `header` is the line ``ITEM: BOX BOUNDS``, and `bounds` has the three lines after it.
    """
    words = header.decode(errors="replace").split()[3:]
    flags = words[-3:] if len(words) >= 3 else [""] * 3
    of_axes = [_period(flag, line, len(words) > 3) for flag, line in zip(flags, bounds, strict=True)]
    if _TRICLINIC in of_axes:
        # A tilt concerns two axes.
        of_axes = [_TRICLINIC] * 3
    found: dict[str, float | str] = {}
    for name in names:
        if name[:1] in _AXES and name[1:] in ("", *_OTHER_FORMS):
            found[name] = _OTHER_FORMS.get(name[1:]) or of_axes[_AXES.index(name[:1])]
    return found


def _period(flag: str, line: bytes, is_tilted: bool) -> float | str:
    """Returns the period of an axis: the length of its side."""
    try:
        low, high, *tilt = (float(word) for word in line.split())
    except ValueError:
        return "the bounds of the box are not numbers"
    if is_tilted and tilt != [0.0]:
        return _TRICLINIC
    if not flag:
        return "the file does not state the boundaries of the box"
    if flag != "pp":
        return f"its boundary is {flag}, not pp"
    period = high - low
    return period if math.isfinite(period) and period > 0 else f"the box has the length {period:g}"
