"""Several datasets of one program at the same time: every record is in the dataset of its species, and together they take
hardly more memory than one."""

import duckdb
import pytest

from support.budget import budget_bytes
from support.command import ROOT, answer, turbidite
from support.libraries import compile_c, linked, prefix
from support.mpi import run

SOURCE = ROOT / "tests" / "c" / "species.c"
EPOCHS = 2


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return compile_c(SOURCE, tmp_path_factory.mktemp("species") / "species")


@pytest.fixture(scope="module")
def with_ranks(mpi):
    transport = (f"-L{mpi.out}", f"-Wl,-rpath,{mpi.out}", "-lturbidite_mpi")
    return mpi.compile("species", "-O1", "-DWITH_MPI", f"-I{prefix() / 'include'}", SOURCE, *transport, *linked("turbidite"))


def check(folder, species: int, rows: int) -> None:
    for of in range(species):
        dataset = folder / f"species-{of}"
        turbidite("verify", dataset)
        assert {epoch["epoch"]: epoch["rows"] for epoch in answer("stats", dataset)} == dict.fromkeys(range(EPOCHS), rows)
        energy = f"((id * 2654435761 + epoch) % 1000003)::FLOAT / 1000003::FLOAT + {of}::FLOAT"
        found = duckdb.sql(
            f"""SELECT epoch, count(DISTINCT id), min(id), max(id), count(*) FILTER (species = {of} AND energy = {energy})
            FROM read_parquet('{dataset}/data/*/*.parquet', hive_partitioning = true) GROUP BY epoch ORDER BY epoch"""
        ).fetchall()
        assert found == [(epoch, rows, 0, rows - 1, rows) for epoch in range(EPOCHS)], of


@pytest.mark.serial
@pytest.mark.parametrize("habit", ["together", "after"])
@pytest.mark.parametrize("species", [1, 3])
def test_memory_is_that_of_one_dataset(alone, species, habit, tmp_path):
    """A million records of 64 bytes in each epoch fill all memtables several times."""
    grown = int(run(alone, tmp_path, species, 1_000_000, habit).stdout)
    idle = species - 1 if habit == "after" else 0
    budget = budget_bytes(rank=1, receiver=1, thread=1, dataset=idle)
    print(f"{species} species, {habit}: {grown / 2**20:.2f} MiB, budget {budget / 2**20:.3f} MiB")
    assert grown <= budget
    check(tmp_path, species, 1_000_000)


@pytest.mark.parametrize("habit", ["together", "after"])
def test_species_of_several_ranks(mpi, with_ranks, habit, tmp_path):
    assert mpi.start(4, with_ranks, tmp_path, 3, 60_000, habit).returncode == 0
    check(tmp_path, 3, 4 * 60_000)
