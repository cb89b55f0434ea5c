"""Input of the benchmark: the particles of real dumps, each replicated with jitter, as raw fixed-size records.

Replicas lie beside their original, so that the order in the files stays what a simulation's is: locally alike.
"""

import sys
from pathlib import Path

import numpy
import pyarrow
from pyarrow import parquet

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from support import raw, vpic  # noqa: E402

VPIC_RECORD = numpy.dtype([*vpic.PARTICLE.descr, ("energy", "<f4")])
WIDE_RECORD = numpy.dtype([("energy", "<f4"), ("id", "<u4"), ("payload", "V56")])
RECORDS = {"36": VPIC_RECORD, "64": WIDE_RECORD}


def replicate(particles: numpy.ndarray, rows: int, record: numpy.dtype, rng: numpy.random.Generator) -> numpy.ndarray:
    """`rows` records after the model of `particles`."""
    source = particles[numpy.arange(rows) * len(particles) // rows]
    out = numpy.empty(rows, record)
    jitter = 1 + 0.01 * rng.standard_normal(rows, numpy.float32)
    out["energy"] = source["energy"] * jitter
    if "payload" in record.names:
        out["id"] = numpy.arange(rows)
        out["payload"] = rng.bytes(56 * rows) if rows < 1000 else numpy.frombuffer(rng.bytes(56 * rows), "V56")
    else:
        for name in vpic.PARTICLE.names:
            out[name] = source[name]
        for name in ("ux", "uy", "uz"):
            out[name] *= numpy.sqrt(jitter)
    return out


def generate(folder: Path, width: str, total_bytes: int, epochs: int, ranks: int) -> dict[int, Path]:
    """Writes the raw source with its layout, and per epoch one unsorted Parquet file for the other engines."""
    record = RECORDS[width]
    dumps = vpic.read_dumps(vpic.full_dumps() or vpic.sample_dumps())
    labels = sorted(dumps)[-epochs:]
    rows = total_bytes // record.itemsize // epochs // ranks
    rng = numpy.random.default_rng(1)
    unsorted = {}
    for label in labels:
        per_rank = [replicate(part, rows, record, rng) for part in numpy.array_split(dumps[label], ranks)]
        unsorted[label] = write(folder, label, per_rank)
    raw.write_layout(folder / "source" / "layout.toml", record, "E.{epoch}/records.{rank}")
    return unsorted


def drift(folder: Path, epoch_bytes: int, epochs: int, ranks: int) -> dict[int, Path]:
    """Writes a source of 36-byte records that changes from epoch to epoch as little as a simulation does.

    Each epoch lies between two dumps: a particle has the momentum of one of them.
    """
    dumps = list(vpic.read_dumps(vpic.full_dumps() or vpic.sample_dumps()).values())
    rows = epoch_bytes // VPIC_RECORD.itemsize // ranks
    rng = numpy.random.default_rng(1)
    unsorted = {}
    for epoch in range(epochs):
        position = epoch * (len(dumps) - 1) / max(epochs - 1, 1)
        before = min(int(position), len(dumps) - 2)
        per_rank = []
        for parts in zip(*(numpy.array_split(dumps[dump], ranks) for dump in (before, before + 1))):
            earlier, later = (replicate(part, rows, VPIC_RECORD, rng) for part in parts)
            has_moved = rng.random(rows) < position - before
            earlier[has_moved] = later[has_moved]
            per_rank.append(earlier)
        unsorted[epoch] = write(folder, epoch, per_rank)
    raw.write_layout(folder / "source" / "layout.toml", VPIC_RECORD, "E.{epoch}/records.{rank}")
    return unsorted


def write(folder: Path, label: int, per_rank: list[numpy.ndarray]) -> Path:
    """Writes an epoch as raw records, and as one unsorted Parquet file, which it returns."""
    raw.write_epoch(folder / "source", label, per_rank)
    everything = numpy.concatenate(per_rank)
    columns = {}
    for name in everything.dtype.names:
        values = numpy.ascontiguousarray(everything[name])
        if values.dtype.kind == "V":
            buffers = [None, pyarrow.py_buffer(values.view(numpy.uint8))]
            columns[name] = pyarrow.Array.from_buffers(pyarrow.binary(values.dtype.itemsize), len(values), buffers)
        else:
            columns[name] = values
    path = folder / f"unsorted-{label}.parquet"
    parquet.write_table(pyarrow.table(columns), path, compression="none", use_dictionary=False)
    return path
