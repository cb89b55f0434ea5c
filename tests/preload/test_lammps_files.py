"""Files laid out as LAMMPS lays them out, written with habits that LAMMPS does not have and broken in ways that disks
and kills break files. `make test-lammps` runs the real program."""

import struct
import sys
from pathlib import Path

import numpy
import pytest

from support.lammps import Step, steps
from support.preload import in_order, run, stored, written

ROW = numpy.dtype([("id", "<u8"), ("vx", "<f8")])

# As a program: HABIT FOLDER. It defines `step`, a step's bytes of some rows, in two chunks.
PROGRAM = '''
import os, struct, sys
habit, folder = sys.argv[1:]

def step(number, rows=1000):
    names = b"id x vx"
    chunks = []
    for chunk in range(2):
        values = []
        for row in range(rows):
            atom = 2 * row + chunk + 1
            values += [float(atom), 0.5, (atom * 7919 + number) % 1009 / 7]
        chunks.append(struct.pack(f"<i{len(values)}d", len(values), *values))
    head = struct.pack("<q10siiqq", -10, b"DUMPCUSTOM", 1, 2, number, 2 * rows)
    box = struct.pack("<7i6d", *[0] * 7, 0, 1, 0, 1, 0, 1)
    return head + box + struct.pack(f"<iibi{len(names)}si", 3, 0, 0, len(names), names, 2) + b"".join(chunks)

def write(mode, *parts, name="melt.0.bin"):
    with open(os.path.join(folder, name), mode) as file:
        for part in parts:
            file.write(part)
            file.flush()

if habit == "plain":
    write("wb", step(0), step(50), step(100))
elif habit == "append":
    write("wb", step(0), step(50))
    write("ab", step(100))
elif habit == "overwrite":
    write("wb", step(0, 10), step(7))
    write("wb", step(0), step(50))
elif habit == "twice":
    write("wb", step(0, 10), step(50), step(0))
elif habit == "rename":
    write("wb", step(0), step(50), name="temporary")
    os.rename(os.path.join(folder, "temporary"), os.path.join(folder, "melt.0.bin"))
elif habit == "short":
    write("wb", step(0), step(50), step(100)[:-5])
elif habit == "no-step":
    write("wb", step(0), bytes(500), step(100))
elif habit == "count":
    broken = bytearray(step(50))
    broken[34] ^= 1
    write("wb", step(0), bytes(broken), step(100))
elif habit == "fraction":
    broken = bytearray(step(50))
    at = broken.index(struct.pack("<d", 0.5)) - 8
    broken[at : at + 8] = struct.pack("<d", 1.5)
    write("wb", step(0), bytes(broken), step(100))
elif habit == "two-files":
    write("wb", step(0), step(50), step(100))
    write("wb", step(0), step(50)[:-1], name="melt.1.bin")
'''


def index(tmp_path: Path, habit: str) -> str:
    """Runs the program; what was said on standard error. The dataset is tmp_path/ds."""
    lines = ["quiet = true", "[[dataset]]", 'files = "melt.{rank}.bin"', 'format = "lammps"', f'out = "{tmp_path / "ds"}"']
    lines += ['key = "vx"', "[[dataset.field]]", 'name = "id"', 'type = "u64"']
    lines += ["[[dataset.field]]", 'name = "vx"', 'type = "f64"']
    config = tmp_path / "c.toml"
    config.write_text("\n".join(lines))
    for folder in ("plain", "out"):
        (tmp_path / folder).mkdir()
    program = [sys.executable, "-c", PROGRAM, habit]
    run([*program, tmp_path / "plain"], None)
    said = run([*program, tmp_path / "out"], config)
    assert written(tmp_path / "out") == written(tmp_path / "plain")
    return said


def check(tmp_path: Path, parts: dict[int, bytes]) -> None:
    """The dataset has these epochs, each with the rows of this step."""
    found = stored(tmp_path / "ds", ROW)
    assert sorted(found) == sorted(parts)
    for epoch, content in parts.items():
        (step,) = steps(content)
        rows = numpy.empty(step.atoms, ROW)
        for name in ROW.names:
            rows[name] = step.rows[name]
        assert numpy.array_equal(in_order(found[epoch]), in_order(rows)), epoch


def by_step(content: bytes, last: int | None = None) -> dict[int, bytes]:
    """The bytes of a file's steps, up to one; of a step that comes twice the last."""
    found, place = {}, 0
    while place < len(content):
        step = Step(content, place)
        found[step.number] = content[place : step.place]
        place = step.place
        if step.number == last:
            break
    return found


@pytest.mark.parametrize("habit, epochs", [("plain", 3), ("append", 3), ("overwrite", 2), ("twice", 2), ("rename", 2)])
def test_habits(tmp_path, habit, epochs):
    assert index(tmp_path, habit) == ""
    expected = by_step((tmp_path / "plain" / "melt.0.bin").read_bytes())
    assert len(expected) == epochs
    check(tmp_path, expected)


@pytest.mark.parametrize(
    "habit, complaint",
    [
        ("short", None),
        ("no-step", "0 values per atom"),
        ("count", "step 50 states 2001 atoms, but has 2000"),
    ],
)
def test_a_file_that_is_broken_behind_some_steps(tmp_path, habit, complaint):
    """What came before is indexed; the program's file is left as it is, and what is wrong with it is said, once."""
    said = index(tmp_path, habit)
    content = (tmp_path / "plain" / "melt.0.bin").read_bytes()
    whole = by_step(content, last=50 if habit == "short" else 0)
    check(tmp_path, whole)
    assert "melt.0.bin" in said, said
    assert (complaint or f"has {len(content)} bytes and ends within the step at byte") in said
    assert said.count("\n") == 1


def test_a_step_that_is_refused(tmp_path):
    """A double that is no integer where the configuration says so; steps before and after it are indexed."""
    said = index(tmp_path, "fraction")
    assert "'id' has the value 1.5e0, which does not fit u64; the files of epoch 50 stay" in said
    steps_of = by_step((tmp_path / "plain" / "melt.0.bin").read_bytes())
    check(tmp_path, {step: content for step, content in steps_of.items() if step != 50})


def test_what_another_file_lacks_is_not_taken_for_complete(tmp_path):
    """One of two files ends early: steps that it would have had are no epochs."""
    said = index(tmp_path, "two-files")
    files = [(tmp_path / "plain" / f"melt.{number}.bin").read_bytes() for number in (0, 1)]
    assert said.count("melt.1.bin") == 3 and "the files of epoch 100 stay" in said
    found = stored(tmp_path / "ds", ROW)
    assert {epoch: len(rows) for epoch, rows in found.items()} == {0: 4000}
    assert struct.unpack_from("<q", files[1], 26) == (0,)


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"mode": "replace"}, "cannot be replaced step by step"),
        ({"files": "melt.{id}.bin"}, "LAMMPS' files hold many records"),
        ({"header_bytes": "161"}, "omit header_bytes, record_bytes, offsets"),
        ({"format": "records"}, "has no {epoch}"),
        ({"format": "lamps"}, "lamps"),
    ],
)
def test_configurations_that_cannot_be(tmp_path, options, complaint):
    lines = {"files": '"melt.{rank}.bin"', "format": '"lammps"', "out": f'"{tmp_path / "ds"}"', "key": '"vx"'}
    lines |= {name: value if value.isdigit() else f'"{value}"' for name, value in options.items()}
    text = "[[dataset]]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items())
    config = tmp_path / "c.toml"
    config.write_text(text + '[[dataset.field]]\nname = "vx"\ntype = "f64"\n')
    (tmp_path / "out").mkdir()
    said = run([sys.executable, "-c", PROGRAM, "plain", tmp_path / "out"], config)
    assert complaint in said and "nothing is indexed" in said
    assert not (tmp_path / "ds").exists()
