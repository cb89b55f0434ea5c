"""The Fortran modules: the example's two timesteps are what it computes."""

from support.command import ROOT, turbidite
from support.fortran import EXAMPLE, check_epoch, compile_fortran
from support.libraries import linked, prefix
from support.mpi import run


def test_the_example(tmp_path):
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
    program = compile_fortran(
        "gfortran", tmp_path, prefix() / "include" / "turbidite.f90", ROOT / "tests" / "fortran" / "refusals.f90",
        *linked("turbidite"),
    )  # fmt: skip
    assert run(program, tmp_path / "dataset").stdout.strip() == "ok"
