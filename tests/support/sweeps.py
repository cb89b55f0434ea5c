"""Sweeps try many cases of one kind. `make test` runs a part of each sweep, which changes from commit to commit, and
`make test-full` runs them whole."""

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

Case = TypeVar("Case")
IS_WHOLE = bool(os.environ.get("TURBIDITE_WHOLE"))
# The number of commits, so that consecutive commits take consecutive parts.
TURN = int(os.environ.get("TURBIDITE_TURN", "0"))


def taken(cases: Iterable[Case], parts: int) -> list[Case]:
    """The cases of this run: all of them, or every one in `parts`."""
    return list(cases) if IS_WHOLE else list(cases)[TURN % parts :: parts]


def taken_by_turns(cases: Sequence[Case], number: int) -> list[Case]:
    """The cases of this run for the input with this number: all of them, or one, such that the inputs of one run have
    different cases."""
    return taken([cases[(number + turn) % len(cases)] for turn in range(len(cases))], len(cases))
