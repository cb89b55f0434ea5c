"""Readers beside writers: while epochs are added, replaced and compacted by real processes, every answer of ours about any
epoch is that of one version of it, whole, and no older than what had been committed when the question was asked; DuckDB's
about epochs that nobody touches are right. The judge is NumPy, over the records of every version."""

import csv
import io
import threading
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import numpy
import pytest

from support import raw
from support.command import AMPLE_S, FAILED, OK, attempt, turbidite

pytestmark = pytest.mark.serial

RECORD = numpy.dtype([("energy", "<f4"), ("version", "<u4"), ("id", "<u8")])
RANKS = 4
ROWS_PER_RANK = 4_000
# Two epochs that stay, one that is replaced over and over, and those that come.
STABLE, REPLACED, ADDED = [10, 20], 30, [40, 50]
REPLACEMENTS = 6
BATCH = 150


def records(epoch: int, version: int) -> list[numpy.ndarray]:
    """One epoch's records by rank. Versions differ in every range of keys, and in how many records there are."""
    ranks = []
    for rank in range(RANKS):
        rng = numpy.random.default_rng([epoch, version, rank])
        rows = numpy.empty(ROWS_PER_RANK + 37 * version, RECORD)
        rows["energy"] = rng.lognormal(0, 0.5 + version % 3 / 2, len(rows))
        rows["version"] = version
        rows["id"] = numpy.arange(len(rows)) + (rank << 32)
        ranks.append(rows)
    return ranks


@dataclass
class History:
    """What has been begun and finished, so that readers know which versions they may see."""

    versions: dict[int, list[numpy.ndarray]] = field(default_factory=dict)
    finished: dict[int, int] = field(default_factory=dict)
    over: bool = False
    failures: list[str] = field(default_factory=list)

    def begin(self, epoch: int, rows: numpy.ndarray) -> None:
        self.versions.setdefault(epoch, []).append(rows)

    def finish(self, epoch: int) -> None:
        self.finished[epoch] = len(self.versions[epoch]) - 1

    def seen_since(self, epoch: int, least: int) -> list[numpy.ndarray]:
        return self.versions[epoch][least:]


def ingest(source: Path, target: Path, epoch: int) -> None:
    turbidite(*raw.ingest_arguments(source, target, "energy", "--epochs", epoch, "--if-exists", "replace", "--memtable", "32KiB", "--page-rows", 256))


class Writer:
    """Adds and replaces epochs, and compacts, each by a process of its own."""

    def __init__(self, scratch: Path, history: History) -> None:
        self.scratch, self.history = scratch, history
        self.dataset, self.copy = scratch / "ds", scratch / "copy"
        self.sources = 0

    def write(self, epoch: int, version: int) -> None:
        self.sources += 1
        source = self.scratch / f"source-{self.sources}"
        ranks = records(epoch, version)
        raw.write_source(source, {epoch: ranks})
        self.history.begin(epoch, numpy.concatenate(ranks))
        ingest(source, self.dataset, epoch)
        self.history.finish(epoch)

    def compact(self) -> None:
        turbidite("compact", self.dataset, "--out", self.copy, "--epoch", REPLACED, "--if-exists", "replace")
        turbidite("compact", self.dataset, "--out", self.copy, "--if-exists", "skip")

    def run(self) -> None:
        try:
            for version in range(1, REPLACEMENTS + 1):
                self.write(REPLACED, version)
                if version % 3 == 0:
                    self.write(ADDED[version // 3 - 1], 0)
                    self.compact()
        except BaseException as failure:  # noqa: BLE001 - the test's own thread raises it
            self.history.failures.append(f"writer: {failure!r}")
        finally:
            self.history.over = True


def count(rows: numpy.ndarray, low: numpy.float32, high: numpy.float32) -> int:
    return int(numpy.count_nonzero((rows["energy"] >= low) & (rows["energy"] <= high)))


def ranges(rng, number: int) -> list[tuple[numpy.float32, numpy.float32]]:
    ends = numpy.sort(rng.lognormal(0, 1, (number, 2)).astype("f4"), axis=1)
    return [(low, high) for low, high in ends]


class Reader:
    """Asks one dataset in one way, until the writer is done and once more."""

    def __init__(self, name: str, ask, history: History, seed: int) -> None:
        self.name, self.ask, self.history = name, ask, history
        self.rng = numpy.random.default_rng(seed)
        self.questions = self.interrupted = 0

    def run(self) -> None:
        try:
            last = False
            while True:
                self.ask(self)
                if last:
                    return
                last = self.history.over
        except BaseException as failure:  # noqa: BLE001
            self.history.failures.append(f"{self.name}: {failure!r}")

    def epochs(self) -> list[int]:
        return sorted(self.history.finished)


def may_have_been_replaced(done) -> bool:
    """The one error that a reader may get: the epoch was replaced before all of its files were open. It is told to ask again."""
    return done.returncode == FAILED and "was replaced while it was read" in done.stderr


def ask_in_batches(dataset: Path, scratch: Path, stable_only: bool):
    """Thousands of questions to few processes, each of which keeps the dataset open while epochs come and go."""

    def ask(reader: Reader) -> None:
        known = STABLE if stable_only else reader.epochs()
        asked = [(int(reader.rng.choice(known)), low, high) for low, high in ranges(reader.rng, BATCH)]
        least = dict(reader.history.finished)
        lines, log = scratch / f"{reader.name}.csv", scratch / f"{reader.name}.log"
        lines.write_text("".join(f"{epoch},{low!s},{high!s}\n" for epoch, low, high in asked))
        done = attempt("query", dataset, "--batch", lines, "--log", log)
        if may_have_been_replaced(done):
            reader.interrupted += 1
            return
        assert done.returncode == OK, done.stderr
        for (epoch, low, high), row in zip(asked, csv.DictReader(log.open()), strict=True):
            expected = {count(rows, low, high) for rows in reader.history.seen_since(epoch, least[epoch])}
            assert int(row["matches"]) in expected, (epoch, low, high, row["matches"], expected)
        reader.questions += BATCH

    return ask


def ask_for_rows(dataset: Path):
    """Every record of the answer, by identity and version."""

    def ask(reader: Reader) -> None:
        epoch = int(reader.rng.choice(reader.epochs()))
        ((low, high),) = ranges(reader.rng, 1)
        least = reader.history.finished[epoch]
        where = f"energy >= {low!s} and energy <= {high!s}"
        order = ["--order"] if reader.rng.random() < 0.5 else []
        done = attempt("query", dataset, "--epoch", epoch, "--where", where, "--columns", "version,id", "--format", "csv", *order)
        if may_have_been_replaced(done):
            reader.interrupted += 1
            return
        assert done.returncode == OK, done.stderr
        found = numpy.loadtxt(io.StringIO(done.stdout), delimiter=",", skiprows=1, dtype="u8", ndmin=2)
        found = sorted(map(tuple, found[:, :2].tolist())) if found.size else []
        for rows in reader.history.seen_since(epoch, least):
            match = rows[(rows["energy"] >= low) & (rows["energy"] <= high)]
            if found == sorted(zip(match["version"].tolist(), match["id"].tolist(), strict=True)):
                reader.questions += 1
                return
        raise AssertionError(f"{len(found)} rows of epoch {epoch} from {low} to {high} are those of no version since {least}")

    return ask


def ask_duckdb(data: Path):
    """DuckDB over the folder as it is, about epochs that nobody touches."""
    connection = duckdb.connect()

    def ask(reader: Reader) -> None:
        for epoch in STABLE:
            ((low, high),) = ranges(reader.rng, 1)
            text = (
                f"SELECT count(*), coalesce(sum(id), 0) FROM read_parquet('{data}/epoch={epoch}/*.parquet') "
                f"WHERE energy BETWEEN '{low!s}'::FLOAT AND '{high!s}'::FLOAT"
            )
            rows = reader.history.versions[epoch][0]
            match = rows[(rows["energy"] >= low) & (rows["energy"] <= high)]
            assert connection.execute(text).fetchone() == (len(match), int(match["id"].sum())), text
            reader.questions += 1

    return ask


def test_answers_are_right_while_later_epochs_are_written_replaced_and_compacted(scratch):
    folder = scratch / "concurrency"
    folder.mkdir()
    history = History()
    writer = Writer(folder, history)
    for epoch in [*STABLE, REPLACED]:
        writer.write(epoch, 0)
    writer.compact()
    readers = [
        Reader("batches", ask_in_batches(writer.dataset, folder, False), history, 1),
        Reader("more-batches", ask_in_batches(writer.dataset, folder, False), history, 2),
        Reader("copy", ask_in_batches(writer.copy, folder, True), history, 3),
        Reader("rows", ask_for_rows(writer.dataset), history, 4),
        Reader("duckdb", ask_duckdb(writer.dataset / "data"), history, 5),
        Reader("duckdb-of-copy", ask_duckdb(writer.copy / "data"), history, 6),
    ]
    threads = [threading.Thread(target=one.run) for one in [writer, *readers]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=AMPLE_S)
        assert not thread.is_alive(), "a reader or the writer hangs"
    print({reader.name: (reader.questions, reader.interrupted) for reader in readers})
    assert not history.failures, "\n".join(history.failures)
    assert all(reader.questions > 0 for reader in readers)
    assert sorted(history.finished) == [*STABLE, REPLACED, *ADDED]
    turbidite("verify", writer.dataset)
    turbidite("verify", writer.copy)


@pytest.mark.parametrize("epoch", STABLE)
def test_versions_differ_so_that_a_mixture_would_show(epoch):
    rng = numpy.random.default_rng(epoch)
    one, other = (numpy.concatenate(records(epoch, version)) for version in (1, 2))
    differing = sum(count(one, low, high) != count(other, low, high) for low, high in ranges(rng, 100))
    assert differing > 90
