"""Datasets that keep their readers waiting: parts that are pipes which nobody fills."""

import os
from pathlib import Path


def replace_parts_by_pipes(dataset: Path, epoch: int | None = None, keep: str = "") -> None:
    """Replaces the parts of an epoch, or of all, by pipes, except the one named `keep`."""
    parts = [part for part in dataset.glob(f"data/epoch={'*' if epoch is None else epoch}/*.parquet") if part.name != keep]
    assert parts
    for part in parts:
        part.unlink()
        os.mkfifo(part)
