"""What the preloaded MPI library reports to a stand-in for the preload library: each collective, once."""

import re

import pytest

from support.libraries import needed
from support.mpi import SOURCES

TESTS = SOURCES / "tests"


@pytest.fixture(scope="module")
def preloaded(mpi) -> tuple:
    stub = mpi.compile("libstub.so", "-shared", "-fPIC", TESTS / "preload_stub.c")
    return (stub, mpi.out / "libturbidite_preload_mpi.so")


def compile_fortran(mpi, prefix: str):
    """A program that calls Fortran names, whose bindings end in the C functions of this prefix."""
    shared = ("-shared", "-fPIC", f"-DENDS_IN={prefix}")
    bindings = mpi.compile(f"libfortran_{prefix}.so", *shared, TESTS / "fortran_stub.c")
    return mpi.compile(f"fortran_test_{prefix}", TESTS / "fortran_test.c", bindings, f"-Wl,-rpath,{mpi.out}")


def compile_plugin(mpi) -> tuple:
    """A program that loads a library with MPI, and is not linked to MPI itself."""
    plugin = mpi.compile("libplugin.so", "-O2", "-shared", "-fPIC", TESTS / "plugin.c")
    host = mpi.compile("plugin_host", TESTS / "plugin_host.c", "-Wl,--as-needed", "-ldl")
    assert not any(name.startswith("libmpi") for name in needed(host))
    return (host, plugin)


@pytest.fixture(scope="module")
def programs(mpi) -> dict:
    c = mpi.compile("preload_test", TESTS / "preload_test.c", "-pthread")
    return {
        "c": (c,),
        "threads": (c, "threads"),
        "plugin": compile_plugin(mpi),
        "fortran as in MPICH": (compile_fortran(mpi, "MPI_"),),
        "fortran as in Open MPI": (compile_fortran(mpi, "PMPI_"),),
    }


PROGRAMS = ["c", "threads", "plugin", "fortran as in MPICH", "fortran as in Open MPI"]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("ranks", [1, 2, 7])
def test_each_collective_is_reported_once(mpi, preloaded, programs, program, ranks):
    said = mpi.start(ranks, *programs[program], preload=preloaded).stdout
    called = re.search(r"called: (\d+)\n", said)
    reported = re.search(r"reported: started (\d+) collectives (\d+)\n", said)
    assert called and reported, said
    assert reported.group(1) == "1"
    assert int(reported.group(2)) == int(called.group(1)) > 0


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_the_preload_library_all_passes_through(mpi, preloaded, programs, program):
    """One rank says that the other library is missing."""
    said = mpi.start(3, *programs[program], preload=preloaded[1:])
    assert re.fullmatch(r"called: \d+\n", said.stdout)
    assert said.stderr == (
        "turbidite: nothing is indexed: libturbidite_preload_mpi.so is preloaded without libturbidite_preload.so; preload "
        f"both: LD_PRELOAD={mpi.out}/libturbidite_preload.so:{mpi.out}/libturbidite_preload_mpi.so\n"
    )
