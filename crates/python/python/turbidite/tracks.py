"""Trajectories: the rows of particles through the epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from turbidite import _core, pictures
from turbidite._arguments import TrackArguments
from turbidite._axes import label, shown_units
from turbidite._checks import Selection, column_name, column_named, natural
from turbidite._opened import OpenDataset
from turbidite._optional import needed
from turbidite._progress import Tell, watching
from turbidite._result import Result
from turbidite._tables import clipped
from turbidite._units import Units
from turbidite.errors import UsageError

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

    Array = numpy.ndarray[Any, Any]

__all__ = ["Tracks"]


class Tracks(Result):
    """The trajectories of particles: rows ordered by particle, then by epoch."""

    def __init__(self, dataset: OpenDataset, selection: Selection, arguments: TrackArguments) -> None:
        self._dataset = dataset
        self._selection = selection
        self._arguments = arguments
        self._progress = dataset.progress

    def _start(self, tell: Tell | None = None) -> _core.Stream:
        return self._dataset._core.tracks({**self._arguments, "epochs": self._dataset._labels(self._selection)}, tell)

    def _epochs(self) -> list[int]:
        """Returns the labels of the epochs, ascending."""
        stated = self._dataset._labels(self._selection)
        return self._dataset.epochs if stated is None else sorted(set(stated))

    def _begin(self, columns: list[str], particles: int) -> tuple[dict[str, Array], bool]:
        """Returns some columns of the first particles, and whether there are more."""
        request: TrackArguments = {**self._arguments, "columns": columns, "epochs": self._dataset._labels(self._selection)}
        with watching(self._progress, "row groups") as tell:
            stream = self._dataset._core.tracks(request, tell)
        names = stream.columns()
        parts: list[list[Array]] = [[numpy.empty(0, dtype)] for _, dtype in names]
        seen = 0
        last = None
        for batch in stream:
            arrays = [numpy.asarray(batch.column(name)) for name, _ in names]
            ids = arrays[0]
            begins = numpy.flatnonzero(numpy.concatenate([ids[:1] != last, ids[1:] != ids[:-1]]))
            last = ids[-1]
            end = int(begins[particles - seen]) if seen + len(begins) > particles else len(ids)
            for part, array in zip(parts, arrays, strict=True):
                part.append(array[:end])
            seen += len(begins)
            if seen > particles:
                break
        found = {name: numpy.concatenate(part) for (name, _), part in zip(names, parts, strict=True)}
        return found, seen > particles

    def plot(
        self,
        x: str,
        y: str,
        *,
        color: str | None = None,
        ax: Axes | None = None,
        limit: int = 2000,
        units: Units | None = None,
        **options: Any,
    ) -> Axes:
        """Draws the trajectories as lines, from epoch to epoch, and returns the axes.

        `x`, `y` and `color` are columns, ``"epoch"`` or its ``"time"``. A line has a gap where the particle is missing at an epoch; a
        particle of one epoch is a point. A line also has a gap where the particle leaves a periodic domain at one side and
        enters it at the other. Rows of an id that repeats within an epoch are points, too. The first `limit`
        particles are drawn. `units` states the units to show, as for histograms. `options` are those of matplotlib's ``LineCollection``, such as ``cmap`` and ``norm``.

        >>> dataset.tracks(of="energy >= 9.99", at=200, id="id").plot("epoch", "energy").get_xlabel()
        'epoch'
        """
        if natural("limit", limit) < 1:
            raise UsageError(f"limit: at least one particle is needed, not {limit}")
        chosen = {"x": x, "y": y} | ({} if color is None else {"color": color})
        schema = self._dataset.schema
        stated = {column.name.lower(): column for column in schema.columns}
        stated |= {column.name: column for column in schema.columns}
        names: dict[str, str] = {}
        for role, chosen_name in chosen.items():
            name = column_name(role, chosen_name)
            column = stated.get(name) or stated.get(name.lower())
            if column is not None and column.type.startswith("fixed_bytes"):
                raise UsageError(f"{role}: '{name}' has the type {column.type}, which is not numeric")
            names[role] = name if column is None else column.name
        id_name = self._id_name()
        columns = sorted({name for name in names.values() if name != id_name and name.lower() != "epoch"})
        found, is_cut = self._begin(columns, limit)
        place = {name.lower(): array for name, array in found.items()} | found
        # Columns follow the id and the epoch. An expression may have a name of its own.
        place |= dict(zip(columns, list(found.values())[2:], strict=True))
        rows = {"id": found[id_name], "epoch": found["epoch"]}
        rows |= {role: place.get(name, place[name.lower()]) for role, name in names.items()}
        shown = shown_units(
            units, {name: self._time_unit(name) if (of := stated.get(name)) is None else of.unit for name in names.values()}
        )
        for role, name in names.items():
            if shown[name][1] != 1:
                rows[role] = rows[role] * shown[name][1]
        labels = {role: label(name, shown[name][0]) for role, name in names.items()}
        lengths = [(schema.periods.get(names[role]), shown[names[role]][1]) for role in ("x", "y")]
        periods = [None if period is None else period * factor for period, factor in lengths]
        return pictures.draw_tracks(rows, labels, self._epochs(), ax, is_cut=is_cut, periods=periods, **options)

    def _time_unit(self, name: str) -> str | None:
        """Returns the unit of the physical time of the first epoch, if a name is not that of a stored column but of the time."""
        epochs = self._epochs() if name.lower() in ("time", "epoch_time") else []
        stated = self._dataset.attributes(epochs[0]) if epochs else {}
        return stated["time"][1] if "time" in stated else None

    def _id_name(self) -> str:
        """Returns the name of the id column as the dataset has it."""
        stated = self._arguments["id"]
        names = self._dataset.schema.names
        if "," in stated and stated not in names:
            raise UsageError(f"the columns {stated} identify particles: plots and xarray need a single id column")
        return column_named(stated, names)

    def to_xarray(self) -> xarray.Dataset:
        """Returns an ``xarray.Dataset`` with the dimensions id and epoch. Needs xarray.

        The variable ``present`` tells whether a particle exists at an epoch. Where it does not, floats are NaN, and other
        columns keep their type and hold zeros. An id that repeats within an epoch is refused.

        >>> dict(dataset.tracks(of="energy >= 9.99", at=200, id="id").to_xarray().sizes)
        {'id': 2, 'epoch': 2}
        """
        package = needed("xarray", "xarray", "to_xarray()")
        rows = self.to_numpy()
        id_name = self._id_name()
        ids, row = numpy.unique(rows.pop(id_name), return_inverse=True)
        epochs = numpy.array(self._epochs(), "i8")
        column = numpy.searchsorted(epochs, rows["epoch"])
        present = numpy.zeros((len(ids), len(epochs)), bool)
        present[row, column] = True
        if int(present.sum()) != len(row):
            repeated = (numpy.diff(row) == 0) & (numpy.diff(column) == 0)
            first = int(numpy.flatnonzero(repeated)[0])
            raise UsageError(
                f"{id_name} {ids[row[first]]} occurs twice in epoch {epochs[column[first]]}: trajectories need ids that are "
                "unique within an epoch"
            )
        if "present" in rows:
            raise UsageError("a column is named 'present', as the mask is: leave it out, columns=[...]")
        del rows["epoch"]
        units = {one.name: one.unit for one in self._dataset.schema.columns if one.unit}
        variables: dict[str, Any] = {}
        for name, values in rows.items():
            grid = numpy.full(present.shape, numpy.nan, values.dtype) if values.dtype.kind == "f" else None
            grid = numpy.zeros(present.shape, values.dtype) if grid is None else grid
            grid[row, column] = values
            variables[name] = ((id_name, "epoch"), grid, {"units": units[name]} if name in units else {})
        variables["present"] = ((id_name, "epoch"), present)
        found: xarray.Dataset = package.Dataset(variables, coords={id_name: ids, "epoch": epochs})
        return found

    def __repr__(self) -> str:
        found = self._arguments["particles"]
        chosen = (
            f"{len(found):,} ids"
            if isinstance(found, list)
            else f"at epoch {found[1]}, of {found[0] or self._arguments['box']}"
        )
        return clipped(f"<Tracks of {self._dataset.path}: {self._arguments['id']}, {chosen}>")

    def __reduce__(self) -> tuple[Any, ...]:
        return Tracks, (self._dataset, self._selection, self._arguments)
