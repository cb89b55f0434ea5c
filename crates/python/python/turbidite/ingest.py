"""Ingest of files: the work of the ``turbidite`` command that the package brings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from typing import Any

from turbidite.errors import CorruptionError, OperationError, UsageError

__all__ = ["command", "ingest"]

_CLASSES = {"usage": UsageError, "damage": CorruptionError, "failed": OperationError}


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


def ingest(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    key: str,
    species: str | None = None,
    layout: str | os.PathLike[str] | None = None,
    columns: Sequence[str] | None = None,
    derive: Sequence[str] = (),
    epoch: int | None = None,
    ranks: int | None = None,
    threads: int | None = None,
    if_exists: str = "error",
) -> dict[str, Any]:
    """Indexes dump files: VPIC particle dumps, raw records or Parquet that a `layout` describes, or a Parquet file.

    `derive` adds columns, such as ``["energy = sqrt(1 + ux*ux + uy*uy + uz*uz) - 1"]``. Returns the report of the
    command. The work is done by other threads and a process of its own, so that an interrupt ends it at once.
    """
    if isinstance(columns, str):
        raise UsageError("columns: give a list of names, such as ['id', 'energy']")
    arguments = ["ingest", f"--out={os.fsdecode(out)}", f"--key={key}", f"--if-exists={if_exists}", "--json"]
    options = {"species": species, "layout": layout, "epoch": epoch, "ranks": ranks, "threads": threads}
    arguments += [f"--{name}={value}" for name, value in options.items() if value is not None]
    if columns is not None:
        arguments.append(f"--columns={','.join(columns)}")
    arguments += [f"--derive={one}" for one in ([derive] if isinstance(derive, str) else derive)]
    program = [command(), *arguments, "--", os.fsdecode(source)]
    done = subprocess.run(program, capture_output=True, encoding="utf-8", errors="replace", check=False)
    try:
        if done.returncode == 0:
            report: dict[str, Any] = json.loads(done.stdout)
            return report
        error = json.loads(done.stderr.splitlines()[-1])["error"]
        advice = f"; {error['advice']}" if error.get("advice") else ""
        kind, message = _CLASSES.get(error["class"], OperationError), error["message"] + advice
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        said = done.stderr.strip() or "it said nothing"
        raise OperationError(f"{program[0]} ended with exit code {done.returncode}: {said}") from None
    raise kind(message)
