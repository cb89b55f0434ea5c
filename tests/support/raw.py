"""Raw fixed-size records with the layout file that describes them to the command."""

from pathlib import Path

import numpy

TYPES = {"f4": "f32", "f8": "f64", "i4": "i32", "i8": "i64", "u4": "u32", "u8": "u64"}


def column_type(dtype: numpy.dtype) -> str:
    return f"fixed_bytes({dtype.itemsize})" if dtype.kind in "VS" else TYPES[dtype.str[1:]]


def write_layout(path: Path, dtype: numpy.dtype, pattern: str) -> Path:
    """The layout of packed records of `dtype` in files named after `pattern`."""
    lines = [f'path = "{pattern}"', "header_bytes = 0", f"record_bytes = {dtype.itemsize}"]
    for name in dtype.names:
        kind, offset = dtype.fields[name][:2]
        lines += ["", "[[field]]", f'name = "{name}"', f'type = "{column_type(kind)}"', f"offset = {offset}"]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_epoch(root: Path, epoch: int, ranks: list[numpy.ndarray]) -> None:
    """One file per rank, `E.<epoch>/records.<rank>`."""
    folder = root / f"E.{epoch}"
    folder.mkdir(parents=True)
    for rank, rows in enumerate(ranks):
        rows.tofile(folder / f"records.{rank}")


def write_source(root: Path, epochs: dict[int, list[numpy.ndarray]]) -> Path:
    """A source of several epochs; returns the layout file."""
    for epoch, ranks in epochs.items():
        write_epoch(root, epoch, ranks)
    dtype = next(iter(epochs.values()))[0].dtype
    return write_layout(root / "layout.toml", dtype, "E.{epoch}/records.{rank}")


def ingest_arguments(root: Path, target: Path, key: str, *more) -> list:
    """The command that ingests such a source."""
    return ["ingest", root, "--layout", root / "layout.toml", "--out", target, "--key", key, *more]
