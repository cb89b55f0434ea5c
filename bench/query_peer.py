"""Times range queries of another engine, inside one process with the files opened once.

Usage: query_peer.py polars|duckdb|pyarrow|direct FILE... --ranges FILE.csv [--key NAME] [--rounds N] [--columns all|key] [--cold] [--json]
       query_peer.py sort UNSORTED.parquet SORTED.parquet --row-group-rows N [--key NAME]

A query returns all columns (or the key alone) of the rows whose key is from begin to end, as an Arrow table or a frame
in memory. Every range is asked once to warm up, then `--rounds` times; a range's time is the median of its rounds. With
several files the files are one table. `sort` makes the fully sorted copy; try several sizes of row groups and let
the best count.
"""

import argparse
import json
import mmap
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Of reads past the page cache, of which one is in flight for each thread.
DIRECT_BYTES = 4 << 20
DIRECT_THREADS = 4


def polars_engine(files: list[str], key: str, key_only: bool) -> Callable[[float, float], int]:
    import polars

    def ask(low: float, high: float) -> int:
        frame = polars.scan_parquet(files)
        column_type = frame.collect_schema()[key] if types[0] is None else types[0]
        types[0] = column_type
        frame = frame.filter(polars.col(key).is_between(polars.lit(low, column_type), polars.lit(high, column_type)))
        return (frame.select(key) if key_only else frame).collect().height

    types = [None]
    return ask


def duckdb_engine(files: list[str], key: str, key_only: bool) -> Callable[[float, float], int]:
    import duckdb

    connection = duckdb.connect()
    # Footers stay parsed from one query to the next.
    connection.execute("SET parquet_metadata_cache = true")
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    source = f"read_parquet([{listed}])"
    kind = connection.execute(f'SELECT typeof("{key}") FROM {source} LIMIT 1').fetchall()[0][0]
    what = f'"{key}"' if key_only else "*"

    def ask(low: float, high: float) -> int:
        query = f'SELECT {what} FROM {source} WHERE "{key}" BETWEEN {low!r}::{kind} AND {high!r}::{kind}'
        return connection.sql(query).to_arrow_table().num_rows

    return ask


def pyarrow_engine(files: list[str], key: str, key_only: bool) -> Callable[[float, float], int]:
    import pyarrow
    from pyarrow import dataset

    source = dataset.dataset(files, format="parquet")
    kind = source.schema.field(key).type
    columns = [key] if key_only else None

    def ask(low: float, high: float) -> int:
        column = dataset.field(key)
        condition = (column >= pyarrow.scalar(low, kind)) & (column <= pyarrow.scalar(high, kind))
        return source.to_table(columns=columns, filter=condition).num_rows

    return ask


def direct_engine(files: list[str], key: str, key_only: bool) -> Callable[[float, float], int]:
    """No engine: reads all bytes past the page cache, whatever is asked for. Returns the number of bytes."""
    blocks = [(file, offset) for file in files for offset in range(0, os.path.getsize(file), DIRECT_BYTES)]

    def read(own: list[tuple[str, int]]) -> int:
        buffer, read_bytes = mmap.mmap(-1, DIRECT_BYTES), 0
        for file, offset in own:
            descriptor = os.open(file, os.O_RDONLY | os.O_DIRECT)
            read_bytes += os.preadv(descriptor, [buffer], offset)
            os.close(descriptor)
        return read_bytes

    def ask(low: float, high: float) -> int:
        with ThreadPoolExecutor(DIRECT_THREADS) as threads:
            return sum(threads.map(read, [blocks[number::DIRECT_THREADS] for number in range(DIRECT_THREADS)]))

    return ask


ENGINES = {"polars": polars_engine, "duckdb": duckdb_engine, "pyarrow": pyarrow_engine, "direct": direct_engine}


def drop_cached(files: list[str]) -> None:
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_ranges(path: Path) -> list[tuple[float, float]]:
    return [tuple(float(bound) for bound in line.split(",")) for line in path.read_text().split()]


def sort(source: Path, target: Path, key: str, row_group_rows: int) -> None:
    import polars

    frame = polars.read_parquet(source).sort(key)
    frame.write_parquet(target, compression="uncompressed", statistics=True, row_group_size=row_group_rows)


def measure(options: argparse.Namespace) -> dict:
    files = [str(path) for path in options.files]
    ask = ENGINES[options.engine](files, options.key, options.columns == "key")
    medians_us, rows, cpu_us, least_us = [], 0, 0.0, 0.0
    for low, high in read_ranges(options.ranges):
        times_us = []
        for number in range(options.rounds + 1):
            if options.cold:
                drop_cached(files)
            began, began_cpu = time.perf_counter(), time.process_time()
            found = ask(low, high)
            times_us.append((time.perf_counter() - began) * 1e6)
            if number > 0:
                cpu_us += (time.process_time() - began_cpu) * 1e6 / options.rounds
        rows += found
        least_us += min(times_us[1:])
        medians_us.append(statistics.median(times_us[1:]))
    medians_us.sort()
    return {
        "engine": options.engine,
        "files": len(files),
        "columns": options.columns,
        "cold": options.cold,
        "ranges": len(medians_us),
        "rows": rows,
        "median_us": statistics.median(medians_us),
        "mean_us": statistics.mean(medians_us),
        "p99_us": medians_us[min(len(medians_us) * 99 // 100, len(medians_us) - 1)],
        "least_us": least_us / len(medians_us),
        "cpu_us": cpu_us / len(medians_us),
        "total_s": sum(medians_us) / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=[*ENGINES, "sort"])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--ranges", type=Path)
    parser.add_argument("--key", default="energy")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--columns", choices=["all", "key"], default="all")
    parser.add_argument("--row-group-rows", type=int, default=65536)
    parser.add_argument("--cold", action="store_true", help="drop the files from the system's cache before each query")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.engine == "sort":
        if len(options.files) != 2:
            parser.error("sort takes two files: the source and the target")
        sort(*options.files, options.key, options.row_group_rows)
        return
    if options.ranges is None:
        parser.error("--ranges is needed")
    taken = measure(options)
    if options.json:
        print(json.dumps(taken))
    else:
        print(f"{taken['engine']}: median {taken['median_us']:.0f} us, mean {taken['mean_us']:.0f} us, least {taken['least_us']:.0f} us, cpu {taken['cpu_us']:.0f} us, {taken['rows']} rows")


if __name__ == "__main__":
    main()
