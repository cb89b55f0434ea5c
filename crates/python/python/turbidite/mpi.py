"""Builds the library with which `turbidite.Writer` uses MPI: ``python -m turbidite.mpi build``.

The wheel has a library for MPICH's ABI, for Open MPI's, and for the standard ABI of MPI 5. This command builds one with
the mpicc of your site, for an MPI that none of them fits. Only the standard library is needed, and no other module of the
package, so that the Makefile can run this file before the wheel exists.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["main"]

# The families of mpi/family.h, by number: libraries of one family have one binary interface.
_FAMILIES = ("unknown", "mpich", "openmpi", "standard")
_NAMES = {
    "mpich": "MPICH and the MPIs with its ABI (Intel MPI, Cray MPICH, MVAPICH)",
    "openmpi": "Open MPI",
    "standard": "the standard ABI of MPI 5",
    "unknown": "an MPI of unknown ABI",
}
_SOURCES = ("transport.c", "topology.c", "send.c", "receive.c", "connection.c", "family_built.c")
# All libraries call functions of the same names: each says for which family it was compiled.
_EXPORTS = "{ global: turbidite_mpi_*; mpi_family_built; local: *; };"
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC")


class _Failure(Exception):
    """Why no library was built."""


def _bundled() -> Path:
    """Returns the folder of the package's own libraries and their sources."""
    return Path(__file__).resolve().with_name("_mpi")


def _user_folder() -> Path:
    """Returns the folder of the libraries that the user has built, one for each kind of machine that shares a home."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "turbidite" / f"mpi-{platform.machine()}"


def _library_name(family: str) -> str:
    """Returns the name of the library for a family of MPIs."""
    return f"libturbidite_mpi-{family}.so"


def _built_for(library: ctypes.CDLL) -> str:
    """Returns the family of the MPI for which a library was compiled."""
    return _FAMILIES[ctypes.c_int.in_dll(library, "mpi_family_built").value]


def _folders() -> list[Path]:
    """Returns the folders that may have libraries: the first one with a library for the running MPI counts."""
    stated = os.environ.get("TURBIDITE_MPI_LIBRARIES")
    return [*([Path(stated)] if stated else []), _user_folder(), _bundled()]


def _run(*command: str | Path) -> str:
    """Runs a compiler. Returns what it has written to standard output."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise _Failure(f"cannot run {words[0]}: {error.strerror}") from None
    if done.returncode != 0:
        raise _Failure(f"{shlex.join(words)} failed with exit code {done.returncode}:\n{(done.stderr or done.stdout).strip()}")
    return done.stdout


def _linker(mpicc: str) -> str:
    """Returns the compiler that `mpicc` calls, or cc where it does not tell."""
    try:
        called = shlex.split(_run(mpicc, "-show"))
    except (_Failure, ValueError):
        called = []
    for compiler in (*called[:1], os.environ.get("CC", ""), "cc", "gcc"):
        if compiler and shutil.which(compiler):
            return compiler
    raise _Failure("there is no C compiler to link with: name it with --cc")


def _link(compiler: str, out: Path, objects: Iterable[Path], *flags: str) -> None:
    """Links a library without an MPI: its functions are those that mpi4py has loaded, wherever they came from."""
    _run(compiler, "-shared", *flags, *objects, "-o", out)


def _family_of(compiler: str, made: Path) -> str:
    """Returns the family of the MPI with whose mpicc `family_built.c` was compiled to an object."""
    library = made.with_suffix(".so")
    _link(compiler, library, [made])
    return _built_for(ctypes.CDLL(str(library)))


def _build(mpicc: str, compiler: str | None, sources: Path, out: Path) -> Path:
    """Builds the library of one MPI. Returns its path."""
    if shutil.which(mpicc) is None:
        raise _Failure(f"there is no {mpicc}: load the module of your MPI, or name its compiler with --mpicc")
    if not (sources / "transport.c").exists():
        raise _Failure(f"the sources are missing from {sources}: reinstall the package")
    compiler = compiler or _linker(mpicc)
    with tempfile.TemporaryDirectory() as scratch:
        objects = [Path(scratch, name).with_suffix(".o") for name in _SOURCES]
        for name, made in zip(_SOURCES, objects, strict=True):
            _run(mpicc, *_FLAGS, f"-I{sources}", "-c", sources / name, "-o", made)
        made = Path(scratch, _library_name(_family_of(compiler, objects[-1])))
        exports = Path(scratch, "exports.map")
        exports.write_text(_EXPORTS)
        _link(compiler, made, objects, f"-Wl,-soname,{made.name}", f"-Wl,--version-script={exports}")
        out.mkdir(parents=True, exist_ok=True)
        # By rename: a running program may have the old library mapped.
        staged = out / f".{made.name}.{os.getpid()}"
        shutil.copy(made, staged)
        staged.replace(out / made.name)
    return out / made.name


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs ``python -m turbidite.mpi``. Returns the exit code.

    >>> import turbidite.mpi
    >>> turbidite.mpi.main(["folders"])  # doctest: +ELLIPSIS
    /...
    0
    """
    parser = argparse.ArgumentParser("python -m turbidite.mpi", description="Libraries with which Turbidite uses MPI.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("folders", help="print the folders where turbidite.Writer looks for libraries, the first one first")
    build = commands.add_parser("build", help="build the library for your MPI with its mpicc")
    build.add_argument("--mpicc", default=os.environ.get("MPICC", "mpicc"), help="the compiler of your MPI (default: mpicc)")
    build.add_argument("--cc", help="the compiler that links (default: the one that mpicc calls)")
    build.add_argument("--out", type=Path, help=f"the folder of the library (default: {_user_folder()})")
    build.add_argument("--sources", type=Path, default=_bundled() / "src", help=argparse.SUPPRESS)
    stated = parser.parse_args(arguments)
    if stated.command == "folders":
        print(*_folders(), sep="\n")
        return 0
    try:
        made = _build(stated.mpicc, stated.cc, stated.sources, stated.out or _user_folder())
    except (_Failure, OSError) as error:
        print(f"turbidite.mpi: {error}", file=sys.stderr)
        return 1
    print(f"built {made} with {shutil.which(stated.mpicc)}; it fits {_NAMES[made.stem.partition('-')[2]]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
