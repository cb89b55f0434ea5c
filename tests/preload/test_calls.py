"""The table of calls in docs/simulation.md: each replaced function is in it once, and nothing else is."""

import re
import subprocess
from pathlib import Path

from support.preload import libraries

TABLE = Path(__file__).parents[2] / "docs" / "simulation.md"
HEADING = "### What the library does with each call"


def replaced() -> set[str]:
    done = subprocess.run(["nm", "-D", "--defined-only", libraries(with_mpi=False)], capture_output=True, text=True, check=True)
    names = {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}
    return {name for name in names if not name.startswith("turbidite_")}


def test_the_table_has_every_replaced_function():
    section = TABLE.read_text().split(HEADING)[1].split("\n## ")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("| ")][2:]
    documented = [name for row in rows for name in re.findall("`([^`]+)`", row)]
    assert len(documented) == len(set(documented))
    assert set(documented) == replaced()
