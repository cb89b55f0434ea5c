"""A job of tests/hosts/epochs.c on several hosts: its files, what its ranks say, and what it should have stored."""

import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy
import pyarrow.parquet

from support.command import answer, turbidite
from support.hosts import Hosts
from support.mpi import Mpi

RECORD = numpy.dtype([("energy", "<f4"), ("id", "<u8")])
assert RECORD.itemsize == 12
# MPICH's way through the network that makes a connection when a message needs it, and returns what TCP says; the other one,
# UCX, connects every rank with every other in MPI_Init.
LAZY = {"MPIR_CVAR_CH4_NETMOD": "ofi"}
# Until a job is given up, whatever it does: far beyond what any takes.
PATIENCE_S = 180.0


def until(what: str, condition, limit_s: float = PATIENCE_S) -> None:
    """Waits for something that has to happen."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {limit_s} s"
        time.sleep(0.05)


@dataclass
class HostJob:
    """A folder in which the program runs, possibly several times."""

    hosts: Hosts
    mpi: Mpi
    program: Path
    folder: Path
    running: subprocess.Popen | None = field(default=None)

    def __post_init__(self):
        (self.folder / "records").mkdir()

    @property
    def dataset(self) -> Path:
        return self.folder / "dataset"

    def start(self, first: int, last: int, rows: int, stall_s: int, *pause, hosts=None, **environment) -> None:
        for name in ("said", "half"):
            for file in self.folder.glob(f"{name}.*"):
                file.unlink()
        for name in ("go", "leave"):
            (self.folder / name).unlink(missing_ok=True)
        arguments = [self.program, self.folder, first, last, rows, stall_s, *pause]
        self.running = self.hosts.start(self.mpi.bin / "mpiexec", arguments, environment, hosts)

    def finish(self, limit_s: float = PATIENCE_S) -> tuple[int, str]:
        """Waits for the end of mpiexec: its exit status, and what came to standard output."""
        output, _ = self.running.communicate(timeout=limit_s)
        status, self.running = self.running.returncode, None
        return status, output

    def run(self, *arguments, **options) -> None:
        """Runs the program to its good end on every rank."""
        self.start(*arguments, **options)
        status, output = self.finish()
        assert status == 0, f"exit {status}\n{output}\n{self.said(0)}"
        assert all(self.said(rank)[-1] == "done" for rank in range(self.hosts.ranks)), output

    def stop(self) -> None:
        """Ends what may still run, on all hosts."""
        if self.running is not None:
            self.running.kill()
            self.running.communicate(timeout=30)
        for host in range(self.hosts.count):
            self.hosts.kill_processes(host)

    def said(self, rank: int) -> list[str]:
        file = self.folder / f"said.{rank}"
        return file.read_text().splitlines() if file.exists() else []

    def has_said(self, rank: int, word: str) -> bool:
        return any(line.startswith(word) for line in self.said(rank))

    def await_half(self) -> None:
        """Until every rank is in the middle of the epoch it pauses in."""
        ranks = range(self.hosts.ranks)
        try:
            until("all ranks are in mid-epoch", lambda: all((self.folder / f"half.{rank}").exists() for rank in ranks))
        except AssertionError as error:
            said = [(rank, (self.folder / f"half.{rank}").exists(), self.said(rank)) for rank in ranks]
            raise AssertionError(f"{error}; mpiexec: {self.running.poll()}; half, said: {said}") from None

    def go_on(self) -> None:
        (self.folder / "go").touch()

    def may_leave(self) -> None:
        (self.folder / "leave").touch()

    def kept(self, epoch: int) -> numpy.ndarray:
        """What the ranks appended in an epoch, by id."""
        files = sorted((self.folder / "records" / f"E.{epoch}").iterdir())
        assert len(files) == self.hosts.ranks
        return by_id(numpy.concatenate([numpy.fromfile(file, RECORD) for file in files]))

    def check(self, epochs: list[int]) -> None:
        """The dataset is whole, and has these epochs, each with the records that were appended and no others."""
        turbidite("verify", self.dataset)
        assert [epoch["epoch"] for epoch in answer("stats", self.dataset)] == epochs
        for epoch in epochs:
            assert numpy.array_equal(stored(self.dataset, epoch), self.kept(epoch)), epoch


def by_id(rows: numpy.ndarray) -> numpy.ndarray:
    assert len(numpy.unique(rows["id"])) == len(rows)
    return rows[numpy.argsort(rows["id"])]


def stored(dataset: Path, epoch: int) -> numpy.ndarray:
    """What another engine finds in the files of an epoch, by id."""
    files = sorted((dataset / "data" / f"epoch={epoch}").glob("*.parquet"))
    tables = [pyarrow.parquet.ParquetFile(file).read() for file in files]
    rows = numpy.empty(sum(table.num_rows for table in tables), RECORD)
    for name in RECORD.names:
        rows[name] = numpy.concatenate([table.column(name).to_numpy() for table in tables])
    return by_id(rows)
