"""Writes a dataset of many gigabytes from a few arrays, or reads one by iteration over batches.

Usage: batches.py write DATASET BYTES | batches.py read DATASET

Reading sums a column, so that the rows are used as a program would use them, and prints the rows and their stored bytes.
"""

import json
import sys

import numpy
import turbidite

PAYLOAD_BYTES = 52
TYPES = {"energy": "f4", "id": "uint64", "payload": f"V{PAYLOAD_BYTES}"}
ROW_BYTES = 4 + 8 + PAYLOAD_BYTES
EPOCH_ROWS = 1 << 23
APPEND_ROWS = 1 << 19


def write(path: str, total_bytes: int) -> None:
    rng = numpy.random.default_rng(1)
    payload = numpy.frombuffer(rng.bytes(PAYLOAD_BYTES * APPEND_ROWS), TYPES["payload"])
    left, first = total_bytes // ROW_BYTES, 0
    with turbidite.Writer(path, TYPES, key="energy") as writer:
        for epoch in range(-(-left // EPOCH_ROWS)):
            with writer.epoch(epoch):
                for _ in range(0, min(left, EPOCH_ROWS), APPEND_ROWS):
                    rows = min(left, APPEND_ROWS)
                    energy = rng.standard_exponential(rows, numpy.float32)
                    ids = numpy.arange(first, first + rows, dtype="u8")
                    writer.append({"energy": energy, "id": ids, "payload": payload[:rows]})
                    left, first = left - rows, first + rows


def read(path: str) -> None:
    rows = total = 0
    for batch in turbidite.open(path).query():
        rows += len(batch)
        total += int(numpy.asarray(batch.column("id")).sum())
    if total != rows * (rows - 1) // 2:
        sys.exit(f"the ids of {rows} rows sum up to {total}")
    print(json.dumps({"rows": rows, "bytes": rows * ROW_BYTES}))


if __name__ == "__main__":
    write(sys.argv[2], int(sys.argv[3])) if sys.argv[1] == "write" else read(sys.argv[2])
