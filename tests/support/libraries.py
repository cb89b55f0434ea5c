"""The installed libraries, as a program of a user finds them, and C programs built against them."""

import os
import re
from pathlib import Path

from support.command import ROOT
from support.mpi import run
from support.tools import require

STRICT = ("-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-g", "-O1")
DECLARATION = re.compile(r"\b(turbidite_\w+)\(")


def prefix() -> Path:
    """Where the libraries under test are installed: `TURBIDITE_PREFIX`, as the Makefile sets it."""
    path = Path(os.environ.get("TURBIDITE_PREFIX", ""))
    if not (path / "lib" / "libturbidite.so").exists():
        raise RuntimeError(f"TURBIDITE_PREFIX={str(path)!r} has no libraries; run the tests with: make test-python")
    return path


def library(name: str) -> Path:
    return prefix() / "lib" / name


def linked(*names: str) -> list[str]:
    """The options that link libraries so that they are found when the program starts, too."""
    return [f"-L{prefix() / 'lib'}", f"-Wl,-rpath,{prefix() / 'lib'}", *(f"-l{name}" for name in names)]


def compile_c(source: Path, program: Path, *more) -> Path:
    """Compiles a program of one rank against the installed header and library."""
    run("cc", *STRICT, f"-I{prefix() / 'include'}", "-o", program, source, *more, *linked("turbidite"), "-lm")
    return program


def valgrind(suppressed: Path | None = None) -> list:
    """The beginning of a command whose program must have no memory error and lose no memory, but for what a file
    suppresses. Without Valgrind the test is skipped."""
    require("valgrind")
    options = ["-q", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect"]
    if suppressed:
        # Deep enough for what the file names.
        options += ["--num-callers=40", f"--suppressions={suppressed}"]
    return ["valgrind", *options]


def exported(path: Path) -> set[str]:
    """The names a library offers to programs."""
    return {line.split()[-1] for line in run("nm", "-D", "--defined-only", path).stdout.splitlines()}


def needed(path: Path) -> list[str]:
    """The libraries that a library names as its own needs."""
    return re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-d", path).stdout)


def declared(header: Path) -> set[str]:
    """The functions that a header declares, comments left out. Pointers to functions in structs have other shapes."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    return set(DECLARATION.findall(text))


HEADER = ROOT / "crates" / "capi" / "include" / "turbidite.h"
MPI_HEADER = ROOT / "mpi" / "turbidite_mpi.h"
PRELOAD_HEADER = ROOT / "mpi" / "turbidite_preload.h"
