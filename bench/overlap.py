"""What keeping strays in runs of their own is worth: row groups and bytes that hold a key's range, as stored and as if a
receiver's strays had gone into its next regular run. Told from the manifest alone.

A run with strays among its records stays sorted: its first row group then reaches down to the smallest stray, its last
one up to the largest.
"""

import json
from collections import defaultdict
from pathlib import Path

import numpy
from common import COMMAND, run
from pyarrow import parquet

KEYS = 2000


def row_groups(dataset: Path, label: int) -> tuple[list[dict], int]:
    """The row groups of an epoch, and how many parts it has."""
    told = json.loads(run([COMMAND, "inspect", dataset, "--epoch", label, "--json"]))["epochs"][0]
    return told["runs"], told["parts"]


def together(groups: list[dict]) -> list[dict]:
    """The same with each receiver's strays in its next regular run, or in its last one when none follows."""
    parts = defaultdict(lambda: defaultdict(list))
    for group in groups:
        parts[group["part"]][group["run"]].append(dict(group))
    found = []
    for runs in parts.values():
        waiting, last = [], None
        for number in sorted(runs):
            if runs[number][0]["kind"] == "stray":
                waiting += runs[number]
            elif runs[number][0]["kind"] == "regular":
                last = runs[number]
                widen(last, waiting)
                waiting = []
                found += last
            else:
                found += runs[number]
        if last is None:
            found += waiting
        else:
            widen(last, waiting)
    return found


def widen(regular: list[dict], strays: list[dict]) -> None:
    for stray in strays:
        regular[0]["key_min"] = min(regular[0]["key_min"], stray["key_min"])
        regular[-1]["key_max"] = max(regular[-1]["key_max"], stray["key_max"])
        for group in regular:
            group["bytes"] += stray["bytes"] / len(regular)


def overlaps(groups: list[dict], keys: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """For each key the number of row groups whose range holds it, and their bytes."""
    groups = [group for group in groups if group["kind"] in ("regular", "stray")]
    low, high, size = (numpy.array([group[name] for group in groups]) for name in ("key_min", "key_max", "bytes"))
    holds = (low <= keys[:, None]) & (keys[:, None] <= high)
    return holds.sum(axis=1), holds @ size


def table(dataset: Path, label: int, unsorted: Path) -> list[str]:
    """Medians and 99th percentiles over keys of equal mass between them."""
    groups, parts = row_groups(dataset, label)
    energies = parquet.read_table(unsorted, columns=["energy"])["energy"].to_numpy()
    keys = numpy.quantile(energies, (numpy.arange(KEYS) + 0.5) / KEYS)
    partition_bytes = sum(group["bytes"] for group in groups) / parts
    lines = ["| strays | row groups at a key: p50 | p99 | their bytes, of a partition's: p50 | p99 |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, chosen in (("apart, as stored", groups), ("among regular records", together(groups))):
        count, size = overlaps(chosen, keys)
        cells = [f"{numpy.quantile(count, share):.0f}" for share in (0.5, 0.99)]
        cells += [f"{numpy.quantile(size, share) / partition_bytes:.2f}" for share in (0.5, 0.99)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines
