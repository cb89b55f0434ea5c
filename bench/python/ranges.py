"""Options and predicates of the programs that query ranges."""

import argparse
from pathlib import Path

import turbidite


def parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser of the dataset, the epoch and the ranges."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("dataset", type=Path)
    found.add_argument("--epoch", type=int, required=True)
    found.add_argument("--ranges", type=Path, required=True)
    return found


def predicates(dataset: turbidite.Dataset, ranges: Path) -> list[str]:
    """Returns a predicate on the key for each line of a file, `begin,end`."""
    ends = (line.split(",") for line in ranges.read_text().split())
    return [f'"{dataset.schema.key}" BETWEEN {begin} AND {end}' for begin, end in ends]
