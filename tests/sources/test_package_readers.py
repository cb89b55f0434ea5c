"""Readers of the Python package as the command meets them: a program in place of the interpreter plays good and bad ones."""

import json
import os
import stat
import sys
import textwrap

import numpy
import pyarrow.dataset
import pytest
from turbidite.sources.signatures import BEGINNINGS, SUFFIXES

from support.command import FAILED, USAGE, answer, attempt, turbidite

RELEASE = turbidite("--version").stdout.split()[1]
ROWS = 10_000
BLOCK_ROWS = 1_000

READER = """\
#!{python}
import json, os, signal, sys
import numpy
ROWS, BLOCK_ROWS, MODE, RELEASE = {rows}, {block_rows}, {mode!r}, {release!r}
out = sys.stdout.buffer
def say(answer):
    out.write(json.dumps(answer).encode() + b"\\n")
    out.flush()
with open({log!r}, "a") as log:
    log.write(f"start {{' '.join(sys.argv[1:])}}\\n")
if MODE == "silent":
    sys.exit(7)
if RELEASE is not None:
    say(dict(release=RELEASE))
for line in sys.stdin:
    with open({log!r}, "a") as log:
        log.write(line)
    request = json.loads(line)
    if "open" in request:
        columns = [dict(name="x", type="f64", unit="1e-06 m"), dict(name="id", type="u64", unit=None)]
        epochs = [dict(epoch=epoch, path="file-%d.h5" % epoch, records=ROWS, block_rows=BLOCK_ROWS) for epoch in (3, 7)]
        inventory = dict(format="openPMD", columns=columns, epochs=epochs, notes=["a note"], index=dict(found=2))
        {edit}
        say(inventory)
        continue
    read = request["read"]
    ids = numpy.arange(read["first"], read["first"] + read["rows"], dtype="u8")
    values = (ids * 0.5 + read["epoch"]).astype("f8").tobytes() + ids.tobytes()
    if MODE == "crash" and read["first"] >= 4000:
        os.abort()
    if MODE == "signal" and read["first"] == 4000:
        os.kill(os.getppid(), signal.SIGTERM)
    if MODE == "short" and read["first"] == 4000:
        say(dict(rows=read["rows"] - 1))
    elif MODE == "refuse" and read["first"] == 4000:
        say(dict(error=dict({{"class": "failed"}}, path="file-3.h5", message="rows 4000 to 4999 cannot be read")))
        continue
    elif MODE == "cut" and read["first"] == 4000:
        say(dict(rows=read["rows"]))
        out.write(values[:-1])
        out.flush()
        sys.exit(0)
    else:
        say(dict(rows=read["rows"]))
    out.write(values)
    out.flush()
"""


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """Puts a program in the place of the interpreter; returns a function that makes it, and its log of requests."""
    log = tmp_path / "requests"

    def make(mode: str = "good", edit: str = "pass", release: str | None = RELEASE):
        program = tmp_path / "python3"
        text = textwrap.dedent(READER).format(
            python=sys.executable, rows=ROWS, block_rows=BLOCK_ROWS, mode=mode, log=str(log), edit=edit, release=release
        )
        program.write_text(text)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("TURBIDITE_PYTHON", str(program))
        return log

    return make


@pytest.mark.parametrize("ranks", [1, 3, 16])
def test_every_row_arrives_once(reader, tmp_path, ranks):
    log = reader()
    out = tmp_path / "ds"
    report = answer(
        "ingest", "diags/file_%T.h5", "--out", out, "--key", "x", "--ranks", ranks, "--species", "e", "--threads", 2
    )
    assert report["rows"] == 2 * ROWS and report["notes"] == ["a note"]
    for epoch in (3, 7):
        table = pyarrow.dataset.dataset(out / "data" / f"epoch={epoch}").to_table(columns=["x", "id"]).sort_by("id")
        ids = numpy.arange(ROWS, dtype="u8")
        assert (table["id"].to_numpy() == ids).all() and (table["x"].to_numpy() == ids * 0.5 + epoch).all()
    requests = log.read_text().splitlines()
    assert requests[0] == "start -m turbidite.sources"
    assert '"path":"diags/file_%T.h5"' in requests[1] and '"species":"e"' in requests[1] and '"index":null' in requests[1]
    opened = [json.loads(line)["open"] for line in requests if line.startswith('{"open"')]
    assert 1 <= len(opened) <= 2 and all(request["index"] == {"found": 2} for request in opened[1:])
    blocks = sorted(line for line in requests if line.startswith('{"read"'))
    assert len(blocks) == len(set(blocks)) == 2 * ROWS // BLOCK_ROWS


def test_units_are_kept_and_si_is_for_derivations_alone(reader, tmp_path):
    reader()
    common = ("ingest", "file_%T.h5", "--key", "far", "--derive", "far:f64=x*2", "--epochs", "3")
    for name, option, factor in (("plain", (), 1.0), ("si", ("--si",), 1e-6)):
        report = answer(*common, "--out", tmp_path / name, *option)
        assert report["rows"] == ROWS
        table = pyarrow.dataset.dataset(tmp_path / name / "data").to_table().sort_by("id")
        x = numpy.arange(ROWS) * 0.5 + 3
        assert (table["x"].to_numpy() == x).all()
        assert (table["far"].to_numpy() == x * factor * 2).all()
        columns = {column["name"]: column for column in answer("inspect", tmp_path / name)["columns"]}
        assert columns["x"]["unit"] == "1e-06 m"
        assert columns["far"]["type"] == "f64"
    for name, option, kind in (("narrow", (), "f32"), ("wide", ("--si",), "f64")):
        derive = ("--derive", "area=x*x", "--derive", "short:f32=x")
        report = answer(*common, *derive, "--out", tmp_path / name, *option)
        columns = {column["name"]: column["type"] for column in answer("inspect", tmp_path / name)["columns"]}
        assert columns["area"] == kind and columns["short"] == "f32" and report["out_of_range"] == []
    reader(edit="columns[0]['unit'] = 'MeV'")
    said = turbidite(*common, "--out", tmp_path / "other", "--si", expect=USAGE).stderr
    assert "'MeV'" in said and "1e-06 m" in said


@pytest.mark.parametrize(
    ("mode", "code", "words"),
    [
        ("silent", USAGE, ["file_%T.h5", "Python package", "exit status: 7", "TURBIDITE_PYTHON"]),
        ("crash", FAILED, ["file_%T.h5", "SIGABRT", "while it read"]),
        ("short", FAILED, ["999 rows instead of 1000"]),
        ("refuse", FAILED, ["file-3.h5: rows 4000 to 4999 cannot be read"]),
        ("cut", FAILED, ["has ended", "while it read"]),
    ],
)
def test_a_reader_that_fails_leaves_nothing(reader, tmp_path, mode, code, words):
    reader(mode)
    out = tmp_path / "ds"
    said = turbidite("ingest", "file_%T.h5", "--out", out, "--key", "x", "--ranks", 2, expect=code).stderr
    for word in words:
        assert word in said, said
    assert not list(out.glob("data/**/*.parquet"))


@pytest.mark.parametrize(("release", "words"), [("0.0.9", "release 0.0.9 of it"), (None, "another release of it")])
def test_a_package_of_another_release_is_refused(reader, tmp_path, release, words):
    log = reader(release=release)
    said = turbidite("ingest", "file_%T.h5", "--out", tmp_path / "ds", "--key", "x", expect=USAGE).stderr
    assert words in said and f"this command is release {RELEASE}" in said and "TURBIDITE_PYTHON" in said, said
    assert str(tmp_path / "python3") in said and "file_%T.h5" in said
    assert '"read"' not in log.read_text() and not (tmp_path / "ds").exists()


def test_a_signal_discards_the_open_epoch_of_a_command_that_follows(reader, tmp_path):
    """The reader sends the signal, while it reads the first of two epochs."""
    reader(mode="signal")
    done = turbidite("ingest", "file_%T.h5", "--out", tmp_path / "ds", "--key", "x", "--follow")
    assert "epoch 3" not in done.stdout, done.stdout
    assert answer("inspect", tmp_path / "ds")["epochs"] == [] and answer("salvage", tmp_path / "ds")["unfinished"] == []
    assert not list(tmp_path.glob("ds/data/*"))


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ("inventory = []", "different releases"),
        ("inventory = dict(error=dict({'class': 'usage'}, path=None, message='install h5py'))", "install h5py"),
        ("epochs.clear()", "no epoch was found"),
        ("epochs[1]['epoch'] = 3", "epoch 3 occurs twice"),
        ("epochs[0]['block_rows'] = 0", "epoch 3 has invalid blocks"),
        ("epochs[0]['block_rows'] = 1 << 40", "epoch 3 has invalid blocks"),
        ("epochs[0]['records'] = -1", "unexpected answer"),
        ("columns[0]['type'] = 'f16'", "f16"),
        ("columns.clear()", "no columns"),
        ("out.write(b'{'); say({})", "unexpected answer"),
    ],
)
def test_an_inventory_that_makes_no_sense_is_refused(reader, tmp_path, edit, words):
    reader(edit=edit)
    done = attempt("ingest", "file_%T.h5", "--out", tmp_path / "ds", "--key", "x")
    assert done.returncode in (FAILED, USAGE) and words in done.stderr, done.stderr
    assert not (tmp_path / "ds").exists()


def test_a_python_that_cannot_be_started_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TURBIDITE_PYTHON", str(tmp_path / "no-python"))
    said = turbidite("ingest", "file_%T.h5", "--out", tmp_path / "ds", "--key", "x", expect=USAGE).stderr
    assert "no-python" in said and "TURBIDITE_PYTHON" in said
    # A Python without the package.
    lean = tmp_path / "lean"
    lean.write_text(f'#!/bin/sh\nexec {sys.executable} -I "$@"\n')
    lean.chmod(0o755)
    monkeypatch.setenv("TURBIDITE_PYTHON", str(lean))
    said = turbidite(
        "ingest", "file_%T.h5", "--out", tmp_path / "ds", "--key", "x", expect=USAGE, env=os.environ | {"PYTHONPATH": ""}
    )
    assert "turbidite" in said.stderr and "install the package" in said.stderr


@pytest.mark.parametrize("beginning", BEGINNINGS, ids=repr)
def test_the_command_leaves_each_beginning_of_the_package_to_it(reader, tmp_path, beginning):
    """A file is recognised by its first bytes alone."""
    log = reader()
    path = tmp_path / "particles_3"
    path.write_bytes(beginning)
    answer("ingest", path, "--out", tmp_path / "ds", "--key", "x", "--epochs", 3)
    assert f'"path":"{path}"' in log.read_text()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_command_leaves_each_format_of_the_package_to_it(reader, tmp_path, suffix):
    """A file is recognised by its name alone, in a folder, too."""
    log = reader()
    folder = tmp_path / "run"
    folder.mkdir()
    path = folder / f"particles_3{suffix}"
    path.write_bytes(b"")
    for number, source in enumerate((path, folder, folder / f"particles_?{suffix}")):
        log.unlink(missing_ok=True)
        answer("ingest", source, "--out", tmp_path / f"ds-{number}", "--key", "x", "--epochs", 3)
        assert f'"path":"{source}"' in log.read_text()
