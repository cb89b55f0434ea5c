"""Runs the real `turbidite` command and checks how it ends."""

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

OK, FAILED, USAGE, CORRUPTION = 0, 1, 2, 3
# Seconds until a process is given up: only what hangs takes as long, however busy the machine is.
AMPLE_S = 900


def binary() -> str:
    """The command under test: `TURBIDITE`, as the Makefile sets it."""
    path = os.environ.get("TURBIDITE", "")
    if not os.access(path, os.X_OK):
        raise RuntimeError(f"TURBIDITE={path!r} is not an executable; run the tests with: make test-python")
    return path


def start(*arguments, **options) -> subprocess.Popen:
    """Starts the command without waiting for it."""
    command = [binary(), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def attempt(*arguments, prefix: tuple = (), timeout: float = AMPLE_S, **options) -> subprocess.CompletedProcess:
    """Runs the command to its end, however it ends."""
    command = [*map(str, prefix), binary(), *map(str, arguments)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, **options)


def turbidite(*arguments, expect: int = OK, **options) -> subprocess.CompletedProcess:
    """Runs the command to its end; any other exit code than `expect` fails the test with all that was said."""
    done = attempt(*arguments, **options)
    assert done.returncode == expect, (
        f"exit {done.returncode}, expected {expect}: {' '.join(map(str, done.args))}\n"
        f"stdout: {done.stdout[-2000:]}\nstderr: {done.stderr[-2000:]}"
    )
    return done


def answer(*arguments, **options):
    """The command's `--json` answer."""
    return json.loads(turbidite(*arguments, "--json", **options).stdout)
