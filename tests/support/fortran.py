"""Compiles Fortran programs, and knows what examples/fortran writes."""

from pathlib import Path

import numpy
import pyarrow.parquet

from support.command import ROOT, answer, turbidite
from support.mpi import run
from support.tools import require

EXAMPLE = ROOT / "examples" / "fortran" / "write_epochs.f90"
STRICT = ("-cpp", "-std=f2018", "-fimplicit-none", "-Wall", "-Wextra", "-Werror", "-fcheck=all", "-g")
PARTICLES = 50000
INDEXED = 40000


def compile_fortran(compiler, folder: Path, *arguments) -> Path:
    """Module files go to the folder, as does the program. Without the compiler the test is skipped."""
    require("gfortran", compiler)
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


def check_indexed(dataset: Path, ranks: int) -> None:
    """What tests/fortran/indexed.f90 writes: the indexes are complete, and the ids of all ranks are found by theirs."""
    turbidite("verify", dataset)
    listed = answer("index", "list", dataset)["indexes"]
    assert [index["definition"] for index in listed] == ["bitmap:cell,energy", "cell", "hash:id,with=energy"]
    rows = ranks * INDEXED
    assert all((index["epochs"], index["missing"], index["entries"]) == (2, [], 2 * rows) for index in listed), listed
    for wanted in (1, rows // 2, rows):
        arguments = ("query", dataset, "--where", f"id = {wanted}", "--columns", "energy")
        lines = turbidite(*arguments, "--use", "id").stdout.splitlines()
        expected = [(wanted * 7919 + epoch) % 65521 for epoch in (1, 2)]
        assert sorted(float(line.split(",")[0]) for line in lines[1:]) == sorted(expected), lines
