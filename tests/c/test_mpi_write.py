"""A C program on several ranks: what it wrote is what a full scan of its own records finds, failures are the same on
all ranks, and what the ranks of MPI write is what ranks in one process write."""

from pathlib import Path

import numpy
import pyarrow.parquet
import pytest

from support.command import ROOT, answer, turbidite
from support.libraries import linked, prefix
from support.raw import ingest_arguments, write_layout
from support.rows import read_answer

RANKS = [1, 2, 3, 4, 7, 16]
RECORD = numpy.dtype([("energy", "<f4"), ("id", "<u8"), ("momentum", "<f8"), ("cell", "<i4")])
assert RECORD.itemsize == 24


class Job:
    """The program on a number of ranks, with a dataset and the records it keeps beside it."""

    def __init__(self, mpi, program: Path, ranks: int, folder: Path):
        self.mpi, self.program, self.ranks = mpi, program, ranks
        self.dataset, self.records = folder / "dataset", folder / "records"
        self.records.mkdir()

    def run(self, part: str) -> str:
        done = self.mpi.start(self.ranks, self.program, part, self.dataset, self.records)
        assert done.stdout.endswith("ok\n"), done.stdout + done.stderr
        return done.stdout

    def kept(self, epoch: int) -> numpy.ndarray:
        """An epoch's records of all ranks."""
        files = [self.records / f"E.{epoch}" / f"records.{rank}" for rank in range(self.ranks)]
        return numpy.concatenate([numpy.fromfile(file, RECORD) for file in files])


def in_order(rows: numpy.ndarray) -> numpy.ndarray:
    """As bytes, so that NaNs compare; the ids of an epoch differ."""
    rows = numpy.ascontiguousarray(rows[numpy.argsort(rows["id"])])
    return rows.view(numpy.dtype((numpy.void, RECORD.itemsize)))


def as_records(table) -> numpy.ndarray:
    rows = numpy.empty(table.num_rows, RECORD)
    for name in RECORD.names:
        column = table.column(name).to_numpy()
        assert column.dtype == RECORD[name], name
        rows[name] = column
    return rows


def stored(dataset: Path, epoch: int) -> numpy.ndarray:
    """What another engine finds in the files of an epoch."""
    files = sorted((dataset / "data" / f"epoch={epoch}").glob("*.parquet"))
    return numpy.concatenate([as_records(pyarrow.parquet.ParquetFile(file).read()) for file in files])


def check(job: Job, epochs: list[int]) -> None:
    """The dataset holds these epochs, in each exactly the records that were appended; ranges are what a scan finds."""
    turbidite("verify", job.dataset)
    found = {epoch["epoch"]: epoch["rows"] for epoch in answer("stats", job.dataset)}
    assert found == {epoch: len(job.kept(epoch)) for epoch in epochs}
    for epoch in epochs:
        kept = job.kept(epoch)
        assert len(kept) >= 12000 and len(numpy.unique(kept["id"])) == len(kept)
        assert numpy.array_equal(in_order(stored(job.dataset, epoch)), in_order(kept)), epoch
    kept = job.kept(epochs[-1])
    low, high = numpy.quantile(kept["energy"][numpy.isfinite(kept["energy"])], [0.8, 0.83]).tolist()
    out = job.dataset.parent / "answer.arrow"
    where = f"energy >= {low!r} AND energy < {high!r}"
    turbidite("query", job.dataset, "--where", where, "--epoch", epochs[-1], "-o", out)
    expected = kept[(kept["energy"] >= numpy.float32(low)) & (kept["energy"] < numpy.float32(high))]
    assert 0 < len(expected) < len(kept) / 10
    assert numpy.array_equal(in_order(as_records(read_answer(out))), in_order(expected))


@pytest.fixture(scope="module")
def program(mpi) -> Path:
    source = ROOT / "tests" / "c" / "mpi_write.c"
    # The transport is built with this MPI; what `make libraries` installed may be for another.
    transport = (f"-L{mpi.out}", f"-Wl,-rpath,{mpi.out}", "-lturbidite_mpi")
    return mpi.compile("mpi_write", "-O1", f"-I{prefix() / 'include'}", source, *transport, *linked("turbidite"), "-lm")


@pytest.fixture
def job(mpi, program, ranks, tmp_path) -> Job:
    return Job(mpi, program, ranks, tmp_path)


@pytest.mark.parametrize("ranks", RANKS)
def test_epochs(job):
    """Views, packed rows, ends in two parts, ranks without records; then a job that begins again: skip, truncate,
    replace. Ranks in one process make the same rows of the same records."""
    assert "epoch 10 already exists" in job.run("epochs")
    check(job, [10, 20, 30, 40, 50])
    before = job.kept(20)
    job.run("restart")
    assert not numpy.array_equal(job.kept(20)["energy"], before["energy"]), "an epoch was replaced by another"
    check(job, [10, 20, 30, 40, 50])

    write_layout(job.records / "layout.toml", RECORD, "E.{epoch}/records.{rank}")
    for epoch in (60, 70):  # written, and taken back
        for file in (job.records / f"E.{epoch}").iterdir():
            file.unlink()
        (job.records / f"E.{epoch}").rmdir()
    ingested = job.dataset.parent / "ingested"
    turbidite(*ingest_arguments(job.records, ingested, "energy", "--ranks", 16))
    for epoch in (10, 20, 30, 40, 50):
        assert numpy.array_equal(in_order(stored(job.dataset, epoch)), in_order(stored(ingested, epoch)))


@pytest.mark.parametrize("ranks", RANKS)
def test_failures(job):
    """A full disk of one rank, and ranks that mean different epochs: the program compares what all ranks are told."""
    said = job.run("failures")
    assert said.count("full disk: ") == 2 and said.count("other epoch: ") == (job.ranks > 1)
    check(job, [10, 20, 40])


@pytest.mark.parametrize("ranks", [1, 2, 4, 7])
def test_schemas(job):
    """One rank's schema differs, or cannot be."""
    said = job.run("schemas")
    lines = said.splitlines()
    assert sum(line.startswith("impossible schema: ") for line in lines) == min(job.ranks, 2), said
    assert sum(line.startswith("other schema: ") for line in lines) == (job.ranks > 1), said
    check(job, [10])


@pytest.mark.parametrize("ranks", RANKS)
def test_appending_one_after_the_other(job):
    """A token goes round; the other ranks wait for it in MPI and serve nobody."""
    job.run("token")
    check(job, [10, 20])


@pytest.mark.parametrize("ranks", [1, 3, 7])
def test_indexes(job):
    """The entries of two indexes go to their own receivers while the records are written, and sidecars stay with their parts."""
    said = job.run("indexes")
    assert said.count("other indexes: ") == (job.ranks > 1) and said.count("no such column: ") == said.count("missing transport: ") == 1, said
    check(job, [10, 20, 30])
    records = [len(job.kept(epoch)) for epoch in (10, 20, 30)]
    listed = {index["definition"]: index for index in answer("index", "list", job.dataset)["indexes"]}
    assert {"hash:id,with=energy", "bitmap:energy,cell", "cell" if job.ranks > 1 else "momentum"} <= set(listed)
    for index in listed.values():
        assert index["problem"] is None
        # Alone, the program has made an index of cells, and no epoch of it.
        made = job.ranks > 1 or index["definition"] != "cell"
        assert (index["missing"], index["entries"]) == (([], sum(records)) if made else ([10, 20, 30], 0)), index
    kept = job.kept(10)
    ids = numpy.random.default_rng(job.ranks).choice(kept["id"], 20, replace=False)
    for use in ("id", "scan"):
        out = job.dataset.parent / f"{use}.arrow"
        listed_ids = ", ".join(map(str, ids))
        turbidite("query", job.dataset, "--epoch", 10, "--where", f"id IN ({listed_ids})", "--use", use, "-o", out)
        assert numpy.array_equal(in_order(as_records(read_answer(out))), in_order(kept[numpy.isin(kept["id"], ids)])), use
    where = "energy > 1 AND cell < 100"
    counts = {use: answer("query", job.dataset, "--where", where, "--count", "--use", use)["count"] for use in ("bitmap:energy,cell", "scan")}
    assert len(set(counts.values())) == 1 and 0 < counts["scan"] < sum(records), counts
    assert answer("verify", job.dataset)["findings"] == []
