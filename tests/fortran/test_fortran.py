"""The Fortran modules, where there is a Fortran compiler: the example's two timesteps are what it computes.

Without gfortran nothing can be compiled and the tests only say so: `make test` must not need one."""

import shutil
from pathlib import Path

import numpy
import pyarrow.parquet
import pytest

from support.command import ROOT, turbidite
from support.libraries import linked, prefix
from support.mpi import Mpi, run

EXAMPLE = ROOT / "examples" / "fortran" / "write_epochs.f90"
STRICT = ("-cpp", "-std=f2018", "-fimplicit-none", "-Wall", "-Wextra", "-Werror", "-fcheck=all", "-g")
PARTICLES = 50000


def has(compiler) -> bool:
    if shutil.which(compiler):
        return True
    print(f"nothing is tested: there is no {compiler}")
    return False


def compile_fortran(compiler, folder: Path, *arguments) -> Path:
    """Module files go to the folder, as does the program."""
    program = folder / "program"
    run(compiler, *STRICT, f"-J{folder}", "-o", program, *arguments)
    return program


def check_epoch(dataset: Path, epoch: int, ranks: int) -> None:
    files = (dataset / "data" / f"epoch={epoch}").glob("*.parquet")
    table = pyarrow.concat_tables([pyarrow.parquet.ParquetFile(file).read() for file in files]).sort_by("id")
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    identity = numpy.arange(1, ranks * PARTICLES + 1)
    within = numpy.tile(numpy.arange(1, PARTICLES + 1), ranks)
    expected = {
        "energy": ((within * 7919 + epoch) % PARTICLES * epoch).astype("f4"),
        "x": within.astype("f4"),
        "momentum": identity / 3,
        "id": identity.astype("i8"),
        "cell": (-(identity % 1000)).astype("i4"),
    }
    assert list(columns) == list(expected)
    for name, values in expected.items():
        assert columns[name].dtype == values.dtype and numpy.array_equal(columns[name], values), name


def test_the_example(tmp_path):
    if not has("gfortran"):
        return
    source = prefix() / "include" / "turbidite.f90"
    program = compile_fortran("gfortran", tmp_path, source, EXAMPLE, *linked("turbidite"))
    dataset = tmp_path / "dataset"
    said = "epoch 1: 50000 rows of 1 ranks\nepoch 2: 50000 rows of 1 ranks\n"
    assert run(program, dataset).stdout == said
    assert run(program, dataset).stdout == said, "written again in place of the first"
    turbidite("verify", dataset)
    for epoch in (1, 2):
        check_epoch(dataset, epoch, 1)


def test_statuses_and_messages(tmp_path):
    if not has("gfortran"):
        return
    program = compile_fortran(
        "gfortran", tmp_path, prefix() / "include" / "turbidite.f90", ROOT / "tests" / "fortran" / "refusals.f90",
        *linked("turbidite"),
    )  # fmt: skip
    assert run(program, tmp_path / "dataset").stdout.strip() == "ok"


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_example_over_mpi(ranks, tmp_path):
    mpi = Mpi.find(tmp_path)
    compiler = mpi.bin / "mpifort"
    if not has(compiler) or not has("gfortran"):
        return
    mpi.build_libraries()
    modules = [prefix() / "include" / f"{name}.f90" for name in ("turbidite", "turbidite_mpi")]
    transport = (f"-L{mpi.out}", f"-Wl,-rpath,{mpi.out}", "-lturbidite_mpi")
    program = compile_fortran(compiler, tmp_path, "-DWITH_MPI", *modules, EXAMPLE, *transport, *linked("turbidite"))
    dataset = tmp_path / "dataset"
    rows = ranks * PARTICLES
    said = "".join(f"epoch {epoch}: {rows} rows of {ranks} ranks\n" for epoch in (1, 2))
    assert mpi.start(ranks, program, dataset).stdout == said
    for epoch in (1, 2):
        check_epoch(dataset, epoch, ranks)
