"""Programs of several ranks under Valgrind: no memory error and no memory lost, of ours, of the transport or of the
preload libraries. MPICH's own errors are named in tests/support/mpich.supp; AddressSanitizer looks at the transport in
tests/mpi."""

import subprocess
from pathlib import Path

import pytest

from support.command import ROOT, turbidite
from support.libraries import library, linked, prefix, valgrind
from support.mpi import Mpi
from support.preload import SMALL, check_rows, configure, written
from support.sweeps import taken

SUPPRESSED = ROOT / "tests" / "support" / "mpich.supp"
PRELOAD = ("libturbidite_preload.so", "libturbidite_preload_mpi.so")


@pytest.fixture(scope="module")
def mpi(tmp_path_factory) -> Mpi:
    found = Mpi.find(tmp_path_factory.mktemp("mpi"))
    found.build_libraries()
    return found


@pytest.fixture(scope="module")
def mpi_write(mpi) -> Path:
    transport = (f"-L{mpi.out}", f"-Wl,-rpath,{mpi.out}", "-lturbidite_mpi")
    source = ROOT / "tests" / "c" / "mpi_write.c"
    return mpi.compile("mpi_write", "-O1", f"-I{prefix() / 'include'}", source, *transport, *linked("turbidite"), "-lm")


def start(mpi: Mpi, ranks: int | None, program: Path, *arguments, **options) -> subprocess.CompletedProcess:
    """Runs a program of which every rank is under Valgrind."""
    command = [*valgrind(SUPPRESSED), program, *arguments]
    return mpi.start(ranks, *command, **options)


PARTS = [(2, ["epochs", "restart"]), (3, ["failures"]), (2, ["schemas"]), (4, ["token"])]


@pytest.mark.parametrize("ranks, parts", taken(PARTS, 2))
def test_the_c_interface_over_mpi(mpi, mpi_write, ranks, parts, tmp_path):
    (tmp_path / "records").mkdir()
    for part in parts:
        assert start(mpi, ranks, mpi_write, part, tmp_path / "dataset", tmp_path / "records").stdout.endswith("ok\n")
    turbidite("verify", tmp_path / "dataset")


WRITER = ROOT / "tests" / "preload" / "writer.c"
# Every run has both modes, and 2 as well as 4 ranks.
PRELOADED = [(None, "keep"), (None, "replace"), *taken([(2, "keep"), (2, "replace"), (4, "replace"), (4, "keep")], 2)]


@pytest.mark.parametrize("ranks, mode", PRELOADED)
def test_preloaded_programs(mpi, ranks, mode, tmp_path, spool):
    """The program's descriptors and streams pass through the library; what it reads back is in its own memory."""
    writer = mpi.compile("writer", "-O1", *(("-DWITH_MPI",) if ranks else ()), WRITER)
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": mode, "spool": spool}))
    habit = "append" if ranks else "read"
    mpi.start(ranks, writer, habit, tmp_path / "plain")
    preload = tuple(library(name) for name in PRELOAD[: 2 if ranks else 1])
    environment = {"TURBIDITE_CONFIG": str(config)}
    said = start(mpi, ranks, writer, habit, tmp_path / "out", preload=preload, environment=environment)
    assert "turbidite:" not in said.stderr
    expected = written(tmp_path / "plain")
    assert len(expected) == 3 * (ranks or 1)
    assert written(tmp_path / "out") == (expected if mode == "keep" else {})
    check_rows(tmp_path / "ds", SMALL, expected)


@pytest.fixture(scope="module")
def broken(mpi) -> Path:
    """A program in which nothing is found unless it is told to have an error."""
    program = mpi.compile("broken", "-O1", ROOT / "tests" / "memory" / "broken.c")
    assert start(mpi, 2, program, "nothing").returncode == 0
    return program


ERRORS = [("leak", "400 bytes in 1 blocks are definitely lost"), ("overrun", "Invalid read")]


@pytest.mark.parametrize("kind, found", ERRORS)
def test_errors_are_found(mpi, broken, kind, found):
    """Valgrind sees the errors that the other tests look for, whatever is suppressed: a leak, and a buffer that MPI reads too far."""
    with pytest.raises(AssertionError, match=found):
        start(mpi, 2, broken, kind)
