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
    name = os.environ.get("TURBIDITE") or os.path.join(sysconfig.get_path("scripts"), "turbidite")
    found = shutil.which(name) or shutil.which("turbidite")
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
    arguments = ["ingest", os.fspath(source), "--out", os.fspath(out), "--key", key, "--if-exists", if_exists]
    options = {"species": species, "layout": layout, "epoch": epoch, "ranks": ranks, "threads": threads}
    for name, value in options.items():
        if value is not None:
            arguments += [f"--{name}", str(value)]
    if columns is not None:
        arguments += ["--columns", ",".join(columns)]
    for one in [derive] if isinstance(derive, str) else derive:
        arguments += ["--derive", one]
    done = subprocess.run([command(), *arguments, "--json"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        report: dict[str, Any] = json.loads(done.stdout)
        return report
    try:
        error = json.loads(done.stderr.splitlines()[-1])["error"]
    except (IndexError, KeyError, ValueError):
        raise OperationError(done.stderr.strip() or f"turbidite ended with exit code {done.returncode}") from None
    advice = f"; {error['advice']}" if error.get("advice") else ""
    raise _CLASSES.get(error["class"], OperationError)(error["message"] + advice)
