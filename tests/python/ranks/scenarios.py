"""What goes wrong in a parallel program, one scenario per run: scenarios.py NAME PATH. Each prints who has passed."""

import gc
import os
import sys
import threading

import numpy
import turbidite

FINE = {"key": numpy.linspace(0, 1, 1000, dtype="f4")}
SCHEMA = {"key": "f4"}


def refused(word: str, call, kind: type[Exception] = turbidite.TurbiditeError) -> None:
    """Expects an exception that says `word`."""
    try:
        call()
    except kind as error:
        assert word in str(error), f"'{word}' is not in: {error}"
    else:
        raise AssertionError(f"no exception with '{word}'")


def opened(path: str, **options) -> turbidite.Writer:
    return turbidite.Writer(path, SCHEMA, **{"key": "key", "comm": WORLD, **options})


def one_raises(path):
    """The epoch of an exception fails everywhere, leaves nothing behind, and the next one is stored."""
    for raising in sorted({0, WORLD.size // 2, WORLD.size - 1}):
        with opened(f"{path}-{raising}") as writer:
            for epoch in (1, 2, 3):
                try:
                    with writer.epoch(epoch):
                        writer.append(FINE)
                        if epoch == 2 and WORLD.rank == raising:
                            raise ZeroDivisionError("by purpose")
                except ZeroDivisionError:
                    assert (WORLD.rank, epoch) == (raising, 2)
                except turbidite.OperationError as error:
                    assert epoch == 2 and WORLD.rank != raising
                    assert f"rank {raising}" in str(error) and "ZeroDivisionError: by purpose" in str(error), error
        found = turbidite.open(f"{path}-{raising}")
        assert found.epochs == [1, 3] and found.query().count() == 2 * 1000 * WORLD.size


def several_raise(path):
    """Different ranks have different exceptions, all leave the writer by them, and another writer is opened after."""

    def fail():
        with opened(path) as writer, writer.epoch(7):
            writer.append(FINE)
            if WORLD.rank % 2 == 1:
                writer.append({"key": numpy.zeros(3)})
            if WORLD.rank == 0:
                raise KeyError("first")

    refused("", fail, Exception)
    with opened(path) as writer, writer.epoch(8):
        writer.append(FINE)
    assert turbidite.open(path).epochs == [8]


def arguments(path):
    """What one rank or all state wrongly is an exception on all."""
    one = WORLD.rank == WORLD.size - 1
    local = turbidite.UsageError
    refused("exclude", lambda: opened(path, ranks=2), local)
    refused("mpi4py, such as", lambda: opened(path, comm=7), local)
    refused("intracommunicator", lambda: opened(path, comm=MPI.COMM_NULL), local)
    refused("'f3'", lambda: turbidite.Writer(path, {"key": "f3"} if one else SCHEMA, key="key", comm=WORLD))
    refused("int" if one else f"rank {WORLD.size - 1}", lambda: turbidite.Writer(path, 7 if one else SCHEMA, key="key", comm=WORLD), Exception)
    refused("None", lambda: opened(path, key=None if one else "key"))
    refused("other", lambda: opened(path, key="other" if one else "key"))
    refused("sometimes", lambda: opened(path, if_exists="sometimes" if one else "error"))
    refused("units", lambda: opened(path, units={"mass": "kg"} if one else {}))
    refused("-1", lambda: opened(path, stall_limit=-1))
    refused("nan", lambda: opened(path, stall_limit=float("nan") if one else 1.0))
    if WORLD.size > 1:
        refused("schema", lambda: turbidite.Writer(path, {"key": "f8" if one else "f4"}, key="key", comm=WORLD))
        refused("different ones", lambda: opened(path, indexes=["key"] if one else []), local)
        refused("on rank 0", lambda: opened(path, indexes="nothing" if one else "key"))
        half = WORLD.Split(WORLD.rank % 2)
        between = half.Create_intercomm(0, WORLD, 1 - WORLD.rank % 2)
        refused("intracommunicator", lambda: opened(path, comm=between), local)
        between.Free()
    with opened(path) as writer:
        refused("rank=0", lambda: writer.append(FINE, rank=0), local)
        refused("outside an epoch", lambda: writer.append(FINE), local)
        with writer.epoch(1):
            writer.append(FINE)
        refused("epoch 1 already exists", lambda: writer.epoch(1).__enter__(), turbidite.OperationError)
        if WORLD.size > 1:

            def differ():
                with writer.epoch(50 + one):
                    writer.append(FINE)

            refused("began epoch", differ, turbidite.OperationError)
    refused("is closed", lambda: writer.append(FINE), local)
    writer.close()
    with opened(path, if_exists="skip") as writer, writer.epoch(1) as begun:
        assert not begun
    with opened(path, if_exists="replace") as writer, writer.epoch(1):
        writer.append({"key": FINE["key"][:10]})
    assert turbidite.open(path).query().count() == 10 * WORLD.size


def two_writers(path):
    """Two datasets are written at the same time, and ranks end their epochs in another order of appends."""
    with opened(f"{path}-a") as first, opened(f"{path}-b", comm=WORLD.Dup()) as second:
        with first.epoch(1), second.epoch(2):
            for writer in (first, second) if WORLD.rank % 2 else (second, first):
                for _ in range(20):
                    writer.append(FINE)
    assert [turbidite.open(f"{path}-{one}").query().count() for one in "ab"] == [20_000 * WORLD.size] * 2


def parts_of_the_world(path):
    """Each communicator writes a dataset of its own."""
    half = WORLD.Split(WORLD.rank % 2)
    with opened(f"{path}-{WORLD.rank % 2}", comm=half) as writer, writer.epoch(1):
        writer.append(FINE)
    with opened(f"{path}-self-{WORLD.rank}", comm=MPI.COMM_SELF) as writer, writer.epoch(1):
        writer.append(FINE)
    assert turbidite.open(f"{path}-{WORLD.rank % 2}").query().count() == 1000 * half.size
    assert turbidite.open(f"{path}-self-{WORLD.rank}").query().count() == 1000


def finalized(path):
    """MPI ends before the writer does."""
    writer = opened(path)
    with writer.epoch(1):
        writer.append(FINE)
    MPI.Finalize()
    refused("after MPI.Finalize", lambda: writer.epoch(2).__enter__())
    refused("after MPI.Finalize", writer.close)
    writer.close()
    refused("after MPI.Finalize", lambda: opened(path))
    assert turbidite.open(path).query().count() == 1000 * int(os.environ.get("RANKS", "1"))


def not_initialized(path):
    refused("MPI.Init()", lambda: opened(path))
    MPI.Init()
    with opened(path) as writer, writer.epoch(1):
        writer.append(FINE)
    MPI.Finalize()


def collected(path):
    """A writer is garbage on some ranks, within an epoch or between two."""
    for number in range(4):
        writer = opened(f"{path}-{number}", stall_limit=1)
        context = writer.epoch(1) if number % 2 else None
        if context is not None:
            context.__enter__()
        if number >= 2 and WORLD.rank == 0:
            writer._core.abandon()
        del writer, context
        gc.collect()
    WORLD.Barrier()


def left_at_exit(path):
    global KEPT
    KEPT = opened(path)
    KEPT._core.begin_epoch(1)
    KEPT.append(FINE)


def missing(path):
    """A rank does not come to the epoch: the others have an exception, and closing waits for nobody."""
    writer = opened(path, stall_limit=0.3)
    if WORLD.rank != WORLD.size - 1:
        refused("rank", lambda: writer.epoch(1).__enter__(), turbidite.OperationError)
        refused("", writer.close, turbidite.OperationError)
        refused("is closed", lambda: writer.append(FINE))
    WORLD.Barrier()
    if WORLD.rank == WORLD.size - 1:
        writer._core.abandon()


def raises_outside(path):
    """An exception outside of epochs on one rank: `python -m mpi4py` ends the job."""
    with opened(path) as writer:
        if WORLD.rank == 0:
            raise ZeroDivisionError("outside")
        with writer.epoch(1):
            writer.append(FINE)


def forked(path):
    """A forked process has no part in the writer of its parent."""
    writer = opened(path)
    with writer.epoch(1):
        writer.append(FINE)
        child = os.fork()
        if child == 0:
            refused("fork", lambda: writer.append(FINE), turbidite.UsageError)
            refused("fork", lambda: opened(path), turbidite.UsageError)
            writer.close()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    writer.close()
    assert turbidite.open(path).query().count() == 1000 * WORLD.size


def threads(path):
    """Below MPI's level "serialized" only its own thread may write; above, any."""
    allowed = MPI.Query_thread() >= MPI.THREAD_SERIALIZED
    found = []
    with opened(path) as writer, writer.epoch(1):
        writer.append(FINE)

        def append():
            try:
                found.append(writer.append(FINE))
            except turbidite.UsageError as error:
                found.append(str(error))

        other = threading.Thread(target=append)
        other.start()
        other.join()
    assert (found == [1000]) if allowed else ("thread" in found[0]), found
    assert turbidite.open(path).query().count() == (2000 if allowed else 1000) * WORLD.size


def no_library(path):
    """The last rank has no library for its MPI, and all say so."""
    if WORLD.rank != WORLD.size - 1:
        os.environ["TURBIDITE_MPI_LIBRARIES"] = os.environ["LIBRARIES"]
    try:
        opened(path)
    except turbidite.OperationError as error:
        os.write(1, f"said: {error}\n".encode())


if __name__ == "__main__":
    import mpi4py

    mpi4py.rc.thread_level = os.environ.get("LEVEL", "multiple")
    mpi4py.rc.initialize = sys.argv[1] != "not_initialized"
    from mpi4py import MPI

    WORLD = MPI.COMM_WORLD
    globals()[sys.argv[1]](sys.argv[2])
    os.write(1, b"passed\n")
