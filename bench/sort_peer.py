"""What a user does without us: sort what was written, or write Parquet as it comes.

DuckDB or Polars reads unsorted Parquet and writes it sorted by key, made durable. The input is Parquet already, although a
simulation writes raw records: that favours the other engines. The row groups are small and uncompressed, which is what
makes their queries fastest. `pyarrow` writes a table that lies in memory, unsorted. Prints wall and processor seconds of
that alone, without the start of Python and the loading of the engine.

Usage: sort_peer.py duckdb|polars|pyarrow UNSORTED.parquet TARGET.parquet [UNSORTED.parquet TARGET.parquet …]
"""

import os
import sys
import time

ROW_GROUP_ROWS = 65_536


def by_duckdb(source: str, target: str):
    import duckdb

    options = f"FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE {ROW_GROUP_ROWS}"
    duckdb.execute("SELECT 1")
    return lambda: duckdb.execute(f"COPY (SELECT * FROM read_parquet('{source}') ORDER BY energy) TO '{target}' ({options})")


def by_polars(source: str, target: str):
    import polars

    frame = polars.scan_parquet(source).sort("energy")
    return lambda: frame.sink_parquet(target, compression="uncompressed", row_group_size=ROW_GROUP_ROWS, statistics=True)


def by_pyarrow(source: str, target: str):
    from pyarrow import parquet

    table = parquet.read_table(source)
    return lambda: parquet.write_table(table, target, compression="none", use_dictionary=False)


def main() -> None:
    engine = {"duckdb": by_duckdb, "polars": by_polars, "pyarrow": by_pyarrow}[sys.argv[1]]
    works = [(engine(source, target), target) for source, target in zip(sys.argv[2::2], sys.argv[3::2])]
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for work, target in works:
        work()
        file = os.open(target, os.O_RDONLY)
        os.fsync(file)
        os.close(file)
    print(time.perf_counter() - wall_s, time.process_time() - cpu_s)


if __name__ == "__main__":
    main()
