"""The read-ahead of sources' files: what is asked of the kernel, and when it ends."""

import os
import threading

import numpy
import pytest
from turbidite.sources import read_ahead
from turbidite.sources.inventory import Epoch
from turbidite.sources.read_ahead import ReadAhead

from support.source_reader import read

STEP = 128 << 10


class Kernel:
    """Records the requests in place of the kernel. `before` is called before each."""

    def __init__(self, monkeypatch):
        self.asked: dict[str, list[tuple[int, int]]] = {}
        self.before = lambda path: None
        monkeypatch.setattr(os, "posix_fadvise", self.advise)

    def advise(self, descriptor: int, first: int, length: int, advice: int):
        assert advice == os.POSIX_FADV_WILLNEED
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        self.before(path)
        self.asked.setdefault(path, []).append((first, length))


@pytest.fixture
def kernel(monkeypatch):
    return Kernel(monkeypatch)


def files(tmp_path, *lengths: int) -> list[Epoch]:
    epochs = []
    for number, length in enumerate(lengths):
        path = tmp_path / f"file-{number}"
        path.write_bytes(bytes(length))
        epochs.append(Epoch(number, str(path), 1, 1))
    return epochs


def finish():
    """Waits for the threads that read ahead."""
    for thread in threading.enumerate():
        if thread.name == "read ahead":
            thread.join()


def steps(length: int) -> list[tuple[int, int]]:
    return [(first, STEP) for first in range(0, length, STEP)]


def test_a_file_and_the_next_one_are_read_ahead_once(tmp_path, kernel):
    epochs = files(tmp_path, 3 * STEP + 1, STEP, 5)
    ahead = ReadAhead(epochs)
    for _ in range(3):
        ahead.follow(epochs[0].path)
        finish()
    assert kernel.asked == {epochs[0].path: steps(3 * STEP + 1), epochs[1].path: steps(STEP)}
    ahead.follow(epochs[2].path)
    finish()
    assert kernel.asked[epochs[2].path] == steps(5)


def test_a_later_file_ends_the_read_ahead_of_an_earlier_one(tmp_path, kernel):
    epochs = files(tmp_path, 4 * STEP, STEP, STEP)
    begun, go_on = threading.Event(), threading.Event()

    def wait(path):
        if path == epochs[0].path:
            begun.set()
            go_on.wait()

    kernel.before = wait
    ahead = ReadAhead(epochs)
    ahead.follow(epochs[0].path)
    begun.wait()
    ahead.follow(epochs[2].path)
    go_on.set()
    finish()
    assert kernel.asked == {epochs[0].path: [(0, STEP)], epochs[2].path: [(0, STEP)]}


def test_the_length_is_limited(tmp_path, kernel, monkeypatch):
    monkeypatch.setattr(read_ahead, "_MAX_BYTES", 2 * STEP)
    [epoch] = files(tmp_path, 9 * STEP)
    ReadAhead([epoch, epoch]).follow(epoch.path)
    finish()
    assert kernel.asked == {epoch.path: steps(2 * STEP)}


def test_what_is_no_file_is_left_to_its_reader(tmp_path, kernel):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "run.bp").mkdir()
    names = ("missing", "pipe", "run.bp")
    ahead = ReadAhead([Epoch(number, str(tmp_path / name), 1, 1) for number, name in enumerate(names)])
    for name in names:
        ahead.follow(str(tmp_path / name))
        finish()
    assert kernel.asked == {}


def test_blocks_begin_it(tmp_path, monkeypatch):
    """In a process as the command starts it; what it asks the kernel is in a file."""
    for epoch in (1, 2):
        numpy.savez(tmp_path / f"run_{epoch}.npz", x=numpy.arange(1000.0))
    (tmp_path / "sitecustomize.py").write_text(f"""
import os
def advise(descriptor, first, length, advice):
    with open({str(tmp_path / "asked")!r}, "a") as asked:
        asked.write(os.readlink(f"/proc/self/fd/{{descriptor}}") + "\\n")
os.posix_fadvise = advise
import threading
class Thread(threading.Thread):
    def start(self):
        super().start()
        self.join()
threading.Thread = Thread
""")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ['PYTHONPATH']}")
    _, found = read(tmp_path / "run_*.npz")
    assert [len(rows["x"]) for rows in found.values()] == [1000, 1000]
    asked = set((tmp_path / "asked").read_text().split())
    assert asked == {str(tmp_path / "run_1.npz"), str(tmp_path / "run_2.npz")}
