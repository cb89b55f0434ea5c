"""Sweeps try many cases of one kind. `make test` runs a part of each sweep, which changes from commit to commit, and
`make test-full` runs them whole."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from hypothesis import HealthCheck, seed, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

Case = TypeVar("Case")
Test = TypeVar("Test", bound=Callable)
IS_WHOLE = bool(os.environ.get("TURBIDITE_WHOLE"))
# The number of commits, so that consecutive commits take consecutive parts.
TURN = int(os.environ.get("TURBIDITE_TURN", "0"))

# Hypothesis draws literals of the modules that have been imported so far, too. What a seed draws would depend on the tests
# that ran before in the process.
assert callable(providers._get_local_constants)
providers._get_local_constants = Constants


def taken(cases: Iterable[Case], parts: int) -> list[Case]:
    """The cases of this run: all of them, or every one in `parts`."""
    return list(cases) if IS_WHOLE else list(cases)[TURN % parts :: parts]


def taken_by_turns(cases: Sequence[Case], number: int) -> list[Case]:
    """The cases of this run for the input with this number: all of them, or one, such that the inputs of one run have
    different cases."""
    return taken([cases[(number + turn) % len(cases)] for turn in range(len(cases))], len(cases))


def generated(examples: int, parts: int) -> Callable[[Test], Test]:
    """Decorates a test of Hypothesis: a run draws this many examples from one of `parts` seeds, and `make test-full` as many
    as from all of them from a seed of its own. A commit is judged by seeds that have been met before."""
    options = settings(
        max_examples=examples * parts if IS_WHOLE else examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    return lambda test: seed(parts if IS_WHOLE else TURN % parts)(options(test))
