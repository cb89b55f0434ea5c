"""What analysts compute: spectra, profiles, means, ids and first rows of ten epochs, beside Polars and DuckDB on one sorted Parquet.

All of them are in this process, have opened their files, and take turns.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy
import polars
import pyarrow
import pyarrow.parquet
from common import median, say

EPOCHS, ROWS, QUICK_ROWS = 10, 5_000_000, 500_000
TYPES = {"energy": "f4", "x": "f4", "y": "f4", "ux": "f4", "w": "f4", "id": "uint64"}
IDS = 100_000
ROW_GROUP_ROWS = 131_072
PEERS = ("polars", "duckdb")


def records(epoch: int, rows: int) -> dict[str, numpy.ndarray]:
    rng = numpy.random.default_rng(epoch)
    found = {
        "energy": rng.exponential(1.0, rows),
        "x": rng.random(rows) * 100,
        "y": rng.random(rows) * 100,
        "ux": rng.normal(size=rows),
        "w": rng.lognormal(sigma=0.3, size=rows),
        "id": rng.permutation(rows),
    }
    return {name: values.astype(TYPES[name]) for name, values in found.items()}


def write(scratch: Path, rows: int) -> tuple[Any, Path]:
    """The epochs as a dataset with indexes of ids and of `ux`, and as a file in the order of epoch and energy."""
    import turbidite

    dataset, file = scratch / "run.tbd", scratch / "sorted.parquet"
    writer_of_file = None
    with turbidite.Writer(dataset, TYPES, key="energy", ranks=2, indexes=["hash:id", "ux"]) as writer:
        for epoch in range(EPOCHS):
            of_epoch = records(epoch, rows)
            with writer.epoch(epoch):
                for rank in range(2):
                    writer.append({name: values[rank::2] for name, values in of_epoch.items()}, rank=rank)
            order = numpy.argsort(of_epoch["energy"])
            table = pyarrow.table({"epoch": numpy.full(rows, epoch), **{name: values[order] for name, values in of_epoch.items()}})
            if writer_of_file is None:
                writer_of_file = pyarrow.parquet.ParquetWriter(file, table.schema, compression="none", use_dictionary=False)
            writer_of_file.write_table(table, ROW_GROUP_ROWS)
    writer_of_file.close()
    return turbidite.open(dataset), file


class Question:
    """A question, its goal, and how each contestant answers it. `read` reads the columns alone."""

    def __init__(self, title: str, goal: str, ours: Callable, polars_: Callable, sql: str, read: tuple[str, ...] = ()):
        self.title, self.goal, self.sql, self.read = title, goal, sql, read
        self.ways: dict[str, Callable] = {"ours": ours, "polars": polars_, "duckdb": lambda: duckdb.sql(sql).arrow().read_all()}


def polars_bin(column: str, low: float, high: float, bins: int) -> polars.Expr:
    return ((polars.col(column) - low) * (bins / (high - low))).floor().cast(polars.Int32)


def sql_bin(column: str, low: float, high: float, bins: int) -> str:
    return f"CAST(floor(({column} - {low}) * {bins / (high - low)}) AS INTEGER)"


def questions(dataset: Any, file: Path, rows: int) -> list[Question]:
    lazy, table = polars.scan_parquet(file), f"read_parquet('{file}')"
    within = polars.col("energy").is_between(0, 10, closed="left")
    ids = numpy.random.default_rng(7).choice(rows, min(IDS, rows), replace=False).astype("uint64")
    of_ids = polars.Series("id", ids)
    duckdb.register("wanted", pyarrow.table({"id": ids}))
    w = polars.col("w").cast(polars.Float64)
    grid = [polars_bin("x", 0, 100, 200).alias("i"), polars_bin("y", 0, 100, 200).alias("j")]
    grid_sql = f"{sql_bin('x', 0, 100, 200)} AS i, {sql_bin('y', 0, 100, 200)} AS j"
    top = ["energy", "id", "epoch"]
    return [
        Question(
            "weighted spectrum with errors, 100 bins", "≤ 0.7",
            lambda: dataset.aggregate({"n": "sum(w)", "e": "error(sum(w))"}, by="bins(energy, 0, 10, 100)"),
            lambda: lazy.filter(within).group_by(polars_bin("energy", 0, 10, 100)).agg(n=w.sum(), e=(w * w).sum().sqrt()).collect(),
            f"SELECT {sql_bin('energy', 0, 10, 100)} AS b, sum(w::DOUBLE), sqrt(sum(w::DOUBLE * w)) FROM {table} WHERE energy < 10 GROUP BY b",
            ("energy", "w"),
        ),
        Question(
            "profile of ux in 100 bins of x", "≤ 1.0",
            lambda: dataset.aggregate({"m": "mean(ux)", "s": "std(ux)"}, by="bins(x, 0, 100, 100)"),
            lambda: lazy.group_by(polars_bin("x", 0, 100, 100)).agg(m=polars.col("ux").cast(polars.Float64).mean(), s=polars.col("ux").cast(polars.Float64).std(0)).collect(),
            f"SELECT {sql_bin('x', 0, 100, 100)} AS b, avg(ux::DOUBLE), stddev_pop(ux::DOUBLE) FROM {table} GROUP BY b",
            ("x", "ux"),
        ),
        Question(
            "mean of ux in 200 × 200 bins of x and y", "≤ 1.0",
            lambda: dataset.aggregate({"m": "mean(ux)"}, by=["bins(x, 0, 100, 200)", "bins(y, 0, 100, 200)"]),
            lambda: lazy.group_by(grid).agg(m=polars.col("ux").cast(polars.Float64).mean()).collect(),
            f"SELECT {grid_sql}, avg(ux::DOUBLE) FROM {table} GROUP BY i, j",
            ("x", "y", "ux"),
        ),
        Question(
            "energy by epoch", "≤ 0.7",
            lambda: dataset.aggregate({"E": "sum(energy * w)"}, by="epoch"),
            lambda: lazy.group_by("epoch").agg(E=(polars.col("energy").cast(polars.Float64) * w).sum()).collect(),
            f"SELECT epoch, sum(energy::DOUBLE * w) FROM {table} GROUP BY epoch",
            ("energy", "w"),
        ),
        Question(
            f"{len(ids):,} ids in 10 epochs", "≤ 0.5",
            lambda: dataset.get(ids, id="id").to_arrow(),
            lambda: lazy.filter(polars.col("id").is_in(of_ids.implode())).collect(),
            f"SELECT * FROM {table} WHERE id IN (SELECT id FROM wanted)",
        ),
        *(
            Question(
                f"the 100 greatest of {column}, {'one epoch' if epochs == 3 else '10 epochs'}", goal,
                lambda column=column, epochs=epochs: dataset.query(epochs=epochs, order=f"{column} desc", limit=100, columns=list(dict.fromkeys([column, *top]))).to_arrow(),
                lambda column=column, epochs=epochs: (lazy if epochs is None else lazy.filter(polars.col("epoch") == epochs)).select(list(dict.fromkeys([column, *top]))).top_k(100, by=column).collect(),
                f"SELECT {column}, energy, id, epoch FROM {table} {'' if epochs is None else f'WHERE epoch = {epochs}'} ORDER BY {column} DESC LIMIT 100",
            )
            for column in ("energy", "ux")
            for epochs, goal in ((3, "≤ 2 ms"), (None, "≤ 6 ms"))
        ),
    ]


def gamma_beyond_reading(dataset: Any, rounds: int) -> tuple[float, float]:
    """Milliseconds of an expression column beyond those of its inputs, and of NumPy in f64."""
    columns, text = ["ux", "x", "y"], "g = sqrt(1 + ux*ux + x*x + y*y)"
    took: dict[str, list[float]] = {"inputs": [], "with": [], "numpy": []}
    arrays = [values.astype("f8") for values in dataset.query(epochs=0, columns=columns, threads=1).to_numpy().values()]
    for _ in range(rounds):
        took["inputs"].append(timed(lambda: dataset.query(epochs=0, columns=columns, threads=1).to_arrow()))
        took["with"].append(timed(lambda: dataset.query(epochs=0, columns=[*columns, text], threads=1).to_arrow()))
        took["numpy"].append(timed(lambda: numpy.sqrt(1 + arrays[0] * arrays[0] + arrays[1] * arrays[1] + arrays[2] * arrays[2])))
    middle = {name: median(of) for name, of in took.items()}
    return middle["with"] - middle["inputs"], middle["numpy"]


def timed(work: Callable) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3


def study(scratch: Path, rounds: int, quick: bool) -> tuple[list[str], dict]:
    """The table, and all figures in milliseconds."""
    rows = QUICK_ROWS if quick else ROWS
    dataset, file = write(scratch, rows)
    lines = ["| | ours, ms | ns a row beyond reading | over Polars | over DuckDB | over the better | goal |", "| --- | ---: | ---: | ---: | ---: | ---: | --- |"]
    figures: dict[str, dict[str, float]] = {}
    for question in questions(dataset, file, rows):
        ways = dict(question.ways)
        if question.read:
            names = ", ".join(question.read)
            ways["reading"] = lambda names=names: [None for _ in dataset.query(columns=names.split(", "))]
        took: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds + 1):
            for name, way in ways.items():
                took[name].append(timed(way))
        # The first round warms up.
        middle = {name: median(of[1:]) for name, of in took.items()}
        beyond = f"{(middle['ours'] - middle['reading']) * 1e6 / (rows * EPOCHS):.1f}" if question.read else ""
        over = [middle["ours"] / middle[peer] for peer in PEERS]
        lines.append(f"| {question.title} | {middle['ours']:.2f} | {beyond} | {over[0]:.2f} | {over[1]:.2f} | {max(over):.2f} | {question.goal} |")
        say(lines[-1])
        figures[question.title] = middle
    ours, numpys = gamma_beyond_reading(dataset, rounds)
    lines.append(f"| expression column beyond reading, one thread, over NumPy in f64 | {ours:.1f} | | | | {ours / numpys:.2f} (of NumPy) | ≤ 1.2 |")
    figures["expression"] = {"ours": ours, "numpy": numpys}
    return lines, figures
