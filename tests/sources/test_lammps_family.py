"""Random LAMMPS text against a small reader of its own: equal values, or a refusal with the line and the cause."""

import bz2
import gzip
import json
from pathlib import Path

import numpy
import pyarrow.dataset
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from support import lammps_texts
from support.command import answer, attempt
from support.lammps_texts import Read, Text, Wrong, texts
from support.source_files import zstandard
from support.source_reader import Refused
from support.sweeps import generated

COMPRESSIONS = {"": lambda content: content, ".gz": lambda content: gzip.compress(content, 1), ".bz2": bz2.compress, ".zst": zstandard}
FORMS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["", "", *COMPRESSIONS]),
        "is_split": st.booleans(),
        "if_repeated": st.sampled_from([None, "first", "last"]),
    }
)


def write(text: Text, folder: Path, compression: str, is_split: bool) -> tuple[Path, list[str]]:
    """Writes the text into one file, or a file for each step. Returns the source and the content of each file."""
    parts = text.texts() if is_split else ["".join(text.texts())]
    for number, part in enumerate(parts):
        (folder / f"d.{number}.dump{compression}").write_bytes(COMPRESSIONS[compression](part.encode()))
    return folder / f"d.{'*' if is_split else 0}.dump{compression}", parts


def expected(parts: list[str], which: str | None) -> tuple[dict[int, Read], list[str]]:
    """The steps of the files, and the words of reasons to refuse them, any of which a refusal has."""
    try:
        steps = [step for part in parts for step in lammps_texts.read(part)]
    except Wrong as wrong:
        return {}, [*wrong.args]
    labels = [step.label for step in steps]
    repeated = sorted({label for label in labels if labels.count(label) > 1})
    reasons = ["--if-repeated last"] if repeated and which is None else []
    # Files of the same single step are its parts, which test_parts.py reads.
    assume(not reasons or len(parts) == 1 or len({*labels}) > 1)
    kept = dict(sorted({step.label: step for step in (steps if which == "last" else reversed(steps))}.items()))
    reasons += [word for step in kept.values() for word in step.wrong]
    filled = [step for step in steps if any(map(len, step.columns.values()))] or steps
    reasons += [f"'{name}'" for step in filled[1:] for name in {*step.columns} ^ {*filled[0].columns}]
    return kept, reasons if filled[0].columns else ["no column that can be read"]


@generated(examples=120, parts=25)
@given(text=texts(), form=FORMS)
def test_the_reader_agrees_with_the_text(reader, place, text, form):
    source, parts = write(text, place(), form["compression"], form["is_split"])
    which = form["if_repeated"]
    wanted, reasons = expected(parts, which)
    if reasons:
        with pytest.raises(Refused) as caught:
            inventory = reader.open(source, format="LAMMPS", if_repeated=which)
            for epoch in inventory["epochs"]:
                reader.epoch(epoch["epoch"])
        message = str(caught.value)
        assert any(word in message for word in reasons) or (text.defect == "cut" and ("file ends" in message or "the file is empty" in message)), (reasons, message)
        return
    inventory = reader.open(source, format="LAMMPS", if_repeated=which)
    assert [epoch["epoch"] for epoch in inventory["epochs"]] == list(wanted)
    names = {column["name"] for column in inventory["columns"]}
    for epoch in inventory["epochs"]:
        step = wanted[epoch["epoch"]]
        found = reader.epoch(step.label)
        assert {*found} == names and (epoch["records"] == 0 or names == {*step.columns})
        for name, values in found.items():
            if epoch["records"]:
                assert values.dtype == step.columns[name].dtype
                assert numpy.array_equal(values, step.columns[name], equal_nan=values.dtype.kind == "f"), name
        periods = {name: period for name, period in epoch["periods"].items() if not isinstance(period, str)}
        assert periods == {name: period for name, period in step.periods.items() if name in epoch["periods"]}
        assert {*epoch["periods"]} == {name for name in step.columns if name[0] in "xyz"}
    notes = "\n".join(inventory["notes"])
    for step in wanted.values():
        assert all(f"'{name}' is text; it is left out" in notes for name in step.texts)
    cut = [part for part in parts if not part.endswith("\n") and lammps_texts.ends_in_a_row(part)]
    assert ("no line end" in notes) == bool(cut), (notes, cut)


@generated(examples=6, parts=20)
@given(text=texts(), form=FORMS)
def test_the_command_agrees_with_the_text(place, text, form):
    folder = place()
    source, parts = write(lammps_texts.without_defect(text), folder, form["compression"], form["is_split"])
    options = ["--if-repeated", form["if_repeated"] or "error"]
    wanted, reasons = expected(parts, form["if_repeated"])
    if reasons:
        done = attempt("ingest", source, "--out", folder / "ds", "--key", "x", *options)
        assert done.returncode != 0 and any(word in done.stderr for word in reasons), (reasons, done.stderr)
        return
    coordinates = [name for name in next(iter(wanted.values())).columns if name[0] in "xyz"]
    key = f"space:{','.join(coordinates)}"
    done = attempt("ingest", source, "--out", folder / "ds", "--key", key, "--threads", 1, "--json", *options)
    assert done.returncode == 0, done.stderr
    for label, step in wanted.items():
        files = folder / "ds" / "data" / f"epoch={label}"
        rows = len(step.columns[coordinates[0]])
        table = pyarrow.dataset.dataset(files, format="parquet").to_table() if rows else None
        for name, values in step.columns.items() if rows else ():
            found = table[name].to_numpy()
            assert found.dtype == values.dtype and numpy.array_equal(numpy.sort(found), numpy.sort(values), equal_nan=values.dtype.kind == "f")
    common = {name: [step.periods.get(name) for step in wanted.values()] for name in coordinates}
    stated = [lengths[0] if len({*lengths}) == 1 else None for lengths in common.values()]
    assert answer("inspect", folder / "ds")["periods"] == (stated if any(stated) else None)
    words = "boxes wrap by" if any(stated) else "no periods are set"
    assert any(words in note for note in json.loads(done.stdout)["notes"])
