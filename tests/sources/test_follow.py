"""Sources that a simulation is still writing: `--complete-only` reads what is whole, `--follow` goes on as epochs appear."""

import json
import shutil
import signal
import threading

import h5py
import numpy
import pyarrow
import pytest
from pyarrow import parquet

from support import raw, vpic
from support.command import AMPLE_S, FAILED, USAGE, answer, start, turbidite
from support.source_files import write_lammps

DTYPE = numpy.dtype([("x", "<f8"), ("id", "<i8")])
ROWS = 1000


def rows_of(epoch: int, rank: int = 0) -> dict[str, numpy.ndarray]:
    return {"x": numpy.random.default_rng([epoch, rank]).standard_normal(ROWS), "id": numpy.arange(ROWS) + (rank << 20)}


def records(epoch: int, rank: int = 0) -> numpy.ndarray:
    made = numpy.empty(ROWS, DTYPE)
    for name, values in rows_of(epoch, rank).items():
        made[name] = values
    return made


def write_arrow(path, epoch: int, kind) -> None:
    table = pyarrow.table(rows_of(epoch))
    with pyarrow.OSFile(str(path), "wb") as sink, kind(sink, table.schema) as writer:
        writer.write_table(table)


def write_hdf5(path, epoch: int) -> None:
    with h5py.File(path, "w") as file:
        for name, values in rows_of(epoch).items():
            file[name] = values


# Sources of a file for each epoch, which show whether it is whole.
WRITERS = {
    "npz": lambda path, epoch: numpy.savez(path, **rows_of(epoch)),
    "npy": lambda path, epoch: numpy.save(path, records(epoch)),
    "arrow": lambda path, epoch: write_arrow(path, epoch, pyarrow.ipc.new_file),
    "arrows": lambda path, epoch: write_arrow(path, epoch, pyarrow.ipc.new_stream),
    "h5": write_hdf5,
    "lammpstrj": lambda path, epoch: write_lammps(path, {epoch: rows_of(epoch)}),
    "parquet": lambda path, epoch: parquet.write_table(pyarrow.table(rows_of(epoch)), path),
}
# The stream's end is the last 8 bytes.
CUT = {"arrows": 8, "lammpstrj": 1}


class Following:
    """A command that follows a source. Whatever hangs is killed."""

    def __init__(self, *arguments):
        self.process = start("ingest", *arguments, "--follow")
        self.timer = threading.Timer(AMPLE_S, self.process.kill)
        self.timer.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.timer.cancel()
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def line(self) -> str:
        return self.process.stdout.readline().rstrip("\n")

    def end(self, by: signal.Signals = signal.SIGTERM) -> tuple[str, str]:
        """Ends the command by a signal. Returns the rest of its output, and its messages."""
        self.process.send_signal(by)
        out, said = self.process.communicate()
        assert self.process.returncode == 0, said
        return out, said


def epochs(target) -> list[int]:
    assert answer("verify", target)["clean"]
    assert answer("salvage", target)["unfinished"] == []
    return [epoch["epoch"] for epoch in answer("inspect", target)["epochs"]]


@pytest.mark.parametrize("ending", WRITERS)
def test_only_whole_epochs_are_read(tmp_path, ending):
    for epoch in (1, 2, 3):
        WRITERS[ending](tmp_path / f"s_{epoch}.{ending}", epoch)
    content = (tmp_path / f"s_2.{ending}").read_bytes()
    cut = CUT.get(ending, len(content) // 2)
    (tmp_path / f"s_2.{ending}").write_bytes(content[:-cut])
    arguments = ["ingest", tmp_path / f"s_%T.{ending}", "--key", "x", "--out"]
    if ending not in CUT:
        turbidite(*arguments, tmp_path / "all", expect=FAILED)
    arguments.append(tmp_path / "ds")
    report = answer(*arguments, "--complete-only")
    assert [epoch["epoch"] for epoch in report["epochs"]] == [1, 3]
    [note] = [note for note in report["notes"] if note.startswith("epoch 2 is left out: ")]
    assert f"s_2.{ending}" in note
    assert epochs(tmp_path / "ds") == [1, 3]
    (tmp_path / f"s_1.{ending}").unlink()
    (tmp_path / f"s_3.{ending}").unlink()
    said = turbidite(*arguments, "--complete-only", expect=FAILED).stderr
    assert "there is no epoch that is whole" in said and f"s_2.{ending}" in said


def test_records_whose_number_nothing_states_need_a_later_epoch(tmp_path):
    raw.write_source(tmp_path / "run", {epoch: [records(epoch, rank) for rank in range(2)] for epoch in (1, 2, 3)})
    arguments = raw.ingest_arguments(tmp_path / "run", tmp_path / "ds", "x", "--complete-only", "--if-exists", "skip")
    report = answer(*arguments)
    assert [epoch["epoch"] for epoch in report["epochs"]] == [1, 2]
    [note] = report["notes"]
    assert "epoch 3 is left out" in note and "only a later epoch shows" in note
    (tmp_path / "run" / "E.2" / "records.1").unlink()
    notes = answer(*arguments)["notes"]
    assert any("epoch 2 is left out" in note and "records.1 is missing" in note for note in notes)


def test_a_layout_that_states_records_and_ranks_needs_no_later_epoch(tmp_path):
    """As the note advises."""
    run = tmp_path / "run"
    raw.write_source(run, {1: [records(1, rank) for rank in range(2)]})
    for rank in range(2):
        path = run / "E.1" / f"records.{rank}"
        path.write_bytes(ROWS.to_bytes(8, "little") + path.read_bytes())
    layout = run / "layout.toml"
    stated = layout.read_text().replace("header_bytes = 0", 'header_bytes = 8\nrecords = "i64@0"\nranks = 2')
    arguments = raw.ingest_arguments(run, tmp_path / "ds", "x", "--complete-only")
    for text in (stated.replace('records = "i64@0"\n', ""), stated.replace("ranks = 2\n", "")):
        layout.write_text(text)
        assert "there is no epoch that is whole" in turbidite(*arguments, expect=FAILED).stderr
    layout.write_text(stated)
    assert [epoch["rows"] for epoch in answer(*arguments)["epochs"]] == [2 * ROWS]
    last = run / "E.1" / "records.1"
    last.write_bytes(last.read_bytes()[: -DTYPE.itemsize])
    said = turbidite(*arguments[:-1], "--complete-only", "--if-exists", "replace", expect=FAILED).stderr
    assert "there is no epoch that is whole" in said and "records.1" in said, said


def test_parts_without_a_stated_number_need_a_later_epoch(tmp_path):
    for epoch in (1, 2):
        for rank in range(2):
            numpy.savez(tmp_path / f"s_{epoch}.{rank}.npz", **rows_of(epoch, rank))
    arguments = ["ingest", tmp_path / "s_%T.{rank}.npz", "--key", "x", "--complete-only"]
    report = answer(*arguments, "--out", tmp_path / "ds")
    assert [epoch["rows"] for epoch in report["epochs"]] == [2 * ROWS]
    assert "--source-ranks" in report["notes"][0]
    report = answer(*arguments, "--out", tmp_path / "all", "--source-ranks", 2)
    assert [epoch["rows"] for epoch in report["epochs"]] == [2 * ROWS, 2 * ROWS]


def test_text_that_may_name_parts_needs_a_later_epoch(tmp_path):
    """The second part may not exist yet. The pattern that the note proposes reads all steps."""
    write_lammps(tmp_path / "split.0.dump", {step: rows_of(step) for step in (0, 10)})
    arguments = ["ingest", "--key", "x", "--complete-only", "--out"]
    report = answer(*arguments, tmp_path / "one", tmp_path / "split.*.dump")
    assert [epoch["epoch"] for epoch in report["epochs"]] == [0]
    assert "epoch 10 is left out" in report["notes"][0] and "put {rank}" in report["notes"][0]
    write_lammps(tmp_path / "split.1.dump", {0: rows_of(0, 1)})
    report = answer(*arguments, tmp_path / "two", tmp_path / "split.{rank}.dump", "--source-ranks", 2)
    assert [epoch["rows"] for epoch in report["epochs"]] == [2 * ROWS]
    assert "epoch 10 is left out" in report["notes"][0] and "does not have step 10" in report["notes"][0]
    # Files that repeat steps are no parts.
    write_lammps(tmp_path / "split.1.dump", {step: rows_of(step, 1) for step in (10, 20)})
    said = turbidite(*arguments, tmp_path / "three", tmp_path / "split.*.dump", expect=FAILED).stderr
    assert "--if-repeated last" in said, said


@pytest.mark.parametrize("ending", WRITERS)
def test_epochs_are_read_as_they_appear(tmp_path, ending):
    pattern, target = tmp_path / f"s_%T.{ending}", tmp_path / "ds"
    with Following(pattern, "--out", target, "--key", "x") as following:
        assert "waiting for epochs: left out: " in following.process.stderr.readline()
        for epoch in (1, 2, 3):
            WRITERS[ending](tmp_path / f"s_{epoch}.{ending}", epoch)
            assert following.line() == f"epoch {epoch}: 1,000 rows"
        out, _ = following.end()
    assert "indexed 3,000 rows" in out
    assert epochs(target) == [1, 2, 3]
    # A second command goes on.
    with Following(pattern, "--out", target, "--key", "x") as following:
        assert [following.line() for _ in range(3)] == [f"epoch {epoch}: exists" for epoch in (1, 2, 3)]
        WRITERS[ending](tmp_path / f"s_4.{ending}", 4)
        assert following.line() == "epoch 4: 1,000 rows"
        following.end(signal.SIGINT)
    assert epochs(target) == [1, 2, 3, 4]


def test_a_text_that_grows(tmp_path):
    """The steps of a LAMMPS dump are read when their last line has its end."""
    write_lammps(tmp_path / "whole", {step: rows_of(step) for step in (0, 10, 20)})
    text = (tmp_path / "whole").read_text()
    second = text.index("ITEM: TIMESTEP\n10\n")
    with (
        open(tmp_path / "run.lammpstrj", "w") as file,
        Following(tmp_path / "run.lammpstrj", "--out", tmp_path / "ds", "--key", "x") as following,
    ):
        for begin, end, line in (
            (0, second + 2000, "epoch 0: 1,000 rows"),
            (second + 2000, len(text) - 1, "epoch 10: 1,000 rows"),
        ):
            file.write(text[begin:end])
            file.flush()
            assert following.line() == line
        _, said = following.end()
    assert "epoch 20 is left out" in said and "no line end" in said
    assert epochs(tmp_path / "ds") == [0, 10]


def test_dumps_of_vpic_and_raw_records(tmp_path):
    steps = sorted((path for path in vpic.sample_dumps().glob("T.*")), key=lambda path: int(path.name[2:]))[:3]
    (tmp_path / "vpic").mkdir()
    with Following(tmp_path / "vpic", "--out", tmp_path / "ds", "--key", "ux") as following:
        for step in steps:
            shutil.copytree(step, tmp_path / "vpic" / step.name)
            assert following.line().startswith(f"epoch {step.name[2:]}: ")
        following.end()
    assert epochs(tmp_path / "ds") == [int(step.name[2:]) for step in steps]
    raw.write_source(tmp_path / "raw", {1: [records(1, rank) for rank in range(2)]})
    with Following(*raw.ingest_arguments(tmp_path / "raw", tmp_path / "other", "x")[1:]) as following:
        for epoch in (2, 3):
            raw.write_epoch(tmp_path / "raw", epoch, [records(epoch, rank) for rank in range(2)])
            assert following.line() == f"epoch {epoch - 1}: 2,000 rows"
        _, said = following.end()
    assert "epoch 3 is left out" in said
    assert epochs(tmp_path / "other") == [1, 2]


def test_an_hdf5_file_is_whole_when_its_writer_has_closed_it(tmp_path):
    write_hdf5(tmp_path / "s_1.h5", 1)
    with Following(tmp_path / "s_%T.h5", "--out", tmp_path / "ds", "--key", "x") as following:
        assert following.line() == "epoch 1: 1,000 rows"
        with h5py.File(tmp_path / "s_2.h5", "w") as file:
            for name, values in rows_of(2).items():
                file[name] = values
            file.flush()
            write_hdf5(tmp_path / "s_3.h5", 3)
            # The second one is locked.
            assert following.line() == "epoch 3: 1,000 rows"
        assert following.line() == "epoch 2: 1,000 rows"
        _, said = following.end()
    assert "epoch 2 is truncated, and a later one is whole" in said
    assert "epoch 2 is late: it became whole after epoch 3" in said


def test_truncated_vanished_and_late_epochs_are_named(tmp_path):
    def write(epoch: int) -> None:
        WRITERS["npz"](tmp_path / f"s_{epoch}.npz", epoch)

    write(1)
    (tmp_path / "s_2.npz").write_bytes(b"PK\x03\x04")
    (tmp_path / "s_3.npz").write_bytes(b"PK\x03\x04")
    write(4)
    with Following(tmp_path / "s_%T.npz", "--out", tmp_path / "ds", "--key", "x") as following:
        assert [following.line() for _ in range(2)] == ["epoch 1: 1,000 rows", "epoch 4: 1,000 rows"]
        (tmp_path / "s_1.npz").unlink()
        (tmp_path / "s_3.npz").unlink()
        (tmp_path / "s_4.npz").write_bytes(b"PK\x03\x04")
        write(2)
        assert following.line() == "epoch 2: 1,000 rows"
        _, said = following.end()
    assert "epoch 2 is truncated, and a later one is whole: " in said and "epoch 2 is late" in said
    assert "epoch 3 has vanished before it was whole" in said
    assert "s_1.npz has vanished after epoch 1 was read from it; the epoch stays" in said
    assert "s_4.npz has become shorter after epoch 4 was read from it; the epoch stays" in said
    assert epochs(tmp_path / "ds") == [1, 2, 4]


def test_the_lock_is_held_while_nothing_happens(tmp_path):
    WRITERS["npz"](tmp_path / "s_1.npz", 1)
    arguments = [tmp_path / "s_%T.npz", "--out", tmp_path / "ds", "--key", "x"]
    with Following(*arguments) as following:
        following.line()
        said = turbidite("ingest", *arguments, "--if-exists", "skip", expect=FAILED).stderr
        assert "another writer" in said or "lock" in said, said
        following.end()
    turbidite("ingest", *arguments, "--if-exists", "skip")


def test_a_report_in_json(tmp_path):
    WRITERS["npz"](tmp_path / "s_1.npz", 1)
    with Following(tmp_path / "s_%T.npz", "--out", tmp_path / "ds", "--key", "x", "--json") as following:
        assert json.loads(following.process.stderr.readline()) == {"committed": {"epoch": 1, "rows": 1000}}
        out, _ = following.end()
    assert json.loads(out)["rows"] == 1000


def test_options_that_do_not_fit_are_refused(tmp_path):
    WRITERS["npz"](tmp_path / "s_1.npz", 1)
    arguments = ["ingest", tmp_path / "s_%T.npz", "--out", tmp_path / "ds", "--key", "x", "--follow"]
    assert "omit --if-exists" in turbidite(*arguments, "--if-exists", "replace", expect=USAGE).stderr
    assert "not a column" in turbidite(*arguments[:-2], "y", "--follow", expect=USAGE).stderr
