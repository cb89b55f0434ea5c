"""The C interface: it does what its header says, looks to compilers as it always has, and offers nothing else."""

import re
from pathlib import Path

import pytest

from support.command import ROOT, answer, turbidite
from support.libraries import (
    HEADER, MPI_HEADER, PRELOAD_HEADER, compile_c, declared, exported, library, needed, prefix, valgrind,
)  # fmt: skip
from support.mpi import run

HERE = ROOT / "tests" / "c"

# Functions that the preload library's C code calls.
CALLED_FROM_C = {"turbidite_move_out", "turbidite_stream_is_spooled", "turbidite_stream_write"}

# Functions that the header itself defines, and those whose names in the library have the version.
INLINE = {"turbidite_values", "turbidite_column_values"}
VERSIONED = {"turbidite_open", "turbidite_open_indexed", "turbidite_reader_open"}

# Functions that the command loads under mpiexec. They have no header, since only the command calls them.
WORLD = {f"turbidite_mpi_{name}" for name in ("world_begin", "world_connect", "world_disconnect", "world_end", "last_error")}

# Compilers that the header has to please.
LANGUAGES = [("cc", "c", "-std=c11"), ("c++", "c++", "-std=c++11"), ("c++", "c++", "-std=c++20")]


@pytest.fixture(scope="module")
def write_and_read(tmp_path_factory) -> Path:
    return compile_c(HERE / "write_and_read.c", tmp_path_factory.mktemp("c") / "write_and_read")


def test_write_and_read(write_and_read, tmp_path):
    """What the program wrote and changed is what the command finds."""
    dataset = tmp_path / "dataset"
    assert run(write_and_read, dataset).stdout == "ok\n"
    turbidite("verify", dataset)
    turbidite("verify", f"{dataset}-hashed")
    assert {epoch["epoch"]: epoch["rows"] for epoch in answer("stats", dataset)} == {0: 100000, 1: 2}
    found = {epoch["epoch"]: epoch for epoch in answer("inspect", dataset)["epochs"]}
    assert (found[0]["time"], found[0]["attributes"]) == (None, {})
    assert found[1]["attributes"] == {"beam charge": {"value": -3.0}, "time": {"value": 2.5e-15, "unit": "s"}}


def test_memory_of_write_and_read(write_and_read, tmp_path):
    assert run(*valgrind(), write_and_read, tmp_path / "dataset").stdout == "ok\n"


def test_structs_and_constants_are_those_of_this_version(tmp_path):
    """A header that changes what programs were compiled with needs a new version and, with it, a new table."""
    program = compile_c(HERE / "abi.c", tmp_path / "abi")
    seen = run(program).stdout
    version = re.match(r"TURBIDITE_ABI_VERSION (\d+)\n", seen)
    assert version, seen
    assert seen == (HERE / f"abi_{version.group(1)}.txt").read_text()


def without_comments(header: Path) -> str:
    return re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)


def test_the_table_names_every_constant_and_field():
    """abi.c cannot know what it does not name: its table is compared with the text of the header."""
    text = without_comments(HEADER)
    expected = set(re.findall(r"#define (TURBIDITE_\w+) +\d+", text)) | {"turbidite_status"}
    for body, name in re.findall(r"typedef struct turbidite_\w+ \{(.*?)\} (turbidite_\w+);", text, flags=re.DOTALL):
        fields = [re.search(r"(?:\(\*(\w+)\)\(.*\)|(\w+)(?:\[\d+\])?)\s*$", field).groups() for field in body.split(";")[:-1]]
        expected |= {name} | {f"{name}.{pointer or plain}" for pointer, plain in fields}
    table = {line.split()[0] for line in (HERE / "abi_2.txt").read_text().splitlines()}
    assert len(expected) > 60
    assert table == expected


@pytest.mark.parametrize("compiler, language, standard", LANGUAGES)
def test_the_header_compiles(compiler, language, standard, tmp_path):
    """Alone, and twice; and a program that calls a function links, so that C++ sees C's names."""
    source = tmp_path / f"includes.{language}"
    source.write_text(
        '#include <turbidite.h>\n#include <turbidite.h>\n'
        "int main(void) { return turbidite_abi_version() == TURBIDITE_ABI_VERSION ? 0 : 1; }\n"
    )  # fmt: skip
    strict = ("-Wall", "-Wextra", "-pedantic", "-Werror", standard)
    libraries = (f"-L{prefix() / 'lib'}", f"-Wl,-rpath,{prefix() / 'lib'}")
    program = tmp_path / "program"
    includes = f"-I{prefix() / 'include'}"
    run(compiler, "-x", language, *strict, includes, source, "-o", program, *libraries, "-lturbidite")
    run(program)


def test_the_installed_headers_are_those_of_the_checkout():
    for header in (HEADER, HEADER.with_suffix(".hpp"), MPI_HEADER):
        assert (prefix() / "include" / header.name).read_text() == header.read_text()


def test_exported_names_of_the_c_library():
    """Those of the header, and those that refuse programs of ABI version 1."""
    names = declared(HEADER) - INLINE
    assert VERSIONED | {"turbidite_query", "turbidite_get", "turbidite_tracks"} <= names and len(names) == 40
    assert exported(library("libturbidite.so")) == names | {f"{name}_abi2" for name in VERSIONED}


def test_exported_names_of_the_preload_library():
    """Its own names are those that the MPI part and its functions in C look for; all others belong to the C library
    (tests/preload/test_calls.py)."""
    own = {name for name in exported(library("libturbidite_preload.so")) if name.startswith("turbidite_")}
    assert own == CALLED_FROM_C | declared(PRELOAD_HEADER)


def test_exported_names_of_the_mpi_libraries():
    assert exported(library("libturbidite_mpi.so")) == declared(MPI_HEADER)
    assert exported(library("libturbidite_mpi_world.so")) == WORLD
    assert exported(library("libturbidite_preload_world.so")) == {"turbidite_preload_world"}
    wrappers = exported(library("libturbidite_preload_mpi.so"))
    # Each collective in C, and in Fortran under the names of its three bindings.
    in_c = {name for name in wrappers if name.startswith("MPI_")}
    assert {"MPI_Init", "MPI_Init_thread", "MPI_Finalize", "MPI_Barrier", "MPI_Allreduce"} <= in_c
    # Functions that tools before us call.
    behind = {"PMPI_Init", "PMPI_Init_thread", "PMPI_Finalize"}
    assert behind <= wrappers
    for name in wrappers - in_c - behind:
        plain = re.fullmatch(r"(mpi_[a-z_]+?)(?:_f08|_f08ts)?_", name)
        assert plain and plain.group(1).upper() in {other.upper() for other in in_c}, name


def test_the_libraries_need_no_more_than_they_should():
    system = {"libc.so.6", "libm.so.6", "libgcc_s.so.1"}
    # The preloaded ones come into every process below the program's: an MPI would take longer to load than most run.
    for name in ("libturbidite.so", "libturbidite_preload.so", "libturbidite_preload_mpi.so"):
        others = {need for need in needed(library(name)) if not need.startswith("ld-linux")}
        assert others <= system, f"{name} needs {others - system}"
        assert "libmpi" not in run("ldd", library(name)).stdout
    # The check can tell: these are linked to MPI. They must not bring the Rust library into programs that only preload.
    for name in ("libturbidite_mpi.so", "libturbidite_mpi_world.so", "libturbidite_preload_world.so"):
        assert any(need.startswith("libmpi.so") for need in needed(library(name)))
        assert not any("turbidite" in need for need in needed(library(name)))


def test_libraries_have_names():
    for path in sorted((prefix() / "lib").glob("libturbidite_*.so")):
        assert f"[{path.name}]" in re.search(r"\(SONAME\).*", run("readelf", "-d", path).stdout)[0]


def test_the_library_is_found_under_its_version():
    """A program remembers libturbidite.so.0, so that an incompatible release can lie beside it."""
    link = library("libturbidite.so")
    assert link.is_symlink() and link.resolve().name == "libturbidite.so.0"
    assert re.search(r"\(SONAME\).*\[libturbidite\.so\.0\]", run("readelf", "-d", link).stdout)
