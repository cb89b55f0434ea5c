"""Turbidite: in-situ indexing for scientific simulations, from Python.

>>> import numpy, turbidite
>>> rows = {"energy": numpy.linspace(0, 10, 1001, dtype="f4"), "id": numpy.arange(1001, dtype="u8")}
>>> with turbidite.Writer("run.tbd", {"energy": "f4", "id": "uint64"}, key="energy") as writer:
...     for step in (100, 200):
...         with writer.epoch(step):
...             _ = writer.append(rows)
>>> dataset = turbidite.open("run.tbd")
>>> hot = dataset.query("energy >= 9.99", epochs=200, order="key")
>>> hot.to_numpy()["id"]
array([ 999, 1000], dtype=uint64)
>>> both = turbidite.open({"e": "run.tbd", "i": "run.tbd"})
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import overload

from turbidite import _core
from turbidite._progress import Progress
from turbidite.aggregates import Aggregates
from turbidite.cursor import Cursor, CursorBatch, CursorStep
from turbidite.dataset import Dataset
from turbidite.distributions import Estimate, Quantile
from turbidite.errors import CorruptionError, OperationError, TurbiditeError, UsageError
from turbidite.histograms import Histogram, HistogramAxis
from turbidite.indexes import Index, Indexes
from turbidite.ingest import ingest
from turbidite.pieces import Piece
from turbidite.query import Query
from turbidite.schema import Column, Schema
from turbidite.species import Species, SpeciesAggregates, SpeciesQuery
from turbidite.spectra import Profile, Spectrum
from turbidite.tracks import Tracks
from turbidite.writer import Writer

__all__ = [
    "Aggregates",
    "Column",
    "CorruptionError",
    "Cursor",
    "CursorBatch",
    "CursorStep",
    "Dataset",
    "Estimate",
    "Histogram",
    "HistogramAxis",
    "Index",
    "Indexes",
    "OperationError",
    "Piece",
    "Profile",
    "Quantile",
    "Query",
    "Schema",
    "Species",
    "SpeciesAggregates",
    "SpeciesQuery",
    "Spectrum",
    "Tracks",
    "TurbiditeError",
    "UsageError",
    "Writer",
    "ingest",
    "open",
]

__version__ = _core.version()


@overload
def open(path: str | os.PathLike[str], *, progress: Progress = False) -> Dataset: ...


@overload
def open(
    path: Mapping[str, str | os.PathLike[str]], *, progress: Progress = False, species_column: str = "species"
) -> Species: ...


def open(
    path: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]],
    *,
    progress: Progress = False,
    species_column: str = "species",
) -> Dataset | Species:
    """Opens a dataset for reading, or the datasets of several species, ``{"e": "e.tbd", "i": "i.tbd"}``.

    With ``progress=True``, calls that read row groups draw a bar on standard error, on a terminal or in a notebook.
    ``progress=tell`` calls ``tell(done, total)`` instead, at most every 0.05 s and once at the end, with the row groups
    that are done. An exception that it raises ends the call, and is the one that is raised. Species are read one after
    the other. Results have their names in the column `species_column`, which no dataset may have.

    Raises `UsageError` or `OperationError` if `path` is not a dataset.

    >>> turbidite.open("run.tbd").epochs
    [100, 200]
    """
    if isinstance(path, Mapping):
        return Species(path, species_column=species_column, progress=progress)
    return Dataset(path, progress=progress)
