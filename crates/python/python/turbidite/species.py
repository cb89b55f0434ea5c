"""Several datasets as one: a dataset for each species, and a column that tells the rows of the species apart."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import numpy

from turbidite import _core
from turbidite._arguments import Arguments
from turbidite._boxes import Box, Period
from turbidite._checks import Epochs, Selection, column_named, names, natural, selection, text, texts
from turbidite._opened import OpenDataset
from turbidite._progress import Progress
from turbidite._species_rows import FOLDS, Array, Naming, SpeciesBatch, SpeciesResult, folded, joined, joint_types
from turbidite._tables import abridged, table
from turbidite.aggregates import Aggregates, group_texts, named_texts
from turbidite.dataset import Dataset
from turbidite.errors import CorruptionError, OperationError, TurbiditeError, UsageError
from turbidite.histograms import Histogram
from turbidite.query import Query
from turbidite.schema import Column, Schema

__all__ = ["Species", "SpeciesAggregates", "SpeciesQuery"]

Found = TypeVar("Found")


class Species:
    """Datasets by species that are open for reading; ``both["e"]`` is one of them. Pickles like a `Dataset`."""

    def __init__(
        self,
        paths: Mapping[str, str | os.PathLike[str]],
        *,
        species_column: str = "species",
        progress: Progress = False,
    ) -> None:
        if not paths or not all(isinstance(name, str) and name for name in paths):
            raise UsageError(f"path: give the path of each species by its name, such as {{'e': 'e.tbd'}}, not {paths!r}")
        self.species_column = text("species_column", species_column, "kind")
        """The name of the column that has the species."""
        self._datasets = {name: Dataset(path, progress=progress) for name, path in paths.items()}
        for name, dataset in self._datasets.items():
            if column_named(species_column, taken := [*dataset.schema.names, "epoch"]) in taken:
                raise UsageError(
                    f"species_column: species {name!r} ({dataset.path}) has a column {species_column!r}; "
                    "state a name that no species has, such as species_column='kind'"
                )

    def __getitem__(self, name: str) -> Dataset:
        return self._datasets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._datasets)

    def __len__(self) -> int:
        return len(self._datasets)

    def __getattr__(self, name: str) -> Any:
        hint = f"; use that of a species, such as [{next(iter(self))!r}].{name}" if hasattr(Dataset, name) else ""
        raise AttributeError(f"species have no attribute {name!r} together{hint}", name=name, obj=self)

    def __reduce__(self) -> tuple[Any, ...]:
        paths = {name: dataset.path for name, dataset in self._datasets.items()}
        return partial(Species, species_column=self.species_column), (paths,)

    def __repr__(self) -> str:
        columns = ", ".join(f"{column.name} {column.type}" for column in self.schema.columns)
        lines = [f"<Species: {len(self.epochs)} epochs; {columns}"]
        for row in self._rows():
            if row is None:
                lines.append("  …")
                continue
            *stated, further = row
            lines.append("  {}: {}, {} epochs, key {}".format(*stated) + (f"; also {further}" if further else ""))
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        rows = [("…",) * 5 if row is None else row for row in self._rows()]
        return table(f"{len(self)} species", ("species", "path", "epochs", "key", "further columns"), rows) + (
            self.schema._repr_html_()
        )

    def _rows(self) -> Iterator[tuple[str, str, int, str, str] | None]:
        """Returns name, path, number of epochs, key and further columns of each species, or of the first and last ones."""
        shared = self.schema.names
        for name in abridged(list(self)):
            if name is None:
                yield None
                continue
            dataset = self._datasets[name]
            further = ", ".join(column for column in dataset.schema.names if column not in shared)
            yield name, dataset.path, len(dataset.epochs), dataset._core.cluster_key(), further

    @property
    def epochs(self) -> list[int]:
        """The labels of the epochs that any species has, ascending."""
        return sorted({label for dataset in self._datasets.values() for label in dataset.epochs})

    @property
    def schema(self) -> Schema:
        """The columns that all species have, and the key and the periods if they are the same.

        Types that differ are separated by slashes, ``f32/f64``. Units that differ are left out.
        """
        schemas = [dataset.schema for dataset in self._datasets.values()]
        first, *others = schemas
        columns = []
        for name in first.names:
            if all(name in schema.names for schema in others):
                found = [column for schema in schemas for column in schema.columns if column.name == name]
                units = {column.unit for column in found}
                types = "/".join(dict.fromkeys(column.type for column in found))
                columns.append(Column(name, types, units.pop() if len(units) == 1 else None))
        periods = {
            name: period for name, period in first.periods.items() if all(one.periods.get(name) == period for one in others)
        }
        same = all(schema.keys == first.keys for schema in others)
        return Schema(tuple(columns), first.key if same else "", periods, first.keys if same else ())

    def query(
        self,
        where: str | None = None,
        *,
        species: Sequence[str] | str | None = None,
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
    ) -> SpeciesQuery:
        """Returns a query of all species, or of these, whose rows have the species in a column.

        The arguments are those of `Dataset.query`. Rows are in the order of the species, or in `order`, for which the rows up
        to the limit are kept in memory. `columns` are by default those that all species have, the epoch and the species.
        Numbers whose types differ have NumPy's common type; integers of 64 bits and others without an exact one are refused.
        Epochs are those that any of the species has.

        >>> both.query("energy > 9.985", epochs=200).to_pandas()["species"].tolist()
        ['e', 'e', 'i', 'i']
        """
        stated = names("columns", columns)
        if stated is not None:
            stated = [column_named(name, [self.species_column]) for name in stated]
        if stated is not None and stated.count(self.species_column) > 1:
            raise UsageError(f"columns: {self.species_column!r} is listed twice")
        queries = {
            name: self._datasets[name].query(
                where,
                box=box,
                period=period,
                order=order,
                per_epoch=per_epoch,
                limit=limit,
                threads=threads,
                check=check,
                use=use,
            )
            for name in self._selected(species)
        }
        return SpeciesQuery((self.species_column, tuple(self)), queries, selection(epochs), stated)

    def head(self, rows: int = 5) -> dict[str, Array]:
        """Returns the first rows of all species as arrays.

        >>> both.head(1)["species"].tolist()
        ['e']
        """
        return self.query().head(rows)

    def aggregate(
        self,
        aggregates: Mapping[str, str],
        by: Sequence[str] | str | None = None,
        *,
        species: Sequence[str] | str | None = None,
        epochs: Epochs = None,
        **options: Any,
    ) -> SpeciesAggregates:
        """Returns aggregates like `Dataset.aggregate`: for each species, the first column, if `by` has it, else of all.

        Counts, sums, min and max are those of all species together. Epochs that a species does not have are not listed for it.

        >>> both.aggregate({"n": "count()"}, by=["species", "epoch"]).to_pandas()["species"].tolist()
        ['e', 'e', 'i', 'i']
        >>> both.aggregate({"n": "count()", "most": "max(energy)"}, by="epoch")["n"]
        array([2002, 2002])
        """
        column = self.species_column
        groups = [column_named(group, [column]) for group in group_texts(by)]
        asked = dict(named_texts(aggregates))
        folds = None if column in groups else {name: self._fold(name, one) for name, one in asked.items()}
        inner = [group for group in groups if group != column]
        found = self._of_each(
            species, epochs, lambda dataset, labels: dataset.aggregate(aggregates, inner, epochs=labels, **options)
        )
        return SpeciesAggregates((column, tuple(self)), found, folds)

    def _fold(self, name: str, aggregate: str) -> numpy.ufunc:
        """Returns the function by which the values of several species are one, if it is exact."""
        function = aggregate.partition("(")[0].strip().lower()
        if function not in FOLDS:
            raise UsageError(
                f"aggregates: {name!r}, {aggregate}, does not follow from those of each species; "
                f"ask for sums and counts, or by={self.species_column!r}"
            )
        return FOLDS[function]

    def histogram(
        self,
        column: str,
        by: str | None = None,
        *,
        species: Sequence[str] | str | None = None,
        epochs: Epochs = None,
        **options: Any,
    ) -> dict[str, Histogram]:
        """Returns the `Dataset.histogram` of each species. Bins are the same if `range` is stated.

        >>> [found.rows for found in both.histogram("energy", bins=2, range=(0, 8), epochs=200).values()]
        [1001, 1001]
        """
        return self._of_each(species, epochs, lambda dataset, labels: dataset.histogram(column, by, epochs=labels, **options))

    def _selected(self, species: Sequence[str] | str | None) -> list[str]:
        """Returns the selected species, in the order of all of them."""
        if species is None:
            return list(self)
        chosen = texts("species", [species] if isinstance(species, str) else species, "give a list of species")
        unknown = [name for name in chosen if name not in self._datasets]
        if unknown or not chosen:
            stated = f"there is no {unknown[0]!r}" if unknown else "name at least one"
            raise UsageError(f"species: {stated}; the species are {', '.join(self)}")
        return [name for name in self if name in chosen]

    def _of_each(
        self,
        species: Sequence[str] | str | None,
        epochs: Epochs,
        found: Callable[[Dataset, list[int] | None], Found],
    ) -> dict[str, Found]:
        """Returns what is found in each selected species, within the epochs of the selection that it has."""
        chosen = {name: self._datasets[name] for name in self._selected(species)}
        results = {}
        for name, labels in _labels(chosen, selection(epochs)).items():
            with _naming(name, chosen[name], self.species_column):
                results[name] = found(chosen[name], labels)
        return results


class SpeciesQuery(SpeciesResult):
    """A query of several species. It is lazy, and can be run again, like a `Query`."""

    def __init__(
        self,
        naming: Naming,
        queries: dict[str, Query],
        selection: Selection,
        columns: list[str] | None,
    ) -> None:
        self._naming = naming
        self._queries = queries
        self._selection = selection
        self._columns = columns

    @property
    def _arguments(self) -> Arguments:
        """The arguments that all species share."""
        return next(iter(self._queries.values()))._arguments

    def count(self) -> int:
        """Counts the rows. Reads only the pages that statistics leave open.

        >>> both.query("energy >= 9.99").count()
        8
        """
        rows, limit = sum(self._of_each(Query.count).values()), self._arguments["limit"]
        return rows if limit is None else min(rows, limit)

    def head(self, rows: int = 5) -> dict[str, Array]:
        """Returns the first rows as arrays, and reads little more than these.

        >>> both.query("energy >= 9.99", species="i").head(1)["species"].tolist()
        ['i']
        """
        stated, limit = natural("rows", rows), self._arguments["limit"]
        limit = stated if limit is None else min(stated, limit)
        queries = {name: _changed(query, None, limit=limit) for name, query in self._queries.items()}
        return SpeciesQuery(self._naming, queries, self._selection, self._columns).to_numpy()

    def explain(self) -> str:
        """Returns what the query would read of each species, and why, as text.

        >>> print(both.query("energy >= 9.99").explain().splitlines()[0])
        species e
        """
        return "\n\n".join(f"species {name}\n{found}" for name, found in self._of_each(Query.explain).items())

    def plan(self) -> dict[str, dict[str, Any]]:
        """Returns what the query would read of each species as a dict.

        >>> both.query("energy >= 9.99").plan()["i"]["filter"]
        'energy >= 9.99'
        """
        return self._of_each(Query.plan)

    def __reduce__(self) -> tuple[Any, ...]:
        return SpeciesQuery, (self._naming, self._queries, self._selection, self._columns)

    def __repr__(self) -> str:
        usual = {"check": True, "ordered": False, "per_epoch": False}
        arguments = {**self._arguments, "columns": self._columns}
        stated = {name: value for name, value in arguments.items() if value != usual.get(name)}
        if self._selection is not None:
            stated["epochs"] = self._selection
        species = ", ".join("…" if name is None else name for name in abridged(list(self._queries)))
        return f"<SpeciesQuery of {species}: {stated or 'all rows'}>"

    def _of_each(self, found: Callable[[Query], Found]) -> dict[str, Found]:
        """Returns what is found by the query of each species, with its columns and epochs."""
        stored, _ = self._outputs()
        results = {}
        for name, query in self._chosen():
            with _naming(name, query._dataset, self._naming[0]):
                results[name] = found(_changed(query, query._selection, columns=stored))
        return results

    def _chosen(self) -> Iterator[tuple[str, Query]]:
        """Iterates over the queries of the species, each for its epochs of the selection."""
        datasets = {name: query._dataset for name, query in self._queries.items()}
        for name, labels in _labels(datasets, self._selection).items():
            yield name, _changed(self._queries[name], labels)

    def _outputs(self) -> tuple[list[str], list[str]]:
        """Returns the columns to ask each species for, and the names of all columns of the result."""
        column = self._naming[0]
        if self._columns is not None:
            return [one for one in self._columns if one != column], self._columns
        first, *others = (list(types) for types in self._types(None).values())
        shared = [name for name in first if all(name in other for other in others)]
        return shared, [*shared, column]

    def _types(self, columns: list[str] | None) -> dict[str, dict[str, numpy.dtype[Any]]]:
        """Returns the types of the columns of each species."""
        types = {}
        for name, query in self._queries.items():
            with _naming(name, query._dataset, self._naming[0]):
                found = _changed(query, [], columns=columns)._start().columns()
                types[name] = {column: numpy.dtype(kind) for column, kind in found}
        return types

    def _sorted_by(self) -> list[tuple[str, bool]]:
        """Returns the columns and expressions by which the rows of several species are sorted, and whether each descends."""
        if not self._arguments["ordered"]:
            order = self._arguments["order_by"]
            columns = [] if order is None else [_direction(one) for one in _core.split_list(order)]
            return [("epoch", False), *columns] if self._arguments["per_epoch"] else columns
        keys = {name: query._dataset.schema.keys for name, query in self._queries.items()}
        first, *others = keys
        for name in others:
            if keys[name] != keys[first]:
                raise UsageError(
                    f"order: the key of species {first!r} is {','.join(keys[first])}, that of species {name!r} "
                    f"{','.join(keys[name])}; state the column that orders the rows of all"
                )
        return [(key, False) for key in ("epoch", *keys[first])]

    def _batches(self, shown: bool = True) -> Iterator[SpeciesBatch]:
        stored, names = self._outputs()
        sorted_by = self._sorted_by() if len(self._queries) > 1 else []
        keys = [key for key, _ in sorted_by]
        known = list(next(iter(self._types(stored).values())))
        _refuse_taken("columns", self._naming, known)
        hidden = [key for key in keys if column_named(key, known) not in known]
        joint = joint_types(self._types([*stored, *hidden]))
        found = list(joint)
        # The first species names the columns: the names of the others may differ in case.
        shown_names = iter(found)
        output = [name if name == self._naming[0] else next(shown_names) for name in names]
        empty = self._batch(0, [numpy.empty(0, kind) for kind in joint.values()], joint, 0)
        batches = self._read([*stored, *hidden], joint, shown)
        if not keys:
            for batch in chain([empty], batches):
                yield SpeciesBatch(self._naming, {name: batch._columns[name] for name in output}, len(batch))
            return
        whole = joined([empty, *batches])
        places = [found[len(stored) + hidden.index(key)] if key in hidden else column_named(key, known) for key in keys]
        ranks = [
            _descending(whole._columns[place]) if descends else whole._columns[place]
            for place, (_, descends) in zip(places, sorted_by, strict=True)
        ]
        # NumPy sorts NaN last.
        rows = numpy.lexsort(ranks[::-1])[: self._arguments["limit"]]
        yield SpeciesBatch(self._naming, {name: whole._columns[name][rows] for name in output}, len(rows))

    def _read(self, columns: list[str], joint: dict[str, numpy.dtype[Any]], shown: bool) -> Iterator[SpeciesBatch]:
        """Reads the batches of each species; up to the limit if rows are not sorted, else as many of each."""
        left, is_sorted = self._arguments["limit"], bool(self._sorted_by())
        for name, query in self._chosen():
            if left == 0:
                return
            changed = _changed(query, query._selection, columns=columns, limit=left)
            changed._progress = shown and query._progress
            with _naming(name, query._dataset, self._naming[0]):
                for batch in changed:
                    if left is not None and not is_sorted:
                        left -= len(batch)
                    arrays = [batch[column] for column in batch.column_names]
                    yield self._batch(self._naming[1].index(name), arrays, joint, len(batch))

    def _batch(self, code: int, arrays: list[Array], joint: dict[str, numpy.dtype[Any]], rows: int) -> SpeciesBatch:
        """Returns a batch of one species, with the types that all have in common."""
        columns = {name: array.astype(kind, copy=False) for (name, kind), array in zip(joint.items(), arrays, strict=True)}
        return SpeciesBatch(self._naming, {**columns, self._naming[0]: numpy.full(rows, code, numpy.int32)}, rows)


class SpeciesAggregates(SpeciesResult, Aggregates):
    """Aggregates of several species: a row for each group, of each species if its column is the first one."""

    def __init__(self, naming: Naming, found: dict[str, Aggregates], folds: dict[str, numpy.ufunc] | None) -> None:
        self._naming = naming
        self.rows = sum(one.rows for one in found.values())
        self.outside = sum(one.outside for one in found.values())
        arrays = {name: one.to_numpy() for name, one in found.items()}
        _refuse_taken("aggregates", naming, next(iter(arrays.values())))
        joint = joint_types({name: {column: array.dtype for column, array in one.items()} for name, one in arrays.items()})
        parts = []
        for name, one in arrays.items():
            columns = {column: one[column].astype(kind, copy=False) for column, kind in joint.items()}
            codes = numpy.full(len(found[name]), naming[1].index(name), numpy.int32)
            parts.append(SpeciesBatch(naming, {naming[0]: codes, **columns}, len(codes)))
        whole = joined(parts)
        self._whole = whole if folds is None else folded(whole, folds)

    def _batch(self) -> SpeciesBatch:  # type: ignore[override]
        return self._whole

    def _batches(self, shown: bool = True) -> Iterator[SpeciesBatch]:
        yield self._whole


def _direction(column: str) -> tuple[str, bool]:
    """Splits a column of an order from its direction: ``energy desc``."""
    name, *words = column.rsplit(maxsplit=1)
    direction = words[0].lower() if words else ""
    return (name, direction == "desc") if direction in ("asc", "desc") else (column, False)


def _descending(values: Array) -> Array:
    """Returns numbers that ascend as values descend. NaN is last."""
    _, ranks = numpy.unique(values, return_inverse=True)
    return numpy.where(numpy.isnan(values), 1, -ranks)


def _refuse_taken(argument: str, naming: Naming, names: Iterable[str]) -> None:
    """Refuses a computed column that has the name of the column of the species."""
    if column_named(naming[0], taken := list(names)) in taken:
        raise UsageError(f"{argument}: {naming[0]!r} is the column of the species; name the expression otherwise")


def _changed(query: Query, selection: Selection, **changes: Any) -> Query:
    """Returns a query with other epochs and arguments."""
    changed = Query(query._dataset, selection, {**query._arguments, **changes})  # type: ignore[typeddict-item]
    changed._progress = query._progress
    return changed


@contextmanager
def _naming(name: str, dataset: OpenDataset, column: str) -> Iterator[None]:
    """Names the species in errors of its dataset."""
    try:
        yield
    except CorruptionError:
        # Names its file, in fields as well.
        raise
    except TurbiditeError as error:
        hint = f"; select species by `species`, such as species={name!r}" if f"no column '{column}'" in str(error) else ""
        raise type(error)(f"species {name!r} ({dataset.path}): {error}{hint}") from None


def _labels(datasets: Mapping[str, OpenDataset], selection: Selection) -> dict[str, list[int] | None]:
    """Returns the labels of a selection among the epochs of all datasets, for each dataset those that it has."""
    if selection is None:
        return dict.fromkeys(datasets)
    known = {name: set(dataset.epochs) for name, dataset in datasets.items()}
    existing = set().union(*known.values())
    chosen = _selected_by_text(selection, sorted(existing)) if isinstance(selection, str) else list(selection)
    missing = next((label for label in chosen if label not in existing), None)
    if missing is not None:
        raise OperationError(
            f"epochs: epoch {missing} exists in none of the species {', '.join(datasets)}; a slice has those that exist"
        )
    return {name: [label for label in chosen if label in labels] for name, labels in known.items()}


def _selected_by_text(selection: str, existing: list[int]) -> list[int]:
    """Returns the labels of a selection, as the core does for a dataset with these epochs."""

    def end(text: str) -> int | None:
        place = re.fullmatch(r"last|-(\d+)", text)
        if place is None:
            return int(text)
        counted = int(place[1] or 1)
        return existing[-counted] if counted <= len(existing) else None

    chosen = []
    for term in selection.split(","):
        first, *rest = term.strip().split("..")
        low = end(first)
        if not rest:
            if low is None:
                raise UsageError(f"epochs: {term.strip()!r} is before the first of {len(existing)} epochs")
            chosen.append(low)
        elif existing:
            low, high = existing[0] if low is None else low, end(rest[0])
            stride = int(rest[1]) if len(rest) > 1 else 1
            last = existing[0] if high is None else high
            chosen += [label for label in existing if low <= label <= last and (label - low) % stride == 0]
    return chosen
