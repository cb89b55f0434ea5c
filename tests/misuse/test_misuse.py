"""Mistakes of programs in C, C++, Fortran and Python: each is told where users look, and what is on disk is right or not there.

`cases.py` is the table of mistakes and languages."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy
import pytest
import turbidite as package
from misuse.cases import LANGUAGES, MISUSES, Cell
from misuse.program import COUNT, HALF, ROWS, misuse
from support.command import AMPLE_S, ROOT, answer, turbidite
from support.mpi import run
from support.small_disk import can_mount, in_namespace, limit_file_size

CELLS = [(name, language) for name, row in MISUSES.items() for language in LANGUAGES if isinstance(row[language], Cell)]
COMPILED = ("c", "cpp", "fortran")
Program = Callable[[str], Path]


def said_by(done: subprocess.CompletedProcess) -> list[str]:
    """What a program printed. Its statuses have the same messages."""
    assert done.returncode == 0 and done.stdout.endswith("done\n"), (done.returncode, done.stdout, done.stderr)
    for line in done.stderr.splitlines():
        assert re.search(f"^[1-3] {re.escape(line)}$", done.stdout, re.MULTILINE), (line, done.stdout)
    return done.stderr.splitlines()


def write(program: Program, language: str, mistake: str, dataset: Path) -> list[str]:
    """Runs the program of a language. Returns what is said of its mistake."""
    if language == "python":
        return misuse(mistake, dataset)
    # An empty path, if it were taken, would be this folder.
    return said_by(run(program(language), mistake, dataset, cwd=program(language).parent))


def check_said(said: list[str], lines: tuple[str, ...], dataset: Path) -> None:
    patterns = [re.escape(line.replace("DS", str(dataset))).replace("…", ".+") for line in lines]
    assert len(said) == len(patterns) and all(map(re.fullmatch, patterns, said)), said


def check_disk(dataset: Path, epochs: tuple[int, ...] | None, rows: int = COUNT) -> None:
    """These epochs are on disk, with these rows, and nothing else is left."""
    if epochs is None:
        assert not (dataset / "_turbidite").exists()
        return
    assert answer("verify", dataset)["findings"] == [] and answer("salvage", dataset)["unfinished"] == []
    control = dataset / "_turbidite"
    assert not (control / "lock").exists() and list((control / "tmp").iterdir()) == []
    check_rows(dataset, epochs, rows)


def check_rows(dataset: Path, epochs: tuple[int, ...], rows: int = COUNT) -> None:
    found = package.open(dataset)
    assert tuple(found.epochs) == epochs
    for epoch in epochs:
        columns = found.query(epochs=epoch).to_numpy()
        order = numpy.argsort(columns["id"])
        assert len(order) == rows
        for name, values in ROWS.items():
            assert columns[name][order].tobytes() == values[:rows].tobytes(), (epoch, name)


def prepare(program: Program, mistake: str, dataset: Path) -> Path:
    """Makes what the mistake meets, and returns the dataset's path."""
    if mistake in ("exists", "skipped", "schema"):
        assert write(program, "c", "right", dataset) == []
    elif mistake == "parent":
        dataset.write_text("a file")
        return dataset / "ds"
    elif mistake == "occupied":
        dataset.mkdir()
        (dataset / "notes").write_text("text")
    return dataset


@pytest.mark.parametrize(("mistake", "language"), CELLS)
def test_a_mistake(program, mistake, language, tmp_path):
    dataset = prepare(program, mistake, tmp_path / "ds")
    cell = MISUSES[mistake][language]
    check_said(write(program, language, mistake, dataset), cell.lines, dataset)
    if mistake == "open":
        assert [(left["epoch"], left["bytes"]) for left in answer("salvage", dataset)["unfinished"]] == [(9, 0)]
        # The next writer removes the folder of the open epoch.
        turbidite("truncate", dataset, "--after", 3)
    check_disk(dataset, cell.epochs)


def test_each_cell_has_a_mistake_or_a_reason():
    assert all(set(row) == set(LANGUAGES) for row in MISUSES.values())


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_mistake(program, language, tmp_path):
    assert write(program, language, "right", tmp_path / "ds") == []
    check_disk(tmp_path / "ds", (1, 2, 3))
    assert write(program, language, "replaces", tmp_path / "ds") == []
    check_disk(tmp_path / "ds", (1, 2, 3), HALF)


@pytest.mark.parametrize("language", LANGUAGES)
def test_one_value_for_all_records(program, language, tmp_path):
    assert write(program, language, "constant", tmp_path / "ds") == []
    rows = package.open(tmp_path / "ds").query(epochs=2).to_numpy()
    assert set(rows["energy"].tolist()) == {0.0} and sorted(rows["id"].tolist()) == list(range(COUNT))


@pytest.mark.parametrize("language", COMPILED)
def test_printing_is_turned_off(program, language, tmp_path):
    run(program(language), "right", tmp_path / "ds")
    done = run(program(language), "silent", tmp_path / "ds")
    assert done.stderr == "" and done.stdout.count("already exists") == 3
    check_disk(tmp_path / "ds", (1, 2, 3))


@pytest.mark.parametrize("language", COMPILED)
def test_a_dataset_that_is_not_opened(program, language, tmp_path):
    """One that cannot be opened is told of once. Afterwards, another one that was never opened is told of, too."""
    said = said_by(run(program(language), "unopened", tmp_path / "ds"))
    assert len(said) == 2 and said[0].startswith("turbidite_open: ") and "/dev/null/ds" in said[0], said
    assert said[1] == "turbidite_begin_epoch: dataset: is NULL: it is closed, or was not opened"


@contextmanager
def lock_of(program: Program, dataset: Path) -> Iterator[subprocess.Popen]:
    """A program that has the dataset open."""
    command = [program("c"), "holds", dataset]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "open\n"
        yield holder
        holder.communicate("\n", timeout=AMPLE_S)
        assert holder.returncode == 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_lock_of_a_running_writer(program, language, tmp_path):
    """No option breaks it, and the message does not propose one."""
    dataset = tmp_path / "ds"
    with lock_of(program, dataset) as holder:
        for mistake in ("right", "breaks"):
            [said] = write(program, language, mistake, dataset)
            assert f"{dataset}/_turbidite/lock is locked by a writer that is running: pid {holder.pid} on " in said, said
            assert "break" not in said and "delete" not in said, said
    check_disk(dataset, ())
    assert write(program, language, "right", dataset) == []
    check_disk(dataset, (1, 2, 3))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_lock_of_another_host(program, language, tmp_path):
    """The message says how it is broken."""
    dataset = tmp_path / "ds"
    lock = dataset / "_turbidite" / "lock"
    with lock_of(program, dataset):
        holder = json.loads(lock.read_text())
    lock.write_text(json.dumps(holder | {"host": "elsewhere"}))
    [said] = write(program, language, "right", dataset)
    advice = "delete this file" if language == "python" else "break_lock takes over the lock"
    assert f"{lock} is locked by process {holder['process']} on elsewhere" in said, said
    assert "it is on another host; if that process is certainly gone, " in said and said.endswith(advice), said
    assert package.open(dataset).epochs == []
    if language == "python":
        lock.unlink()
    assert write(program, language, "breaks", dataset) == []
    check_disk(dataset, (1, 2, 3))


PYTHON = "import sys, misuse.program; print(*misuse.program.misuse(*sys.argv[1:]), sep='\\n', file=sys.stderr); print('done')"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_folder_that_cannot_be_written(program, language, tmp_path):
    python = ["env", f"PYTHONPATH={ROOT / 'tests'}:{Path(package.__file__).parents[1]}", sys.executable, "-c", PYTHON]
    command = python if language == "python" else [program(language)]
    if can_mount(tmp_path):
        done = in_namespace('mount -t tmpfs -o ro none "$1"; shift; exec "$@"', tmp_path, *command, "right", tmp_path / "ds")
    else:
        tmp_path.chmod(0o555)
        done = run(*command, "right", tmp_path / "ds")
    [said] = done.stderr.splitlines() if language == "python" else said_by(done)
    assert re.search(f"cannot create {tmp_path}/ds.*: (Read-only file system|Permission denied)", said), said
    check_disk(tmp_path / "ds", None)


MOUNTED = 'mount -t tmpfs -o size=6m none "$1"; disk=$1; copy=$2; shift 2; "$@"; cp -a "$disk/ds" "$copy"'
LIMIT = 4 << 20


@pytest.mark.parametrize("how", ["disk", "limit"])
@pytest.mark.parametrize("language", COMPILED)
def test_no_room(program, language, how, tmp_path):
    """A file system of 6 MB, and a limit on the size of files, which stands in for one where mounting is not allowed: the
    second epoch fails, and the next one fits. Python's are in tests/limits."""
    dataset = tmp_path / "disk" / "ds"
    dataset.parent.mkdir()
    on_disk = how == "disk" and can_mount(tmp_path)
    if on_disk:
        said = said_by(in_namespace(MOUNTED, dataset.parent, tmp_path, program(language), "full", dataset))
        cause = "No space left on device (os error 28)"
    else:
        said = said_by(run(program(language), "full", dataset, preexec_fn=limit_file_size(LIMIT)))
        cause = f"File too large: this process may write at most {LIMIT} bytes to a file (RLIMIT_FSIZE); raise the limit …"
    line = f"turbidite_end_epoch: epoch 2 failed on rank 0: cannot write DS/_turbidite/tmp/2.….parquet: {cause}"
    check_said(said, (line,), dataset)
    left = tmp_path / "ds" if on_disk else dataset
    check_rows(left, (1, 3))
    assert {finding["kind"] for finding in answer("verify", left)["findings"]} <= {"notice"}
    [unfinished] = answer("salvage", left)["unfinished"]
    assert unfinished["epoch"] == 2, unfinished
    turbidite("salvage", left, "--discard")
    check_disk(left, (1, 3))
