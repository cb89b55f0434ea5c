"""Warnings about derived values that their columns cannot represent."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["warn"]


def warn(counts: Iterable[Mapping[str, Any]], stacklevel: int) -> None:
    """Warns of the columns in `out_of_range` of a report. `stacklevel` is that of `warnings.warn`, seen from the caller."""
    for one in counts:
        name, large, small = one["column"], one["overflows"], one["underflows"]
        found = [f"{_counted(large)} too large for f32 (stored as infinity)"] if large else []
        found += [f"{_counted(small)} too small for f32 (stored as 0 or with fewer digits)"] if small else []
        what = f"column '{name}': {', '.join(found)}; derive it as '{name}:f64=…'"
        warnings.warn(what, RuntimeWarning, stacklevel=stacklevel + 1)


def _counted(number: int) -> str:
    return f"{number} value{'' if number == 1 else 's'}"
