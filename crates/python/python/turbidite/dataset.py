"""Datasets that are open for reading."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import numpy

from turbidite import _checks, histograms, movies, pictures, spectra
from turbidite._arguments import Arguments, HistogramArguments, TrackArguments
from turbidite._boxes import Box, Period, box_texts
from turbidite._checks import (
    Epochs,
    Id,
    Ids,
    access,
    column_name,
    column_named,
    flag,
    names,
    natural,
    optional,
    optional_column,
    optional_text,
    particle_ids,
    predicate,
    reals,
    selection,
)
from turbidite._command import run
from turbidite._opened import OpenDataset
from turbidite._progress import watching
from turbidite._tables import abridged, clipped, table
from turbidite._units import Units
from turbidite.aggregates import Aggregates, group_texts, named_texts
from turbidite.cursor import Cursor
from turbidite.distributions import Quantile, number
from turbidite.errors import UsageError
from turbidite.histograms import Histogram
from turbidite.indexes import Indexes
from turbidite.pieces import Piece
from turbidite.query import Query
from turbidite.schema import Column
from turbidite.spectra import Profile, Spectrum
from turbidite.tracks import Tracks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Dataset"]


class Dataset(OpenDataset):
    """A dataset that is open for reading. Threads may share it; it pickles as its path, without its progress."""

    def __repr__(self) -> str:
        columns = ", ".join(f"{column.name} {column.type}" for column in self.schema.columns)
        return clipped(f"<Dataset {self.path}: {len(self.epochs)} epochs, key {self._core.cluster_key()}; {columns}>")

    def _repr_html_(self) -> str:
        # Reads the manifests of a few epochs.
        epochs = self.epochs
        rows: list[tuple[object, object]] = []
        for epoch in abridged(epochs):
            rows.append(("…", "…") if epoch is None else (epoch, f"{self.stats(epoch)['rows']:,}"))
        count = "1 epoch" if len(epochs) == 1 else f"{len(epochs):,} epochs"
        return f"<div><b>{escape(self.path)}</b>{self.schema._repr_html_()}{table(count, ('epoch', 'rows'), rows)}</div>"

    @property
    def indexes(self) -> Indexes:
        """The indexes, by which records are found that the key does not find.

        >>> dataset.indexes.add("id").definition
        'id'
        >>> [index.name for index in dataset.indexes]
        ['id']
        """
        return Indexes(self.path, self._reopen)

    def stats(self, epoch: int) -> dict[str, Any]:
        """Returns the metrics of an epoch: rows, files, load imbalance, and those of its writing.

        >>> dataset.stats(200)["rows"]
        1001
        """
        found: dict[str, Any] = json.loads(self._core.metrics(self._label("epoch", epoch)))
        return found

    def query(
        self,
        where: str | None = None,
        *,
        box: Box | None = None,
        period: Period | None = None,
        epochs: Epochs = None,
        columns: Sequence[str] | None = None,
        order: str | Sequence[str] | None = None,
        per_epoch: bool = False,
        limit: int | None = None,
        threads: int | None = None,
        check: bool = True,
        use: str | None = None,
    ) -> Query:
        """Returns a query: the rows that satisfy `where`, an expression such as ``"energy >= 1.5 and abs(ux) < 1"``.

        `box` keeps the rows within ranges of columns, ``{"x": (0, 10), "y": (None, 5)}``: a lower bound is included, an
        upper bound excluded, and NaN is in no range. Columns of `period`, such as ``{"x": 128}``, are compared modulo it; by
        default, those of ``schema.periods``, except for columns whose period is None.

        `columns` are those to return (default: all, and the epoch): names, or expressions such as
        ``"r = sqrt(x*x + y*y)"``. `limit` ends the result early. `order="energy desc, id"` sorts the rows of all
        epochs by columns or expressions, `per_epoch` those of each epoch, and NaN is last; more than 64 MiB of rows need the
        statistics of the key or an index. `order="key"` sorts each epoch by the key. `check=False` does not compare checksums of
        pages. `use` is the name of the index that finds the rows, or ``"scan"`` for none; by default, whatever reads least
        is used.

        >>> dataset.query("energy between 1 and 2", epochs=200).count()
        101
        >>> dataset.query(box={"energy": (1, 2), "id": (None, 150)}, epochs=200).count()
        50
        >>> dataset.query("energy < 0.02", epochs=200, columns=["twice = 2 * id", "energy / 2"]).to_numpy()["twice"]
        array([0, 2], dtype=uint64)
        >>> dataset.query(order="energy desc", limit=2).to_numpy()["epoch"]
        array([100, 200])
        """
        order = _checks.order(order)
        by_key = order == "key"
        sides, periods = box_texts(box, period)
        arguments: Arguments = {
            "where": predicate("where", where),
            "box": sides,
            "period": periods,
            "epochs": None,
            "columns": names("columns", columns),
            "ordered": by_key,
            "order_by": None if by_key else order,
            "per_epoch": flag("per_epoch", per_epoch) and order is not None and not by_key,
            "limit": optional("limit", limit),
            "threads": optional("threads", threads),
            "check": flag("check", check),
            "use": access("use", use),
            "piece": None,
        }
        return Query(self, selection(epochs), arguments)

    def head(self, rows: int = 5) -> dict[str, numpy.ndarray[Any, Any]]:
        """Returns the first rows as arrays, with all columns.

        >>> dataset.head(2)["id"]
        array([0, 1], dtype=uint64)
        """
        return self.query().head(rows)

    def pieces(self, query: Query | str | None = None, bytes: int = 64 << 20) -> list[Piece]:
        """Cuts a query into pieces for other processes; together they return its rows, each row once.

        A piece reads at most about `bytes` of values, but at least one row group. It is pinned to the commit of its epoch:
        if the epoch is replaced, the piece raises `OperationError`. The rows of an ordered query are ordered within each
        piece only.

        >>> pieces = dataset.pieces("energy >= 5")
        >>> [(piece.epoch, piece.count()) for piece in pieces]
        [(100, 501), (200, 501)]
        """
        arguments = self._cuttable("pieces", query)
        made = self._core.pieces(arguments, natural("bytes", bytes))
        return [Piece(self.path, {**arguments, "epochs": None, "piece": piece}) for piece in made]

    def share(self, index: int, count: int, query: Query | str | None = None) -> list[Piece]:
        """Returns the pieces of share `index` of `count` shares of a query, such as those of the ranks of a program.

        A share is contiguous, and has at most one piece for each epoch. Before the predicate, shares differ by at most one
        row. Processes need no messages to agree, unless an epoch is replaced meanwhile.

        >>> [[piece.count() for piece in dataset.share(rank, 3, "energy >= 5")] for rank in range(3)]
        [[167], [334, 0], [501]]
        """
        arguments = self._cuttable("share", query)
        made = self._core.share(arguments, natural("share", index), natural("share", count))
        return [Piece(self.path, {**arguments, "epochs": None, "piece": piece}) for piece in made]

    def cursor(
        self,
        epoch: int,
        where: str | None = None,
        *,
        box: Box | None = None,
        period: Period | None = None,
        columns: Sequence[str] | None = None,
        near: Sequence[float] | None = None,
        threads: int | None = None,
        check: bool = True,
        use: str | None = None,
    ) -> Cursor:
        """Returns a cursor: the rows of a query of one epoch step by step, from coarse to fine.

        The dataset needs levels of detail (``turbidite ingest --levels``), or a spatial index, which is then read:
        ``dataset.indexes.add("space:x,y,z")``, `use` chooses among several. The first rows are spread evenly over the place
        that the query selects, or are those near to a point first, `near`, with a number for each coordinate. If there is an
        overview (``dataset.indexes.add("overview")``), they are read from it, unless `use` is ``"scan"``. The other arguments
        are those of :meth:`query`.

        >>> cursor = turbidite.open("space.tbd").cursor(7, box={"x": (0, 4)}, columns=["x"])
        >>> [len(cursor.advance(quality=quality)) > 0 for quality in (0.125, 1)]
        [True, True]
        """
        query = self.query(
            where,
            box=box,
            period=period,
            epochs=self._label("epoch", epoch),
            columns=columns,
            threads=threads,
            check=check,
            use=use,
        )
        point = None if near is None else reals("near", near, "a number for each coordinate is")
        return Cursor(self._core.cursor(query._resolved(), point), self.path)

    def _cuttable(self, call: str, query: Query | str | None) -> Arguments:
        """Returns the arguments of a query that a call cuts into pieces."""
        if not isinstance(query, Query):
            query = self.query(predicate("query", query))
        elif query._dataset.path != self.path:
            raise UsageError(f"{call}: the query is of {query._dataset.path}, not of {self.path}")
        return query._resolved()

    def report(self, path: str | os.PathLike[str] = "report.html", *, epoch: int | None = None) -> str:
        """Writes an HTML page with plots: keys, loads, selectivity, sizes. Returns its path.

        >>> dataset.report("report.html", epoch=200).endswith("report.html")
        True
        """
        page = os.path.abspath(os.fsdecode(path))
        stated = [] if epoch is None else [f"--epoch={self._label('epoch', epoch)}"]
        run(["report", "--json", f"--output={page}", *stated, "--", self.path])
        return page

    def get(
        self,
        ids: Ids,
        *,
        id: str | None = None,
        epochs: Epochs = None,
        columns: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> Tracks:
        """Returns the rows of one or more particles, ordered by id and epoch.

        An id is a whole number, bytes, or a tuple of these. The column `id` identifies particles, or several columns with
        commas between them; the key does, unless it is a float. The fields of a structured array of ids are these columns,
        found by their names.

        >>> dataset.get(17, id="id", columns=["energy"]).to_numpy()["epoch"]
        array([100, 200])
        """
        return self.tracks(ids=ids, id=id, epochs=epochs, columns=columns, threads=threads)

    def tracks(
        self,
        *,
        of: str | None = None,
        at: int | None = None,
        box: Box | None = None,
        period: Period | None = None,
        ids: Ids | None = None,
        id: str | None = None,
        epochs: Epochs = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        threads: int | None = None,
    ) -> Tracks:
        """Returns the trajectories, through all epochs, of the particles that satisfy `of` at epoch `at`, or have these ids.

        `box` and `period` select particles by their place at epoch `at`, like those of :meth:`query`, with or without `of`.
        The column `id` identifies particles, or several columns with commas between them; the key does, unless it is a
        float.

        >>> tracks = dataset.tracks(of="energy >= 9.99", at=200, id="id")
        >>> tracks.to_numpy()["epoch"]
        array([100, 200, 100, 200])
        """
        identity = self._identity() if id is None else column_name("id", id)
        sides, periods = box_texts(box, period)
        particles: tuple[str | None, int] | list[Id]
        if ids is not None and of is None and at is None and box is None:
            known = self.schema.names
            # The name of a column may itself have a comma.
            listed = [identity] if identity in known else [one.strip() for one in identity.split(",")]
            particles = particle_ids("ids", ids, [column_named(one, known) for one in listed], known)
        elif ids is None and (of is not None or box is not None) and at is not None:
            particles = (optional_text("of", of, "energy > 10"), self._label("at", at))
        else:
            raise UsageError("tracks: state either ids, or at with of or box")
        arguments: TrackArguments = {
            "particles": particles,
            "box": sides,
            "period": periods,
            "id": identity,
            "epochs": None,
            "columns": names("columns", columns),
            "limit": optional("limit", limit),
            "threads": optional("threads", threads),
        }
        return Tracks(self, selection(epochs), arguments)

    def _identity(self) -> str:
        """Returns the columns of the key, as those that identify particles."""
        key = self._key()
        if not self._core.has_key_order():
            raise UsageError("id: state which column identifies particles; the records are clustered by space")
        if key.type in ("f32", "f64"):
            raise UsageError(f"id: state which column identifies particles; the key, '{key.name}', is {key.type}")
        return ",".join(self._core.key_columns())

    def histogram(
        self,
        column: str,
        by: str | None = None,
        *,
        bins: Any = 20,
        range: Any = None,
        log: bool | tuple[bool, bool] = False,
        weights: str | None = None,
        where: str | None = None,
        box: Box | None = None,
        period: Period | None = None,
        epochs: Epochs = None,
        source: str | None = None,
        budget: float = 1e9,
        level: int | None = None,
        threads: int | None = None,
        use: str | None = None,
    ) -> Histogram:
        """Returns the distribution of a column, or of the pairs of two.

        Numbers are exact, and read what manifests and bitmap indexes leave in doubt: up to `budget` bytes of columns, or the
        request is refused with its cost. ``source="bounds"`` reads no record. Bounds are equal where the edges of all bins, and
        those of the predicate, are edges of the index: decimals of its precision.

        In a dataset with levels of detail, or with a spatial index, ``source="levels"`` estimates the rows of each bin, with a
        standard error in `errors`, from the finest level that the budget covers. `level` states another: one row in ``8**level``.

        `bins` is their number or, as for NumPy, a list of their edges. `range` is that of the rows' finite values unless stated,
        ``(from, to)``. With a second column, `bins`, `range` and `log` are pairs, or one value for both. Integer columns have at
        most one bin per integer. `where`, `box`, `period` and `use` are those of :meth:`query`.

        `weights` names a column whose sum in each bin is returned as well, `sums`, with its squares. Exact columns and weights may
        be expressions.

        >>> dataset.histogram("energy", bins=4, range=(0, 8), epochs=200).counts
        array([200, 200, 200, 201], dtype=uint64)
        >>> dataset.histogram("energy", bins=2, range=(0, 8), weights="id", epochs=200).sums
        array([ 79800., 240600.])
        >>> dataset.histogram("energy", "id", bins=(2, 1), where="energy < 6", epochs=200).rows
        600
        >>> sample = turbidite.open("space.tbd").histogram("x", bins=4, range=(0, 8), level=1)
        >>> bool((abs(sample.counts.astype("f8") - 1000) < 4 * sample.errors).all())
        True
        """
        labels = self._labels(selection(epochs))
        request = histograms.arguments(
            column_name("column", column),
            optional_column("by", by),
            bins=bins,
            range=range,
            log=log,
            where=where,
            box=box_texts(box, period),
            epochs=labels,
            threads=threads,
            use=use,
            source=source,
            budget=budget,
            level=level,
            weights=optional_column("weights", weights),
        )
        with watching(self.progress, "row groups") as tell:
            return histograms.histogram(self._core, self.schema, request, self._sorted(labels), tell)

    def phase_space(
        self,
        x: str,
        y: str,
        *,
        where: str | None = None,
        box: Box | None = None,
        period: Period | None = None,
        epochs: Epochs = None,
        bins: Any = (300, 200),
        range: tuple[tuple[float, float] | None, tuple[float, float] | None] | None = None,
        weights: str | None = None,
        log: bool | tuple[bool, bool] = False,
        budget: float = 1e9,
        threads: int | None = None,
        use: str | None = None,
    ) -> Histogram:
        """Returns the exact :meth:`histogram` of two columns, in bins that suit a picture.

        Rows are counted as they are read, so that memory does not depend on their number. Where bitmap indexes have both
        columns, only the rows that these leave in doubt are read; sums need all. `range` is that of the rows'
        finite values unless stated, ``((x from, x to), (y from, y to))``. The core knows it without a predicate;
        otherwise it reads the rows twice. `budget` is that of :meth:`histogram`.

        >>> dataset.phase_space("energy", "id", epochs=200, bins=(2, 2)).counts
        array([[500,   0],
               [  0, 501]], dtype=uint64)
        """
        return self.histogram(
            column_name("x", x),
            column_name("y", y),
            bins=bins,
            range=range,
            log=log,
            weights=weights,
            where=where,
            box=box,
            period=period,
            epochs=epochs,
            budget=budget,
            threads=threads,
            use=use,
        )

    def movie(
        self,
        x: str,
        y: str,
        path: str | os.PathLike[str] = "movie.gif",
        *,
        where: str | None = None,
        box: Box | None = None,
        period: Period | None = None,
        epochs: Epochs = None,
        bins: int | tuple[int, int] = (300, 200),
        range: tuple[tuple[float, float] | None, tuple[float, float] | None] | None = None,
        weights: str | None = None,
        log: bool | tuple[bool, bool] = False,
        frames_per_second: float = 5,
        units: Units | None = None,
        budget: float = 1e9,
        threads: int | None = None,
        use: str | None = None,
        **options: Any,
    ) -> str:
        """Writes a movie of the :meth:`phase_space` of each epoch, a ``.gif`` or ``.html`` file, and returns its path.

        All frames have the same axes and colours; without `range`, the axes have the rows of all epochs. The file appears
        once it is complete. `budget` is that of :meth:`histogram`. `options` are those of ``Axes.pcolormesh``, and
        `units` those of ``Histogram.plot``.

        >>> dataset.movie("energy", "id", "movie.gif", bins=20).endswith("movie.gif")
        True
        """
        labels = self._sorted(self._labels(selection(epochs)))
        rate = movies.checked_rate(frames_per_second)
        page = os.path.abspath(os.fsdecode(path))
        movies.format_of(page)
        request = histograms.arguments(
            column_name("x", x),
            column_name("y", y),
            bins=bins,
            range=range,
            log=log,
            where=where,
            box=box_texts(box, period),
            epochs=list(labels),
            threads=threads,
            use=use,
            source=None,
            budget=budget,
            level=None,
            weights=optional_column("weights", weights),
        )

        def count(request: HistogramArguments, epochs: Sequence[int]) -> Histogram:
            return histograms.histogram(self._core, self.schema, request, epochs, None)

        with watching(self.progress, "steps") as tell:
            movies.write_movie(page, request, labels, count, units=units, frames_per_second=rate, options=options, tell=tell)
        return page

    def aggregate(
        self,
        aggregates: Mapping[str, str],
        by: Sequence[str] | str | None = None,
        *,
        where: str | None = None,
        box: Box | None = None,
        period: Period | None = None,
        epochs: Epochs = None,
        threads: int | None = None,
        use: str | None = None,
    ) -> Aggregates:
        """Returns aggregates of the rows of a query, such as ``{"E": "sum(energy * weighting)"}``, for each group of `by`.

        Aggregates of expressions are ``count()``, ``sum(e)``, ``mean(e)``, ``var(e)``, ``std(e)``, ``cov(a, b)``, ``min(e)``,
        ``max(e)``, ``quantile(e, share)``, ``nan(e)``, ``n_eff(w)``, and the errors ``error(count())`` and
        ``error(sum(e))``. From mean to cov, and in quantile, a further argument is the weight. Groups are ``"epoch"``, integers
        such as ``"id % 8"``, and bins, ``"bins(x, 0, 100, 50)"``, half-open but for the last: epochs and bins also if they have
        no rows. The other arguments are those of :meth:`query`.

        >>> found = dataset.aggregate({"n": "count()", "E": "sum(energy)"}, by=["epoch", "bins(energy, 0, 8, 2)"])
        >>> found["n"]
        array([400, 401, 400, 401])
        >>> found.outside
        400
        >>> found.to_arrow().column_names
        ['epoch', 'energy_from', 'energy_to', 'n', 'E']
        """
        named, groups = named_texts(aggregates), group_texts(by)
        query = self.query(where, box=box, period=period, epochs=epochs, threads=threads, use=use)
        with watching(self.progress, "row groups") as tell:
            return Aggregates(self._core.aggregate(query._resolved(), named, groups, tell))

    def spectrum(
        self,
        column: str,
        *,
        bins: int = 100,
        range: tuple[float, float] | None = None,
        log: bool = False,
        weights: str | None = None,
        per_width: bool = True,
        where: str | None = None,
        box: Box | None = None,
        period: Period | None = None,
        epochs: Epochs = None,
        threads: int | None = None,
        use: str | None = None,
    ) -> Spectrum:
        """Returns the spectrum of a column for each epoch: the rows by bins, or the sums of `weights`, with standard errors.

        With `per_width`, these are divided by the widths of the bins: dN/dE. `log` makes bins of equal ratios. `range` is that
        of the finite values unless stated, ``(from, to)``; the bins of integers then have the same number of integers. `column` and
        `weights` may be expressions. The other arguments are those of :meth:`query`.

        >>> dataset.spectrum("energy", bins=2, range=(0, 8), weights="id", epochs=200).values
        array([[19950., 60150.]])
        """
        rows = partial(self.aggregate, where=where, box=box, period=period, epochs=epochs, threads=threads, use=use)
        request = spectra.Request.checked(self.path, self.schema, rows, where, weights, bins, range, log)
        return spectra.spectrum(request, column_name("column", column), flag("per_width", per_width))

    def profile(
        self,
        column: str,
        by: str,
        *,
        bins: int = 100,
        range: tuple[float, float] | None = None,
        log: bool = False,
        weights: str | None = None,
        where: str | None = None,
        box: Box | None = None,
        period: Period | None = None,
        epochs: Epochs = None,
        threads: int | None = None,
        use: str | None = None,
    ) -> Profile:
        """Returns the mean, the standard deviation and the error of the mean of a column in bins of another, for each epoch.

        The arguments are those of :meth:`spectrum`; bins and range are those of `by`.

        >>> dataset.profile("id", by="energy", bins=2, range=(0, 8), epochs=200).means
        array([[199.5, 600. ]])
        """
        rows = partial(self.aggregate, where=where, box=box, period=period, epochs=epochs, threads=threads, use=use)
        request = spectra.Request.checked(self.path, self.schema, rows, where, weights, bins, range, log)
        return spectra.profile(request, column_name("column", column), column_name("by", by))

    def row_groups(self, epoch: int) -> list[dict[str, Any]]:
        """Returns the row groups of an epoch as dicts: file, rank, kind, rows, and the least and greatest key.

        >>> sum(group["rows"] for group in dataset.row_groups(200))
        1001
        """
        found: list[dict[str, Any]] = json.loads(self._core.row_groups(self._label("epoch", epoch)))
        for group in found:
            group["keys"] = None if group["keys"] is None else tuple(number(end) for end in group["keys"])
        return found

    def key_profile(self, epoch: int, percentiles: Sequence[float] = (1, 5, 10, 25, 50, 75, 90, 95, 99)) -> dict[str, Any]:
        """Returns what queries for one key touch, at ascending percentiles of the keys, as a dict.

        Its points have the share of the epoch's rows, and the read amplification: these rows over those of a perfectly
        balanced part.

        >>> [point["percentile"] for point in dataset.key_profile(200, [50, 90])["points"]]
        [50.0, 90.0]
        """
        needed = "ascending numbers from 0 to 100 are"
        wanted = reals("percentiles", percentiles, needed)
        if any(not 0 <= one <= 100 for one in wanted) or wanted != sorted(wanted):
            raise UsageError(f"percentiles: {needed} needed, not {wanted}")
        found: dict[str, Any] = json.loads(self._core.key_profile(self._label("epoch", epoch), wanted))
        return found

    def plot_partitions(self, epoch: int, ax: Axes | None = None, *, log: bool | None = None) -> Axes:
        """Draws the keys and the rows of each part of an epoch, and returns the axes.

        >>> dataset.plot_partitions(200).get_xlabel()
        'energy'
        """
        label = self._label("epoch", epoch)
        return pictures.draw_partitions(self.row_groups(label), self._key(), label, ax, log=log)

    def plot_selectivity(self, epoch: int, ax: Axes | None = None, **options: Any) -> Axes:
        """Draws the share of an epoch that a query for one key reads, and returns the axes.

        >>> dataset.plot_selectivity(200).get_xlabel()
        'percentile of energy'
        """
        profile = self.key_profile(epoch, numpy.linspace(0.25, 99.75, 200).tolist())
        return pictures.draw_selectivity(profile, self._key(), ax, **options)

    def _key(self) -> Column:
        schema = self.schema
        return next(column for column in schema.columns if column.name == schema.key)

    def _sorted(self, labels: list[int] | None) -> tuple[int, ...]:
        """Returns the labels of a selection in ascending order."""
        return tuple(self.epochs if labels is None else sorted(set(labels)))

    def quantiles(
        self,
        column: str,
        shares: Sequence[float] | float = (0.01, 0.25, 0.5, 0.75, 0.99),
        *,
        epochs: Epochs = None,
        source: str = "exact",
        budget: float = 1e9,
    ) -> list[Quantile]:
        """Returns the values below which the given shares of the rows lie.

        They are exact, and read the part of the column that may have them: up to `budget` bytes, or the request is refused with
        its cost. ``source="bounds"`` reads no record.

        >>> [median] = dataset.quantiles("energy", 0.5, epochs=200)
        >>> round(median.estimate, 2)
        5.0
        """
        name, wanted = column_name("column", column), reals("shares", shares, "numbers from 0 to 1 are")
        if wrong := [share for share in wanted if not 0 <= share <= 1]:
            raise UsageError(f"shares: numbers from 0 to 1 are needed, not {wrong[0]:g}")
        labels, source = self._labels(selection(epochs)), _checks.source(source, sources=("exact", "bounds"))
        with watching(self.progress, "row groups") as tell:
            found = json.loads(self._core.quantiles(name, wanted, labels, source, _checks.budget(budget), tell))
        return [
            Quantile(one["share"], number(one["least"]), number(one["estimate"]), number(one["most"]), source)
            for one in found["quantiles"]
        ]
