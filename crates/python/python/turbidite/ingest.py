"""Ingest of files: the work of the ``turbidite`` command that the package brings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
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
    format: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    derive: Sequence[str] = (),
    si: bool = False,
    epoch: int | None = None,
    epochs: str | None = None,
    ranks: int | None = None,
    threads: int | None = None,
    if_exists: str = "error",
) -> dict[str, Any]:
    """Indexes the files of a simulation.

    `source` is a folder of VPIC particle dumps; a folder of raw records or Parquet files that a `layout` describes; a
    Parquet file; or openPMD, HDF5, LAMMPS text, ``.npz`` or Arrow files: a file, a folder, or a pattern such as
    ``"diags/openpmd_%T.h5"``. `format` names the format where the names do not show it.

    `derive` adds columns, such as ``["energy = sqrt(1 + ux*ux + uy*uy + uz*uz) - 1"]``. With `si`, derivations see values in
    SI units; stored columns keep the values of the files. `epochs` restricts the epochs: ``"100"`` or ``"100..400"``, both
    ends included. Returns the report of the command. The work is done by a process of its own, so that an interrupt ends
    it at once.
    """
    for name, value in (("columns", columns), ("drop", drop)):
        if isinstance(value, str):
            raise UsageError(f"{name}: give a list of names, such as ['id', 'energy']")
    arguments = ["ingest", f"--out={os.fsdecode(out)}", f"--key={key}", f"--if-exists={if_exists}", "--json"]
    stated = {"species": species, "layout": layout, "format": format, "epoch": epoch, "epochs": epochs}
    options = {**stated, "ranks": ranks, "threads": threads}
    arguments += [f"--{name}={value}" for name, value in options.items() if value is not None]
    if columns is not None:
        arguments.append(f"--columns={','.join(columns)}")
    arguments += [f"--drop={name}" for name in drop] + (["--si"] if si else [])
    arguments += [f"--derive={one}" for one in ([derive] if isinstance(derive, str) else derive)]
    program = [command(), *arguments, "--", os.fsdecode(source)]
    # The command's readers run under this interpreter, which has the package.
    environment = {"TURBIDITE_PYTHON": sys.executable, **os.environ}
    done = subprocess.run(program, capture_output=True, env=environment, encoding="utf-8", errors="replace", check=False)
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
