"""The worked examples of FORMAT.md, against the golden files as other readers see them."""

import json
import re
import struct

import pyarrow
import pyarrow.parquet

from support.command import ROOT

GOLDEN = ROOT / "testdata" / "golden" / "range"
EXAMPLE = (ROOT / "FORMAT.md").read_text().partition("## 8. Worked example")[2].partition("\n## ")[0]
LINE = re.compile(r"^([0-9a-f]{8})  ((?:[0-9a-f]{2} ?)+?) *; *(.*)$", re.MULTILINE)
# Offsets of the example's seal, up to its checksum.
SEAL = range(0xF58, 0xFF0)


def zigzag(varint: bytes) -> int:
    number = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(varint))
    return number >> 1 ^ -(number & 1)


def test_the_manifest_entry_is_that_of_the_golden_manifest():
    entry = EXAMPLE.partition("Its manifest entry:")[2].partition("\n\n")[0]
    pairs = re.findall(r"`([^`]+)` (-?[\d.]+)", entry)
    assert len(pairs) > 10
    with pyarrow.ipc.open_stream((GOLDEN / "manifest.arrow").read_bytes()) as manifest:
        (row,) = [row for batch in manifest for row in batch.to_pylist()]
    for name, value in pairs:
        assert float(row[name]) == float(value), f"FORMAT.md says {name} {value}, the manifest has {row[name]}"


def test_the_entries_of_the_example_clustered_by_hash():
    content = (GOLDEN.parent / "hash" / "manifest.arrow").read_bytes()
    directory = json.loads(content[slice(*struct.unpack("<QQ", content[-32:-16]))])
    assert directory["partitions"] == 16
    entries = {}
    for offset, size in (directory["sections"][name] for name in ("row_groups", "parts")):
        with pyarrow.ipc.open_stream(content[offset : offset + size]) as stream:
            (row,) = [row for batch in stream for row in batch.to_pylist()]
        entries |= row
    pairs = re.findall(r"`(\w+)` (\d+)", EXAMPLE.partition("The part's entry in the manifest:")[2])
    assert len(pairs) == 4 and entries["lower:id"] is entries["upper:id"] is None
    for name, value in pairs:
        assert entries[name] == int(value), f"FORMAT.md says {name} {value}, the manifest has {entries[name]}"


def test_the_sizes_and_records_are_those_of_the_golden_part():
    part = GOLDEN / "part-00000.parquet"
    (stated,) = re.findall(r"part-00000\.parquet`, ([\d,]+) bytes", EXAMPLE)
    assert int(stated.replace(",", "")) == part.stat().st_size
    records = re.findall(r"\((-?[\d.]+), (\d+)\)", EXAMPLE.partition("```")[0])
    table = pyarrow.parquet.read_table(part)
    stored = sorted(zip(table["energy"].to_pylist(), table["tag"].to_pylist(), strict=True))
    assert stored == sorted((float(energy), int(tag)) for energy, tag in records)


def test_the_numbers_beside_the_bytes_are_what_the_bytes_say():
    """Fields of the seal are little-endian integers; integers of Thrift structures follow a byte with type 5 or 6."""
    compared = 0
    for offset, content, note in LINE.findall(EXAMPLE):
        place, content = int(offset, 16), bytes.fromhex(content)
        if not (number := re.search(r"(?<![\w.])(-?\d+)$|^(\d+) (?:columns|row group)", note)):
            continue
        expected = int(number.group(1) or number.group(2))
        if place in SEAL and len(content) in (4, 8):
            (found,) = struct.unpack("<I" if len(content) == 4 else "<Q", content)
        elif re.match(r"\d+: \w", note) and content[0] & 0xF in (5, 6) and "[" not in note:
            found = zigzag(content[1:])
        else:
            continue
        compared += 1
        assert found == expected, f"{offset}: {note}"
    assert compared > 60
