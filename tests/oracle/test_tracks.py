"""Trajectories: the rows that NumPy finds by full scan, sorted by id and epoch, and what is missing or double."""

import json
import os
import sys

import numpy
import pyarrow.ipc
import pyarrow.parquet
import pytest

from support import raw
from support.command import FAILED, ROOT, USAGE, answer, turbidite


def expected(epochs: dict[int, numpy.ndarray], at: int, mask, through=None, ident="id") -> numpy.ndarray:
    """Rows of the chosen particles with an `epoch` field, sorted by id and epoch; rows of one id and epoch in any order."""
    ids = numpy.unique(epochs[at][ident][mask(epochs[at])])
    parts = []
    for epoch in sorted(through or epochs):
        rows = epochs[epoch][numpy.isin(epochs[epoch][ident], ids)]
        part = numpy.empty(len(rows), numpy.dtype(rows.dtype.descr + [("epoch", "<i8")]))
        for name in rows.dtype.names:
            part[name] = rows[name]
        part["epoch"] = epoch
        parts.append(part)
    rows = numpy.concatenate(parts)
    return rows[numpy.lexsort((rows["epoch"], rows[ident]))]


def read(path) -> dict[str, numpy.ndarray]:
    if path.suffix == ".arrow":
        table = pyarrow.ipc.open_file(path).read_all()
    else:
        table = pyarrow.parquet.read_table(path)
    return {name: table.column(name).to_numpy() for name in table.column_names}


def assert_same(found: dict[str, numpy.ndarray], rows: numpy.ndarray, columns) -> None:
    assert list(found) == list(columns)
    for name in columns:
        assert found[name].tobytes() == rows[name].tobytes(), name


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_trajectories_are_those_of_a_full_scan(indexed, tmp_path, suffix):
    out = tmp_path / f"tracks.{suffix}"
    last = max(indexed.epochs)
    bound = numpy.sort(indexed.epochs[last]["energy"])[-100]
    summary = answer("tracks", indexed.path, "--of", f"energy > {bound!s}", "--at", last, "--id", "id", "-o", out)
    rows = expected(indexed.epochs, last, lambda of: of["energy"] > bound)
    columns = ["id", "epoch", *(name for name in rows.dtype.names if name not in ("id", "epoch"))]
    found = read(out)
    assert sorted(found) == sorted(columns) and list(found)[:2] == ["id", "epoch"]
    assert_same({name: found[name] for name in columns}, rows, columns)
    ids = len(numpy.unique(rows["id"]))
    assert ids == 99
    for field, value in (("ids", ids), ("rows", len(rows)), ("written", len(rows)), ("epochs", len(indexed.epochs))):
        assert summary[field] == value, summary
    assert summary["missing"] == summary["incomplete_ids"] == summary["duplicates"] == 0
    assert 0 < summary["read"]["bytes_read"] and 0 < summary["wall_s"]


def test_epochs_columns_limit_and_text(default_dataset):
    epochs = sorted(default_dataset.epochs)
    arguments = ["tracks", default_dataset.path, "--of", "ux > 5 AND abs(uy) < 1", "--at", epochs[3], "--id", "id",
                 "--epoch", f"{epochs[2]}..{epochs[4]}", "--columns", "energy,i"]  # fmt: skip
    rows = expected(
        default_dataset.epochs, epochs[3], lambda of: (of["ux"] > 5) & (numpy.abs(of["uy"].astype("f8")) < 1), epochs[2:5]
    )
    assert len(rows) > 30
    printed = turbidite(*arguments, "--limit", 31).stdout.splitlines()
    assert printed[0] == "id,epoch,energy,i" and len(printed) == 32
    for line, row in zip(printed[1:], rows):
        ident, epoch, energy, cell = line.split(",")
        assert (int(ident), int(epoch), numpy.float32(energy), int(cell)) == (row["id"], row["epoch"], row["energy"], row["i"])
    done = turbidite(*arguments, "--limit", 31, "--json")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [int(ident) for ident in rows["id"][:31]]
    summary = json.loads(done.stderr)
    assert summary["rows"] == len(rows) and summary["written"] == 31


def test_all_particles_and_none(default_dataset, tmp_path):
    first = min(default_dataset.epochs)
    out = tmp_path / "all.parquet"
    arguments = ["tracks", default_dataset.path, "--at", first, "--id", "id", "--columns", "energy"]
    summary = answer(*arguments, "--of", "true", "-o", out)
    rows = expected(default_dataset.epochs, first, lambda of: numpy.ones(len(of), bool))
    assert_same(read(out), rows, ["id", "epoch", "energy"])
    assert summary["rows"] == sum(map(len, default_dataset.epochs.values()))
    for nothing in ("energy < -5", "energy > nan", "false"):
        assert turbidite(*arguments, "--of", nothing).stdout == "id,epoch,energy\n"
    # NaN matches no comparison and isnan finds it, here as in any query.
    slopes = turbidite(*arguments[:-1], "id", "--of", "isnan(slope)").stdout.splitlines()
    nans = numpy.unique(default_dataset.epochs[first]["id"][numpy.isnan(default_dataset.epochs[first]["slope"])])
    assert numpy.array_equal(numpy.unique([int(line.split(",")[0]) for line in slopes[1:]]), nans)


RECORD = numpy.dtype([("energy", "<f4"), ("id", "<u8"), ("name", "V12")])


@pytest.fixture(scope="module")
def disorder(scratch):
    """Records with ids as real dumps have them when something went wrong: lost, doubled, all zero; and opaque names."""
    root, dataset = scratch / "disorder-source", scratch / "disorder"
    rng = numpy.random.default_rng(21)
    epochs = {}
    for epoch in (1, 2, 3):
        rows = numpy.zeros(20_000, RECORD)
        rows["id"] = rng.integers(1 << 63, (1 << 63) + 15_000, len(rows), dtype="u8")
        rows["id"][:500] = 0
        rows["energy"] = rng.lognormal(0, 1, len(rows))
        words = rows["id"].astype(">u8").tobytes()
        rows["name"] = numpy.frombuffer(b"".join(b"\xffabc" + words[at : at + 8] for at in range(0, len(words), 8)), "V12")
        (root / f"E.{epoch}").mkdir(parents=True)
        rows.tofile(root / f"E.{epoch}" / "records.0")
        epochs[epoch] = rows
    raw.write_layout(root / "layout.toml", RECORD, "E.{epoch}/records.{rank}")
    turbidite(*raw.ingest_arguments(root, dataset, "energy", "--ranks", 5, "--page-rows", 100, "--memtable", "32KiB"))
    return dataset, epochs


@pytest.mark.parametrize("ident", ["id", "name"])
def test_lost_and_doubled_ids_are_counted(disorder, tmp_path, ident):
    dataset, epochs = disorder
    out = tmp_path / "tracks.parquet"
    summary = answer("tracks", dataset, "--of", "energy > 2", "--at", 2, "--id", ident, "-o", out, "--columns", "id,energy")
    # A name holds its id as a big-endian number, so that both are in one order.
    rows = expected(epochs, 2, lambda of: of["energy"] > 2)
    found = read(out)
    assert numpy.array_equal(found["id"], rows["id"]) and numpy.array_equal(found["epoch"], rows["epoch"])
    order = numpy.lexsort((found["energy"], found["epoch"], found["id"]))
    assert numpy.array_equal(found["energy"][order], rows["energy"][numpy.lexsort((rows["energy"], rows["epoch"], rows["id"]))])
    pairs = len(numpy.unique(numpy.stack([rows["id"], rows["epoch"].astype("u8")]), axis=1).T)
    ids = len(numpy.unique(rows["id"]))
    whole = sum(len(numpy.unique(rows["epoch"][rows["id"] == one])) == 3 for one in numpy.unique(rows["id"]))
    assert summary["ids"] == ids and summary["missing"] == 3 * ids - pairs > 0
    assert summary["duplicates"] == len(rows) - pairs > 500
    assert summary["incomplete_ids"] == ids - whole
    done = turbidite("tracks", dataset, "--of", "energy > 2", "--at", 2, "--id", ident, "-o", out)
    assert "missing in at least one epoch" in done.stderr and f"'{ident}' does not identify particles uniquely" in done.stderr


def test_what_cannot_be_followed_is_refused(disorder, default_dataset):
    dataset, _ = disorder
    base = ["tracks", dataset, "--at", 2]
    for more, expect, words in [
        (["--of", "energy > 2", "--id", "nope"], USAGE, "no column 'nope'"),
        (["--of", "energy > 2", "--id", "energy"], USAGE, "ids must be integers or fixed_bytes"),
        (["--of", "energy >", "--id", "id"], USAGE, "--of 'energy >'"),
        (["--of", "energy > 2", "--id", "id", "-o", "tracks.txt"], USAGE, "tracks.txt"),
        (["--of", "energy > 2", "--id", "id", "--epoch", "9"], FAILED, "epoch 9 does not exist"),
    ]:
        done = turbidite(*base, *more, expect=expect)
        assert words in done.stderr and not done.stdout, done.stderr
    done = turbidite("tracks", dataset, "--of", "true", "--at", 7, "--id", "id", expect=FAILED)
    assert "epoch 7 does not exist" in done.stderr


@pytest.mark.serial
def test_more_rows_than_memory_are_sorted_all_the_same(scratch, tmp_path):
    """150 MB of rows through 64 MiB of sorting memory; the file they pass through has no name."""
    root, dataset, out = scratch / "many-source", scratch / "many", tmp_path / "many.arrow"
    record = numpy.dtype([("energy", "<f4"), ("id", "<u4"), ("payload", "V92")])
    rng = numpy.random.default_rng(22)
    ids = 500_000
    for epoch in (1, 2, 3):
        (root / f"E.{epoch}").mkdir(parents=True)
        rows = numpy.zeros(ids, record)
        rows["id"] = rng.permutation(ids)
        rows["energy"] = rows["id"] + epoch / 4
        rows.tofile(root / f"E.{epoch}" / "records.0")
    raw.write_layout(root / "layout.toml", record, "E.{epoch}/records.{rank}")
    turbidite(*raw.ingest_arguments(root, dataset, "energy", "--ranks", 4))
    figures = tmp_path / "figures.json"
    measure = (sys.executable, "-S", ROOT / "tests" / "support" / "measure.py", figures)
    turbidite("tracks", dataset, "--of", "true", "--at", 2, "--id", "id", "-o", out, "--threads", 2, prefix=measure)
    peak = json.loads(figures.read_text())["peak_bytes"]
    print(f"peak memory {peak / 2**20:.0f} MiB")
    found = read(out)
    assert numpy.array_equal(found["id"], numpy.repeat(numpy.arange(ids, dtype="u4"), 3))
    assert numpy.array_equal(found["epoch"], numpy.tile([1, 2, 3], ids))
    assert numpy.array_equal(found["energy"], (found["id"] + found["epoch"] / 4).astype("f4"))
    assert sorted(os.listdir(tmp_path)) == sorted([out.name, figures.name])
    assert peak < 200 << 20


@pytest.mark.parametrize("ident", ["id", "name"])
def test_rows_of_ids_are_those_of_a_full_scan(disorder, tmp_path, ident):
    """Of the ids, one is in no epoch, others in some, and one has many rows in each."""
    dataset, epochs = disorder
    present = numpy.unique(numpy.concatenate([rows["id"] for rows in epochs.values()]))
    nowhere = next(one for one in range(1 << 63, 1 << 64) if one not in present)
    chosen = numpy.array([*present[1::700].tolist(), 0, nowhere], "u8")
    texts = [str(one) if ident == "id" else "ff616263" + int(one).to_bytes(8, "big").hex() for one in chosen]
    parts = []
    for epoch, rows in epochs.items():
        rows = rows[numpy.isin(rows["id"], chosen)]
        parts += [(int(row["id"]), epoch, row["energy"].tobytes()) for row in rows]
    listed = tmp_path / "ids.txt"
    listed.write_text("\n".join(texts[:5]) + "\n" + ",".join(texts[5:]) + ", " + texts[0])
    columns = ["--columns", "id,energy", "--id", ident]
    for stated in (["get", dataset, *texts], ["tracks", dataset, "--ids", ",".join(texts)], ["tracks", dataset, "--ids", f"@{listed}"]):
        out = tmp_path / "rows.parquet"
        summary = answer(*stated, *columns, "-o", out)
        found = read(out)
        rows = list(zip(found["id"].tolist(), found["epoch"].tolist(), map(numpy.generic.tobytes, found["energy"])))
        assert sorted(rows) == sorted(parts) and [row[:2] for row in rows] == sorted(row[:2] for row in rows)
        counts = {one: [sum(row[:2] == (one, epoch) for row in parts) for epoch in epochs] for one in chosen.tolist()}
        missing = sum(count == 0 for each in counts.values() for count in each)
        doubled = sum(max(count - 1, 0) for each in counts.values() for count in each)
        assert (summary["ids"], summary["absent_ids"], summary["missing"], summary["duplicates"]) == (len(chosen), 1, missing, doubled)
    done = turbidite("get", dataset, texts[-1], *columns)
    assert "1 of 1 particle is in none of 3 epochs" in done.stderr


def test_ids_that_cannot_be_looked_up_are_refused(disorder, tmp_path):
    dataset, _ = disorder
    for arguments, words in (
        (["get", dataset, "17"], "--id COLUMN: state which column identifies particles; the key, 'energy', is f32"),
        (["get", dataset, "x", "--id", "id"], "'x' is no id: 'id' is u64"),
        (["get", dataset, "17", "--id", "name"], "'17' is no id: 'name' is fixed_bytes(12)"),
        (["get", dataset, "17", "--id", "ident"], "no column 'ident'"),
        (["get", dataset, "--id", "id", "--", "-5"], "'-5' is no id"),
        (["get", dataset], "required"),
        (["tracks", dataset, "--id", "id"], "--of"),
        (["tracks", dataset, "--id", "id", "--of", "energy > 1"], "--at"),
        (["tracks", dataset, "--id", "id", "--ids", "1", "--of", "energy > 1", "--at", 1], "cannot be used with"),
    ):
        done = turbidite(*arguments, expect=USAGE)
        assert words in done.stderr, done.stderr
    missing = tmp_path / "missing.txt"
    done = turbidite("tracks", dataset, "--id", "id", "--ids", f"@{missing}", expect=FAILED)
    assert f"cannot read the ids in {missing}" in done.stderr
