"""What `ingest` reads: dumps with more than the standard fields, headerless traces, records with headers and gaps."""

import struct
from pathlib import Path

import duckdb
import numpy
import pytest

from support import vpic
from support.command import FAILED, USAGE, answer, attempt, turbidite

EPOCH = 1500
ENERGY = "energy=sqrt(1+ux*ux+uy*uy+uz*uz)-1"


def rows_of(target: Path, columns: str, order: str) -> dict[str, numpy.ndarray]:
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT {columns} FROM read_parquet('{target}/data') ORDER BY {order}").fetchnumpy()


def tagged_dumps(root: Path) -> dict[int, numpy.ndarray]:
    """The sample's dumps of one step with two i64 tags after each particle, as CARP's own deck writes them."""
    tagged = numpy.dtype([*vpic.PARTICLE.descr, ("owner", "<i8"), ("number", "<i8")])
    written = {}
    (root / f"T.{EPOCH}").mkdir(parents=True)
    for rank in range(4):
        name = f"T.{EPOCH}/eparticle.{EPOCH}.{rank}"
        content = bytearray((vpic.sample_dumps() / name).read_bytes())
        particles = numpy.frombuffer(bytes(content[115:]), vpic.PARTICLE)
        rows = numpy.empty(len(particles), tagged)
        for field in vpic.PARTICLE.names:
            rows[field] = particles[field]
        rows["owner"], rows["number"] = rank, numpy.arange(len(particles)) - (1 << 40)
        struct.pack_into("<i", content, 103, tagged.itemsize)
        (root / name).write_bytes(bytes(content[:115]) + rows.tobytes())
        written[rank] = rows
    return written


def test_dumps_with_tags(scratch):
    root, target = scratch / "tagged-source", scratch / "tagged"
    written = tagged_dumps(root)
    arguments = ["ingest", root, "--out", target, "--key", "energy", "--derive", ENERGY]
    done = attempt(*arguments)
    assert done.returncode in (FAILED, USAGE)
    assert "--extra" in done.stderr, "the message must say how to declare the other 16 bytes"
    turbidite(*arguments, "--extra", "owner:i64,number:i64")
    found = rows_of(target, "owner, number, ux", "owner, number")
    for field in ("owner", "number", "ux"):
        assert numpy.array_equal(found[field], numpy.concatenate([written[rank][field] for rank in range(4)]))


def test_headerless_traces_with_filler(scratch):
    """CARP's published traces: energies and nothing else; its tools attach 56 bytes to each."""
    root, target = scratch / "trace-source", scratch / "trace"
    rng = numpy.random.default_rng(11)
    energies = {}
    for epoch in (200, 2000):
        (root / f"T.{epoch}").mkdir(parents=True)
        energies[epoch] = rng.lognormal(0, 1, (5, 3000)).astype("<f4")
        for rank, keys in enumerate(energies[epoch]):
            keys.tofile(root / f"T.{epoch}" / f"eparticle.{epoch}.{rank}")
    layout = scratch / "trace.toml"
    layout.write_text(
        'path = "T.{epoch}/eparticle.{epoch}.{rank}"\n[[field]]\nname = "energy"\ntype = "f32"\n'
        '[filler]\nname = "payload"\nbytes = 56\n'
    )
    turbidite("ingest", root, "--layout", layout, "--out", target, "--key", "energy", "--ranks", 5)
    with duckdb.connect() as connection:
        count, payloads, length = connection.execute(
            f"SELECT count(*), count(DISTINCT payload), min(octet_length(payload)) FROM read_parquet('{target}/data')"
        ).fetchone()
    assert (count, payloads, length) == (30_000, 30_000, 56)
    everything = numpy.sort(numpy.concatenate([keys.ravel() for keys in energies.values()]))
    assert numpy.array_equal(rows_of(target, "energy", "energy")["energy"], everything)


def test_records_with_a_header_gaps_and_a_derived_key(scratch):
    root, target = scratch / "gaps-source", scratch / "gaps"
    record = numpy.dtype({"names": ["a", "b"], "formats": ["<f8", "<u4"], "offsets": [4, 16], "itemsize": 24})
    rows = numpy.zeros(10_000, record)
    rows["a"], rows["b"] = numpy.random.default_rng(12).normal(size=len(rows)), numpy.arange(len(rows))
    root.mkdir()
    (root / "step-7.bin").write_bytes(b"x" * 100 + rows.tobytes())
    layout = root / "layout.toml"
    layout.write_text(
        'path = "step-{epoch}.bin"\nheader_bytes = 100\nrecord_bytes = 24\n[[field]]\nname = "a"\ntype = "f64"\noffset = 4\n'
        '[[field]]\nname = "b"\ntype = "u32"\noffset = 16\n'
    )
    turbidite("ingest", root, "--layout", layout, "--out", target, "--key", "square", "--derive", "square:f64=a*a")
    found = rows_of(target, "a, b, square", "b")
    assert numpy.array_equal(found["a"], rows["a"]) and numpy.array_equal(found["square"], rows["a"] * rows["a"])


EXTREMES = numpy.array([1e25, -2e30, 1e-25, -1e-25, 3e-21, 0, 1, numpy.inf, numpy.nan], "<f4")
LAYOUT = 'path = "T.{epoch}/rows.{epoch}.{rank}"\n[[field]]\nname = "u"\ntype = "f32"\n'


def extremes(root: Path, ranks: int) -> list:
    """Files of values whose squares f32 does not all represent. Returns the arguments that ingest them."""
    rng = numpy.random.default_rng(13)
    for epoch in (1, 2):
        (root / f"T.{epoch}").mkdir(parents=True)
        for rank in range(ranks):
            rows = rng.permutation(numpy.tile(EXTREMES, 1000 * epoch))
            (root / f"T.{epoch}" / f"rows.{epoch}.{rank}").write_bytes(rows.tobytes())
    (root / "layout.toml").write_text(LAYOUT)
    return ["ingest", root, "--layout", root / "layout.toml", "--key", "u"]


@pytest.mark.parametrize("threads", [1, 2])
def test_derived_values_that_f32_cannot_represent_are_counted(tmp_path, threads):
    arguments = [*extremes(tmp_path / "source", 3), "--threads", threads]
    derive = ["--derive", "square=u*u", "--derive", "near=u+1"]
    done = turbidite(*arguments, *derive, "--out", tmp_path / "words")
    # 3e-21 squared is subnormal, and rounded.
    line = (
        "column 'square': 18000 values too large for f32 (stored as infinity), 27000 values too small for f32 (stored as 0 or "
        "with fewer digits); derive it as 'square:f64=…'"
    )
    assert [text for text in done.stdout.splitlines() if text.startswith("column")] == [line]
    report = answer(*arguments, *derive, "--out", tmp_path / "json")
    assert report["out_of_range"] == [{"column": "square", "overflows": 18000, "underflows": 27000}]
    of_epochs = [epoch["out_of_range"] for epoch in report["epochs"]]
    assert [(one["overflows"], one["underflows"]) for (one,) in of_epochs] == [(6000, 9000), (12000, 18000)]
    # The message states the stored values.
    found = rows_of(tmp_path / "json", "square", "square")["square"]
    with numpy.errstate(over="ignore", invalid="ignore"):
        square = numpy.square(EXTREMES.astype("f8")).astype("f4")
    assert numpy.array_equal(found, numpy.sort(numpy.tile(square, 9000)), equal_nan=True)
    # The remedy is one.
    wide = answer(*arguments, "--derive", "square:f64=u*u", "--out", tmp_path / "wide")
    assert wide["out_of_range"] == []
    # Epochs that are skipped have no new values.
    assert answer(*arguments, *derive, "--out", tmp_path / "json", "--if-exists", "skip")["out_of_range"] == []


@pytest.mark.parametrize(
    ("offset", "value", "words"), [(5, b"\x00\x00", "0xcafe"), (27, struct.pack("<i", 1), "dump type"), (111, struct.pack("<i", 9), "bytes")]
)
def test_a_dump_that_is_not_what_it_says_is_refused(scratch, tmp_path, offset, value, words):
    folder = tmp_path / "T.500"
    folder.mkdir()
    for rank in range(4):
        content = bytearray((vpic.sample_dumps() / "T.500" / f"eparticle.500.{rank}").read_bytes())
        if rank == 2:
            content[offset : offset + len(value)] = value
        (folder / f"eparticle.500.{rank}").write_bytes(content)
    done = turbidite("ingest", tmp_path, "--out", tmp_path / "ds", "--key", "energy", "--derive", ENERGY, expect=FAILED)
    assert words in done.stderr and "eparticle.500.2" in done.stderr, done.stderr


def test_a_wrong_layout_is_a_wrong_request(tmp_path):
    layout = tmp_path / "layout.toml"
    layout.write_text('path = "x.{epoch}"\nfeild = 3\n')
    done = turbidite("ingest", tmp_path, "--layout", layout, "--out", tmp_path / "ds", "--key", "a", expect=USAGE)
    assert "layout.toml" in done.stderr and "feild" in done.stderr
