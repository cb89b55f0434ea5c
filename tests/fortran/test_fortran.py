"""The Fortran modules: the example's two timesteps are what it computes."""

import numpy

import turbidite as turbidite_package
from support.command import ROOT, turbidite
from support.fortran import EXAMPLE, check_epoch, check_indexed, compile_fortran
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
    done = run(program, tmp_path / "dataset")
    assert done.stdout.strip() == "ok"
    # Each failed call says so, but for appends after the first, and for what follows `turbidite_print_errors(0)`.
    assert "epoch 1, rank 0: column 'id' has 10 values, but column 'energy' has 20\n" in done.stderr
    assert "/dataset: epoch 1 failed on rank 0: " in done.stderr and "epoch 2 failed" not in done.stderr
    rows = turbidite_package.open(tmp_path / "dataset-unsigned").query().to_numpy()
    assert rows["id"].dtype == "u8" and sorted(rows["id"].tolist()) == sorted([*range(1, 11)] * 2)
    assert set(rows["species"].tolist()) == {255} and rows["cell"].tolist().count(2) == 11
    assert [bytes(name) for name in rows["name"]].count(b"xyz") == 10


def test_keys_of_several_columns(tmp_path):
    """Ids that are unique for each cpu only, negative ones among them, as tests/fortran/keys.f90 computes them."""
    program = compile_fortran(
        "gfortran", tmp_path, prefix() / "include" / "turbidite.f90", ROOT / "tests" / "fortran" / "keys.f90", *linked("turbidite")
    )
    dataset = tmp_path / "dataset"
    run(program, dataset)
    turbidite("verify", dataset)
    row = numpy.arange(1, 40_001)
    cpu, ident = row % 7 - 3, row * 48271 % 65521 - 30_000
    for epoch in (1, 2):
        rows = turbidite_package.open(dataset).query(epochs=epoch).to_numpy()
        found = {(one, other): value for one, other, value in zip(rows["cpu"].tolist(), rows["id"].tolist(), rows["value"].tolist())}
        assert found == dict(zip(zip(cpu.tolist(), ident.tolist()), (row * epoch).astype("f4").tolist())) and len(rows["id"]) == len(row)
    for wanted in (0, 17, 39_999):
        lines = turbidite("get", "--columns", "value", "--", dataset, f"{cpu[wanted]}:{ident[wanted]}").stdout.splitlines()
        assert [float(line.split(",")[-1]) for line in lines[1:]] == [wanted + 1, 2 * (wanted + 1)], lines
        text = f"(cpu, id) IN (({cpu[wanted]}, {ident[wanted]}))"
        assert "access path lookup" in turbidite("query", dataset, "--where", text, "--explain").stdout


def test_indexes(tmp_path):
    source = prefix() / "include" / "turbidite.f90"
    program = compile_fortran("gfortran", tmp_path, source, ROOT / "tests" / "fortran" / "indexed.f90", *linked("turbidite"))
    run(program, tmp_path / "dataset")
    check_indexed(tmp_path / "dataset", 1)
