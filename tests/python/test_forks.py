"""Forked processes: they query what their parent has opened, and never wait for a thread that they do not have."""

import multiprocessing
import os
import subprocess
import sys
import threading

import numpy
import pytest
import turbidite

from support.command import AMPLE_S
from support.pipes import replace_parts_by_pipes

EPOCHS, ROWS = range(12), 60_000


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("forks") / "run.tbd"
    with turbidite.Writer(path, {"energy": "f4", "id": "uint64", "load": "V64"}, key="energy") as writer:
        for epoch in EPOCHS:
            with writer.epoch(epoch):
                writer.append(rows(epoch))
    return path


def rows(epoch: int) -> dict[str, numpy.ndarray]:
    energy = numpy.random.default_rng(epoch).exponential(size=ROWS).astype("f4")
    return {"energy": energy, "id": numpy.arange(ROWS, dtype="u8") + epoch * ROWS, "load": numpy.zeros(ROWS, "V64")}


def count_expected() -> int:
    return sum(int((rows(epoch)["energy"] > 1).sum()) for epoch in EPOCHS)


def use(dataset: turbidite.Dataset) -> int:
    """Reads a dataset in several ways."""
    hot = dataset.query("energy > 1", columns=["id"])
    found = [hot.count(), len(hot.to_numpy()["id"]), sum(piece.count() for piece in dataset.pieces(hot))]
    tracks = dataset.tracks(of="energy > 5", at=0, id="id", columns=["energy"]).to_numpy()
    assert len(tracks["id"]) == (rows(0)["energy"] > 5).sum()
    assert dataset.phase_space("energy", "id", bins=4).rows == len(EPOCHS) * ROWS
    assert dataset.schema.key == "energy" and dataset.epochs == list(EPOCHS)
    [count] = set(found)
    return count


shared: turbidite.Dataset | None = None


def of_shared(_: int) -> int:
    assert shared is not None
    return use(shared)


def test_a_pool_of_forked_processes_shares_a_dataset(path):
    global shared
    shared = turbidite.open(path)
    assert use(shared) == count_expected()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(of_shared, range(4)).get(AMPLE_S) == [count_expected()] * 4
    assert use(shared) == count_expected()


def test_forks_in_the_middle_of_other_threads_queries(path):
    """Whatever locks the other threads hold at a fork, the child does not wait for them."""
    dataset = turbidite.open(path)
    stop = threading.Event()
    # How often each thread has read the result, and what it raised.
    reads, raised = [0] * 3, []

    def read(place: int) -> None:
        try:
            while not stop.is_set():
                assert len(dataset.query("energy > 1", columns=["id"], threads=2).to_numpy()["id"]) == expected
                reads[place] += 1
        except Exception as error:  # noqa: BLE001
            raised.append(error)

    expected = count_expected()
    readers = [threading.Thread(target=read, args=(place,)) for place in range(3)]
    for reader in readers:
        reader.start()
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=check_count, args=(dataset, expected)) for _ in range(20)]
    try:
        for child in children:
            child.start()
            child.join(AMPLE_S)
            assert child.exitcode == 0
            # Another fork would say little unless the readers have gone on.
            before = sum(reads)
            while sum(reads) == before and not raised:
                pass
    finally:
        stop.set()
        for reader in readers:
            reader.join()
        for child in children:
            if child.is_alive():
                child.kill()
    assert raised == []


def check_count(dataset: turbidite.Dataset, count: int) -> None:
    assert dataset.query("energy > 1").count() == count


STREAMS = """
import os, sys, turbidite
dataset = turbidite.open(sys.argv[1])
batches = dataset._core.stream(dataset.query(threads=4)._resolved())
first = next(batches)
kept = first.column("id")
{prepare}
child = os.fork()
if child == 0:
    import numpy
    assert len(numpy.asarray(kept)) == len(first)
    try:
        {use}
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    assert dataset.query().count() == {rows}
    # The interpreter ends with the stream open.
    sys.exit(7)
status = os.waitpid(child, 0)[1]
assert os.waitstatus_to_exitcode(status) == 7, status
rest = {rest}
assert len(first) + rest == {rows}, rest
"""

TAKEN = "import pyarrow; reader = pyarrow.RecordBatchReader.from_stream(batches)"


@pytest.mark.parametrize(
    ("prepare", "use", "rest", "raised"),
    [
        ("", "next(batches)", "sum(map(len, batches))", "UsageError"),
        ("", "batches.columns()", "sum(map(len, batches))", "UsageError"),
        ("", "batches.__arrow_c_stream__()", "sum(map(len, batches))", "UsageError"),
        (TAKEN, "reader.read_next_batch()", "reader.read_all().num_rows", "ArrowInvalid|OSError|ArrowException"),
        (TAKEN, "del reader; raise ValueError('of another process: a forked process runs the query again')",
         "reader.read_all().num_rows", "ValueError"),
    ],
    ids=["next", "columns", "capsule", "Arrow stream", "dropped"],
)  # fmt: skip
def test_a_stream_stays_with_its_process(path, prepare, use, rest, raised):
    program = STREAMS.format(prepare=prepare, use=use, rest=rest, rows=len(EPOCHS) * ROWS)
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=AMPLE_S, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    assert done.returncode == 0, done.stderr
    kind, _, message = done.stdout.partition(" ")
    assert kind in raised.split("|") and "a forked process runs the query again" in message, done.stdout


def test_a_dataset_that_is_gone_says_so_in_a_fork(path, tmp_path):
    gone = tmp_path / "gone.tbd"
    subprocess.run(["cp", "-r", path, gone], check=True)
    dataset = turbidite.open(gone)
    subprocess.run(["mv", gone, tmp_path / "moved.tbd"], check=True)
    child = os.fork()
    if child == 0:
        try:
            dataset.query().count()
        except turbidite.TurbiditeError as error:
            os._exit(0 if "gone.tbd" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_stream_that_a_thread_reads_at_the_fork_is_refused(path, tmp_path):
    waiting = tmp_path / "waiting.tbd"
    subprocess.run(["cp", "-r", path, waiting], check=True)
    replace_parts_by_pipes(waiting)
    program = """
import os, sys, threading, turbidite
batches = turbidite.open(sys.argv[1])._core.stream(turbidite.open(sys.argv[1]).query()._resolved())
threading.Thread(target=lambda: next(batches), daemon=True).start()
while True:
    try:
        batches.columns()
    except Exception as error:
        busy = type(error).__name__
        break
child = os.fork()
if child == 0:
    try:
        next(batches)
    except Exception as refused:
        print(busy, type(refused).__name__, refused, flush=True)
    os._exit(0)
os.waitpid(child, 0)
os._exit(0)
"""
    command = [sys.executable, "-c", program, str(waiting)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=AMPLE_S, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    assert done.stdout.startswith("UsageError UsageError ") and "a forked process runs the query again" in done.stdout, done.stderr
