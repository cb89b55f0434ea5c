"""The main job on real data, in half a minute: index particle dumps, query them, ask another engine the same.

Run it with `make demo`. It prints every command, so that each can be repeated by hand.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import duckdb

ROOT = Path(__file__).resolve().parent.parent
DUMPS = ROOT / "testdata" / "vpic"
OUTPUT = ROOT / "demo-output"
DATASET = OUTPUT / "particles"
COMMAND = os.environ.get("TURBIDITE", "turbidite")

ENERGY = "energy=sqrt(1+ux*ux+uy*uy+uz*uz)-1"
IDENTITY = "id:i32=bits_i32(w)-1024608549"


def shown(path) -> str:
    """A path as one would type it from the checkout."""
    return os.path.relpath(path, ROOT) if isinstance(path, Path) else str(path)


def quoted(argument: str) -> str:
    return f"'{argument}'" if any(character in argument for character in " *()<>=:") else argument


def turbidite(*arguments) -> dict:
    """Prints the command as one would type it, runs it, returns its JSON answer."""
    print("\n  $ turbidite " + " ".join(quoted(shown(argument)) for argument in arguments))
    done = subprocess.run([COMMAND, *map(str, arguments), "--json"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def say(text: str = "") -> None:
    print(f"  {text}")


def main() -> None:
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir()
    dump_bytes = sum(path.stat().st_size for path in DUMPS.rglob("eparticle.*"))
    print(f"{dump_bytes / 1e6:.1f} MB of particle dumps, 8 steps of a plasma simulation, go through 16 ranks into a dataset.")


if __name__ == "__main__":
    main()
