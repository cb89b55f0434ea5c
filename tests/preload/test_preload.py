"""Dumps of unmodified programs are indexed: every record once, bit for bit, and the program notices nothing.

The oracle is NumPy's reading of the files that the same program leaves without the preload library.
"""

import re
import subprocess
import sys
from dataclasses import replace

import numpy
import pytest

from support import vpic
from support.command import answer, turbidite
from support.preload import OTHER, PARTICLES, SMALL, VPIC, check_rows, configure, libraries, run, written
from support.sweeps import taken_by_turns
from support.tools import require

STEPS = "500,1000,1500"
MODES = ["keep", "replace"]
COMPILERS = {"stream_cpp": "g++", "stream_fortran": "gfortran"}


def in_modes(cases: list) -> list[tuple]:
    """Each case in both modes, or in one of them, the other one with the next commit."""
    return [(case, mode) for number, case in enumerate(cases) for mode in taken_by_turns(MODES, number)]


def check(mode: str, form, out, files: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """The program's files are where they have to be, and the dataset has their records."""
    if mode == "keep":
        assert files == expected
    else:
        assert [path for path in files if form.epoch(path) is not None] == []
    check_rows(out, form, expected)


def dump(programs, tmp_path, spool, mode: str, ranks: int, *options) -> dict[str, bytes]:
    """What `vpic_dump` leaves when it is indexed into tmp_path/ds."""
    config = configure(tmp_path / "c.toml", (VPIC, tmp_path / "ds", {"mode": mode, "spool": spool}))
    command = [programs["vpic_dump"], vpic.sample_dumps(), tmp_path / "out", "--steps", STEPS, *options]
    assert run(command, config, ranks=ranks) == ""
    return written(tmp_path / "out")


@pytest.mark.parametrize("ranks, mode", in_modes([1, 2, 3, 4, 7, 16]))
def test_ranks(programs, plain, tmp_path, spool, ranks, mode):
    files = dump(programs, tmp_path, spool, mode, ranks, "--barrier")
    check(mode, VPIC, tmp_path / "ds", files, plain(ranks))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("ranks", "key"), [(1, "id"), (7, "id"), (1, "i,id"), (3, "i,id")])
def test_clustered_by_hash(programs, plain, tmp_path, spool, ranks, key, mode):
    form = replace(VPIC, key=f"hash:{key}")
    config = configure(tmp_path / "c.toml", (form, tmp_path / "ds", {"mode": mode, "spool": spool}))
    command = [programs["vpic_dump"], vpic.sample_dumps(), tmp_path / "out", "--steps", STEPS]
    assert run(command, config, ranks=ranks) == ""
    check(mode, form, tmp_path / "ds", written(tmp_path / "out"), plain(ranks))
    assert f"clustered by the hash of {key.replace(',', ', ')}" in turbidite("inspect", tmp_path / "ds").stdout
    for path, content in sorted(plain(ranks).items())[:2]:
        row = form.rows(path, content)[3]
        ident = ":".join(str(row[name]) for name in key.split(","))
        lines = turbidite("get", tmp_path / "ds", ident, "--epoch", form.epoch(path), "--columns", "energy").stdout.splitlines()
        assert len(lines) == 2 and numpy.float32(lines[1].split(",")[-1]) == row["energy"], lines


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ranks", [1, 7])
def test_clustered_by_space(programs, plain, tmp_path, spool, ranks, mode):
    form = replace(VPIC, key="space:ux,uy,uz")
    config = configure(tmp_path / "c.toml", (form, tmp_path / "ds", {"mode": mode, "spool": spool}))
    command = [programs["vpic_dump"], vpic.sample_dumps(), tmp_path / "out", "--steps", STEPS]
    assert run(command, config, ranks=ranks) == ""
    check(mode, form, tmp_path / "ds", written(tmp_path / "out"), plain(ranks))
    assert "clustered by place in ux, uy, uz" in turbidite("inspect", tmp_path / "ds").stdout


def test_clustered_by_the_hash_of_byte_strings(programs, tmp_path, spool):
    """The number of a record as 8 bytes, of which nothing is known but that they are an id."""
    record = numpy.dtype([("key", "<f8"), ("number", "V8")])
    form, out = replace(SMALL, record=record, key="hash:number"), tmp_path / "ds"
    config = configure(tmp_path / "c.toml", (form, out, {"mode": "keep", "spool": spool}))
    assert run([programs["writer"], "plain", tmp_path / "out"], config) == ""
    turbidite("verify", out)
    for path, content in written(tmp_path / "out").items():
        rows = form.rows(path, content)
        for row in rows[:: len(rows) // 3]:
            lines = turbidite("get", out, f"0x{row['number'].tobytes().hex()}", "--epoch", form.epoch(path), "--columns", "key").stdout.splitlines()
            assert float(lines[1].split(",")[-1]) == row["key"], lines


@pytest.mark.parametrize("ranks", [1, 3])
def test_indexes(programs, plain, tmp_path, spool, ranks):
    """Columns are indexed while the program writes its dumps, by entries and by bitmaps."""
    out = tmp_path / "ds"
    config = configure(tmp_path / "c.toml", (VPIC, out, {"mode": "replace", "spool": spool, "index": ["hash:id,with=energy,with=uy", "bitmap:ux,uy", "uy"]}))
    command = [programs["vpic_dump"], vpic.sample_dumps(), tmp_path / "out", "--steps", STEPS]
    assert run(command, config, ranks=ranks) == ""
    check("replace", VPIC, out, written(tmp_path / "out"), plain(ranks))
    rows = sum(epoch["rows"] for epoch in answer("stats", out))
    for index in answer("index", "list", out)["indexes"]:
        assert (index["entries"], index["missing"], index["problem"]) == (rows, [], None), index
    turbidite("verify", out)
    for columns in ("energy,uy,w", "energy,uy"):
        found = {use: turbidite("get", out, 80, 88, "--id", "id", "--columns", columns, "--use", use).stdout for use in ("id", "scan")}
        assert found["id"] == found["scan"] and len(found["id"].splitlines()) == 7, found
    assert "no records are read" in turbidite("query", out, "--where", "id = 80", "--columns", "energy,uy", "--explain").stdout


def test_an_index_of_no_column_is_refused(programs, tmp_path, spool):
    config = configure(tmp_path / "c.toml", (VPIC, tmp_path / "ds", {"mode": "keep", "spool": spool, "index": ["nothing"]}))
    command = [programs["serial_dump"], vpic.sample_dumps(), tmp_path / "out", "--steps", STEPS]
    said = run(command, config)
    assert "index: " in said and "'nothing'" in said, said


CALLS = [
    "", "--fprintf-header", "--posix", "--writev", "--pwrite", "--turns", "--stagger 2", "--leave-open",
    "--posix --leave-open", "--pwrite --turns --barrier", "--fprintf-header --stagger 3 --barrier",
]  # fmt: skip


@pytest.mark.parametrize("options, mode", in_modes(CALLS))
def test_whatever_the_calls(programs, plain, tmp_path, spool, options, mode):
    files = dump(programs, tmp_path, spool, mode, 3, *options.split())
    check(mode, VPIC, tmp_path / "ds", files, plain(3))


@pytest.mark.parametrize("mode, options", [("keep", "--allreduce"), ("replace", "--turns --allreduce")])
def test_many_collectives(programs, plain, tmp_path, spool, mode, options):
    """On no more ranks than there are cores: hundreds of reductions among more take seconds even without us."""
    files = dump(programs, tmp_path, spool, mode, 2, *options.split())
    check(mode, VPIC, tmp_path / "ds", files, plain(2))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", ["", "--barrier", "--turns"])
def test_a_rank_without_files(programs, plain, tmp_path, spool, options, mode):
    files = dump(programs, tmp_path, spool, mode, 3, "--late-rank", 1, *options.split())
    check(mode, VPIC, tmp_path / "ds", files, plain(3, "--late-rank", 1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", [[], ["--writev"], ["--leave-open"]])
def test_without_mpi(programs, plain, tmp_path, spool, options, mode):
    config = configure(tmp_path / "c.toml", (VPIC, tmp_path / "ds", {"mode": mode, "spool": spool}))
    command = [programs["serial_dump"], vpic.sample_dumps(), tmp_path / "out", "--steps", STEPS, *options]
    assert run(command, config) == ""
    check(mode, VPIC, tmp_path / "ds", written(tmp_path / "out"), plain(1))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ranks", [1, 3])
def test_one_file_for_each_particle(programs, tmp_path, spool, ranks, mode):
    config = configure(tmp_path / "c.toml", (PARTICLES, tmp_path / "ds", {"mode": mode, "spool": spool}))
    command = [programs["particle_files"], vpic.sample_dumps()]
    options = ["--steps", "500,1000", "--most", 600]
    assert run([*command, tmp_path / "plain", *options], None, ranks=ranks) == ""
    assert run([*command, tmp_path / "out", *options], config, ranks=ranks) == ""
    expected = written(tmp_path / "plain")
    assert len(expected) == 2 * 600 * ranks
    check(mode, PARTICLES, tmp_path / "ds", written(tmp_path / "out"), expected)


def index_small(command: list, tmp_path, spool, mode: str, arguments: list | None = None, ranks=None, message="") -> None:
    """Runs a writer of small records without and with us, which prints the message."""
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": mode, "spool": spool}))
    for folder in ("plain", "out"):
        for epoch in (1, 2, 3):
            (tmp_path / folder / f"E.{epoch}").mkdir(parents=True)
    run([*command, tmp_path / "plain", *(arguments or [])], None, ranks=ranks)
    said = run([*command, tmp_path / "out", *(arguments or [])], config, ranks=ranks)
    assert re.fullmatch(message, said), said


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("habit", ["append", "empty", "read", "exclusive", "no-folder", "lost-move"])
def test_habits(programs, tmp_path, spool, habit, mode):
    index_small([programs["writer"], habit], tmp_path, spool, mode)
    files, expected = written(tmp_path / "out"), written(tmp_path / "plain")
    if habit == "lost-move" and mode == "replace":
        # A file that was to be moved is not spooled any more.
        assert files == expected
        return check_rows(tmp_path / "ds", SMALL, expected)
    check(mode, SMALL, tmp_path / "ds", files, expected)


OF_RANKS = [(habit, ranks) for habit in ("append", "empty", "read") for ranks in (2, 5)]


@pytest.mark.parametrize("habit, ranks, mode", [(*case, mode) for case, mode in in_modes(OF_RANKS)])
def test_habits_of_several_ranks(programs, tmp_path, spool, ranks, habit, mode):
    index_small([programs["mpi_writer"], habit], tmp_path, spool, mode, ranks=ranks)
    check(mode, SMALL, tmp_path / "ds", written(tmp_path / "out"), written(tmp_path / "plain"))


@pytest.mark.parametrize("mode", MODES)
def test_a_file_renamed_into_place(programs, tmp_path, spool, mode):
    """It is indexed; written under another name, it is never spooled, and stays."""
    index_small([programs["writer"], "rename"], tmp_path, spool, mode)
    check("keep", SMALL, tmp_path / "ds", written(tmp_path / "out"), written(tmp_path / "plain"))


@pytest.mark.parametrize("mode", MODES)
def test_a_file_renamed_from_one_dataset_to_another(programs, tmp_path, spool, mode):
    options = {"mode": mode, "spool": spool}
    sections = [(SMALL, tmp_path / "ds", options), (OTHER, tmp_path / "other", options)]
    config = configure(tmp_path / "c.toml", *sections)
    assert run([programs["writer"], "move", tmp_path / "out"], config) == ""
    files = written(tmp_path / "out")
    assert len(files) == 3
    check_rows(tmp_path / "other", OTHER, files)
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize("mode", MODES)
def test_children_leave_files_alone(programs, tmp_path, spool, mode):
    """What a child writes to the parent's file is indexed, files of its own are not, and are named. A file that parent and
    child have open is not spooled any more, so that all of them stay in either mode."""
    message = r"turbidite: 3 files are not indexed, since child processes wrote them: .*/E\.1/rows\.1, …; index them later .*\n"
    index_small([programs["writer"], "fork"], tmp_path, spool, mode, message=message)
    files, expected = written(tmp_path / "out"), written(tmp_path / "plain")
    of_children = {path: content for path, content in expected.items() if path.endswith(".1")}
    assert len(of_children) == 3 and len(expected) == 6
    assert files == expected
    check_rows(tmp_path / "ds", SMALL, {path: expected[path] for path in expected if path not in of_children})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("language", COMPILERS)
def test_other_languages(programs, tmp_path, spool, language, mode):
    require(COMPILERS[language])
    index_small([programs[language]], tmp_path, spool, mode)
    check(mode, SMALL, tmp_path / "ds", written(tmp_path / "out"), written(tmp_path / "plain"))


PYTHON = """
import os, struct, sys
for epoch in (1, 2, 3):
    path = f"{sys.argv[1]}/E.{epoch}/rows.0"
    with open(path, "wb") as file:
        file.write(b"12345678")
        for number in range(1000):
            file.write(struct.pack("<dQ", number * 7919 % 1000 / epoch, number))
    with open(path, "rb") as file:
        assert len(file.read()) == 16008
"""


@pytest.mark.parametrize("mode", MODES)
def test_python_as_the_program(tmp_path, spool, mode):
    index_small([sys.executable, "-c", PYTHON], tmp_path, spool, mode)
    check(mode, SMALL, tmp_path / "ds", written(tmp_path / "out"), written(tmp_path / "plain"))


@pytest.mark.parametrize("ranks, mode", in_modes([2, 16]))
def test_two_datasets(programs, tmp_path, spool, ranks, mode):
    """Two species of one program, an epoch of one after an epoch of the other."""
    options = {"mode": mode, "spool": spool}
    sections = [(SMALL, tmp_path / "ds", options), (OTHER, tmp_path / "other", options)]
    config = configure(tmp_path / "c.toml", *sections)
    run([programs["mpi_writer"], "two", tmp_path / "plain", 4], None, ranks=ranks)
    assert run([programs["mpi_writer"], "two", tmp_path / "out", 4], config, ranks=ranks) == ""
    files, expected = written(tmp_path / "out"), written(tmp_path / "plain")
    assert len(expected) == 2 * 4 * ranks
    check(mode, SMALL, tmp_path / "ds", files, expected)
    check(mode, OTHER, tmp_path / "other", files, expected)


def test_what_other_calls_cost(programs, tmp_path):
    """Only printed: no test depends on how fast the machine is."""
    config = configure(tmp_path / "c.toml", (VPIC, tmp_path / "ds", {}))
    environments = {"plain": {}, "preload": {"LD_PRELOAD": libraries(False), "TURBIDITE_CONFIG": str(config)}}
    took = {}
    for name, environment in environments.items():
        command = ["env", *(f"{key}={value}" for key, value in environment.items()), programs["calls"], tmp_path / "file"]
        said = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(3)]
        assert all(done.stderr == "" for done in said)
        took[name] = [min(values) for values in zip(*(map(float, done.stdout.split()) for done in said))]
    for index, what in enumerate(["open and close", "fwrite of 4 bytes"]):
        before, after = took["plain"][index], took["preload"][index]
        print(f"{what}: {before:.0f} ns, preloaded {after:.0f} ns, ratio {after / before:.3f}")
    assert (tmp_path / "file").stat().st_size == 400_000 and not (tmp_path / "ds").exists()
