"""The headers of GADGET's snapshots, which SWIFT, AREPO and others write, too: how many records each file of an epoch has."""

from __future__ import annotations

import re
from typing import Any

import numpy

from turbidite.sources.epochs import Counts

_GROUP = re.compile(r"/?PartType(\d+)(?:/|$)")


def counts(file: Any, name: str) -> Counts | None:
    """Returns the numbers of records in the group of a dataset, or `None` if no header states them."""
    group = _GROUP.match(name)
    if group is None or not hasattr(file.get("Header"), "attrs"):
        return None
    kind, attributes = int(group[1]), file["Header"].attrs
    here, total = (_of_kind(attributes.get(f"NumPart_{which}"), kind) for which in ("ThisFile", "Total"))
    if here is None or total is None:
        return None
    total += (_of_kind(attributes.get("NumPart_Total_HighWord"), kind) or 0) << 32
    files = _of_kind(attributes.get("NumFilesPerSnapshot", 1), 0)
    return Counts(f"PartType{kind}", here, total, files or 1)


def is_empty(file: Any, name: str) -> bool:
    """Returns whether a file lacks a group of which its header states no records."""
    found = counts(file, name)
    return found is not None and found.here == 0 and found.group not in file


def _of_kind(values: Any, kind: int) -> int | None:
    numbers = numpy.atleast_1d(values) if values is not None else numpy.empty(0)
    return int(numbers[kind]) if numbers.dtype.kind in "iu" and kind < len(numbers) else None
