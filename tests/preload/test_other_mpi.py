"""Libraries that were built for another MPI than the program's: the program runs as it would without them, and one
rank says for which MPI they are.

A machine has what PyPI's MPICH brings, whose MPI 5 ABI differs from its own. `make test-openmpi` runs this with Open
MPI, and names MPICH and its libraries as the other MPI.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import vpic
from support.command import AMPLE_S, ROOT
from support.libraries import prefix
from support.mpi import SOURCES, STRICT, Mpi
from support.mpi import run as run_tool
from support.preload import SMALL, VPIC, check_rows, configure, written
from support.sweeps import taken_by_turns
from support.tools import require

RANKS = 3
HERE = Path(__file__).parent
NAMES = ("libturbidite_preload.so", "libturbidite_preload_mpi.so")
MODES = ("keep", "replace")
STANDARD = "MPI 5's standard"


def family(mpi: Mpi) -> str:
    return "Open MPI" if mpi.options else "MPICH"


@dataclass(frozen=True)
class Side:
    """A compiler of an MPI, and libraries that it has built."""

    mpi: Mpi
    compiler: Path
    libraries: Path
    family: str

    def preload(self) -> tuple[Path, ...]:
        return tuple(self.libraries / name for name in NAMES)


def one_mpi(folder: Path, out: Path, libraries: Path) -> Side:
    mpi = Mpi.find_in(folder, out)
    return Side(mpi, folder / "mpicc", libraries, family(mpi))


def standard(natives: list[Side], out: Path) -> Side:
    """The ABI of MPI 5, of the first MPI that has it."""
    native = next((side for side in natives if (side.mpi.bin / "mpicc_abi").exists()), None)
    if native is None:
        pytest.skip("no MPI here has a library with the ABI of MPI 5: there is no mpicc_abi")
    compiler, libraries = native.mpi.bin / "mpicc_abi", out / "abi"
    if not libraries.exists():
        run_tool("make", "-C", SOURCES, f"OUT={libraries}", f"MPICC={compiler}")
        shutil.copy(native.libraries / NAMES[0], libraries)
    return Side(native.mpi, compiler, libraries, STANDARD)


@pytest.fixture(scope="module")
def find(tmp_path_factory) -> Callable[[str], Side]:
    out = tmp_path_factory.mktemp("other-mpi")
    natives = {"own": one_mpi(Mpi.default_bin(), out, prefix() / "lib")}
    if other := os.environ.get("TURBIDITE_OTHER_PREFIX"):
        natives["other"] = one_mpi(Path(os.environ["TURBIDITE_OTHER_MPI_BIN"]), out, Path(other) / "lib")

    def side(name: str) -> Side:
        if name == "standard":
            return standard(list(natives.values()), out)
        return natives[name]

    return side


def compile_writer(side: Side, folder: Path) -> Path:
    run_tool(side.compiler, "-std=c11", "-DWITH_MPI", "-o", folder / "writer", HERE / "writer.c")
    return folder / "writer"


def compile_dump(side: Side, folder: Path) -> Path:
    run_tool("make", "-C", ROOT / "examples" / "dump", "vpic_dump", f"MPICC={side.compiler}", f"BUILD={folder}")
    return folder / "vpic_dump"


def compile_fortran(side: Side, folder: Path) -> Path:
    require("gfortran", side.mpi.bin / "mpifort")
    for epoch in (1, 2, 3):
        for out in ("plain", "out"):
            (folder / out / f"E.{epoch}").mkdir(parents=True)
    run_tool(side.mpi.bin / "mpifort", "-cpp", f"-J{folder}", "-o", folder / "dump", ROOT / "tests" / "fortran" / "dump.f90")
    return folder / "dump"


# How a program is built, its arguments around the output folder, and what it writes.
PROGRAMS = {
    "writer": (compile_writer, ("plain",), (), SMALL),
    "dump": (compile_dump, (vpic.sample_dumps(),), ("--steps", "500,1000", "--allreduce"), VPIC),
    "fortran": (compile_fortran, (), (), SMALL),
}
# Whose program runs with whose libraries: of two MPIs, and of the one whose ABI is MPI 5's.
OF_TWO = [("own", "other"), ("other", "own")] if os.environ.get("TURBIDITE_OTHER_PREFIX") else []
PAIRS = [*OF_TWO, ("standard", "own"), ("own", "standard")]
CASES = [(*pair, program) for pair in PAIRS for program in ("writer", "dump")]
# One of them has a Fortran compiler, and only in some targets of the Makefile.
CASES += [("own", built, "fortran") for runs, built in PAIRS if runs == "own" and os.environ.get("TURBIDITE_MPI_FORTRAN")]


# Each of them in both modes, or in one, the other one with the next commit.
IN_MODES = [(*case, mode) for number, case in enumerate(CASES) for mode in taken_by_turns(MODES, number + number // 2)]


def said_by_us(text: str) -> list[str]:
    return [line for line in text.splitlines() if "turbidite" in line]


@pytest.mark.parametrize("runs, built, program, mode", IN_MODES)
def test_the_program_runs_without_indexing(find, tmp_path, spool, runs, built, program, mode):
    runs, built = find(runs), find(built)
    compile_program, before, after, form = PROGRAMS[program]
    command = compile_program(runs, tmp_path)
    plain = runs.mpi.start(RANKS, command, *before, tmp_path / "plain", *after)
    config = configure(tmp_path / "c.toml", (form, tmp_path / "ds", {"mode": mode, "spool": spool}))
    options = {"preload": built.preload(), "environment": {"TURBIDITE_CONFIG": str(config)}}
    done = runs.mpi.start(RANKS, command, *before, tmp_path / "out", *after, **options)
    assert done.stdout == plain.stdout
    version = "Open MPI v[0-9]" if runs.family == "Open MPI" else "MPICH Version: [0-9]"
    expected = (
        rf"turbidite: nothing is indexed: {re.escape(str(built.libraries))}/libturbidite_preload_mpi.so was built for the "
        rf"ABI of {built.family}, and this program runs with that of {runs.family} \({version}.*\); build it with the "
        r"program's mpicc: make install PREFIX=... MPICC=..."
    )
    assert len(lines := said_by_us(done.stderr)) == 1 and re.fullmatch(expected, lines[0]), done.stderr
    assert len(files := written(tmp_path / "plain")) >= 2 * RANKS
    assert written(tmp_path / "out") == files
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize("runs, built", PAIRS)
def test_every_collective_passes(find, tmp_path, runs, built):
    """With its handles, and those that come on the stack: the program checks each result."""
    runs, built = find(runs), find(built)
    program = tmp_path / "preload_test"
    run_tool(runs.compiler, *STRICT, "-o", program, SOURCES / "tests" / "preload_test.c", "-pthread")
    done = runs.mpi.start(RANKS, program, preload=built.preload())
    assert re.fullmatch(r"called: [0-9]+\n", done.stdout) and "for the ABI of" in done.stderr


def test_the_abi_of_mpi_5_is_indexed(find, tmp_path, spool):
    """With libraries that are built for it."""
    side = find("standard")
    command = compile_writer(side, tmp_path)
    side.mpi.start(RANKS, command, "plain", tmp_path / "plain")
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": "replace", "spool": spool}))
    options = {"preload": side.preload(), "environment": {"TURBIDITE_CONFIG": str(config)}}
    done = side.mpi.start(RANKS, command, "plain", tmp_path / "out", **options)
    assert "nothing is indexed" not in done.stderr and written(tmp_path / "out") == {}
    check_rows(tmp_path / "ds", SMALL, written(tmp_path / "plain"))


@pytest.mark.parametrize("mode", MODES)
def test_a_part_that_is_missing(find, tmp_path, spool, mode):
    """Nothing asks for a library that is preloaded already."""
    side = find("own")
    for name in NAMES:
        shutil.copy(side.libraries / name, tmp_path)
    command = compile_writer(side, tmp_path)
    side.mpi.start(RANKS, command, "plain", tmp_path / "plain")
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": mode, "spool": spool}))
    preload = tuple(tmp_path / name for name in NAMES)
    options = {"preload": preload, "environment": {"TURBIDITE_CONFIG": str(config)}}
    done = side.mpi.start(RANKS, command, "plain", tmp_path / "out", **options)
    lines = said_by_us(done.stderr)
    assert len(lines) == RANKS and all("nothing is indexed" in line and "preload_world.so" in line for line in lines), lines
    assert written(tmp_path / "out") == written(tmp_path / "plain")


@pytest.mark.parametrize("runs, built", OF_TWO)
def test_the_command_under_another_mpiexec(find, tmp_path, runs, built):
    runs, built = find(runs), find(built)
    command = built.libraries.parent / "bin" / "turbidite"
    arguments = [command, "ingest", vpic.sample_dumps(), "--out", tmp_path / "ds", "--key", "ux"]
    line = [runs.mpi.bin / "mpiexec", *runs.mpi.options, "-n", RANKS, *arguments]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": AMPLE_S}
    done = subprocess.run([str(part) for part in line], env=os.environ | root, **options)
    assert done.returncode != 0
    assert "mpiexec" in done.stderr and "builds libturbidite_mpi_world.so for your MPI" in done.stderr
    assert not (tmp_path / "ds").exists()


# Not skipped where there is one MPI: another target of the Makefile brings a second.
test_the_command_under_another_mpiexec.__test__ = bool(OF_TWO)
