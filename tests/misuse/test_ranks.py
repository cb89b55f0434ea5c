"""Mistakes of parallel programs in C and C++: the rank that makes one prints it, and rank 0 what all ranks are told.

Those of Fortran are in tests/fortran, for which there is an MPI with a Fortran compiler, and those of Python in tests/python."""

from pathlib import Path

import pytest
import turbidite as package
from misuse.cases import REFUSED
from misuse.conftest import HERE, STRICT_CPP
from misuse.program import COUNT
from support.libraries import linked, prefix
from support.mpi import Mpi, run

RANKS = 3
WHY = "column 'energy': the values are f64, but the column is f32"


@pytest.fixture(scope="module")
def parallel(mpi: Mpi) -> dict[str, Path]:
    include = f"-I{prefix() / 'include'}"
    c = mpi.compile("misuse", "-DWITH_MPI", include, HERE / "misuse.c", *linked("turbidite_mpi", "turbidite"))
    cpp = mpi.out / "misuse-cpp"
    run(
        mpi.bin / "mpicxx",
        *STRICT_CPP,
        "-DWITH_MPI",
        include,
        "-o",
        cpp,
        HERE / "misuse.cpp",
        *linked("turbidite_mpi", "turbidite"),
    )
    return {"c": c, "cpp": cpp}


def count_exactly(said: str, expected: dict[str, int]) -> None:
    """mpiexec may forward the end of a rank's line after another rank's line: texts are counted, and nothing else is left."""
    for text, count in expected.items():
        assert said.count(text) == count, (text, said)
        said = said.replace(text, "")
    assert said.strip() == "", said


def rows_of(dataset: Path) -> dict[int, int]:
    found = package.open(dataset)
    return {epoch: found.query(epochs=epoch).count() for epoch in found.epochs}


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_one_rank_of_several(mpi, parallel, language, tmp_path):
    dataset = tmp_path / "ds"
    done = mpi.start(RANKS, parallel[language], "doubles", dataset)
    append, end = (
        f"turbidite_append: {dataset}: epoch 2, rank 1: {WHY}",
        f"turbidite_end_epoch: {dataset}: epoch 2 failed on rank 1: {WHY}",
    )
    count_exactly(done.stderr, {append: 1, end: 1})
    # All ranks are told, though one prints it.
    assert done.stdout.count(f"epoch 2 failed on rank 1: {WHY}") == RANKS == done.stdout.count("done")
    assert rows_of(dataset) == {1: RANKS * COUNT, 3: RANKS * COUNT}


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_ranks_that_run_again(mpi, parallel, language, tmp_path):
    dataset = tmp_path / "ds"
    assert mpi.start(RANKS, parallel[language], "right", dataset).stderr == ""
    done = mpi.start(RANKS, parallel[language], "right", dataset)
    lines = {f"turbidite_begin_epoch: rank 0: epoch {epoch} already exists in {dataset}; {REFUSED}": 1 for epoch in (1, 2, 3)}
    count_exactly(done.stderr, lines)
    assert rows_of(dataset) == {epoch: RANKS * COUNT for epoch in (1, 2, 3)}


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_no_transport(mpi, parallel, language, tmp_path):
    """One rank writes, the others are told what they lack."""
    done = mpi.start(RANKS, parallel[language], "alone", tmp_path / "ds")
    for text in ("turbidite_open: ", f"{tmp_path}/ds/_turbidite/lock is locked by", "open it with a transport between them"):
        assert done.stderr.count(text) == RANKS - 1, done.stderr
    assert rows_of(tmp_path / "ds") == {1: COUNT, 2: COUNT, 3: COUNT}


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_a_transport_of_two_datasets(mpi, parallel, language, tmp_path):
    done = mpi.start(RANKS, parallel[language], "shared", tmp_path / "ds")
    why = "transport: is used by another dataset or index, which would receive its messages; open a transport for each"
    count_exactly(done.stderr, {f"turbidite_open: {tmp_path}/ds-other: {why}": RANKS})
    assert rows_of(tmp_path / "ds") == {epoch: RANKS * COUNT for epoch in (1, 2, 3)}
    assert not (tmp_path / "ds-other").exists()


@pytest.mark.parametrize(
    ("mistake", "why"),
    [
        (
            "indexes",
            "transport: is used by another dataset or index, which would receive its messages; open a transport for each",
        ),
        ("mixed", "transports: are not between the same ranks"),
    ],
)
def test_transports_of_indexes(mpi, parallel, mistake, why, tmp_path):
    done = mpi.start(RANKS, parallel["c"], mistake, tmp_path / "ds")
    assert done.stderr.count(f"turbidite_open_indexed: {tmp_path}/ds-indexed: ") == done.stderr.count(why) == 1, done.stderr
    assert done.stdout.count(why) == RANKS and not (tmp_path / "ds-indexed").exists()


OPENINGS = {
    "key": "DS: rank 1: the key 'enrgy' is not one of the columns",
    "schema": "DS: rank 1: schema: is not that of rank 0: its column 'energy' is f32, but 'energy' of type f64 was requested here",
    "type": "DS: rank 1: type: 99 of column 'id' is not one of TURBIDITE_F32 and the other types",
}


@pytest.mark.parametrize("mistake", OPENINGS)
def test_a_rank_that_opens_otherwise(mpi, parallel, mistake, tmp_path):
    """Rank 0 prints what all ranks are told, and nothing is made."""
    dataset = tmp_path / "ds"
    done = mpi.start(RANKS, parallel["c"], mistake, dataset)
    why = OPENINGS[mistake].replace("DS", str(dataset))
    count_exactly(done.stderr, {f"turbidite_open: {why}": 1})
    assert done.stdout.count(why) == RANKS == done.stdout.count("done")
    assert not dataset.exists()


def test_ranks_that_abort(mpi, parallel, tmp_path):
    """Rank 0 prints the error of all ranks before another rank returns it and aborts the job."""
    dataset = tmp_path / "ds"
    assert mpi.start(RANKS, parallel["c"], "right", dataset).stderr == ""
    with pytest.raises(AssertionError, match=r"^exit 1: "):
        mpi.start(RANKS, parallel["c"], "aborts", dataset)
    lines = [line for rank in range(RANKS) for line in (tmp_path / f"ds-said.{rank}").read_text().splitlines()]
    said = [line for line in lines if line.startswith("turbidite")]
    assert said == [f"turbidite_begin_epoch: rank 0: epoch 1 already exists in {dataset}; {REFUSED}"]


def test_ranks_that_take_turns(mpi, parallel, tmp_path):
    """Each replaces what the one before it has written, and is told so."""
    dataset = tmp_path / "ds"
    done = mpi.start(RANKS, parallel["c"], "turns", dataset)
    advice = (
        f"turbidite_begin_epoch: {dataset}: epoch 1 has been written since this program started; this is one of {RANKS} processes, "
        "and opened the dataset without a transport: if they write one dataset, open it with a transport between them "
        "(turbidite_mpi_open)"
    )
    count_exactly(done.stderr, {advice: RANKS - 1})
    assert rows_of(dataset) == {1: COUNT, 2: COUNT, 3: COUNT}


def test_ranks_that_begin_different_epochs(mpi, parallel, tmp_path):
    dataset = tmp_path / "ds"
    done = mpi.start(RANKS, parallel["c"], "differs", dataset)
    count_exactly(
        done.stderr,
        {f"turbidite_end_epoch: {dataset}: epoch 2 failed on rank 1: epoch: rank 1 began epoch 77, but rank 0 began 2": 1},
    )
    assert rows_of(dataset) == {1: RANKS * COUNT, 3: RANKS * COUNT}


def test_a_rank_that_does_not_come(mpi, parallel, tmp_path):
    """The others give up after `stall_s`, and each prints it, since none can choose one."""
    dataset = tmp_path / "ds"
    done = mpi.start(RANKS, parallel["c"], "stalls", dataset)
    why = "has waited 1 s in begin_epoch without progress: another rank has not called it, or is gone"
    lines = {f"turbidite_begin_epoch: {dataset}: rank {rank} {why}": 1 for rank in (0, 2)}
    after = f"turbidite_begin_epoch: {dataset}: begin_epoch is not allowed after ranks have lost their connection"
    count_exactly(done.stderr, lines | {after: 2})
    assert done.stdout.count("done") == RANKS and rows_of(dataset) == {}


def test_mpi_that_ends_first(mpi, parallel, tmp_path):
    done = mpi.start(RANKS, parallel["c"], "finalized", tmp_path / "ds")
    why = "MPI is already finalised: close the transport before MPI_Finalize"
    count_exactly(done.stderr, {f"turbidite: {why}": RANKS})
    assert rows_of(tmp_path / "ds") == {1: RANKS * COUNT}


def test_a_transport_before_mpi(mpi, parallel, tmp_path):
    """The message of the MPI part is the last error of the library, too."""
    done = mpi.start(1, parallel["c"], "early", tmp_path / "ds")
    why = "MPI is not initialised: call MPI_Init before turbidite_mpi_open"
    assert done.stderr.strip() == f"turbidite: {why}" and f"2 turbidite_mpi_open: {why}\n" in done.stdout
