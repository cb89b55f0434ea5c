"""An unmodified LAMMPS is indexed while it runs: its files are what they are without us, and the dataset has what
NumPy reads in them."""

import re
from pathlib import Path

import numpy
import pytest

from support.command import ROOT, turbidite
from support.lammps import steps
from support.preload import in_order, stored
from support.rows import read_answer

EXAMPLE = ROOT / "examples" / "lammps" / "turbidite.toml"
RANKS = [1, 2, 4]
ROW = numpy.dtype(
    [("id", "<u8"), ("type", "<i4"), ("x", "<f4"), ("y", "<f4"), ("z", "<f4")]
    + [(name, "<f8") for name in ("vx", "vy", "vz", "energy")]
)
# 864 atoms.
SMALL = {"cells": 6, "steps": 60}


def configure(path: Path, *changes: tuple[str, str], **options) -> Path:
    """The example's configuration with changes to its text and more options."""
    # Any output is an error then.
    text = "quiet = true\n" + EXAMPLE.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    lines = [f"{name} = {value if isinstance(value, int) else repr(value)}" for name, value in options.items()]
    path.write_text(text.replace("[[dataset]]", "\n".join(["[[dataset]]", *lines]), 1))
    return path


def rows_of(content: bytes) -> dict[int, numpy.ndarray]:
    """The rows that the example's configuration makes of a file."""
    found = {}
    for step in steps(content):
        rows = numpy.empty(step.atoms, ROW)
        for name in ROW.names[:-1]:
            rows[name] = step.rows[name]
        vx, vy, vz = (step.rows[name] for name in ("vx", "vy", "vz"))
        rows["energy"] = 0.5 * (vx * vx + vy * vy + vz * vz)
        found[step.number] = rows
    return found


def expected_rows(files: dict[str, bytes]) -> dict[int, numpy.ndarray]:
    pieces: dict[int, list] = {}
    for content in files.values():
        for step, rows in rows_of(content).items():
            pieces.setdefault(step, []).append(rows)
    return {step: numpy.concatenate(rows) for step, rows in pieces.items()}


def check(out: Path, expected: dict[int, numpy.ndarray], epochs: list[int]) -> None:
    """Every atom of every step is there, bit for bit, once."""
    assert sorted(expected) == epochs
    found = stored(out, next(iter(expected.values())).dtype)
    assert sorted(found) == epochs
    for epoch, rows in expected.items():
        assert numpy.array_equal(in_order(found[epoch]), in_order(rows)), epoch
    turbidite("verify", out)


def check_queries(out: Path, expected: dict[int, numpy.ndarray], folder: Path) -> None:
    """Ranges and a condition on several columns are what a full scan finds."""
    for epoch, rows in expected.items():
        low, high = numpy.quantile(rows["energy"], [0.9, 0.93]).tolist()
        for where, mask in [
            (f"energy >= {low!r} AND energy < {high!r}", (rows["energy"] >= low) & (rows["energy"] < high)),
            ("vx > 1 AND abs(vy) < 0.5 AND z <= 9", (rows["vx"] > 1) & (abs(rows["vy"]) < 0.5) & (rows["z"] <= 9)),
        ]:
            turbidite("query", out, "--where", where, "--epoch", epoch, "-o", folder / "answer.arrow")
            table = read_answer(folder / "answer.arrow")
            answered = numpy.empty(table.num_rows, ROW)
            for name in ROW.names:
                answered[name] = table.column(name).to_numpy()
            assert 0 < mask.sum() < len(rows)
            assert numpy.array_equal(in_order(answered), in_order(rows[mask])), (epoch, where)


@pytest.mark.parametrize("mode", ["keep", "replace"])
@pytest.mark.parametrize("ranks", RANKS)
def test_the_example(lammps, plain, tmp_path, spool, ranks, mode):
    """Six steps of 55,296 atoms."""
    config = configure(tmp_path / "c.toml", mode=mode, spool=str(spool))
    done = lammps.run(ranks, tmp_path / "run", config)
    assert done.stderr == ""
    files = plain(ranks)
    assert len(files) == 6 * ranks
    assert lammps.dumped(tmp_path / "run") == (files if mode == "keep" else {})
    expected = expected_rows(files)
    assert sum(len(rows) for rows in expected.values()) == 6 * 4 * 24**3
    check(tmp_path / "run" / "melt.tbd", expected, [0, 20, 40, 60, 80, 100])
    if mode == "keep":
        check_queries(tmp_path / "run" / "melt.tbd", expected, tmp_path)
    loop = re.search(r"Loop time of (\S+)", done.stdout).group(1)
    print(f"{ranks} ranks, {mode}: {loop} s; six dumps of {sum(map(len, files.values())) / 6e6:.1f} MB")


def test_boxes_of_a_collapsing_column(lammps, tmp_path):
    """Five steps clustered by place: 100 random boxes of each, with and without a predicate, are what a scan finds."""
    config = configure(
        tmp_path / "c.toml", ("melt.{epoch}.{rank}.bin", "column.{epoch}.{rank}.bin"), ('"energy"', '"space:x,y,z"'), receivers=4
    )
    done = lammps.run(4, tmp_path / "run", config, ROOT / "tests" / "lammps" / "column.in")
    assert done.stderr == ""
    expected, out = expected_rows(lammps.dumped(tmp_path / "run")), tmp_path / "run" / "melt.tbd"
    check(out, expected, [0, 200, 400, 600, 800])
    assert expected[800]["z"].mean() < 0.8 * expected[0]["z"].mean(), "the column has not collapsed"
    random = numpy.random.default_rng(5)
    for number in range(500):
        epoch, rows = list(expected.items())[number % 5]
        # Around an atom, so that few boxes are empty.
        center, sides = rows[random.integers(len(rows))], random.uniform(0.5, 12, 3).astype("f4")
        bounds = {axis: (float(center[axis] - side / 2), float(center[axis] + side / 2)) for axis, side in zip("xyz", sides)}
        inside = numpy.all([(rows[axis] >= low) & (rows[axis] < high) for axis, (low, high) in bounds.items()], axis=0)
        where, energy = [], random.uniform(0, 9)
        if number % 2:
            where, inside = ["--where", f"energy > {energy!r}"], inside & (rows["energy"] > energy)
        box = ",".join(f"{low!r}:{high!r}" for low, high in bounds.values())
        turbidite("query", out, "--box", box, *where, "--epoch", epoch, "--columns", "id", "-o", tmp_path / "answer.arrow")
        found = read_answer(tmp_path / "answer.arrow").column("id").to_numpy()
        assert numpy.array_equal(numpy.sort(found), numpy.sort(rows["id"][inside])), (epoch, box, where)
        (tmp_path / "answer.arrow").unlink()


@pytest.mark.parametrize("ranks", RANKS)
def test_several_steps_in_a_file(lammps, plain, tmp_path, ranks):
    """Steps are committed while the program goes on writing the file."""
    files = plain(ranks, files="melt.%.bin", **SMALL)
    assert len(files) == ranks
    config = configure(tmp_path / "c.toml", ("melt.{epoch}.{rank}.bin", "melt.{rank}.bin"))
    assert lammps.run(ranks, tmp_path / "run", config, files="melt.%.bin", **SMALL).stderr == ""
    assert lammps.dumped(tmp_path / "run") == files
    out = tmp_path / "run" / "melt.tbd"
    check(out, expected_rows(files), [0, 20, 40, 60])
    last_write = max(path.stat().st_mtime_ns for path in (tmp_path / "run").glob("*.bin"))
    # Committing renames the folder; its files were written before.
    first = max(path.stat().st_mtime_ns for path in (out / "data" / "epoch=0").iterdir())
    assert first < last_write, "the first step was indexed only after the last had been written"


def test_a_file_of_several_processes(lammps, plain, tmp_path):
    """Two of four processes write, each for another one as well."""
    variables = {"settings": "nfile 2"} | SMALL
    files = plain(4, **variables)
    assert len(files) == 4 * 2
    assert all(len(steps(content)[0].chunks) == 2 for content in files.values())
    config = configure(tmp_path / "c.toml", files_per_epoch=2)
    assert lammps.run(4, tmp_path / "run", config, **variables).stderr == ""
    assert lammps.dumped(tmp_path / "run") == files
    check(tmp_path / "run" / "melt.tbd", expected_rows(files), [0, 20, 40, 60])


def test_one_file_of_all_processes(lammps, plain, tmp_path, spool):
    variables = {"files": "melt.*.bin"} | SMALL
    files = plain(3, **variables)
    assert len(files) == 4
    config = configure(
        tmp_path / "c.toml", ("melt.{epoch}.{rank}.bin", "melt.{epoch}.bin"),
        files_per_epoch=1, mode="replace", spool=str(spool),
    )  # fmt: skip
    assert lammps.run(3, tmp_path / "run", config, **variables).stderr == ""
    assert lammps.dumped(tmp_path / "run") == {}
    check(tmp_path / "run" / "melt.tbd", expected_rows(files), [0, 20, 40, 60])


def test_a_tilted_box_and_all_that_headers_can_have(lammps, plain, tmp_path):
    """Constants of the box; units and time make the header longer."""
    variables = {"shape": "prism", "tilt": "1.5 0.5 0.25", "settings": "units yes time yes"} | SMALL
    files = plain(2, **variables)
    derive = '"energy:f64 = 0.5*(vx*vx+vy*vy+vz*vz)"'
    volume = "(header.xhi - header.xlo) * (header.yhi - header.ylo) * (header.zhi - header.zlo)"
    tilt = "header.xy + 10 * header.xz + 100 * header.yz"
    more = f'"volume:f64 = 0 * x + {volume}", "tilt:f64 = 0 * x + {tilt}"'
    config = configure(tmp_path / "c.toml", (derive, f"{derive}, {more}"))
    assert lammps.run(2, tmp_path / "run", config, **variables).stderr == ""
    assert lammps.dumped(tmp_path / "run") == files
    dtype = numpy.dtype(ROW.descr + [("volume", "<f8"), ("tilt", "<f8")])
    expected: dict[int, list] = {}
    for content in files.values():
        (step,) = steps(content)
        assert (step.units, step.time) == ("lj", step.number * 0.005)
        rows = numpy.empty(step.atoms, dtype)
        for name in ROW.names:
            rows[name] = rows_of(content)[step.number][name]
        box = step.box
        assert min(box["xy"], box["xz"], box["yz"]) > 0
        rows["volume"] = (box["xhi"] - box["xlo"]) * (box["yhi"] - box["ylo"]) * (box["zhi"] - box["zlo"])
        rows["tilt"] = box["xy"] + 10 * box["xz"] + 100 * box["yz"]
        expected.setdefault(step.number, []).append(rows)
    joined = {step: numpy.concatenate(rows) for step, rows in expected.items()}
    check(tmp_path / "run" / "melt.tbd", joined, [0, 20, 40, 60])


def test_the_atom_style(lammps, plain, tmp_path):
    variables = {"style": "atom", "columns": ""} | SMALL
    config = tmp_path / "c.toml"
    lines = ["quiet = true", "[[dataset]]", 'files = "melt.{epoch}.{rank}.bin"', 'format = "lammps"', 'out = "melt.tbd"', 'key = "xs"']
    dtype = numpy.dtype([("zs", "<f8"), ("id", "<i4"), ("xs", "<f8")])
    for name, kind in (("zs", "f64"), ("id", "i32"), ("xs", "f64")):
        lines += ["[[dataset.field]]", f'name = "{name}"', f'type = "{kind}"']
    config.write_text("\n".join(lines))
    assert lammps.run(2, tmp_path / "run", config, **variables).stderr == ""
    files = lammps.dumped(tmp_path / "run")
    assert files == plain(2, **variables)
    expected: dict[int, list] = {}
    for content in files.values():
        (step,) = steps(content)
        rows = numpy.empty(step.atoms, dtype)
        for name in dtype.names:
            rows[name] = step.rows[name]
        expected.setdefault(step.number, []).append(rows)
    joined = {step: numpy.concatenate(rows) for step, rows in expected.items()}
    check(tmp_path / "run" / "melt.tbd", joined, [0, 20, 40, 60])


@pytest.mark.parametrize(
    "change, complaint",
    [
        (('name = "vz"', 'name = "vw"'), "has no column 'vw', only id type x y z vx vy vz"),
        (('name = "vz"\ntype = "f64"', 'name = "vz"\ntype = "i32"'), "'vz' has the value"),
        (("melt.{epoch}.{rank}", "melt.{rank}"), None),
    ],
)
def test_a_configuration_that_does_not_fit(lammps, plain, tmp_path, spool, change, complaint):
    """It is said, and LAMMPS goes on with its files as they are; where nothing matches, nothing happens."""
    changes = [change]
    if change[1] == 'name = "vw"':
        changes.append(("+vz*vz", "+vw*vw"))
    mode = {} if complaint is None else {"mode": "replace", "spool": str(spool)}
    config = configure(tmp_path / "c.toml", *changes, **mode)
    said = lammps.run(2, tmp_path / "run", config, **SMALL).stderr
    assert lammps.dumped(tmp_path / "run") == plain(2, **SMALL)
    if complaint is None:
        assert said == "" and not (tmp_path / "run" / "melt.tbd").exists()
    else:
        assert said.count(complaint) == 4 and "the files of epoch 20 stay as the program wrote them" in said
