"""Errors of the command that the package runs: one class each, with their fields, and the release of both."""

import numpy
import pytest
import turbidite

from support.command import ROOT
from support.command import turbidite as command

VPIC = ROOT / "testdata" / "vpic"


def flip(path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.fixture
def dataset(tmp_path):
    turbidite.ingest(VPIC, tmp_path / "run.tbd", key="ux")
    return tmp_path / "run.tbd"


def test_corruption_has_its_file_and_place(dataset, tmp_path):
    [part, *_] = sorted(dataset.glob("data/**/*.parquet"))
    flip(part, 1000)
    with pytest.raises(turbidite.CorruptionError) as own:
        turbidite.open(dataset).query().to_numpy()
    with pytest.raises(turbidite.CorruptionError) as raised:
        turbidite.open(dataset).query().write(tmp_path / "all.parquet")
    for error in (own.value, raised.value):
        assert error.path == str(part) and error.page is not None and f"page {error.page}" in error.place
    flip(dataset / "_turbidite" / "dataset.json", 30)
    for use in (
        lambda: turbidite.open(dataset),
        lambda: turbidite.ingest(VPIC, dataset, key="ux"),
        lambda: turbidite.ingest(VPIC, dataset, key="ux", progress=lambda done, total: None),
    ):
        with pytest.raises(turbidite.CorruptionError, match="checksum") as raised:
            use()
        assert (raised.value.path, raised.value.place, raised.value.page) == (str(dataset / "_turbidite" / "dataset.json"), None, None)


def test_other_errors_have_their_classes(dataset, tmp_path):
    with pytest.raises(turbidite.OperationError, match="already exists"):
        turbidite.ingest(VPIC, dataset, key="ux")
    with pytest.raises(turbidite.UsageError, match="speed"):
        turbidite.ingest(VPIC, tmp_path / "none.tbd", key="speed")


@pytest.mark.parametrize(("said", "words"), [("turbidite 0.0.9", "turbidite 0.0.9"), ("GNU bash", "GNU bash"), ("", "no command")])
def test_a_command_of_another_release_is_refused(tmp_path, monkeypatch, said, words):
    program = tmp_path / "turbidite"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("TURBIDITE", str(program))
    with pytest.raises(turbidite.OperationError, match=words) as raised:
        turbidite.ingest(VPIC, tmp_path / "none.tbd", key="ux")
    assert turbidite.__version__ in str(raised.value) and str(program) in str(raised.value)


@pytest.mark.parametrize(("content", "words"), [("#!/no/such/interpreter\n", "cannot be run"), ("#!/bin/sh\nexit 3\n", "no command")])
def test_what_cannot_be_run_is_refused(tmp_path, monkeypatch, content, words):
    program = tmp_path / "turbidite"
    program.write_text(content)
    program.chmod(0o755)
    monkeypatch.setenv("TURBIDITE", str(program))
    with pytest.raises(turbidite.OperationError, match=words) as raised:
        turbidite.ingest(VPIC, tmp_path / "none.tbd", key="ux")
    assert str(program) in str(raised.value)


def test_the_release_is_that_of_the_command():
    assert command("--version").stdout == f"turbidite {turbidite.__version__}\n"


def test_missing_ranks_are_refused_unless_they_are_allowed(tmp_path):
    """Epoch 2 lacks the file of its last rank. The configuration of a preloaded job has the key."""
    layout = tmp_path / "job.toml"
    field = '[[dataset.field]]\nname = "x"\ntype = "f32"\n'
    layout.write_text(f'[[dataset]]\nfiles = "d.{{epoch}}.{{rank}}"\nout = "job.tbd"\nkey = "x"\nif_exists = "skip"\n{field}')
    for epoch, rank in [(1, 0), (1, 1), (2, 0)]:
        numpy.arange(10, dtype="f4").tofile(tmp_path / f"d.{epoch}.{rank}")
    with pytest.raises(turbidite.OperationError, match=r"d\.2\.1 is missing: epoch 2 has 1 of the 2 ranks .* allow_missing_ranks"):
        turbidite.ingest(tmp_path, tmp_path / "job.tbd", layout=layout)
    with pytest.raises(turbidite.OperationError, match="the 3 ranks that source_ranks states"):
        turbidite.ingest(tmp_path, tmp_path / "job.tbd", layout=layout, source_ranks=3, epochs=1)
    assert turbidite.ingest(tmp_path, tmp_path / "job.tbd", layout=layout, source_ranks=2, epochs=1)["rows"] == 20
    report = turbidite.ingest(tmp_path, tmp_path / "job.tbd", layout=layout, allow_missing_ranks=True)
    assert [epoch["skipped"] for epoch in report["epochs"]] == [True, False]
    assert report["rows"] == 10 and report["notes"] == ["epochs without the files of some ranks: 2 (1 of 2 files)"]
