"""Runs the ``turbidite`` command that the package brings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from typing import Any

from turbidite._core import version
from turbidite._progress import Tell
from turbidite.errors import CorruptionError, OperationError, TurbiditeError, UsageError


def command() -> str:
    """Returns the path of the ``turbidite`` command: the one of this environment, or of the path."""
    stated = os.environ.get("TURBIDITE")
    if stated:
        if shutil.which(stated) is None:
            raise OperationError(f"TURBIDITE names '{stated}', which cannot be run")
        return stated
    found = shutil.which(os.path.join(sysconfig.get_path("scripts"), "turbidite")) or shutil.which("turbidite")
    if found is None:
        raise OperationError("the command 'turbidite' is neither in this environment nor on the path: install the package")
    return found


@cache
def _check_release(program: str) -> None:
    """Refuses a command of another release than the package."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, encoding="utf-8", errors="replace", check=False)
    except OSError as error:
        raise OperationError(f"'{program}' cannot be run: {error.strerror}") from None
    if done.returncode != 0 or done.stdout.split() != ["turbidite", version()]:
        raise OperationError(
            f"'{program}' is {done.stdout.strip() or 'no command of Turbidite'}, but this package is of release {version()}: "
            "install both from one release, or let TURBIDITE name a command of this release"
        )


def run(arguments: Sequence[str], tell: Tell | None = None) -> dict[str, Any]:
    """Runs the command with ``--json``, and returns its answer. An error of the command is raised as an exception.

    `tell` is called with the command's progress, if it has the option ``--progress``. An exception of `tell` ends the
    command.
    """
    program = [command(), *arguments]
    _check_release(program[0])
    # The command's readers run under this interpreter, which has the package.
    environment = {"TURBIDITE_PYTHON": sys.executable, **os.environ}
    if tell is None:
        done = subprocess.run(program, capture_output=True, env=environment, encoding="utf-8", errors="replace", check=False)
    else:
        done = _run_watched(program, environment, tell)
    try:
        if done.returncode == 0:
            answer: dict[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {}
            return answer
        error = json.loads(done.stderr.splitlines()[-1])["error"]
        raised = _exception(error)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        said = done.stderr.strip() or "it said nothing"
        raise OperationError(f"{program[0]} ended with exit code {done.returncode}: {said}") from None
    raise raised


def _exception(error: dict[str, Any]) -> TurbiditeError:
    """Returns the exception of an error of the command."""
    message = error["message"] + (f"; {error['advice']}" if error.get("advice") else "")
    if error["class"] == "corruption":
        return CorruptionError(message, error.get("path") or "", error.get("place"))
    return UsageError(message) if error["class"] == "usage" else OperationError(message)


def _run_watched(program: list[str], environment: dict[str, str], tell: Tell) -> subprocess.CompletedProcess[str]:
    """Runs the command while its progress is told."""
    # Imported here: it takes a noticeable share of the package's import.
    import tempfile

    # The answer goes to a file: a pipe that nobody reads would keep the command waiting.
    program = [program[0], program[1], "--progress", *program[2:]]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as answer,
        subprocess.Popen(
            program, stdout=answer, stderr=subprocess.PIPE, env=environment, encoding="utf-8", errors="replace"
        ) as process,
    ):
        said: list[str] = []
        try:
            for line in process.stderr or ():
                progress = _progress_of(line)
                if progress is None:
                    said.append(line)
                else:
                    tell(*progress)
            process.wait()
        except BaseException:
            process.kill()
            raise
        answer.seek(0)
        return subprocess.CompletedProcess(program, process.returncode, answer.read(), "".join(said))


def _progress_of(line: str) -> tuple[int, int] | None:
    """Returns what is done and the total, if a line is of the progress."""
    if not line.startswith('{"progress"'):
        return None
    try:
        stated = json.loads(line)["progress"]
        return stated["done"], stated["total"]
    except (KeyError, TypeError, ValueError):
        # Mixed with the output of another program.
        return None
