"""Builds the example programs and runs them under MPI; the MPI is the one of the tests' own interpreter unless
TURBIDITE_MPI_BIN names the folder of another."""

import os
import subprocess
import sys
from pathlib import Path

from support.command import AMPLE_S, ROOT

# Beside the interpreter as it was called: resolving the link would leave the virtual environment.
TOOLS = Path(os.environ.get("TURBIDITE_MPI_BIN") or Path(sys.executable).parent)


def mpi_tool(name: str) -> Path:
    path = TOOLS / name
    if not path.exists():
        raise RuntimeError(f"{path} is missing; run the tests with: make test-python")
    return path


def build_example(folder: str, program: str, target: Path, *settings: str, mpicc: Path | None = None) -> Path:
    """Builds a program of examples/<folder> into the folder `target`; nothing is written to the checkout. `settings`
    are further variables of its Makefile, `mpicc` that of another MPI."""
    mpicc = mpicc or mpi_tool("mpicc")
    done = subprocess.run(
        ["make", "-C", ROOT / "examples" / folder, program, f"MPICC={mpicc}", f"BUILD={target}", *settings],
        capture_output=True, text=True, timeout=AMPLE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return target / program


def run_ranks(
    ranks: int, program: Path, *arguments, expect: int = 0, timeout: float = AMPLE_S
) -> subprocess.CompletedProcess:
    """Runs a program on so many ranks to its end; an exit code other than `expect` fails the test."""
    command = [str(mpi_tool("mpiexec")), "-n", str(ranks), str(program), *map(str, arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == expect, (
        f"exit {done.returncode}, expected {expect}: {' '.join(command)}\n"
        f"stdout: {done.stdout[-2000:]}\nstderr: {done.stderr[-2000:]}"
    )
    return done
