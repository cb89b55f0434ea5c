"""Interrupts of calls that wait for storage: a part that is a pipe keeps its readers waiting for ever."""

import _thread
import subprocess
import sys
import threading
from pathlib import Path

import numpy
import pytest
import turbidite

from support.command import AMPLE_S
from support.pipes import replace_parts_by_pipes

pytestmark = pytest.mark.serial

USES = [
    "dataset.phase_space('x', 'y', bins=8)",
    "dataset.phase_space('x', 'y', range=((-1, 1), (-1, 1)), weights='x', threads=1)",
    "dataset.phase_space('x', 'y', where='x > y')",
    "dataset.histogram('y')",
    "dataset.quantiles('y')",
    "dataset.query('x > y').count()",
    "dataset.query('x > y').to_numpy()",
    "dataset.query('x > y').to_arrow()",
    "dataset.query('x > y').to_polars()",
    "dataset.query('x > y', order='key').to_pandas()",
    "dataset.pieces('x > y')",
    "dataset.stats(3)",
    "dataset.plot_partitions(3)",
    "dataset.tracks(of='x > 1', at=3, id='id').to_numpy()",
]


# What a program needs to see that one of its threads works. A thread may end between being listed and being read.
RUNS = """
import pathlib
def thread_name(task):
    try:
        return task.read_text().rstrip()
    except OSError:
        return "a thread that has ended"
def runs(name):
    return any(thread_name(task) == name for task in pathlib.Path("/proc/self/task").glob("*/comm"))
"""


def write(path: Path, *epochs: int) -> None:
    """Writes epochs, the first of two parts."""
    rows = {name: numpy.random.default_rng(1).standard_normal(200_000) for name in ("x", "y")}
    rows["id"] = numpy.arange(200_000)
    for epoch in epochs:
        # All ranks receive the first epoch of a dataset. A later one of this size has one part.
        with turbidite.Writer(path, {"x": "f8", "y": "f8", "id": "int64"}, key="x", ranks=2) as writer, writer.epoch(epoch):
            for rank in range(2):
                writer.append({name: values[rank::2] for name, values in rows.items()}, rank=rank)


@pytest.mark.parametrize("progress", ["False", "lambda done, total: None"])
@pytest.mark.parametrize("use", USES)
def test_an_interrupt_ends_what_waits_for_storage(tmp_path, use, progress):
    write(tmp_path / "run.tbd", 3)
    replace_parts_by_pipes(tmp_path / "run.tbd")
    # A call that reads works on a thread of its own, of this name.
    program = f"""{RUNS}
import os, signal, threading, turbidite
# A shell's background jobs ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
dataset = turbidite.open("run.tbd", progress={progress})
# The thread that has opened the dataset may be ending.
while runs("turbidite"):
    pass
def interrupt():
    while not runs("turbidite"):
        pass
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    {use}
except KeyboardInterrupt:
    print("interrupted", dataset.epochs)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=AMPLE_S)
    assert done.stdout == "interrupted [3]\n", done.stderr


LEFT = {
    "a loop": "batches = iter(query); next(batches)",
    "a loop with progress": "batches = iter(turbidite.open('run.tbd', progress=lambda *_: None).query(threads=4)); next(batches)",
    "a stream of pyarrow": "batches = pyarrow.RecordBatchReader.from_stream(query); batches.read_next_batch()",
}


@pytest.mark.parametrize("name", LEFT)
def test_a_result_that_is_left_waits_for_no_thread(tmp_path, name):
    """A thread that reads ahead waits for the second epoch for ever, and the first batch is there already."""
    write(tmp_path / "run.tbd", 4, 3)
    # The first part belongs to the check of the manifest, for which the first batch waits.
    first = turbidite.open(tmp_path / "run.tbd").row_groups(4)[0]["file"]
    replace_parts_by_pipes(tmp_path / "run.tbd", 4, keep=first)
    program = f"""{RUNS}
import pyarrow, turbidite
query = turbidite.open("run.tbd").query(threads=4)
{LEFT[name]}
while not runs("turbidite-read"):
    pass
del batches
print("left")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=AMPLE_S)
    assert done.stdout == "left\n", done.stderr


def test_a_thread_that_python_has_not_started_is_not_listed(tmp_path):
    write(tmp_path / "run.tbd", 3)
    dataset, done, listed = turbidite.open(tmp_path / "run.tbd"), threading.Event(), []

    def read() -> None:
        dataset.query().count()
        listed.extend(type(thread).__name__ for thread in threading.enumerate())
        done.set()

    _thread.start_new_thread(read, ())
    assert done.wait(AMPLE_S) and "_DummyThread" not in listed
