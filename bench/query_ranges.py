"""Ranges of keys for query benchmarks, as CSV files with lines `begin,end`, both ends included.

From the sorted keys of one epoch: for each selectivity ranges with random starts, and batches in the manner of YCSB's
workload E: zipfian starts (theta 0.99, scrambled as YCSB does) and fixed widths, over blocks of equally many rows.

Usage: query_ranges.py KEYS.parquet FOLDER [--column NAME] [--count N] [--batch-count N] [--blocks N] [--widths W,W,…] [--seed N]
"""

import argparse
import sys
from pathlib import Path

import numpy
from pyarrow import parquet

SELECTIVITIES = ("0.01%", "0.1%", "1%", "10%", "100%")
ZIPF_THETA = 0.99
FNV_OFFSET, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


def zipfian_ranks(count: int, items: int, rng: numpy.random.Generator) -> numpy.ndarray:
    """Ranks 0 .. items - 1, rank r with probability proportional to 1 / (r + 1) ** theta."""
    weights = 1.0 / numpy.arange(1, items + 1) ** ZIPF_THETA
    cumulative = numpy.cumsum(weights)
    ranks = numpy.searchsorted(cumulative, rng.random(count) * cumulative[-1], side="right")
    return numpy.minimum(ranks, items - 1)


def scrambled(rank: int, items: int) -> int:
    """YCSB's scattering of popular items over the key space: the 64-bit FNV-1a hash of the rank's bytes."""
    value = FNV_OFFSET
    for shift in range(0, 64, 8):
        value = ((value ^ (rank >> shift & 0xFF)) * FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    # YCSB takes the absolute value of a signed number.
    return (value if value < 1 << 63 else (1 << 64) - value) % items


def write(path: Path, keys: numpy.ndarray, starts, rows: int) -> None:
    """Ranges of `rows` rows from each start on (more where keys are equal)."""
    with path.open("w") as file:
        for start in starts:
            begin, end = keys[start], keys[min(start + rows, len(keys)) - 1]
            file.write(f"{begin.item()!r},{end.item()!r}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("keys", type=Path, help="Parquet file with the epoch's rows in any order")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--column", default="energy")
    parser.add_argument("--count", type=int, default=21, help="ranges of each selectivity")
    parser.add_argument("--batch-count", type=int, default=1000, help="ranges of each batch")
    parser.add_argument("--blocks", type=int, default=18266)
    parser.add_argument("--widths", default="5,20,50,100", help="widths of the batches' ranges in blocks")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    keys = numpy.sort(parquet.read_table(options.keys, columns=[options.column])[options.column].to_numpy())
    keys = keys[~numpy.isnan(keys)] if keys.dtype.kind == "f" else keys
    if len(keys) < options.blocks:
        sys.exit(f"{len(keys)} keys are fewer than {options.blocks} blocks")
    rng = numpy.random.default_rng(options.seed)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in SELECTIVITIES:
        rows = max(1, round(float(name.rstrip("%")) / 100 * len(keys)))
        count = options.count if rows < len(keys) else 1
        write(options.folder / f"share-{name.rstrip('%')}.csv", keys, rng.integers(0, len(keys) - rows + 1, count), rows)
    for width in map(int, options.widths.split(",")):
        starts = (scrambled(int(rank), options.blocks) for rank in zipfian_ranks(options.batch_count, options.blocks, rng))
        first = [min(start, options.blocks - width) * len(keys) // options.blocks for start in starts]
        write(options.folder / f"zipf-{width}.csv", keys, first, width * len(keys) // options.blocks)


if __name__ == "__main__":
    main()
