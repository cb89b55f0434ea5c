#!/usr/bin/env python3
"""Cuts the sample in testdata/vpic out of the full particle dumps: every 8th particle by id, in every step.

A particle's id is not stored; in this data each particle was loaded with a weight of its own, so that
    id = bits_as_i32(w) - bits_as_i32(float32(8192 / 229376))        # 0 .. 229375
names the same particle in every step. Selecting by id keeps whole trajectories. The file format is kept: the header
is copied with its particle count corrected, the order of the records stays as it was.

Usage: tools/cut_sample.py SOURCE TARGET [--every 8]
"""

import argparse
import pathlib
import struct
import sys

HEADER = struct.Struct("<5bHIfd6i10f2iif3i")
COUNT_OFFSET = 111
ELEMENT_BYTES = 32
WEIGHT_OFFSET = 28
FIRST_WEIGHT_BITS = 0x3D124925  # the bits of float32(8192 / 229376)


def cut_file(source: pathlib.Path, target: pathlib.Path, every: int) -> tuple[int, set[int]]:
    """Copies the chosen records of one dump; returns the number of records read and the ids kept."""
    content = source.read_bytes()
    fields = HEADER.unpack_from(content)
    element_bytes, count = fields[-3], fields[-1]
    if fields[5:9] != (0xCAFE, 0xDEADBEEF, 1.0, 1.0) or element_bytes != ELEMENT_BYTES:
        sys.exit(f"{source}: not a VPIC particle dump of {ELEMENT_BYTES}-byte elements")
    if len(content) != HEADER.size + count * element_bytes:
        sys.exit(f"{source}: {len(content)} bytes do not hold the {count} particles the header states")
    kept = bytearray()
    ids = set()
    for start in range(HEADER.size, len(content), element_bytes):
        (bits,) = struct.unpack_from("<i", content, start + WEIGHT_OFFSET)
        identity = bits - FIRST_WEIGHT_BITS
        if identity % every == 0:
            kept += content[start : start + element_bytes]
            ids.add(identity)
    header = bytearray(content[: HEADER.size])
    struct.pack_into("<i", header, COUNT_OFFSET, len(kept) // element_bytes)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(header + kept)
    return count, ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    parser.add_argument("--every", type=int, default=8)
    arguments = parser.parse_args()
    steps = sorted(arguments.source.glob("T.*"), key=lambda folder: int(folder.name[2:]))
    if not steps:
        sys.exit(f"{arguments.source}: no folders called T.<step>")
    for step in steps:
        total, ids, records = 0, set(), 0
        for dump in sorted(step.iterdir()):
            count, kept = cut_file(dump, arguments.target / step.name / dump.name, arguments.every)
            total += count
            records += len(kept)
            ids |= kept
        expected = set(range(0, total, arguments.every))
        if ids != expected or records != len(ids):
            sys.exit(f"{step}: the {records} records kept are not every {arguments.every}th particle exactly once")
        print(f"{step.name}: {records} of {total} particles, every id once")


if __name__ == "__main__":
    main()
