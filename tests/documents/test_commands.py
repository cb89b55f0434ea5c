"""The commands in README.md and docs/ run as they stand there.

A fenced block of kind `console` that follows `<!-- test -->` is run from a folder that looks like a fresh checkout with
the command on the path: every line beginning with `$ `, in order, across all blocks of a document. Lines after a
command that are not blank are its output: each must occur in what the command prints, `…` standing for anything.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from support.command import AMPLE_S, ROOT, binary

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKING = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")])


def blocks(document: Path) -> list[str]:
    return re.findall(r"<!-- test -->\s*```console\n(.*?)```", document.read_text(), re.DOTALL)


def commands(document: Path) -> list[tuple[str, list[str]]]:
    """Commands with the lines that must appear in their output."""
    found = []
    for block in blocks(document):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line.strip():
                found[-1][1].append(line)
    return found


def matches(line: str, output: str) -> bool:
    pattern = r"\s+".join(".*?".join(re.escape(piece) for piece in word.split("…")) for word in line.split())
    return re.search(pattern, output) is not None


@pytest.mark.parametrize("document", [document for document in DOCUMENTS if blocks(document)], ids=lambda path: path.name)
def test_commands_run_and_say_what_is_written(document, tmp_path):
    for name in ("testdata", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = os.environ | {"PATH": f"{Path(binary()).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    for command, expected in commands(document):
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=AMPLE_S)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        for line in expected:
            assert matches(line, done.stdout), f"$ {command}\nexpected: {line}\nprinted:\n{done.stdout}"


def test_the_readme_has_commands_to_run():
    assert len(commands(ROOT / "README.md")) >= 4


@pytest.mark.parametrize("document", LINKING, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
