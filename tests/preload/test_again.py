"""Files that a program writes again when their epoch is indexed already: the dataset has what they hold in the end, once,
whatever is asked for epochs of earlier runs; and where that cannot be had, what it had before."""

import sys

import pytest

from support.preload import SMALL, check_rows, complaints, configure, run, written

MODES = ["keep", "replace"]
EPOCHS = (1, 2, 3)

# As a program: HABIT OUT. Epochs 1 to 3 of two files each, then files of epoch 1 again: it was indexed when epoch 2 began.
PROGRAM = """
import os, struct, sys
habit, out = sys.argv[1:]

def write(epoch, part, kind=0, mode="wb", header=b"12345678", more=b""):
    rows = b"".join(struct.pack("<dQ", kind + number * 7919 % 1000, number + 1000 * part) for number in range(1000))
    with open(f"{out}/E.{epoch}/rows.{part}", mode) as file:
        file.write(header + rows + more)

for epoch in (1, 2, 3):
    for part in (0, 1):
        write(epoch, part)
if habit == "both":
    write(1, 0, 5000)
    write(1, 1, 5000)
elif habit == "many times":
    for kind in (5000, 6000, 7000):
        write(1, 0, kind)
        write(4 + kind // 1000, 0)
        write(1, 1, kind)
        write(5 + kind // 1000, 0)
elif habit == "one":
    write(1, 1, 5000)
elif habit == "in pieces":
    for part in (0, 1):
        write(1, part, 5000)
        write(1, part, 6000, "ab", b"")
elif habit == "append":
    write(1, 0, 5000)
    write(1, 1, 5000, "ab", b"")
elif habit == "broken":
    write(1, 0, 5000)
    write(1, 1, 5000, more=b"123")
elif habit == "renamed":
    for part in (0, 1):
        os.rename(f"{out}/E.1/rows.{part}", f"{out}/E.1/old.{part}") if os.path.exists(f"{out}/E.1/rows.{part}") else None
        write(1, part, 5000)
"""


def write(tmp_path, spool, habit: str, mode: str, **options) -> tuple[str, dict[str, bytes], dict[str, bytes]]:
    """Runs the program without and with us; what it said, its files, and those it has to leave."""
    for folder in ("plain", "out"):
        for epoch in range(1, 13):
            (tmp_path / folder / f"E.{epoch}").mkdir(parents=True)
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": mode, "spool": spool} | options))
    run([sys.executable, "-c", PROGRAM, habit, tmp_path / "plain"], None)
    said = complaints(run([sys.executable, "-c", PROGRAM, habit, tmp_path / "out"], config))
    return said, written(tmp_path / "out"), written(tmp_path / "plain")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("if_exists", ["error", "skip", "replace"])
@pytest.mark.parametrize("habit", ["both", "many times", "in pieces"])
def test_the_last_content_is_indexed(tmp_path, spool, habit, if_exists, mode):
    options = {} if if_exists == "error" else {"if_exists": if_exists}
    said, files, expected = write(tmp_path, spool, habit, mode, **options)
    if habit == "many times" and mode == "replace":
        # Now and then only one of the two was written anew when a later epoch began.
        assert "was removed after it was indexed, and was not rewritten with the others of its epoch" in said
        assert {path for path in files} <= {"E.1/rows.0", "E.1/rows.1"}
    else:
        assert said == "" and files == (expected if mode == "keep" else {})
    check_rows(tmp_path / "ds", SMALL, expected)


def first(expected: dict[str, bytes]) -> dict[str, bytes]:
    """The files before they are written again: those of epoch 1 are like those of epoch 2."""
    return expected | {f"E.1/rows.{part}": expected[f"E.2/rows.{part}"] for part in (0, 1)}


@pytest.mark.parametrize("habit", ["one", "append"])
def test_kept_files_are_all_indexed(tmp_path, spool, habit):
    said, files, expected = write(tmp_path, spool, habit, "keep")
    assert said == "" and files == expected
    check_rows(tmp_path / "ds", SMALL, expected)


@pytest.mark.parametrize("if_exists", ["skip", "replace"])
@pytest.mark.parametrize(
    "habit, what",
    [
        ("one", "E.1/rows.0: was removed after it was indexed, and was not rewritten with the others of its epoch"),
        ("append", "E.1/rows.1: was removed after it was indexed, and the file at its path now was not rewritten from its start"),
    ],
)
def test_records_of_removed_files_are_not_lost(tmp_path, spool, habit, what, if_exists):
    """The epoch cannot be made of the new files alone; they stay."""
    said, files, expected = write(tmp_path, spool, habit, "replace", if_exists=if_exists)
    assert said.count("\n") == 1 and what in said, said
    assert "the files of epoch 1 stay as the program wrote them; the dataset keeps the previous version" in said
    assert set(files) == ({"E.1/rows.1"} if habit == "one" else {"E.1/rows.0", "E.1/rows.1"})
    assert files.get("E.1/rows.0") in (None, expected["E.1/rows.0"])
    appended = expected["E.1/rows.1"] if habit == "one" else expected["E.1/rows.1"][16008:]
    assert files["E.1/rows.1"] == appended
    check_rows(tmp_path / "ds", SMALL, first(expected))


@pytest.mark.parametrize("mode", MODES)
def test_a_broken_file_leaves_what_was_indexed(tmp_path, spool, mode):
    said, files, expected = write(tmp_path, spool, "broken", mode)
    assert "E.1/rows.1: has 16011 bytes" in said and "the dataset keeps the previous version" in said
    assert files == {path: content for path, content in expected.items() if mode == "keep" or path.startswith("E.1/")}
    check_rows(tmp_path / "ds", SMALL, first(expected))


def test_files_that_are_moved_away_first(tmp_path, spool):
    said, files, expected = write(tmp_path, spool, "renamed", "keep")
    assert said == "" and files == expected and "E.1/old.0" in files
    check_rows(tmp_path / "ds", SMALL, expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("habit", ["again", "again-more"])
def test_one_of_several_ranks_writes_again(programs, tmp_path, spool, habit, mode):
    """The others' files are part of the epoch; where they are gone, it stays as it was."""
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": mode, "spool": spool}))
    run([programs["mpi_writer"], habit, tmp_path / "plain"], None, ranks=2)
    run([programs["mpi_writer"], "plain", tmp_path / "first"], None, ranks=2)
    said = complaints(run([programs["mpi_writer"], habit, tmp_path / "out"], config, ranks=2))
    expected, before = written(tmp_path / "plain"), written(tmp_path / "first")
    if mode == "keep":
        assert said == "" and written(tmp_path / "out") == expected
        return check_rows(tmp_path / "ds", SMALL, expected)
    assert said.count("\n") == 1 and "was removed after it was indexed" in said, said
    appended = expected["E.1/rows.1"] if habit == "again" else expected["E.1/rows.1"][len(before["E.1/rows.1"]) :]
    assert written(tmp_path / "out") == {"E.1/rows.1": appended}
    check_rows(tmp_path / "ds", SMALL, before)
