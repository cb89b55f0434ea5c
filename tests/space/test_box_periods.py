"""Periods from the box of LAMMPS text: boxes wrap as NumPy says, a note names the sides or the reasons, and existing datasets keep
their periods."""

import json
import re
import shlex
from pathlib import Path

import numpy
import pytest
import turbidite

from support.command import USAGE, answer, attempt
from support.command import turbidite as command

SIDES = {"x": (-4.0, 12.0), "y": (0.0, 9.5), "z": (1.0, 3.5)}
HEADER = "ITEM: BOX BOUNDS pp pp pp"
ORTHOGONAL = ["-4 12", "0.0 9.5", "1.0000000000000000e+00 3.5e+00"]
ROWS = 3000


def write(path: Path, boxes: dict[int, tuple[str, list[str]]], names=("id", "x", "y", "z"), rows: int = 3) -> dict[str, numpy.ndarray]:
    """Writes steps with these boxes and the same atoms. Returns the atoms' values."""
    random = numpy.random.default_rng(7)
    values = {"id": numpy.arange(rows)}
    for name in names[1:]:
        low, high = SIDES[name[0]]
        # Some atoms are outside of the box, as between two reneighbourings.
        values[name] = low + (high - low) * (random.random(rows) * 1.2 - 0.1)
    lines = [" ".join(map(repr, row)) for row in zip(*(one.tolist() for one in values.values()), strict=True)]
    text = ""
    for step, (header, bounds) in boxes.items():
        box = "".join(f"{line}\n" for line in (header, *bounds)) if header else ""
        text += f"ITEM: TIMESTEP\n{step}\nITEM: NUMBER OF ATOMS\n{rows}\n{box}ITEM: ATOMS {' '.join(names)}\n"
        text += "".join(f"{line}\n" for line in lines)
    path.write_text(text)
    return values


def ingest(source: Path, target: Path, *more, key: str = "space:x,y,z", **options):
    return command("ingest", source, "--out", target, "--key", key, *more, "--json", **options)


def periods(target: Path):
    return answer("inspect", target)["periods"]


def test_boxes_wrap_by_the_box_of_the_files(tmp_path):
    values = write(tmp_path / "melt.dump", {0: (HEADER, ORTHOGONAL), 10: (HEADER, ORTHOGONAL)}, rows=ROWS)
    report = json.loads(ingest(tmp_path / "melt.dump", tmp_path / "ds").stdout)
    assert report["notes"] == ["boxes wrap by the periods of the box of the files: x by 16, y by 9.5, z by 2.5"]
    dataset = turbidite.open(tmp_path / "ds")
    assert dataset.schema.periods == {"x": 16.0, "y": 9.5, "z": 2.5}
    for box in ({"x": (11.0, 13.0)}, {"x": (-5.0, -3.5), "z": (3.0, 4.0)}, {"y": (-1.0, 1.0)}):
        inside, plain = numpy.ones(ROWS, bool), numpy.ones(ROWS, bool)
        for axis, (low, high) in box.items():
            length = SIDES[axis][1] - SIDES[axis][0]
            inside &= numpy.any([(values[axis] + k * length >= low) & (values[axis] + k * length < high) for k in range(-3, 4)], axis=0)
            plain &= (values[axis] >= low) & (values[axis] < high)
        assert inside.sum() > plain.sum()
        assert dataset.query(box=box, epochs=10).count() == inside.sum(), box


@pytest.mark.parametrize(
    ("key", "found"), [("space:z,x", [2.5, 16.0]), ("space:y,x", [9.5, 16.0]), ("space:x,y,z", [16.0, 9.5, 2.5]), ("x", None)]
)
def test_periods_have_the_order_of_the_key(tmp_path, key, found):
    write(tmp_path / "d.dump", {5: (HEADER, ORTHOGONAL)})
    report = json.loads(ingest(tmp_path / "d.dump", tmp_path / "ds", key=key).stdout)
    assert periods(tmp_path / "ds") == found and bool(report["notes"]) == (found is not None)


CHANGED = (HEADER, ["-4 12.5", "0.0 9.5", "1 3.5"])


@pytest.mark.parametrize(
    ("boxes", "found", "note"),
    [
        ({0: ("ITEM: BOX BOUNDS pp ff ss", ORTHOGONAL)}, [16.0, None, None], "x by 16; not y (its boundary is ff, not pp), z (its boundary is ss"),
        ({0: ("ITEM: BOX BOUNDS fs fs fs", ORTHOGONAL)}, None, "the files: x, y, z (its boundary is fs, not pp)"),
        ({0: (HEADER, ORTHOGONAL), 9: CHANGED}, [None, 9.5, 2.5], "not x (the box has 16 at epoch 0 and 16.5 at epoch 9)"),
        ({0: ("ITEM: BOX BOUNDS xy xz yz pp pp pp", ["-4 12 0", "0 9.5 0.5", "1 3.5 0"])}, None, "x, y, z (the box is triclinic)"),
        ({0: ("ITEM: BOX BOUNDS xy xz yz pp pp pp", ["-4 12 0", "0 9.5 0.0", "1 3.5 0"])}, [16.0, 9.5, 2.5], "x by 16, y by 9.5, z by 2.5"),
        ({0: ("ITEM: BOX BOUNDS abc origin pp pp pp", ["16 0 0 -4", "0 9.5 0 0", "0 0 2.5 1"])}, None, "x, y, z (the box is triclinic)"),
        ({0: ("ITEM: BOX BOUNDS", ORTHOGONAL)}, None, "(the file does not state the boundaries of the box)"),
        ({0: ("", [])}, None, None),
        ({0: (HEADER, ["a b", "0 9.5", "3 3"])}, [None, 9.5, None], "not x (the bounds of the box are not numbers), z (the box has the length 0)"),
    ],
)
def test_sides_without_a_period_have_a_reason(tmp_path, boxes, found, note):
    write(tmp_path / "d.dump", boxes)
    report = json.loads(ingest(tmp_path / "d.dump", tmp_path / "ds").stdout)
    assert periods(tmp_path / "ds") == found
    assert [note in text for text in report["notes"]] == ([] if note is None else [True]), report["notes"]


@pytest.mark.parametrize(
    ("names", "note"),
    [
        (("xs", "ys", "zs"), "xs, ys, zs (scaled coordinates); --period sets them"),
        (("xu", "yu", "z"), "z by 2.5; not xu, yu (unwrapped coordinates)"),
        (("x", "y", "zsu"), "x by 16, y by 9.5; not zsu (scaled and unwrapped coordinates)"),
        (("x", "y", "far"), "x by 16, y by 9.5; not far (not a coordinate of the files)"),
    ],
)
def test_other_coordinates_have_no_period(tmp_path, names, note):
    write(tmp_path / "d.dump", {0: (HEADER, ORTHOGONAL)}, ("id", *(name for name in names if name != "far")))
    derive = ("--derive", "far:f64=x*2") if "far" in names else ()
    report = json.loads(ingest(tmp_path / "d.dump", tmp_path / "ds", *derive, key=f"space:{','.join(names)}").stdout)
    assert [note in text for text in report["notes"]] == [True], report["notes"]


def test_only_the_selected_epochs_count(tmp_path):
    write(tmp_path / "d.dump", {0: (HEADER, ORTHOGONAL), 9: CHANGED, 10: CHANGED})
    for epochs, found in (("0", 16.0), ("9..10", 16.5)):
        ingest(tmp_path / "d.dump", tmp_path / f"ds-{epochs}", "--epochs", epochs)
        assert periods(tmp_path / f"ds-{epochs}") == [found, 9.5, 2.5]


def test_stated_periods_take_the_place_of_the_box(tmp_path):
    write(tmp_path / "d.dump", {0: (HEADER, ORTHOGONAL)})
    for number, (option, found) in enumerate([("none", None), (",8,", [None, 8.0, None])]):
        report = json.loads(ingest(tmp_path / "d.dump", tmp_path / f"ds-{number}", "--period", option).stdout)
        assert periods(tmp_path / f"ds-{number}") == found and report["notes"] == []
    report = turbidite.ingest(tmp_path / "d.dump", tmp_path / "python", key="space:x,y,z", period={})
    assert turbidite.open(tmp_path / "python").schema.periods == {} and report["notes"] == []


def test_an_existing_dataset_keeps_its_periods(tmp_path):
    """Epochs with another box are refused, and the proposed option adds them."""
    write(tmp_path / "0.dump", {0: (HEADER, ORTHOGONAL)})
    write(tmp_path / "5.dump", {5: (HEADER, ORTHOGONAL)})
    write(tmp_path / "9.dump", {9: CHANGED})
    ingest(tmp_path / "0.dump", tmp_path / "ds")
    assert json.loads(ingest(tmp_path / "5.dump", tmp_path / "ds").stdout)["notes"] == []
    said = ingest(tmp_path / "9.dump", tmp_path / "ds", expect=USAGE).stderr
    assert "has the period 16 in x, and the box of epoch 9 has the length 16.5" in said and str(tmp_path / "ds") in said
    [proposed] = re.findall(r"(--period \S+) adds", said)
    ingest(tmp_path / "9.dump", tmp_path / "ds", *shlex.split(proposed))
    assert turbidite.open(tmp_path / "ds").epochs == [0, 5, 9] and periods(tmp_path / "ds") == [16.0, 9.5, 2.5]


def test_an_existing_dataset_without_periods_stays_without(tmp_path):
    write(tmp_path / "d.dump", {0: (HEADER, ORTHOGONAL), 5: (HEADER, ORTHOGONAL)})
    ingest(tmp_path / "d.dump", tmp_path / "ds", "--epochs", 0, "--period", "none")
    report = json.loads(ingest(tmp_path / "d.dump", tmp_path / "ds", "--epochs", 5).stdout)
    assert report["notes"] == ["the box of the files has the periods '16,9.5,2.5', and the dataset was created without periods"]
    assert periods(tmp_path / "ds") is None


def test_a_folder_that_is_no_dataset_is_refused_as_before(tmp_path):
    write(tmp_path / "d.dump", {0: (HEADER, ORTHOGONAL)})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    done = attempt("ingest", tmp_path / "d.dump", "--out", tmp_path / "other", "--key", "space:x,y,z")
    assert done.returncode != 0 and "other" in done.stderr and "period" not in done.stderr, done.stderr
