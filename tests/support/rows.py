"""Answers of the command as NumPy records that can be compared."""

from pathlib import Path

import numpy
import pyarrow
from pyarrow import ipc


def read_answer(path: Path) -> pyarrow.Table:
    """The table in a file that `query -o FILE.arrow` wrote."""
    with ipc.open_file(path) as reader:
        return reader.read_all()


def as_records(table: pyarrow.Table, like: numpy.dtype) -> numpy.ndarray:
    """The answer's rows with the fields of `like` and the epoch."""
    rows = numpy.empty(table.num_rows, numpy.dtype(like.descr + [("epoch", "<i8")]))
    for name in rows.dtype.names:
        rows[name] = table.column(name).to_numpy()
    return rows


def in_order(rows: numpy.ndarray) -> numpy.ndarray:
    """Rows in an order of their own: by epoch and id, which together are unique."""
    return rows[numpy.lexsort((rows["id"], rows["epoch"]))]
