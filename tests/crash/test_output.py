"""Files that a killed query was writing: nothing of them is left."""

import os
import shutil
import signal

import pytest

from support.command import AMPLE_S, start, turbidite

SUFFIXES = ("parquet", "arrow", "csv", "jsonl")


@pytest.fixture
def dataset(small_dataset, tmp_path):
    """A dataset whose parts are pipes, which keep a query waiting for ever."""
    shutil.copytree(small_dataset.path, tmp_path / "run.tbd")
    for part in tmp_path.glob("run.tbd/data/**/*.parquet"):
        part.unlink()
        os.mkfifo(part)
    return tmp_path / "run.tbd"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_killed_query_leaves_no_file(dataset, tmp_path, suffix, end):
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / f"old.{suffix}").write_text("kept")
    # A shell's background jobs ignore interrupts.
    usual = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    process = start("query", dataset, "--output", folder / f"old.{suffix}", **usual)
    while not any(name.startswith(str(folder)) for name in open_files(process.pid)):
        assert process.poll() is None, "the query has ended by itself"
    process.send_signal(end)
    process.communicate(timeout=AMPLE_S)
    assert process.returncode == -end
    assert [path.name for path in folder.iterdir()] == [f"old.{suffix}"]
    assert (folder / f"old.{suffix}").read_text() == "kept"


def open_files(process: int) -> list[str]:
    """Returns what the descriptors of a process name."""
    names = []
    for link in os.listdir(f"/proc/{process}/fd"):
        try:
            names.append(os.readlink(f"/proc/{process}/fd/{link}"))
        except FileNotFoundError:
            pass  # It was closed meanwhile.
    return names


def test_a_written_file_replaces_one_and_has_the_usual_permissions(small_dataset, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("old")
    mask = os.umask(0o027)
    try:
        turbidite("query", small_dataset.path, "--output", path, "--limit", 3)
    finally:
        os.umask(mask)
    assert len(path.read_text().splitlines()) == 4
    assert path.stat().st_mode & 0o777 == 0o640
    assert [found.name for found in tmp_path.iterdir() if found.name.startswith(".")] == []
