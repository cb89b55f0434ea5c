"""What `make install` puts below a prefix is enough for a program: with pkg-config, with CMake, with an MPI."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from support.command import AMPLE_S, ROOT, binary
from support.mpi import STRICT, Mpi, run
from support.tools import require

SOURCE = ROOT / "tests" / "c" / "write_and_read.c"
BUILT = Path(binary()).parents[1]


@pytest.fixture(scope="module")
def mpi(tmp_path_factory) -> Mpi:
    return Mpi.find(tmp_path_factory.mktemp("mpi"))


@pytest.fixture(scope="module")
def prefix(mpi, tmp_path_factory) -> Path:
    """As `make install` makes it, of what is built already; its name has a blank, as a user's may have."""
    path = tmp_path_factory.mktemp("with blank") / "a prefix"
    given = (f"PREFIX={path}", "STRIP=-s", f"MPICC={mpi.bin / 'mpicc'}", f"CARGO_TARGET_DIR={BUILT}")
    run("make", "-C", ROOT, "install-libraries", *given, env=plain_environment())
    return path


def plain_environment() -> dict:
    """Without what an outer make tells its children."""
    told = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")
    return {name: value for name, value in os.environ.items() if name not in told}


def version() -> str:
    return re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), flags=re.MULTILINE).group(1)


def test_what_is_installed(prefix):
    found = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    names = ("turbidite", "turbidite_mpi", "turbidite_mpi_world")
    preloaded = ("turbidite_preload", "turbidite_preload_mpi", "turbidite_preload_world")
    libraries = {f"lib{name}.so" for name in names + preloaded} | {"libturbidite.so.0"}
    headers = {"turbidite.h", "turbidite.hpp", "turbidite_mpi.h", "turbidite.f90", "turbidite_mpi.f90"}
    cmake = {f"cmake/Turbidite/TurbiditeConfig{part}.cmake" for part in ("", "Version")}
    packages = cmake | {"pkgconfig/turbidite.pc", "pkgconfig/turbidite-mpi.pc"}
    files = {f"lib/{name}" for name in libraries | packages} | {f"include/{name}" for name in headers}
    assert found == files | {"bin/turbidite"}


def has_symbols(path: Path) -> bool:
    """Whether a program or library has a table of symbols besides those that it exports."""
    return b"\0.symtab\0" in path.read_bytes()


def test_installed_files_are_stripped(prefix):
    stripped = [path for path in (*(prefix / "bin").iterdir(), *(prefix / "lib").glob("*.so*"))]
    assert len(stripped) == 8 and not any(map(has_symbols, stripped))
    # Those that tests run, whose backtraces name functions, are not.
    assert has_symbols(Path(binary())) and has_symbols(BUILT / "release" / "libturbidite_capi.so")


def read_package(path: Path) -> dict[str, str]:
    """The variables and fields of a .pc file, as pkg-config resolves them."""
    values: dict[str, str] = {}
    for line in path.read_text().splitlines():
        match = re.fullmatch(r"(\w+)(=|: )(.*)", line)
        if match:
            values[match.group(1)] = re.sub(r"\$\{(\w+)\}", lambda name: values[name.group(1)], match.group(3))
    return values


def test_pkg_config(prefix, tmp_path):
    package = read_package(prefix / "lib" / "pkgconfig" / "turbidite.pc")
    assert package["Version"] == version() and package["prefix"] == str(prefix)
    require("pkg-config")
    environment = os.environ | {"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    assert run("pkg-config", "--modversion", "turbidite", env=environment).stdout.strip() == version()
    options = shlex.split(run("pkg-config", "--cflags", "--libs", "turbidite", env=environment).stdout)
    program = tmp_path / "program"
    run("cc", *STRICT, "-o", program, SOURCE, *options, f"-Wl,-rpath,{prefix / 'lib'}", "-lm")
    assert run(program, tmp_path / "dataset").stdout == "ok\n"


CMAKE = """cmake_minimum_required(VERSION 3.16)
project(uses_turbidite LANGUAGES C)
find_package(Turbidite {version} REQUIRED {components})
add_executable(program "{source}")
target_link_libraries(program PRIVATE Turbidite::turbidite m)
if(NOT TARGET Turbidite::mpi)
  message(FATAL_ERROR "no Turbidite::mpi")
endif()
"""


def configure(prefix: Path, folder: Path, wanted: str, components: str = "") -> subprocess.CompletedProcess:
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(CMAKE.format(version=wanted, components=components, source=SOURCE))
    command = ["cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=AMPLE_S)


def test_cmake(prefix, tmp_path):
    require("cmake")
    done = configure(prefix, tmp_path / "project", version())
    assert done.returncode == 0, done.stdout + done.stderr
    run("cmake", "--build", tmp_path / "project" / "build")
    # CMake gives the program an rpath of its own while it lies where it was built.
    assert run(tmp_path / "project" / "build" / "program", tmp_path / "dataset").stdout == "ok\n"
    for refused in ("0.0.9", "0.2", "99"):
        done = configure(prefix, tmp_path / f"wants-{refused}", refused)
        assert done.returncode != 0 and "Turbidite" in done.stderr, refused


def test_components(prefix, tmp_path):
    require("cmake")
    done = configure(prefix, tmp_path / "mpi", version(), "COMPONENTS mpi")
    assert done.returncode == 0, done.stderr
    done = configure(prefix, tmp_path / "optional", version(), "COMPONENTS mpi OPTIONAL_COMPONENTS hdf5")
    assert done.returncode == 0, done.stderr
    done = configure(prefix, tmp_path / "unknown", version(), "COMPONENTS hdf5 mpi")
    assert done.returncode != 0 and "Turbidite has no component 'hdf5'" in " ".join(done.stderr.split()), done.stderr
    serial = tmp_path / "serial"
    shutil.copytree(prefix, serial, symlinks=True)
    (serial / "lib" / "libturbidite_mpi.so").unlink()
    done = configure(serial, tmp_path / "without-mpi", version(), "COMPONENTS mpi")
    assert done.returncode != 0 and "has no libturbidite_mpi.so" in " ".join(done.stderr.split()), done.stderr


def test_an_mpi_program(prefix, mpi, tmp_path):
    """Compiled and linked with nothing but pkg-config and an MPI."""
    require("pkg-config")
    program = tmp_path / "program"
    environment = os.environ | {"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    options = shlex.split(run("pkg-config", "--cflags", "--libs", "turbidite-mpi", env=environment).stdout)
    source = ROOT / "tests" / "c" / "mpi_write.c"
    run(mpi.bin / "mpicc", *STRICT, "-o", program, source, *options, f"-Wl,-rpath,{prefix / 'lib'}", "-lm")
    (tmp_path / "records").mkdir()
    assert mpi.start(2, program, "epochs", tmp_path / "dataset", tmp_path / "records").stdout.endswith("ok\n")
