"""What else may be preloaded or started with a program: a tool that wraps the same calls, programs without MPI,
children."""

import re
import sys

import pytest

from support.examples import mpi_tool
from support.mpi import INCLUDES, SOURCES, STRICT
from support.mpi import run as run_tool
from support.preload import SMALL, check_rows, configure, libraries, run, written


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    library = tmp_path_factory.mktemp("tool") / "libtool.so"
    source = SOURCES / "tests" / "tool.c"
    run_tool(mpi_tool("mpicc"), *STRICT, *INCLUDES, "-shared", "-fPIC", "-o", library, source)
    return library


@pytest.mark.parametrize("mode", ["keep", "replace"])
@pytest.mark.parametrize("order", ["behind us", "before us"])
def test_a_tool_that_wraps_as_darshan_does(programs, tool, tmp_path, spool, order, mode):
    """Both see MPI start and end, once, and the program's files; whichever comes first."""
    libraries_of_ours = libraries().split(":")
    preload = ":".join([*libraries_of_ours, str(tool)] if order == "behind us" else [str(tool), *libraries_of_ours])
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": mode, "spool": spool}))
    run([programs["mpi_writer"], "plain", tmp_path / "plain"], None, ranks=3)
    said = run([programs["mpi_writer"], "plain", tmp_path / "out"], config, ranks=3, preload=preload)
    counted = re.fullmatch(r"tool: starts (\d) ends (\d) opened (\d+) closed (\d+)\n", said)
    assert counted, said
    starts, ends, opened, closed = map(int, counted.groups())
    # A rank has three files; the tool may see what MPI and we open, too.
    assert (starts, ends) == (1, 1) and opened >= 3 and closed >= 3
    expected = written(tmp_path / "plain")
    assert written(tmp_path / "out") == (expected if mode == "keep" else {})
    check_rows(tmp_path / "ds", SMALL, expected)


@pytest.mark.parametrize("mode", ["keep", "replace"])
def test_a_program_without_mpi_under_both_libraries(programs, tmp_path, spool, mode):
    """The part for MPI is not in its way."""
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": mode, "spool": spool}))
    run([programs["writer"], "plain", tmp_path / "plain"], None)
    assert run([programs["writer"], "plain", tmp_path / "out"], config, preload=libraries(True)) == ""
    expected = written(tmp_path / "plain")
    assert written(tmp_path / "out") == (expected if mode == "keep" else {})
    check_rows(tmp_path / "ds", SMALL, expected)


def test_children_load_no_mpi(tmp_path):
    """A process that does not use MPI has our libraries, and no MPI."""
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {}))
    program = "import sys; sys.stderr.write(open('/proc/self/maps').read())"
    said = run([sys.executable, "-c", program], config, preload=libraries(True))
    assert "libturbidite_preload_mpi.so" in said
    assert not re.search(r"libmpi|libturbidite_preload_world", said)
