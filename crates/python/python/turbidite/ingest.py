"""Ingest of files: the work of the ``turbidite`` command."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from turbidite._boxes import Period, period_text
from turbidite._checks import Epochs, column_option, names, selection, text
from turbidite._command import run
from turbidite._progress import Progress, checked, watching
from turbidite._ranges import warn
from turbidite.errors import UsageError

__all__ = ["ingest"]


def ingest(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    key: str | None = None,
    levels: int | Literal["auto"] | None = None,
    level_weight: str | None = None,
    period: Period | None = None,
    species: str | None = None,
    layout: str | os.PathLike[str] | None = None,
    format: str | None = None,
    columns: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
    derive: Sequence[str] = (),
    si: bool = False,
    time: str | None = None,
    epoch: int | None = None,
    epochs: Epochs = None,
    if_repeated: Literal["first", "last", "error"] | None = None,
    nulls: Literal["nan", "fill", "error"] | None = None,
    source_ranks: int | None = None,
    allow_missing_ranks: bool = False,
    complete_only: bool = False,
    ranks: int | None = None,
    threads: int | None = None,
    if_exists: str | None = None,
    progress: Progress = False,
) -> dict[str, Any]:
    """Indexes the files of a simulation.

    `source` is a folder of VPIC particle dumps; a folder of raw records or Parquet files that a `layout` describes; a
    Parquet file, or a pattern of them; or openPMD, HDF5, LAMMPS text, ``.npz`` or Arrow files: a file, a folder, or a pattern such as
    ``"diags/openpmd_%T.h5"``. `format` names the format where the names do not show it. `species` is a species, or a group of
    HDF5 files, such as ``"PartType1"``, or ``"Step#{epoch}"`` for a group of each step.

    `layout` may also be a configuration of the preload library. The dataset with this `out`, or else the one whose files are
    in `source`, then has the `key`, and the other settings that are not given. Without it, `key` is required, and `if_exists`
    is ``"error"``.

    `time` is the physical time of an epoch in seconds, an expression of its label: ``"epoch * 1.5e-15"``. Without it, epochs have
    the time and further attributes that their files state.

    An epoch that occurs several times, as in a LAMMPS dump after a restart, is an error unless `if_repeated` states which
    occurrence is read. With `nulls` ``"nan"``, nulls of float columns in Parquet and Arrow files are read as NaN, which pandas stores
    as null; with ``"fill"``, values of HDF5 files that were never written are read as HDF5's fill values. Otherwise both are errors.

    An epoch with fewer files than the epoch before or after it is refused, if each rank wrote a file. `source_ranks` states
    how many ranks wrote each epoch. With `allow_missing_ranks`, the files that exist are read. With `complete_only`, epochs that
    are not whole are left out, as those that a running simulation is writing; `notes` of the report names them.

    `rename` gives columns of the files other names, such as ``{"epoch": "step"}``, which all other arguments but `columns` then use.

    `derive` adds columns, such as ``["energy = sqrt(1 + ux*ux + uy*uy + uz*uz) - 1"]``. With `si`, derivations see values in
    SI units; stored columns keep the values of the files. Derived columns are f32, with `si` f64, unless a type is given. A
    `RuntimeWarning` counts the values that f32 cannot represent, as does `out_of_range` of the report. `epochs` restricts the epochs, as in queries: ``100``,
    ``slice(100, 400)`` with both ends included, or ``"0..4000..100"``.

    With a key by space, a new dataset may have `levels` of detail, 1 to 6 or ``"auto"`` for as many as suit the largest epoch.
    With `level_weight`, the rows of a level are chosen in proportion to this column of numbers, and not evenly. `period` has the
    periods of the coordinates, such as ``{"x": 128}``, modulo which boxes are then compared. Without it, they are those of
    the box of LAMMPS text, if the box is orthogonal and the same in all epochs; ``{}`` means no periods.

    `progress` is that of `turbidite.open`, and counts bytes of records. Returns the report of the
    command. The work is done by a process of its own, so that an interrupt ends it at once.

    >>> numpy.savez("particles_7.npz", energy=numpy.arange(5.0))
    >>> turbidite.ingest("particles_%T.npz", "particles.tbd", key="energy")["rows"]
    5
    """
    kept, dropped = names("columns", columns), names("drop", drop) or []
    arguments = [
        "ingest",
        f"--out={os.fsdecode(out)}",
        *([] if key is None else [f"--key={text('key', key, 'energy')}"]),
        *(["--allow-missing-ranks"] if allow_missing_ranks else []),
        *(["--complete-only"] if complete_only else []),
        "--json",
    ]
    stated = {
        "species": species,
        "layout": layout,
        "format": format,
        "epoch": epoch,
        "epochs": _range(epochs),
        "if-repeated": if_repeated,
        "nulls": nulls,
        "time": None if time is None else text("time", time, "epoch * 1.5e-15"),
    }
    periods = period_text(period, key or "")
    if periods is not None and not periods.strip(","):
        periods = "none"
    detail = {"levels": levels, "level-weight": level_weight, "period": periods}
    job = {"source-ranks": source_ranks, "ranks": ranks, "threads": threads, "if-exists": if_exists}
    options = {**stated, **detail, **job}
    arguments += [f"--{name}={value}" for name, value in options.items() if value is not None]
    arguments += column_option(kept)
    arguments += [f"--rename={old}={new}" for old, new in (rename or {}).items()]
    arguments += [f"--drop={name}" for name in dropped] + (["--si"] if si else [])
    arguments += [f"--derive={one}" for one in ([derive] if isinstance(derive, str) else derive)]
    if not isinstance(source, (str, bytes, os.PathLike)):
        raise UsageError(f"source: a path or a pattern is needed, such as 'diags/*.h5', not {source!r}")
    with watching(checked(progress), "bytes") as tell:
        report = run([*arguments, "--", os.fsdecode(source)], tell)
    # The command has no report on ranks above 0.
    warn(report.get("out_of_range", []), stacklevel=2)
    return report


def _range(epochs: Epochs) -> str | None:
    """Returns the command's text for the epochs."""
    chosen = selection(epochs)
    if chosen is not None and not len(chosen):
        raise UsageError("epochs: name at least one")
    return chosen if chosen is None or isinstance(chosen, str) else ",".join(map(str, chosen))
