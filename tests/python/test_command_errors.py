"""The command that the package runs, and its release."""

import pytest
import turbidite

from support.command import ROOT
from support.command import turbidite as command

VPIC = ROOT / "testdata" / "vpic"


@pytest.mark.parametrize(("said", "words"), [("turbidite 0.0.9", "turbidite 0.0.9"), ("GNU bash", "GNU bash"), ("", "no command")])
def test_a_command_of_another_release_is_refused(tmp_path, monkeypatch, said, words):
    program = tmp_path / "turbidite"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("TURBIDITE", str(program))
    with pytest.raises(turbidite.OperationError, match=words) as raised:
        turbidite.ingest(VPIC, tmp_path / "none.tbd", key="ux")
    assert turbidite.__version__ in str(raised.value) and str(program) in str(raised.value)


def test_the_release_is_that_of_the_command():
    assert command("--version").stdout == f"turbidite {turbidite.__version__}\n"
