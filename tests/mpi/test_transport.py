"""The transport over MPI, alone: order, contents, flow control, closing, nodes; and what its library exports."""

import re

import pytest

from support.mpi import SOURCES, run

RANKS = [1, 2, 3, 4, 7, 16]
TEST = [SOURCES / "tests" / f"{name}.c" for name in ("transport_test", "messages")]
PARTS = [SOURCES / f"{name}.c" for name in ("transport", "topology", "send", "receive", "connection")]


@pytest.fixture(scope="module")
def program(mpi):
    return mpi.compile("transport_test", "-O2", *TEST, f"-L{mpi.out}", "-lturbidite_mpi", f"-Wl,-rpath,{mpi.out}")


@pytest.mark.parametrize("ranks", RANKS)
def test_messages(mpi, program, ranks):
    """All pairs on both channels, a receiver that takes nothing, and closing with messages under way."""
    said = mpi.start(ranks, program, "refusals", "traffic", "stall", "hold", "close", "split").stdout
    print(said)
    # Two ranks print the last part's lines, and the launcher passes them on in any order.
    assert said.splitlines().count("passed") == 1
    assert f"traffic: {1500 // max(ranks - 1, 1) * 2 * (ranks - 1)} messages" in said


# Ranks of one host talk through shared memory unless told otherwise. MPICH has two ways through the network.
NETWORKS = [
    {"MPIR_CVAR_NOLOCAL": "1", "OMPI_MCA_btl": "self,tcp"},
    {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,tcp"},
]


@pytest.mark.parametrize("environment", NETWORKS)
def test_messages_over_the_network(mpi, program, environment):
    said = mpi.start(4, program, "traffic", "stall", "hold", "close", "large", environment=environment).stdout
    assert said.endswith("passed\n")


@pytest.mark.parametrize("ranks", [1, 4])
def test_closing_without_the_others(mpi, program, ranks):
    assert mpi.start(ranks, program, "abandon").stdout == "passed\n"


def test_large_control_messages(mpi, program):
    assert mpi.start(3, program, "large").stdout == "passed\n"


# What one host is to be, by the environment, and the node of each of seven ranks.
NODES = [
    ({}, "NULL"),
    ({"TURBIDITE_RANKS_PER_NODE": "7"}, "NULL"),
    ({"TURBIDITE_RANKS_PER_NODE": "3"}, "0 0 0 1 1 1 2 "),
    ({"TURBIDITE_NODES": "0,0,1,1,0,2,2"}, "0 0 1 1 0 2 2 "),
    ({"TURBIDITE_NODES": "9,4,9,1,4,1,0", "TURBIDITE_RANKS_PER_NODE": "3"}, "0 1 0 2 1 2 3 "),
    ({"TURBIDITE_NODES": "5,5,5,5,5,5,5"}, "NULL"),
    ({"TURBIDITE_NODES": "0,0,1,1,0,2"}, "status 2"),
    ({"TURBIDITE_NODES": "0,0,1,1,0,2,2,2"}, "status 2"),
    ({"TURBIDITE_NODES": "0,0,1,x,0,2,2"}, "status 2"),
    ({"TURBIDITE_NODES": "0,0,1,4294967296,0,2,2"}, "status 2"),
    ({"TURBIDITE_RANKS_PER_NODE": "0"}, "status 2"),
    ({"TURBIDITE_RANKS_PER_NODE": "2 "}, "status 2"),
]


@pytest.mark.parametrize("environment, nodes", NODES)
def test_nodes(mpi, program, environment, nodes):
    assert mpi.start(7, program, "nodes", environment=environment).stdout == f"nodes: {nodes}\npassed\n"


@pytest.fixture(scope="module")
def checked_program(mpi):
    """The same with the library's sources inside, under AddressSanitizer and UndefinedBehaviorSanitizer."""
    sanitizers = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
    return mpi.compile("transport_test_checked", *sanitizers, *TEST, *PARTS)


@pytest.mark.parametrize("ranks", [1, 3])
def test_memory_errors_and_leaks(mpi, checked_program, ranks):
    # Memory that MPI itself never frees is ignored.
    ignored = mpi.out / "ignored-leaks"
    ignored.write_text("leak:libmpi\nleak:libopen-pal\nleak:libpmix\nleak:libprrte\nleak:libucp\nleak:libucs\n")
    # Full stacks, since MPI is built without frame pointers and would not be found in them.
    environment = {
        "LSAN_OPTIONS": f"suppressions={ignored}:print_suppressions=0",
        "ASAN_OPTIONS": "fast_unwind_on_malloc=0:detect_leaks=1",
    }
    # Not "abandon": buffers that MPI may still write to are left to it.
    modes = ("refusals", "nodes", "traffic", "stall", "hold", "close", "split", "large")
    assert mpi.start(ranks, checked_program, *modes, environment=environment).stdout.endswith("passed\n")


def exported(library) -> set[str]:
    return {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).stdout.splitlines()}


def test_exported_names(mpi):
    assert exported(mpi.out / "libturbidite_mpi.so") == {
        "turbidite_mpi_open",
        "turbidite_mpi_open_fortran",
        "turbidite_mpi_close",
        "turbidite_mpi_last_error",
    }
    wrappers = exported(mpi.out / "libturbidite_preload_mpi.so")
    assert {"MPI_Init", "MPI_Init_thread", "MPI_Finalize", "mpi_init_", "mpi_bcast_f08ts_"} <= wrappers
    assert all(re.fullmatch(r"P?MPI_[A-Z][a-z_]+|mpi_[a-z_]+?(_f08|_f08ts)?_", name) for name in wrappers), wrappers
