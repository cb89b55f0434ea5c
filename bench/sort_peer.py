"""What a user does without us: sort what was written. DuckDB or Polars reads unsorted Parquet, writes it sorted by key.

The input is Parquet already, although a simulation writes raw records: that favours the other engines. The row groups
are small and uncompressed, which is what makes their queries fastest. Prints wall and processor seconds of the sort
alone, without the start of Python and the loading of the engine.

Usage: sort_peer.py duckdb|polars UNSORTED.parquet SORTED.parquet
"""

import sys
import time

import duckdb
import polars

ROW_GROUP_ROWS = 20_000


def by_duckdb(source: str, target: str) -> None:
    options = f"FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE {ROW_GROUP_ROWS}"
    duckdb.execute(f"COPY (SELECT * FROM read_parquet('{source}') ORDER BY energy) TO '{target}' ({options})")


def by_polars(source: str, target: str) -> None:
    frame = polars.scan_parquet(source).sort("energy")
    frame.sink_parquet(target, compression="uncompressed", row_group_size=ROW_GROUP_ROWS, statistics=True)


def main() -> None:
    sort = {"duckdb": by_duckdb, "polars": by_polars}[sys.argv[1]]
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    sort(sys.argv[2], sys.argv[3])
    print(time.perf_counter() - wall_s, time.process_time() - cpu_s)


if __name__ == "__main__":
    main()
