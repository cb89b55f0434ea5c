"""Times range queries through the package, as `examples/query_speed` does through the library.

Usage: queries.py DS --epoch E --ranges FILE.csv [--rounds N] [--form arrow|numpy]

Every range is asked once to warm up, then `--rounds` times; a range's time is the median of its rounds.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import pyarrow  # noqa: F401 - `to_arrow` imports it at its first use
import turbidite


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--ranges", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--form", choices=["arrow", "numpy"], default="arrow")
    options = parser.parse_args()
    dataset = turbidite.open(options.dataset)
    key = dataset.schema.key
    medians_us, rows, found = [], 0, {}
    for line in options.ranges.read_text().split():
        begin, end = line.split(",")
        where = f'"{key}" BETWEEN {begin} AND {end}'
        times_us = []
        for _ in range(options.rounds + 1):
            found = {}
            began = time.perf_counter()
            query = dataset.query(where, epochs=options.epoch)
            found = query.to_arrow() if options.form == "arrow" else query.to_numpy()
            times_us.append((time.perf_counter() - began) * 1e6)
        rows += len(found[key])
        medians_us.append(statistics.median(times_us[1:]))
    print(json.dumps({"median_us": statistics.median(medians_us), "rows": rows}))


if __name__ == "__main__":
    main()
