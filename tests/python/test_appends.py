"""Appends of several steps: each stays within its epoch, and an epoch with a part of one is never committed."""

import linecache
import signal
import sys
import threading

import numpy
import pyarrow
import pytest
import turbidite

from support.command import AMPLE_S, answer

COUNT = 1000
BATCH = pyarrow.record_batch({"x": numpy.arange(COUNT, dtype="f4")})


class Gated:
    """A thread that appends a stream of two batches as rank 1, the second one after `go`."""

    def __init__(self, writer: turbidite.Writer):
        self.begun, self.go = threading.Event(), threading.Event()
        self.rows = 0
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self.append, args=(writer,))
        self.thread.start()
        # The second batch is asked for once the first one is stored.
        assert self.begun.wait(AMPLE_S)

    def batches(self):
        yield BATCH
        self.begun.set()
        assert self.go.wait(AMPLE_S)
        yield BATCH

    def append(self, writer: turbidite.Writer) -> None:
        try:
            self.rows = writer.append(pyarrow.RecordBatchReader.from_batches(BATCH.schema, self.batches()), rank=1)
        except turbidite.TurbiditeError as error:
            self.error = error

    def join(self) -> None:
        self.go.set()
        self.thread.join(AMPLE_S)
        assert not self.thread.is_alive()


def once_the_main_thread_waits_for_appends(then, or_else: threading.Event) -> threading.Thread:
    """Calls `then` on another thread once the main thread waits, or once it has gone on without waiting."""
    main = threading.main_thread().ident

    def waits() -> bool:
        frame = sys._current_frames()[main]
        return "finish_appends" in linecache.getline(frame.f_code.co_filename, frame.f_lineno)

    def watch() -> None:
        while not waits() and not or_else.is_set():
            pass
        then()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.fixture
def writer(tmp_path):
    with turbidite.Writer(tmp_path / "a.tbd", BATCH.schema, key="x", ranks=2) as writer:
        yield writer


def counts(writer: turbidite.Writer) -> dict[int, int]:
    dataset = turbidite.open(writer.path)
    return {epoch: dataset.query(epochs=epoch).count() for epoch in dataset.epochs}


def test_the_end_of_an_epoch_waits_for_a_stream(writer):
    second = threading.Event()
    with writer.epoch(1):
        gated = Gated(writer)
        watch = once_the_main_thread_waits_for_appends(gated.go.set, second)
    with writer.epoch(2):
        second.set()
        gated.join()
        writer.append(BATCH)
    watch.join()
    assert (gated.rows, gated.error) == (2 * COUNT, None)
    assert counts(writer) == {1: 2 * COUNT, 2: COUNT}


def test_an_abort_refuses_the_rest_of_a_stream(writer):
    with pytest.raises(ZeroDivisionError), writer.epoch(1):
        gated = Gated(writer)
        raise ZeroDivisionError
    with writer.epoch(2):
        writer.append(BATCH)
        gated.join()
        writer.append(BATCH)
    assert isinstance(gated.error, turbidite.UsageError) and "aborted" in str(gated.error)
    assert counts(writer) == {2: 2 * COUNT}


def test_an_interrupt_ends_the_wait_for_a_stream(writer):
    left = threading.Event()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), writer.epoch(1):
            gated = Gated(writer)
            interrupt = lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # noqa: E731
            watch = once_the_main_thread_waits_for_appends(interrupt, left)
    finally:
        left.set()
        gated.join()
        watch.join()
        signal.signal(signal.SIGINT, before)
    assert isinstance(gated.error, turbidite.UsageError)
    with writer.epoch(2):
        writer.append(BATCH)
    assert counts(writer) == {2: COUNT}


def table(x: numpy.ndarray) -> pyarrow.RecordBatchReader:
    whole = pyarrow.table({"x": x})
    return pyarrow.RecordBatchReader.from_batches(whole.schema, iter(whole.to_batches(max_chunksize=7_001)))


def failing(x: numpy.ndarray):
    def batches():
        yield from table(x[:70_123])
        raise ValueError("no more, at row 70123")

    return pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("x", "f4")]), batches())


def with_a_gap(x: numpy.ndarray) -> pyarrow.Table:
    whole = pyarrow.table({"x": pyarrow.array(x, mask=numpy.arange(len(x)) == 70_123)})
    return pyarrow.Table.from_batches(whole.to_batches(max_chunksize=7_001))


def with_a_large_value(x: numpy.ndarray) -> numpy.ndarray:
    changed = x.copy()
    changed[70_123] = 1000
    return changed


HALVED = {
    "derived from arrays": (lambda x: {"x": with_a_large_value(x)}, turbidite.UsageError),
    "derived from a stream": (lambda x: table(with_a_large_value(x)), turbidite.UsageError),
    "a missing value": (with_a_gap, turbidite.UsageError),
    "a stream that fails": (failing, turbidite.OperationError),
}


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", HALVED)
def test_an_append_that_fails_halfway_fails_its_epoch(tmp_path, name, again):
    rows, kind = HALVED[name]
    x = numpy.zeros(100_000, "f4")
    path = tmp_path / "a.tbd"
    with turbidite.Writer(path, {"x": "f4"}, key="x", derive=["n:u8 = x"]) as writer:
        with pytest.raises(turbidite.OperationError, match=r"some of its rows were stored(.|\n)*70123"), writer.epoch(1):
            with pytest.raises(kind, match="70123"):
                writer.append(rows(x))
            if again:
                with pytest.raises(turbidite.OperationError, match="some of its rows were stored"):
                    writer.append({"x": x})
        with writer.epoch(2):
            assert writer.append({"x": x}) == len(x)
    assert turbidite.open(path).epochs == [2]
    assert answer("salvage", path)["unfinished"] == []


def test_an_append_that_fails_at_once_may_be_repeated(tmp_path):
    x = numpy.zeros(100_000, "f4")
    wrong = x.copy()
    wrong[5] = 1000
    with turbidite.Writer(tmp_path / "a.tbd", {"x": "f4"}, key="x", derive=["n:u8 = x"]) as writer, writer.epoch(1):
        for rows in ({"x": wrong}, table(wrong), {"x": x.astype("f8")}, pyarrow.table({"y": x})):
            with pytest.raises(turbidite.UsageError):
                writer.append(rows)
        writer.append({"x": x})
    assert writer.last["rows"] == len(x)
