"""Compiles C programs with an MPI's mpicc and runs them under its mpiexec.

PyPI's `mpich` puts both beside the interpreter; TURBIDITE_MPI_BIN names the folder of another MPI.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from support.command import AMPLE_S, ROOT

SOURCES = ROOT / "mpi"
INCLUDES = (f"-I{SOURCES}", f"-I{ROOT / 'crates' / 'capi' / 'include'}")
STRICT = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g")


def run(*command, timeout: float = AMPLE_S, **options) -> subprocess.CompletedProcess:
    """Runs a command to its end, which has to be a good one."""
    command = [str(part) for part in command]
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": timeout} | options
    done = subprocess.run(command, **options)
    assert done.returncode == 0, f"exit {done.returncode}: {' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done


@dataclass(frozen=True)
class Mpi:
    """An MPI, and a folder for what is built with it."""

    bin: Path
    out: Path
    options: tuple[str, ...]

    @staticmethod
    def default_bin() -> Path:
        """The folder of `mpicc` and `mpiexec`."""
        return Path(os.environ.get("TURBIDITE_MPI_BIN") or Path(sys.executable).parent)

    @classmethod
    def find(cls, out: Path) -> "Mpi":
        return cls.find_in(cls.default_bin(), out)

    @classmethod
    def find_in(cls, folder: Path, out: Path) -> "Mpi":
        if not (folder / "mpicc").exists():
            raise RuntimeError(f"no mpicc in {folder}: pip install mpich, or set TURBIDITE_MPI_BIN")
        version = run(folder / "mpiexec", "--version").stdout
        # Open MPI counts cores before it starts ranks.
        options = () if "HYDRA" in version.upper() else ("--oversubscribe",)
        return cls(folder, out, options)

    def build_libraries(self) -> None:
        run("make", "-C", SOURCES, f"OUT={self.out}", f"MPICC={self.bin / 'mpicc'}")

    def compile(self, name: str, *arguments) -> Path:
        """Compiles a program or library of its own from sources, which may stand among the arguments."""
        program = self.out / name
        run(self.bin / "mpicc", *STRICT, *INCLUDES, "-o", program, *arguments)
        return program

    def start(
        self, ranks: int | None, program: Path, *arguments, preload: tuple = (), environment: dict | None = None, **options
    ):
        """Runs a program on some ranks. The environment goes by `env`: each MPI has options of its own for it.

        `None` stands for a program without MPI. MPICH's mpiexec dies of SIGPIPE now and then when such a program is over
        before it has told its proxy all.
        """
        given = dict(environment or {})
        if preload:
            given["LD_PRELOAD"] = ":".join(map(str, preload))
        command = ["env", *(f"{name}={value}" for name, value in given.items()), program, *arguments]
        # Tests may run as root, in a container; Open MPI wants to hear that this is meant.
        own = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        launcher = [] if ranks is None else [self.bin / "mpiexec", *self.options, "-n", ranks]
        return run(*launcher, *command, env=own, **options)
