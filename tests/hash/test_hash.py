"""Datasets that are clustered by the hash of their ids: every trajectory is that of a full scan, however it was written."""

import json
import shutil
import warnings
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import numpy
import pyarrow.parquet
import pytest
import turbidite as package

from support import raw, vpic
from support.command import CORRUPTION, FAILED, USAGE, answer, turbidite
from support.engines import duckdb_scan
from support.libraries import prefix
from support.mpi import Mpi, run

RANKS = 16
RECORD = numpy.dtype([("id", "<u8"), ("short", "<u4"), ("signed", "<i8"), ("value", "<f4")])


def trajectories(epochs: dict[int, numpy.ndarray], columns: list[str]) -> dict[str, bytes]:
    """The columns of all rows, sorted by id and epoch. No two rows of an epoch share an id."""
    ids = numpy.concatenate([rows["id"] for rows in epochs.values()])
    labels = numpy.repeat(numpy.array(list(epochs), "i8"), [len(rows) for rows in epochs.values()])
    order = numpy.lexsort((labels, ids))
    found = {name: numpy.concatenate([rows[name] for rows in epochs.values()])[order] for name in columns}
    return {name: values.tobytes() for name, values in (found | {"epoch": labels[order]}).items()}


def of_command(dataset: Path, scratch: Path, ids: list[int], columns: list[str]) -> dict[str, bytes]:
    """The same by the command, given the ids."""
    listed, out = scratch / "ids.txt", scratch / "tracks.parquet"
    listed.write_text("\n".join(map(str, ids)))
    summary = answer("tracks", dataset, "--ids", f"@{listed}", "-o", out, "--columns", ",".join(columns))
    assert summary["absent_ids"] == summary["missing"] == summary["duplicates"] == 0
    table = pyarrow.parquet.read_table(out)
    return {name: table.column(name).to_numpy().tobytes() for name in [*columns, "epoch"]}


@pytest.mark.parametrize("way", ["alone", "mpiexec"])
def test_all_trajectories_are_those_of_a_full_scan(dumps, tmp_path, way):
    dataset = tmp_path / "ds"
    derive = [argument for text in vpic.DERIVATIONS[:2] for argument in ("--derive", text)]
    arguments = ["ingest", dumps, "--out", dataset, "--key", "hash:id", *derive]
    if way == "alone":
        turbidite(*arguments, "--ranks", RANKS)
    else:
        run(Mpi.find(tmp_path).bin / "mpiexec", "-n", RANKS, prefix() / "bin" / "turbidite", *arguments)
    epochs = vpic.read_dumps(dumps)
    ids = numpy.unique(next(iter(epochs.values()))["id"]).tolist()
    columns = ["id", "energy", "ux", "w"]
    assert of_command(dataset, tmp_path, ids, columns) == trajectories(epochs, columns)
    turbidite("verify", dataset)
    stats = answer("stats", dataset)
    assert all(epoch["metrics"]["strays"] == epoch["metrics"]["renegotiations"] == 0 for epoch in stats), stats


@pytest.fixture(scope="module")
def scattered(scratch):
    """Ids of several types in no order, each once, but for one that a tenth of the last epoch's records have."""
    root, dataset = scratch / "source", scratch / "scattered"
    rng = numpy.random.default_rng(4)
    epochs = {}
    for epoch in (1, 2, 3):
        rows = numpy.empty(300_000, RECORD)
        rows["id"] = rng.permutation(len(rows)).astype("u8") * 0x9E3779B97F4A7C15
        rows["short"] = rows["id"] >> 32
        rows["signed"] = -(rows["id"] >> 1).astype("i8")
        rows["value"] = rng.random(len(rows))
        if epoch == 3:
            rows["id"][::10] = 77
        epochs[epoch] = rows
    raw.write_source(root, {epoch: numpy.array_split(rows, 8) for epoch, rows in epochs.items()})
    turbidite(*raw.ingest_arguments(root, dataset, "hash:id", "--ranks", 4, "--memtable", "256KiB", "--part-bytes", 0))
    return dataset, epochs, root


def same(rows: dict[str, list], expected: numpy.ndarray) -> bool:
    return sorted(zip(rows["id"], rows["value"])) == sorted(zip(expected["id"].tolist(), expected["value"].tolist()))


def test_ids_are_found_by_query_get_and_tracks(scattered):
    dataset, epochs, _ = scattered
    ids = [int(epochs[1]["id"][n]) for n in (0, 5, 299_999)] + [77, 78, 2**64 - 1]
    for epoch, rows in epochs.items():
        expected = rows[numpy.isin(rows["id"], numpy.array(ids, "u8"))]
        where = f"id IN ({', '.join(map(str, ids))})"
        for arguments in (["query", dataset, "--where", where, "--columns", "id,value"], ["get", dataset, *ids, "--columns", "value"]):
            lines = turbidite(*arguments, "--epoch", epoch, "--json").stdout.splitlines()
            found = [json.loads(line) for line in lines]
            found = {name: [row[name] for row in found] for name in ("id", "value")}
            found["value"] = [float(numpy.float32(value)) for value in found["value"]]
            assert same(found, expected), arguments
    done = turbidite("get", dataset, "77", "--columns", "value")
    assert len(done.stdout.splitlines()) == 1 + sum(numpy.count_nonzero(rows["id"] == 77) for rows in epochs.values())


def test_a_lookup_reads_little(scattered):
    dataset, epochs, _ = scattered
    bytes_of = lambda *more: answer("query", dataset, "--epoch", 1, "--count", *more)["cost"]["metrics"]["bytes_read"]
    one = bytes_of("--where", f"id = {int(epochs[1]['id'][9])}")
    assert 0 < one < 64 << 10, one
    assert bytes_of("--where", "value > 0.5") > 40 * one


@pytest.mark.parametrize("column", ["id", "short", "signed"])
def test_duckdb_skips_row_groups_by_the_filters(scattered, tmp_path, column):
    """DuckDB's statistics of one column, with ids in no order, exclude no row group."""
    _, epochs, root = scattered
    dataset = tmp_path / "ds"
    turbidite(*raw.ingest_arguments(root, dataset, f"hash:{column}", "--ranks", 2, "--memtable", "256KiB", "--part-bytes", 0))
    values = epochs[1][column][[3, 123_456]].tolist()
    for where, count in ((f"{column} = {values[0]}", 1), (f"{column} IN ({values[0]}, {values[1]})", 2)):
        table = f"read_parquet('{dataset}/data/epoch=1/*.parquet') WHERE {where}"
        ((rows,),) = duckdb.sql(f"SELECT count(*) FROM {table}").fetchall()
        read, total = duckdb_scan(f"SELECT sum(value) FROM {table}")
        assert rows == numpy.count_nonzero(numpy.isin(epochs[1][column], numpy.array(values[:count], epochs[1][column].dtype)))
        # Each of them is in one row group. A filter is wrong in one of a hundred cases.
        assert total >= 20 and count <= read <= count + 8, (where, read, total)


def test_a_corrupt_filter_costs_time_and_no_row(scattered, tmp_path):
    dataset = tmp_path / "ds"
    shutil.copytree(scattered[0], dataset)
    part = max((dataset / "data" / "epoch=1").iterdir(), key=lambda path: path.stat().st_size)
    chunk = pyarrow.parquet.ParquetFile(part)
    with part.open("r+b") as file:
        # The filters of a part lie before its page indexes, behind the last row group.
        last = chunk.metadata.row_group(chunk.metadata.num_row_groups - 1)
        end = max(last.column(n).data_page_offset + last.column(n).total_compressed_size for n in range(last.num_columns))
        file.seek(end)
        tail = file.read()
        # A filter's header ends in its hash function and compression; its bits follow.
        place = end + max(len(tail) // 4, 4096)
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    done = turbidite("verify", dataset, expect=CORRUPTION)
    assert part.name in done.stdout + done.stderr and "filter" in done.stdout + done.stderr, done.stdout + done.stderr
    ids = [int(one) for one in scattered[1][1]["id"][:200]]
    query = ["query", dataset, "--epoch", 1, "--count", "--where", f"id IN ({', '.join(map(str, ids))})"]
    done = turbidite(*query)
    assert done.stdout.split()[0] == "200" and "filter" in done.stderr, done.stdout + done.stderr
    opened = package.open(dataset)
    with pytest.warns(RuntimeWarning, match="corrupt filters or indexes were ignored; the rows are complete"):
        assert len(opened.query(f"id IN ({', '.join(map(str, ids))})", epochs=1).to_numpy()["id"]) == 200
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(opened.query(f"id = {ids[0]}", epochs=1).to_numpy()["id"]) == 1
    with pytest.warns(RuntimeWarning, match="corrupt filters"):
        assert len(package.open(dataset).tracks(ids=ids, id="id", epochs=1).to_numpy()["id"]) == 200
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(package.open(scattered[0]).query(f"id = {ids[0]}", epochs=1).to_numpy()["id"]) == 1


def test_an_id_of_half_the_records_is_named(tmp_path):
    dtype = numpy.dtype([("id", "<u4"), ("value", "<f4")])
    ranks = [numpy.zeros(50_000, dtype) for _ in range(4)]
    for number, rank in enumerate(ranks):
        rank["id"] = numpy.arange(50_000) + number * 50_000
        rank["id"][::2] = 77
    raw.write_source(tmp_path, {3: ranks})
    turbidite(*raw.ingest_arguments(tmp_path, tmp_path / "ds", "hash:id", "--ranks", 4, "--part-bytes", 0))
    [hot] = answer("stats", tmp_path / "ds")[0]["hot_ids"]
    assert hot["id"] == 77 and 80_000 <= hot["rows_least"] <= 100_000
    words = turbidite("stats", tmp_path / "ds").stdout
    assert "at least half of a receiver's mean load" in words and " 77 " in words
    turbidite("verify", tmp_path / "ds")


def test_the_report_shows_what_decides_lookups(scattered, tmp_path):
    page = tmp_path / "report.html"
    turbidite("report", scattered[0], "-o", page)
    document = ElementTree.fromstring(page.read_text())
    name = "{http://www.w3.org/1999/xhtml}"
    [table] = [table for table in document.iter(f"{name}table") if table.get("id") == "lookups"]
    lines = [[cell.text for cell in line] for line in table.find(f"{name}tbody")]
    stats = answer("stats", scattered[0])
    assert [line[0] for line in lines] == [str(epoch["epoch"]) for epoch in stats]
    for line, epoch in zip(lines, stats, strict=True):
        assert int(line[2].replace(",", "")) == epoch["row_groups"] and 7 < float(line[6]) < 15, line
    plots = [svg.get("data-plot") for svg in document.iter("{http://www.w3.org/2000/svg}svg")]
    assert "loads" in plots and not {"share", "row-groups", "amplification"} & set(plots), plots


def test_the_life_of_a_dataset(scattered, tmp_path):
    """Epochs are replaced, cut off and compacted, and described by every command."""
    dataset, epochs, root = scattered
    copy = tmp_path / "ds"
    shutil.copytree(dataset, copy)
    turbidite(*raw.ingest_arguments(root, copy, "hash:id", "--ranks", 7, "--if-exists", "replace"))
    turbidite("verify", copy)
    turbidite("truncate", copy, "--after", 1)
    one = epochs[1]["id"][1234]
    expected = epochs[1][epochs[1]["id"] == one]
    assert answer("get", copy, one, "-o", tmp_path / "one.parquet")["rows"] == len(expected) == 1
    compacted = tmp_path / "compacted"
    turbidite("compact", copy, "--out", compacted)
    turbidite("verify", compacted)
    assert answer("get", compacted, one, "-o", tmp_path / "two.parquet")["rows"] == 1
    one_row, two_rows = (pyarrow.parquet.read_table(tmp_path / name) for name in ("one.parquet", "two.parquet"))
    assert one_row.equals(two_rows)
    for command in (["stats"], ["inspect"], ["report", "-o", tmp_path / "report.html"], ["hist", "--column", "value"],
                    ["quantiles", "--column", "id"], ["salvage"], ["query", "--where", "id = 5", "--explain"]):  # fmt: skip
        for place in (copy, compacted):
            done = turbidite(command[0], place, *command[1:])
            assert "panic" not in done.stderr
    # Ids that do not exist. A filter is wrong about one in a hundred, and not about all of them.
    absent = [value for value in range(1 << 62, (1 << 62) + 8) if value not in epochs[1]["id"]]
    plans = [turbidite("query", copy, "--where", f"id = {value}", "--explain").stdout for value in absent]
    assert any("id (partition and filters)" in plan for plan in plans), plans
    assert "filters exclude nearly all of them from a lookup" in turbidite("stats", copy).stdout
    for part in (copy / "data").rglob("*.parquet"):
        turbidite("inspect", part)


def test_what_cannot_be_clustered_by_hash_is_refused(scattered, tmp_path):
    dataset, _, root = scattered
    before = tmp_path / "by-range"
    turbidite(*raw.ingest_arguments(root, before, "id", "--ranks", 2))
    for target, key, words in (
        (tmp_path / "new", "hash:value", "'value'"),
        (tmp_path / "new", "hash:nothing", "'nothing' is not a column"),
        (tmp_path / "new", "hash:", "'' is not a column"),
        (tmp_path / "new", "hash:id,id", "has the column 'id' twice"),
        (tmp_path / "new", "hashed:id", "'hashed:id' is not a column"),
        (before, "hash:id", "its key is 'id', but 'hash:id' was requested"),
        (dataset, "id", "its key is 'hash:id', but 'id' was requested"),
        (dataset, "hash:short", "its key is 'hash:id', but 'hash:short' was requested"),
    ):
        done = turbidite(*raw.ingest_arguments(root, target, key, "--ranks", 2, "--if-exists", "replace"), expect=USAGE if target.name == "new" else FAILED)
        assert words in done.stderr, done.stderr
        assert not (tmp_path / "new").exists()
