"""The messages that docs/simulation.md lists are those of the preload library and its MPI shim."""

import re

import pytest

from support.command import ROOT

SOURCES = [*(ROOT / "crates" / "preload" / "src").rglob("*.rs"), *(ROOT / "mpi").glob("*.[ch]")]
TABLE = (ROOT / "docs" / "simulation.md").read_text().partition("| message | meaning |")[2].partition("\n\n")[0]
MESSAGES = [message for row in TABLE.splitlines()[2:] for message in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
# What stands for a name or a number, and what is left out.
HOLES = re.compile(r"…|\{[^}]*\}|%\w+|\b[A-Z]{2,}(?:-[a-z]+)?\b(?<!MPI)(?<!TURBIDITE)|\bN\b|\d[\d,]*")


def pieces(message: str) -> list[str]:
    """The fixed text of a message, without its ends."""
    found = (piece.strip(" :;,.'()[]=") for piece in HOLES.split(message))
    return [piece for piece in found if len(piece) > 8]


@pytest.fixture(scope="module")
def sources():
    text = "\n".join(source.read_text() for source in SOURCES)
    # Literals go on in the next line, in Rust and in C.
    return re.sub(r"\\\n\s*|\"\s*\n\s*\"", "", text)


def test_the_table_is_found():
    assert len(MESSAGES) > 20


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_that_is_listed_exists(message, sources):
    missing = [piece for piece in pieces(message) if piece not in sources]
    assert not missing, f"no message has {missing}"
