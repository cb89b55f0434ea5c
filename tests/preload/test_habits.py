"""Programs of many habits lose nothing: each of their files is as without the library, or each of its records is in the
dataset once, or it is named by a message whose command puts it in place. `support.habits` has the table of verdicts."""

import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest
from support.habits import HABITS, PLACES, Spool, compile_programs, run_case, run_plain, small_spool
from support.mpi import run as run_tool
from support.sweeps import IS_WHOLE, TURN, taken

PARTS = 10
SEEDS = 200
# Programs without MPI do not run once more where the tests of MPI run with another one.
PROCESSES = (3,) if os.environ.get("TURBIDITE_MPI_BIN") else (None, 3)
# All cells of a habit run together, since they are compared with the same plain runs.
CASES = [
    (name, ranks, *place)
    for name in taken(HABITS, PARTS)
    for ranks in HABITS[name].ranks
    if ranks in PROCESSES
    for place in PLACES
]
CELLS = [(ranks, *place) for ranks in PROCESSES for place in PLACES]


def random_cases() -> list[tuple]:
    """All seeds in all cells, or a part of the seeds, each in one cell."""
    if IS_WHOLE:
        return [(f"random {seed}", *cell) for seed in range(SEEDS) for cell in CELLS]
    return [(f"random {seed}", *CELLS[(seed + TURN) // PARTS % len(CELLS)]) for seed in taken(range(SEEDS), PARTS)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> dict[bool, Path]:
    return compile_programs(tmp_path_factory.mktemp("habits"))


@pytest.fixture(scope="module")
def plain(programs, tmp_path_factory):
    """What a habit leaves without the library."""

    @lru_cache(maxsize=2)
    def outcome(name: str, ranks: int | None):
        scratch = tmp_path_factory.mktemp("plain")
        found = run_plain(programs[ranks is not None], name, ranks, scratch)
        shutil.rmtree(scratch)
        return found

    return outcome


@pytest.fixture(scope="module")
def mounted_spool(tmp_path_factory):
    with small_spool(tmp_path_factory.mktemp("mount")) as found:
        yield found


@pytest.fixture
def spool_of(mounted_spool, tmp_path):
    """A spool by its size, empty."""
    with tempfile.TemporaryDirectory(prefix="spool-", dir="/dev/shm") as name:

        def spool(size: str) -> Spool:
            if size == "none":
                return Spool(tmp_path / "no-spool", tmp_path / "no-spool")
            if size == "large":
                return Spool(Path(name), Path(name))
            if mounted_spool is None:
                pytest.skip("file systems cannot be mounted here")
            for path in mounted_spool.outside.iterdir():
                shutil.rmtree(path)
            return mounted_spool

        yield spool


@pytest.fixture
def check(programs, plain, spool_of, tmp_path):
    def check(name: str, ranks: int | None, mode: str, size: str) -> None:
        program = programs[ranks is not None]
        faults = run_case(program, name, ranks, mode, plain(name, ranks), tmp_path, spool_of(size))
        assert not faults, "\n".join(faults)
        # The whole sweep writes gigabytes.
        shutil.rmtree(tmp_path)

    return check


@pytest.mark.parametrize("name, ranks, mode, size", CASES)
def test_habit(check, name, ranks, mode, size):
    check(name, ranks, mode, size)


@pytest.mark.parametrize("name, ranks, mode, size", random_cases())
def test_random_calls(check, name, ranks, mode, size):
    check(name, ranks, mode, size)


def test_every_habit_has_a_verdict(programs):
    assert sorted(run_tool(programs[True], "list").stdout.split()) == sorted(HABITS)
