"""The programs whose dumps are indexed, and what they write when nobody looks."""

import shutil
from pathlib import Path

import pytest

from support import vpic
from support.examples import build_example, mpi_tool
from support.mpi import run as run_tool
from support.preload import run, written

HERE = Path(__file__).parent
STEPS = "500,1000,1500"


@pytest.fixture(scope="session")
def programs(tmp_path_factory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("programs")
    found = {name: build_example("dump", name, out) for name in ("vpic_dump", "serial_dump", "particle_files")}
    strict = ("-O1", "-Wall", "-Wextra", "-Werror")
    builds = {
        "writer": ("cc", "-std=c11", *strict, HERE / "writer.c"),
        "mpi_writer": (mpi_tool("mpicc"), "-std=c11", "-DWITH_MPI", *strict, HERE / "writer.c"),
        "copier": (mpi_tool("mpicc"), "-std=c11", *strict, HERE / "copier.c"),
        "calls": ("cc", "-std=c11", *strict, HERE / "calls.c"),
        "stream_cpp": ("g++", "-std=c++17", *strict, HERE / "stream.cpp"),
        "stream_fortran": ("gfortran", *strict, HERE / "stream.f90"),
    }
    for name, command in builds.items():
        # C compilers are required; those of other languages are used where there are any.
        if name not in ("stream_cpp", "stream_fortran") or shutil.which(str(command[0])):
            run_tool(*command, "-o", out / name)
            found[name] = out / name
    return found


@pytest.fixture(scope="session")
def plain(programs, tmp_path_factory):
    """The files of `vpic_dump` without the preload library; each kind of run once."""
    known: dict[tuple, dict[str, bytes]] = {}

    def files(ranks: int, *options) -> dict[str, bytes]:
        key = (ranks, *options)
        if key not in known:
            out = tmp_path_factory.mktemp("plain")
            run([programs["vpic_dump"], vpic.sample_dumps(), out, "--steps", STEPS, *options], None, ranks=ranks)
            known[key] = written(out)
        return known[key]

    return files
