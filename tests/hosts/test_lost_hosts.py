"""A host is cut off, or killed, or a rank stands still, in the middle of an epoch: every rank that is left gets an error
within a stated time, what was committed stays whole, and a job that begins again goes on.

The stated time is `stall_s` after the last message. What MPI itself does about a lost rank comes sooner where it notices:
MPICH ends the whole job when a connection breaks. It notices nothing when packets vanish or a rank is stopped.
"""

import os
import re
import signal
import time
from pathlib import Path

import numpy
import pytest

from support import halt
from support.command import answer, turbidite
from support.host_job import LAZY, RECORD, HostJob, until
from support.libraries import prefix
from support.raw import ingest_arguments, write_epoch, write_layout

RANKS, PER_HOST = 16, 4
STALL_S = 8
ROWS = 20_000
# What ranks may need beyond the limit: they append what is left, with patience for those that take nothing, and share the
# processors of one machine. Were each to wait for the others' errors first, it would be fifteen times the limit.
GRACE_S = 60.0
# One host that is neither the first nor the last.
LOST = 2
ON_LOST = range(LOST * PER_HOST, (LOST + 1) * PER_HOST)


@pytest.fixture
def job(hosts, mpi, program, tmp_path):
    job = HostJob(hosts, mpi, program, tmp_path)
    yield job
    job.stop()
    hosts.join_again(LOST)


def bring_to_mid_epoch(job: HostJob, **environment) -> None:
    """Epoch 1 is committed, epoch 2 half appended on all ranks."""
    job.start(1, 2, ROWS, STALL_S, 2, **environment)
    job.await_half()
    assert all(job.said(rank)[0] == f"epoch 1 {ROWS * RANKS}" for rank in range(RANKS))


def check_errors(job: HostJob, ranks: list[int]) -> None:
    """These ranks have got an error in time, and have closed everything without waiting for anybody."""
    slowest = 0.0
    for rank in ranks:
        [failed] = [line for line in job.said(rank) if line.startswith("failed")]
        words = r"failed end_epoch ([\d.]+) \S+: rank \d+ has waited \d+ s in end_epoch without progress.*"
        waited = float(re.fullmatch(words, failed)[1])
        assert STALL_S <= waited <= STALL_S + GRACE_S, failed
        slowest = max(slowest, waited)
        closed = [line.split(maxsplit=4) for line in job.said(rank) if line.startswith("closed")]
        assert [(what, status) for _, what, status, *_ in closed] == [("dataset", "0"), ("transport", "1")], closed
        # Whoever waited here would wait for ever.
        assert float(closed[1][3]) < STALL_S + GRACE_S and "MPI_Abort" in closed[1][4], closed
    print(f"\nwith a limit of {STALL_S} s, {len(ranks)} ranks had an error after {slowest:.1f} s at most")


def await_errors(job: HostJob, ranks: list[int]) -> None:
    until("every rank has closed its transport", lambda: all(job.has_said(rank, "closed transport") for rank in ranks))


def check_what_is_left(job: HostJob) -> None:
    """What was committed is whole; of the epoch at hand nothing is seen."""
    job.check([1])


def go_on(job: HostJob, **environment) -> None:
    """The job begins again, skips what is there, and writes the rest."""
    job.run(1, 2, ROWS, STALL_S, **environment)
    assert all(job.said(rank)[0] == "skipped 1" for rank in range(RANKS))
    job.check([1, 2])


@pytest.mark.parametrize("network", [{}, LAZY], ids=["ucx", "ofi"])
def test_a_host_that_is_cut_off(job, network):
    """Its cable is out: both sides run on and hear nothing of each other, and all get an error."""
    bring_to_mid_epoch(job, **network)
    job.hosts.cut_off(LOST)
    job.go_on()
    await_errors(job, list(range(RANKS)))
    check_errors(job, list(range(RANKS)))
    check_what_is_left(job)
    # mpiexec cannot reach the host either, and does not end by itself: a batch system would end the job.
    job.stop()
    job.hosts.join_again(LOST)
    go_on(job)


def test_a_rank_that_stands_still(job):
    """One rank is stopped; the others get an error. It is woken up when all is over and changes nothing."""
    still = ON_LOST[1]
    bring_to_mid_epoch(job)
    process = process_of(job, still, "epochs")
    os.kill(process, signal.SIGSTOP)
    job.go_on()
    others = [rank for rank in range(RANKS) if rank != still]
    await_errors(job, others)
    check_errors(job, others)
    assert not job.has_said(still, "failed")
    check_what_is_left(job)
    os.kill(process, signal.SIGCONT)
    job.may_leave()
    status, _ = job.finish()
    assert status != 0
    job.stop()
    check_what_is_left(job)
    go_on(job)


def process_of(job: HostJob, rank: int, program: str) -> int:
    processes = [process for process, found in job.hosts.processes().items() if found == rank]
    [process] = [process for process in processes if name_of(process) == program]
    return process


def name_of(process: int) -> str:
    """Empty for a process that has ended since it was listed."""
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except FileNotFoundError:
        return ""


@pytest.mark.parametrize("lost", [0, LOST], ids=["the host of rank 0", "another"])
def test_a_host_that_is_killed(job, lost):
    """All its processes end at once, mpiexec's own among them: MPICH ends the whole job. The dataset is whole."""
    bring_to_mid_epoch(job)
    begun = time.monotonic()
    job.hosts.kill_processes(lost)
    job.go_on()
    status, _ = job.finish()
    print(f"\nmpiexec ended after {time.monotonic() - begun:.1f} s")
    assert status != 0
    job.stop()
    check_what_is_left(job)
    # Rank 0's lock is left. On its host it is found to be gone; from another host nobody can tell.
    elsewhere = [1, 2, 3, 0]
    job.start(1, 2, ROWS, STALL_S, hosts=elsewhere)
    status, _ = job.finish()
    assert status != 0
    for rank in range(RANKS):
        [failed] = job.said(rank)
        assert re.fullmatch(r"failed open .*node0.*", failed), (rank, failed)
    if lost == 0:
        go_on(job, hosts=elsewhere, BREAK_LOCK="1")
    else:
        go_on(job)


def test_ingest_gives_up_as_well(job):
    """`turbidite ingest --stall` under mpiexec: a rank stands still after the first epoch."""
    rows = numpy.empty(100_000, RECORD)
    rows["energy"] = numpy.random.default_rng(7).exponential(size=len(rows))
    source, dataset = job.folder / "records", job.dataset
    for epoch, count in ((1, 1000), (2, len(rows))):
        ranks = []
        for rank in range(RANKS):
            rows["id"] = numpy.arange(len(rows)) + (rank << 32)
            ranks.append(rows[:count].copy())
        write_epoch(source, epoch, ranks)
    write_layout(source / "layout.toml", RECORD, "E.{epoch}/records.{rank}")
    arguments = [prefix() / "bin" / "turbidite", *ingest_arguments(source, dataset, "energy"), "--if-exists", "skip"]
    mpiexec = job.mpi.bin / "mpiexec"

    # The rank stops itself when it is about to read its records of epoch 2, which nobody else reads. Every rank has looked
    # at the format of every file before.
    variables = halt.variables(f"E.2/records.{ON_LOST[1]}", after=1)
    halted = ["env", *(f"{name}={value}" for name, value in variables.items())]
    job.running = job.hosts.start(mpiexec, [*halted, *arguments, "--stall", 10, "--patience", 200], {})
    until("ranks give up", lambda: job.running.poll() is not None)
    status, output = job.finish()
    # What the rank has passed on of the beginning may not have left it.
    assert status != 0 and re.search("has waited 10 s in (begin|end)_epoch without progress", output), output
    job.stop()
    turbidite("verify", dataset)
    assert [epoch["epoch"] for epoch in answer("stats", dataset)] == [1]

    job.running = job.hosts.start(mpiexec, arguments, {})
    status, output = job.finish()
    assert status == 0, output
    job.check([1, 2])
