"""Progress on request: truthful numbers, bars for those who look, and callables that may end a call."""

import os
import pty
import subprocess
import sys

import numpy
import pytest
import turbidite

from support.command import AMPLE_S, ROOT, answer
from support.pipes import replace_parts_by_pipes
from support.vpic import DERIVATIONS

pytestmark = pytest.mark.serial

THRESHOLD = 0.5


class Told(list):
    """A callable that keeps what it is told."""

    def __call__(self, done: int, total: int) -> None:
        self.append((done, total))

    def check(self, total: int) -> None:
        """The numbers ascend to the expected total."""
        assert self[-1] == (total, total)
        assert self == sorted(self) and len(set(self)) == len(self)
        assert all(0 <= done <= of <= total for done, of in self)



def chosen(dataset, threshold: float) -> int:
    """Row groups that may have a key above the threshold, by the list of the package."""
    groups = [group for label in dataset.epochs for group in dataset.row_groups(label)]
    return sum(group["keys"] is not None and group["keys"][1] > threshold for group in groups)


def every(dataset) -> int:
    return sum(len(dataset.row_groups(label)) for label in dataset.epochs)


QUERIES = {
    "to_numpy": lambda query: query.to_numpy(),
    "to_arrow": lambda query: query.to_arrow(),
    "to_pandas": lambda query: query.to_pandas(),
    "to_polars": lambda query: query.to_polars(),
    "batches": lambda query: list(query),
    "count": lambda query: query.count(),
}


@pytest.mark.parametrize("order", [None, "key"])
@pytest.mark.parametrize("use", QUERIES)
def test_queries_count_the_row_groups_of_their_plan(small_dataset, use, order):
    told = Told()
    dataset = turbidite.open(small_dataset.path, progress=told)
    for where, total in ((f"energy > {THRESHOLD}", chosen(dataset, THRESHOLD)), (None, every(dataset))):
        told.clear()
        QUERIES[use](dataset.query(where, columns=["id", "energy"], order=order))
        told.check(total)
    assert 0 < chosen(dataset, THRESHOLD) < every(dataset)


def test_a_query_that_reads_nothing_tells_nothing(small_dataset):
    told = Told()
    dataset = turbidite.open(small_dataset.path, progress=told)
    assert dataset.query("energy > 1e30").count() == 0
    assert len(dataset.query(epochs=[]).to_numpy()["id"]) == 0
    dataset.histogram("energy", source="bounds")
    dataset.quantiles("energy", source="bounds")
    assert told == []


def test_a_limit_ends_at_the_total(small_dataset):
    told = Told()
    dataset = turbidite.open(small_dataset.path, progress=told)
    assert len(dataset.query(limit=3).to_numpy()["id"]) == 3
    told.check(every(dataset))
    assert turbidite.open(small_dataset.path).query(limit=3).count() == 3


def test_distributions_tell_what_they_read(small_dataset):
    told = Told()
    dataset = turbidite.open(small_dataset.path, progress=told)
    range_of = ((-1.0, 1.0), (-1.0, 1.0))
    hot = f"energy > {THRESHOLD}"
    for where, ranges, total in ((hot, range_of, chosen(dataset, THRESHOLD)), (hot, None, 2 * chosen(dataset, THRESHOLD)),
                                 (None, range_of, every(dataset))):  # fmt: skip
        told.clear()
        dataset.phase_space("ux", "uy", where=where, range=ranges, bins=8)
        told.check(total)
        assert {of for _, of in told} <= {0, total}
    told.clear()
    # All values are in one cell, or in the two on both sides of 0: each row group that has both is read.
    dataset.histogram("ux", bins=1, range=(0, 1e30))
    rows = {label: small_dataset.epochs[label] for label in dataset.epochs}
    assert told and told[-1][0] == told[-1][1] <= every(dataset)
    told.clear()
    [median] = dataset.quantiles("ux", 0.5)
    values = numpy.sort(numpy.concatenate([epoch["ux"] for epoch in rows.values()]))
    assert median.estimate == values[(len(values) + 1) // 2 - 1]
    assert told and told[-1][0] == told[-1][1] and told == sorted(told)


def test_tracks_count_what_they_need_not_read(small_dataset):
    told = Told()
    dataset = turbidite.open(small_dataset.path, progress=told)
    at = dataset.epochs[-1]
    first = sum(group["keys"] is not None and group["keys"][1] > THRESHOLD for group in dataset.row_groups(at))
    for of, limit in ((f"energy > {THRESHOLD}", None), (f"energy > {THRESHOLD}", 2)):
        told.clear()
        dataset.tracks(of=of, at=at, id="id", limit=limit).to_numpy()
        told.check(first + every(dataset))
    told.clear()
    assert len(dataset.tracks(of="energy > 0.1 and energy < 0", at=at, id="id").to_numpy()["id"]) == 0
    assert told[-1][0] == told[-1][1] >= every(dataset)


class Enough(Exception):
    pass


def raising(done: int, total: int) -> None:
    raise Enough(f"{done} of {total}")


@pytest.mark.parametrize(
    "use",
    [
        *QUERIES.values(),
        lambda query: query._dataset.tracks(of="energy > 0", at=query._dataset.epochs[0], id="id").to_numpy(),
        lambda query: query._dataset.phase_space("ux", "uy"),
        lambda query: query._dataset.histogram("ux"),
        lambda query: query._dataset.quantiles("ux"),
    ],
)
def test_an_exception_ends_the_call_and_is_the_one_that_is_raised(small_dataset, use):
    dataset = turbidite.open(small_dataset.path, progress=raising)
    query = dataset.query("ux > 0")
    with pytest.raises(Enough, match="of"):
        use(query)
    dataset.progress = False
    assert dataset.query("ux > 0").count() == sum((epoch["ux"] > 0).sum() for epoch in small_dataset.epochs.values())


def test_the_numbers_are_those_of_what_was_read(small_dataset, tmp_path):
    """Most parts of the last epoch are pipes that nobody fills: only the other epochs can be read."""
    path = tmp_path / "run.tbd"
    subprocess.run(["cp", "-r", small_dataset.path, path], check=True)
    last = turbidite.open(path).epochs[-1]
    read = sum(len(turbidite.open(path).row_groups(label)) for label in turbidite.open(path).epochs[:-1])
    total = every(turbidite.open(path))
    # The first part belongs to the check of the manifest. All parts are opened before any is read.
    first = turbidite.open(path).row_groups(last)[0]["file"]
    replace_parts_by_pipes(path, last, keep=first)
    program = f"""
import os, turbidite
told = []
def tell(*numbers):
    told.append(numbers)
    if numbers == ({read}, {total}):
        raise KeyError("enough")
try:
    turbidite.open("run.tbd", progress=tell).query(threads=1).to_numpy()
except KeyError as error:
    print(error, told == sorted(told))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=AMPLE_S)
    assert done.stdout == "'enough' True\n", done.stderr


def test_a_written_file_tells_its_row_groups(small_dataset, tmp_path):
    told = Told()
    dataset = turbidite.open(small_dataset.path, progress=told)
    dataset.query(f"energy > {THRESHOLD}").write(tmp_path / "hot.parquet")
    told.check(chosen(dataset, THRESHOLD))
    dataset.progress = raising
    with pytest.raises(Enough):
        dataset.query().write(tmp_path / "none.parquet")
    with pytest.raises(turbidite.UsageError, match="colour"):
        dataset.query("colour > 1").write(tmp_path / "none.parquet")


def test_ingest_tells_bytes(tmp_path):
    source = ROOT / "testdata" / "vpic"
    told = Told()
    report = turbidite.ingest(source, tmp_path / "a.tbd", key="energy", derive=DERIVATIONS, progress=told)
    told.check(report["rows"] * 32)
    told.clear()
    turbidite.ingest(source, tmp_path / "a.tbd", key="energy", derive=DERIVATIONS, if_exists="skip", progress=told)
    told.check(report["rows"] * 32)
    with pytest.raises(turbidite.UsageError, match="speed"):
        turbidite.ingest(source, tmp_path / "b.tbd", key="speed", progress=told)
    with pytest.raises(Enough):
        turbidite.ingest(source, tmp_path / "a.tbd", key="energy", derive=DERIVATIONS, if_exists="replace", progress=raising)
    # The command has ended, and another one may write.
    turbidite.ingest(source, tmp_path / "a.tbd", key="energy", derive=DERIVATIONS, if_exists="replace", progress=True)
    assert turbidite.open(tmp_path / "a.tbd").query().count() == report["rows"]
    # The ended command leaves an unfinished epoch at most.
    assert {finding["kind"] for finding in answer("verify", tmp_path / "a.tbd")["findings"]} <= {"notice"}


COMMAND = """#!/bin/sh
[ "$1" = --version ] && echo "turbidite {release}" && exit
echo $$ > {folder}/process
echo '{{"progress": {{"done": 1, "total": 2}}}}' >&2
{rest}
"""


def command_that(rest: str, folder) -> None:
    """Makes a command that tells its progress once, and then does `rest`."""
    program = folder / "turbidite"
    program.write_text(COMMAND.format(release=turbidite.__version__, folder=folder, rest=rest))
    program.chmod(0o755)


def test_an_exception_ends_a_command_that_works(tmp_path, monkeypatch):
    # A pipe that nobody fills keeps the command working for ever.
    os.mkfifo(tmp_path / "pipe")
    command_that(f"exec cat {tmp_path}/pipe", tmp_path)
    monkeypatch.setenv("TURBIDITE", str(tmp_path / "turbidite"))
    with pytest.raises(Enough):
        turbidite.ingest(tmp_path, tmp_path / "run.tbd", key="ux", progress=raising)
    assert not os.path.exists(f"/proc/{(tmp_path / 'process').read_text().strip()}")


def test_a_line_mixed_with_another_programs_output_is_no_progress(tmp_path, monkeypatch):
    error = '{"error": {"class": "usage", "message": "there is no column \'speed\'"}}'
    command_that(f"""echo '{{"progress": {{"done": 2, warning' >&2
echo '{{"progress": [3]}}' >&2
cat >&2 <<'END'
{error}
END
exit 2""", tmp_path)
    monkeypatch.setenv("TURBIDITE", str(tmp_path / "turbidite"))
    told = Told()
    with pytest.raises(turbidite.UsageError, match="no column 'speed'"):
        turbidite.ingest(tmp_path, tmp_path / "run.tbd", key="ux", progress=told)
    assert list(told) == [(1, 2)]


BAR = """
import sys, turbidite, turbidite._progress
turbidite._progress._DELAY_S = turbidite._progress._INTERVAL_S = 0
dataset = turbidite.open(sys.argv[1], progress=True)
print(dataset.query("energy > 0.5").count(), len(list(dataset.query(order="key"))) > 0)
turbidite.ingest(sys.argv[2], "new.tbd", key="ux", progress=True)
"""


def test_a_bar_is_drawn_on_a_terminal_and_erased(small_dataset, tmp_path):
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", BAR, str(small_dataset.path), str(ROOT / "testdata" / "vpic")],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=inner, text=True,
    )  # fmt: skip
    os.close(inner)
    drawn = b""
    while True:
        try:
            part = os.read(outer, 1 << 16)
        except OSError:  # The terminal's other side is closed.
            break
        if not part:
            break
        drawn += part
    os.close(outer)
    said, _ = process.communicate(timeout=AMPLE_S)
    assert process.returncode == 0, drawn.decode()
    dataset = turbidite.open(small_dataset.path)
    assert said == f"{dataset.query('energy > 0.5').count()} True\n"
    text = drawn.decode()
    total = chosen(dataset, THRESHOLD)
    assert f"[##############################] {total:,} of {total:,} row groups" in text
    assert "MB of" in text or "kB of" in text
    assert "\n" not in text and all(len(line) < 80 for line in text.split("\r"))
    assert text.endswith("\r") and not text.split("\r")[-2].strip(), "the last bar is erased"


def test_nothing_is_drawn_where_nobody_looks(small_dataset, tmp_path):
    command = [sys.executable, "-c", BAR, str(small_dataset.path), str(ROOT / "testdata" / "vpic")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=AMPLE_S)
    assert (done.returncode, done.stderr) == (0, "")


class NoStream:
    """What a program may put in the place of standard error."""


@pytest.mark.parametrize("closed", [False, True])
def test_a_standard_error_that_is_no_terminal_fails_no_query(small_dataset, monkeypatch, tmp_path, closed):
    with (tmp_path / "log").open("w") as log:
        pass
    monkeypatch.setattr("sys.stderr", log if closed else NoStream())
    assert turbidite.open(small_dataset.path, progress=True).query().count() > 0


@pytest.mark.parametrize("progress", [1, None, "yes"])
def test_what_is_no_progress_is_refused(small_dataset, tmp_path, progress):
    with pytest.raises(turbidite.UsageError, match="progress"):
        turbidite.open(small_dataset.path, progress=progress)
    with pytest.raises(turbidite.UsageError, match="progress"):
        turbidite.open(small_dataset.path).progress = progress
    with pytest.raises(turbidite.UsageError, match="progress"):
        turbidite.ingest(ROOT / "testdata" / "vpic", tmp_path / "no.tbd", key="ux", progress=progress)
