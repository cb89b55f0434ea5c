"""The other engines: each answers a range over a dataset's `data` folder and says how many row groups it read."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy
import polars
import pyarrow.compute
import pyarrow.dataset


@dataclass(frozen=True)
class Range:
    """Rows of one epoch, or of all, with `low <= column <= high`. Bounds are exact in the column's type."""

    column: str
    low: float
    high: float
    epoch: int | None = None

    def mask(self, rows: numpy.ndarray) -> numpy.ndarray:
        return (rows[self.column] >= self.low) & (rows[self.column] <= self.high)

    def ids(self, epochs: dict[int, numpy.ndarray]) -> list[tuple[int, int]]:
        """Epoch and id of every match, by full scan."""
        chosen = [self.epoch] if self.epoch is not None else sorted(epochs)
        return sorted((epoch, int(i)) for epoch in chosen for i in epochs[epoch]["id"][self.mask(epochs[epoch])])


def by_duckdb(data: Path, query: Range) -> list[tuple[int, int]]:
    with duckdb.connect() as connection:
        return sorted(connection.execute(*duckdb_query("epoch, id", data, query)).fetchall())


def duckdb_query(what: str, data: Path, query: Range) -> tuple[str, list]:
    epoch = "" if query.epoch is None else f" AND epoch = {query.epoch}"
    # Literals stand in the text: DuckDB prunes by constants.
    return f"SELECT {what} FROM read_parquet('{data}') WHERE {query.column} BETWEEN {query.low!r} AND {query.high!r}{epoch}", []


def duckdb_row_groups(data: Path, query: Range) -> tuple[int, int]:
    """Row groups read and all there are, from DuckDB's own profile."""
    return duckdb_scan(duckdb_query("sum(id)", data, query)[0])


def duckdb_scan(select: str) -> tuple[int, int]:
    """The same of a SELECT that scans one table."""
    with duckdb.connect() as connection:
        connection.execute("PRAGMA enable_profiling='json'")
        profile = json.loads(connection.execute("EXPLAIN ANALYZE " + select).fetchall()[0][1])
    scans = []

    def walk(operator):
        if operator.get("type") == "TABLE_SCAN":
            scans.append((operator["row_groups_scanned"], operator["total_row_groups_to_scan"]))
        for child in operator.get("children", []):
            walk(child)

    for operator in profile["operator"]:
        walk(operator)
    assert len(scans) == 1, profile
    return scans[0]


def polars_query(data: Path, query: Range) -> polars.LazyFrame:
    frame = polars.scan_parquet(data, hive_partitioning=True)
    frame = frame.filter(polars.col(query.column).is_between(query.low, query.high))
    return frame if query.epoch is None else frame.filter(polars.col("epoch") == query.epoch)


def by_polars(data: Path, query: Range) -> list[tuple[int, int]]:
    return sorted(polars_query(data, query).select("epoch", "id").collect().rows())


def polars_row_groups(data: Path, query: Range) -> tuple[int, int]:
    """Row groups read and all there are, from Polars' own log; a process of its own, since it reads the setting once."""
    program = (
        "import sys, json; from pathlib import Path; from support.engines import *;"
        "by_polars(Path(sys.argv[1]), Range(**json.loads(sys.argv[2])))"
    )
    environment = os.environ | {"POLARS_VERBOSE": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    command = [sys.executable, "-c", program, str(data), json.dumps(query.__dict__)]
    log = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
    found = [(int(read), int(total)) for read, total in re.findall(r"Predicate pushdown: reading (\d+) / (\d+) row groups", log)]
    assert found, log[-2000:]
    return sum(read for read, _ in found), sum(total for _, total in found)


def pyarrow_filter(query: Range):
    field = pyarrow.compute.field(query.column)
    condition = (field >= query.low) & (field <= query.high)
    return condition if query.epoch is None else condition & (pyarrow.compute.field("epoch") == query.epoch)


def by_pyarrow(data: Path, query: Range) -> list[tuple[int, int]]:
    table = pyarrow.dataset.dataset(data, format="parquet", partitioning="hive").to_table(["epoch", "id"], pyarrow_filter(query))
    return sorted(zip(table.column("epoch").to_pylist(), table.column("id").to_pylist()))


def pyarrow_row_groups(data: Path, query: Range) -> tuple[int, int]:
    """Row groups left after pyarrow's pruning and all there are."""
    dataset = pyarrow.dataset.dataset(data, format="parquet", partitioning="hive")
    condition = pyarrow_filter(query)
    read = sum(len(fragment.subset(condition, schema=dataset.schema).row_groups) for fragment in dataset.get_fragments(filter=condition))
    return read, sum(len(fragment.row_groups) for fragment in dataset.get_fragments())


ENGINES = {
    "duckdb": (by_duckdb, duckdb_row_groups),
    "polars": (by_polars, polars_row_groups),
    "pyarrow": (by_pyarrow, pyarrow_row_groups),
}
