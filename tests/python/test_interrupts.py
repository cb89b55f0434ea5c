"""Interrupts of calls that wait for storage: a part that is a pipe keeps its readers waiting for ever."""

import os
import subprocess
import sys

import numpy
import pytest
import turbidite

from support.command import AMPLE_S

USES = [
    "dataset.phase_space('x', 'y', bins=8)",
    "dataset.phase_space('x', 'y', range=((-1, 1), (-1, 1)), weights='x', threads=1)",
    "dataset.phase_space('x', 'y', where='x > y')",
    "dataset.histogram('y', exact=True)",
    "dataset.quantiles('y', exact=True)",
    "dataset.query('x > y').to_arrow()",
    "dataset.query('x > y').to_polars()",
    "dataset.query('x > y', order='key').to_pandas()",
    "dataset.pieces('x > y')",
    "dataset.stats(3)",
    "dataset.plot_partitions(3)",
]


@pytest.mark.parametrize("progress", ["False", "lambda done, total: None"])
@pytest.mark.parametrize("use", USES)
def test_an_interrupt_ends_what_waits_for_storage(tmp_path, use, progress):
    rows = {name: numpy.random.default_rng(1).standard_normal(100_000) for name in ("x", "y")}
    with turbidite.Writer(tmp_path / "run.tbd", {"x": "f8", "y": "f8"}, key="x") as writer, writer.epoch(3):
        writer.append(rows)
    [part] = (tmp_path / "run.tbd").glob("data/**/*.parquet")
    part.unlink()
    os.mkfifo(part)
    # A call that reads works on a thread of its own, of this name.
    program = f"""
import os, pathlib, signal, threading, turbidite
# A shell's background jobs ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
dataset = turbidite.open("run.tbd", progress={progress})
def name(task):
    try:
        return task.read_text()
    except OSError:
        return "the thread has ended"
def interrupt():
    while not any(name(task) == "turbidite\\n" for task in pathlib.Path("/proc/self/task").glob("*/comm")):
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
