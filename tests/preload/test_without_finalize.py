"""A rank that ends without MPI_Finalize: it waits for nobody, its files are in their places, and it says what is not
indexed. mpiexec ends the others then, which wait for it; what those had in the spool stays there."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from support.command import AMPLE_S
from support.preload import SMALL, check_rows, configure, run, start, stored, written

RANKS = 4
MODES = ["keep", "replace"]
# Which rank each habit of writer.c ends.
LEAVING = {"leave": RANKS - 1, "leave-first": 0, "leave-receiver": RANKS - 1, "abort": RANKS - 1}


@pytest.fixture
def left_spool():
    """A spool that files are left in."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="spool-", dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


def run_short(said: Path, *arguments, **options) -> tuple[int, str]:
    """Runs a program that ends early; what is left waiting fails. Under mpiexec the exit status may be that of a rank
    that was killed because of the one that left. What the ranks say goes to files in `said`: mpiexec drops lines of a rank
    that aborts when it reads them later than the call."""
    said.mkdir()
    process = start(*arguments, said=said, **options)
    try:
        process.communicate(timeout=AMPLE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, "".join(path.read_text() for path in said.iterdir())


def ended(said: str) -> list[str]:
    # The launcher ends the other ranks by a signal, of which the first one may say that it was ended.
    lines = [line for line in said.splitlines() if line.startswith("turbidite:")]
    return [line for line in lines if not re.search(": the program ended by SIG(TERM|CONT): ", line)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("epochs", [1, 12])
@pytest.mark.parametrize("habit", LEAVING)
def test_a_rank_that_leaves(programs, tmp_path, left_spool, habit, epochs, mode):
    rank, out = LEAVING[habit], tmp_path / "ds"
    options = {"mode": mode, "spool": left_spool}
    config = configure(tmp_path / "c.toml", (SMALL, out, options))
    run([programs["mpi_writer"], "plain", tmp_path / "plain", epochs], None, ranks=RANKS)
    code, said = run_short(tmp_path / "said", [programs["mpi_writer"], habit, tmp_path / "out", epochs], config, ranks=RANKS)
    assert code in (3, 9) if habit != "abort" else code == 3
    lines = ended(said)
    assert len(lines) == 1, said
    how = "has called MPI_Abort" if habit == "abort" else "ended without MPI_Finalize"
    found = re.fullmatch(
        rf"turbidite: {re.escape(str(out))}: rank {rank} {how}: epochs? ([0-9, and]+) (is|are) not "
        r"indexed; the files stay as the program wrote them(; files that could not be moved .+ --put-in-place')?; index them later with: "
        r"turbidite ingest .+ --if-exists skip",
        lines[0],
    )
    assert found, said
    pending = [int(epoch) for epoch in re.findall("[0-9]+", found[1])]
    assert pending[-1] == epochs and (found[2] == "is") == (len(pending) == 1)
    expected, files = written(tmp_path / "plain"), written(tmp_path / "out")
    for epoch in pending:
        path = f"E.{epoch}/rows.{rank}"
        assert files[path] == expected[path]
    assert not list(left_spool.rglob(f"rows.{rank}"))
    if rank == 0:
        assert not (out / "_turbidite" / "lock").exists()
    committed = stored(out, SMALL.record) if (out / "data").exists() else {}
    # The rank had given its records away before an epoch was committed.
    assert set(committed) == set(range(1, epochs + 1)) - set(pending)
    if committed:
        check_rows(out, SMALL, {path: content for path, content in expected.items() if SMALL.epoch(path) in committed})


@pytest.mark.parametrize("mode", MODES)
def test_all_ranks_leave(programs, tmp_path, left_spool, mode):
    """What all ranks have to say is said once."""
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": mode, "spool": left_spool}))
    code, said = run_short(tmp_path / "said", [programs["mpi_writer"], "leave-all", tmp_path / "out"], config, ranks=RANKS)
    assert code != 0
    assert said.count(" not indexed; the files stay as the program wrote them") == 1, said


@pytest.mark.parametrize("mode", MODES)
def test_a_program_that_forgets_it(programs, tmp_path, spool, mode):
    """One rank of MPI: nobody else could be waited for, and what is pending is in place all the same."""
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": mode, "spool": spool}))
    run([programs["mpi_writer"], "plain", tmp_path / "plain"], None, ranks=1)
    code, said = run_short(tmp_path / "said", [programs["mpi_writer"], "forget", tmp_path / "out"], config, ranks=1)
    assert code == 3
    lines, expected = ended(said), written(tmp_path / "plain")
    pending = {int(epoch) for line in lines for epoch in re.findall(r"\b[0-9]+\b", line.split("Finalize:")[1])}
    assert len(lines) == (1 if pending else 0), said
    stay = {path: content for path, content in expected.items() if mode == "keep" or SMALL.epoch(path) in pending}
    assert written(tmp_path / "out") == stay
    indexed = {path: content for path, content in expected.items() if SMALL.epoch(path) not in pending}
    if indexed:
        check_rows(tmp_path / "ds", SMALL, indexed)
