"""The preload library on two hosts with two ranks each: each host has its own /dev/shm, and thus its own spool."""

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy
import pytest

from support.command import AMPLE_S, binary, turbidite
from support.habits import EPOCHS, HABITS, INGEST, SALVAGE, compile_programs, faults_of_rows, messages
from support.hosts import Hosts, command
from support.preload import SMALL_RECORD, libraries, stored

HOSTS, PER_HOST = 2, 2
RANKS = HOSTS * PER_HOST
SPOOL = Path("/dev/shm")
HEADER = b"HABITS01"
RECORDS, LARGE_EPOCH, TIMES_AS_LARGE = 8000, 2, 8
# Process numbers are the same on all hosts.
APART = 'exec "$@" 2> "$0/$(hostname)-$$"'


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return compile_programs(tmp_path_factory.mktemp("habits"))[True]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with Hosts(HOSTS, PER_HOST, tmp_path_factory.mktemp("pair")) as pair:
        yield pair


def content(epoch: int, ranks) -> numpy.ndarray:
    """The records of some ranks, as tests/preload/habits/main.c fills them in."""
    count = RECORDS * (TIMES_AS_LARGE if epoch == LARGE_EPOCH else 1)
    numbers = [numpy.arange(count, dtype="<u8") + numpy.uint64((epoch * 64 + rank) * 1_000_000) for rank in ranks]
    rows = numpy.empty(count * len(numbers), SMALL_RECORD)
    rows["number"] = numpy.concatenate(numbers)
    rows["key"] = (rows["number"] * numpy.uint64(2654435761) % numpy.uint64(1000003)).astype("<f8") / 1000
    return rows


@dataclass
class Job:
    """A habit under the library, on all hosts. `out` may be a folder of each host."""

    hosts: Hosts
    folder: Path
    mode: str
    out: Path

    @property
    def dataset(self) -> Path:
        return self.folder / "ds"

    def run(self, mpi, program: Path, habit: str) -> tuple[int, str]:
        """Runs the habit to its end. Returns the exit status, and the ranks' messages."""
        config, said = self.folder / "c.toml", self.folder / "said"
        said.mkdir()
        config.write_text(HABITS[habit].form().configuration(self.dataset, {"mode": self.mode, "spool": str(SPOOL)}))
        variables = (f"TURBIDITE_CONFIG={config}", f"LD_PRELOAD={libraries()}")
        line = ["sh", "-c", APART, said, "env", *variables, program, habit, self.out, EPOCHS]
        started = self.hosts.start(mpi.bin / "mpiexec", line, {"UCX_HANDLE_ERRORS": "none"})
        output, _ = started.communicate(timeout=AMPLE_S)
        texts = {path.name: path.read_text() for path in sorted(said.iterdir())}
        assert len(texts) == RANKS, output
        return started.returncode, "".join(texts.values())

    def on(self, host: int, *line, check: bool = True) -> str:
        return command("nsenter", "-t", self.hosts.first_process(host), "--uts", "--mount", "--pid", *line, check=check)

    def path(self, epoch: int, rank: int) -> Path:
        return self.out / f"E.{epoch}" / f"rows.{rank}"

    def is_whole(self, epochs: list[int], rank: int) -> bool:
        expected = {self.path(epoch, rank): HEADER + content(epoch, [rank]).tobytes() for epoch in epochs}
        return all(path.exists() and path.read_bytes() == kept for path, kept in expected.items())

    def spooled(self, host: int) -> list[str]:
        return self.on(host, "find", SPOOL, "-path", "*/turbidite-*/files/*", "-type", "f").splitlines()

    def check(self, ranks_of) -> None:
        """Each epoch has the records of these ranks, each once."""
        turbidite("verify", self.dataset)
        found = stored(self.dataset, SMALL_RECORD)
        assert sorted(found) == list(range(1, EPOCHS + 1))
        for epoch, rows in found.items():
            assert faults_of_rows(rows, epoch) == []
            assert numpy.array_equal(numpy.sort(rows["number"]), content(epoch, ranks_of(epoch))["number"]), epoch


@pytest.fixture(params=["keep", "replace"])
def job(pair, tmp_path, request):
    yield Job(pair, tmp_path, request.param, tmp_path / "out")
    for host in range(HOSTS):
        # The host's spool must be empty for the next test.
        command("nsenter", "-t", pair.first_process(host), "--mount", "sh", "-c", f"rm -rf {SPOOL}/turbidite-*")


@pytest.mark.parametrize("habit", ["shared_by_turns", "shared_at_once", "shared_by_more", "mpi_io"])
def test_a_file_of_all_ranks(job, mpi, program, habit):
    """The ranks of both hosts write one file, whose records are indexed once."""
    status, said = job.run(mpi, program, habit)
    assert status == 0, said

    def writers(epoch: int) -> range:
        return range(epoch if habit == "shared_by_more" else RANKS)

    job.check(writers)
    for epoch in range(1, EPOCHS + 1):
        # Other hosts would not find a file in the spool.
        assert (job.out / f"E.{epoch}" / "rows").read_bytes() == HEADER + content(epoch, writers(epoch)).tobytes()
    assert not any(job.spooled(host) for host in range(HOSTS))
    assert not list(job.out.rglob(".turbidite*"))


def test_files_of_equal_path(job, mpi, program):
    """Each host has a folder of its own under the same path, with files of the same names and inode numbers."""
    job.out = job.folder / "local"
    job.out.mkdir()
    for host in range(HOSTS):
        job.on(host, "mount", "-t", "tmpfs", "tmpfs", job.out)
        for epoch in range(1, EPOCHS + 1):
            job.on(host, "mkdir", f"{job.out}/E.{epoch}")
            job.on(host, "touch", f"{job.out}/E.{epoch}/rows")
    status, said = job.run(mpi, program, "shared_by_node")
    inodes = {job.on(host, "sh", "-c", f"stat -c %i {job.out}/E.*/rows") for host in range(HOSTS)}
    assert status == 0, said
    assert len(inodes) == 1, inodes
    job.check(lambda _: range(RANKS))


@pytest.mark.parametrize("habit", ["mpi_abort_first", "mpi_abort_last", "mpi_abort_idle"])
def test_abort(job, mpi, program, habit):
    """The rank that aborts moves the files of its host. The printed commands recover those of the other host."""
    status, said = job.run(mpi, program, habit)
    assert status != 0
    aborting, other = (0, 1) if habit == "mpi_abort_first" else (1, 0)
    indexed = set(stored(job.dataset, SMALL_RECORD))
    unindexed = sorted(set(range(1, EPOCHS + 1)) - indexed)
    assert EPOCHS in unindexed
    assert job.spooled(aborting) == []
    writers = {rank: 0 if habit == "mpi_abort_idle" else rank for rank in range(RANKS)}
    for rank in (rank for rank, writer in writers.items() if writer // PER_HOST == aborting):
        assert job.is_whole(unindexed, rank), rank

    ingest = INGEST.findall(said)
    # MPICH kills the ranks of the other host.
    if job.mode == "replace":
        missing = [rank for rank, writer in writers.items() if writer // PER_HOST == other]
        assert not any(job.path(EPOCHS, rank).exists() for rank in missing)
        for line in ingest:
            refused = subprocess.run([binary(), *shlex.split(line)[1:]], capture_output=True, text=True, check=False)
            assert refused.returncode == 1 and "--allow-missing-ranks" in refused.stderr, refused
        assert set(stored(job.dataset, SMALL_RECORD)) == indexed
        [salvage] = set(SALVAGE.findall(said))
        job.on(other, binary(), *shlex.split(salvage)[1:])
    assert job.spooled(other) == []
    assert all(job.is_whole(unindexed, rank) for rank in range(RANKS))
    # A rank that has written no file does not know where they are.
    assert ingest or habit == "mpi_abort_idle", said
    for line in ingest:
        # If rank 0 was killed, the dataset is locked. A process on its host takes over the lock.
        job.on(0, binary(), *shlex.split(line)[1:])
    if ingest:
        job.check(lambda _: range(RANKS))
    else:
        assert "files of other ranks" in "".join(messages(said))
