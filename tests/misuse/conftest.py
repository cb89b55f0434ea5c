"""The programs that misuse the library, one per language. Each is compiled when a test first asks for it."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from support.command import ROOT
from support.fortran import compile_fortran
from support.libraries import compile_c, linked, prefix
from support.mpi import Mpi, run

HERE = ROOT / "tests" / "misuse"
STRICT_CPP = ("-std=c++11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-g", "-O1")


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Callable[[str], Path]:
    """Returns the program of a language."""
    folder = tmp_path_factory.mktemp("programs")

    @cache
    def compiled(language: str) -> Path:
        if language == "fortran":
            return compile_fortran(
                "gfortran", folder, prefix() / "include" / "turbidite.f90", HERE / "misuse.f90", *linked("turbidite")
            )
        if language == "c":
            return compile_c(HERE / "misuse.c", folder / "c")
        include = f"-I{prefix() / 'include'}"
        run("c++", *STRICT_CPP, include, "-o", folder / "cpp", HERE / "misuse.cpp", *linked("turbidite"))
        return folder / "cpp"

    return compiled


@pytest.fixture(scope="session")
def mpi(tmp_path_factory) -> Mpi:
    found = Mpi.find(tmp_path_factory.mktemp("mpi"))
    found.build_libraries()
    return found
