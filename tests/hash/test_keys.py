"""Datasets whose ids are byte strings or have several columns: found as NumPy finds them, and skipped by DuckDB."""

import json

import duckdb
import numpy
import pyarrow.parquet
import pytest

import turbidite as package
from support import raw
from support.command import answer, turbidite
from support.engines import duckdb_scan

RECORD = numpy.dtype([("uuid", "V16"), ("cpu", "<u4"), ("id", "<u8"), ("value", "<f4")])
EPOCHS = (1, 2)


@pytest.fixture(scope="module")
def source(scratch):
    """Records in no order, with ids that are unique per cpu only, and one uuid of a tenth of them."""
    root = scratch / "keys"
    rng = numpy.random.default_rng(11)
    epochs = {}
    for epoch in EPOCHS:
        rows = numpy.empty(200_000, RECORD)
        number = rng.permutation(len(rows)).astype("u8")
        rows["cpu"], rows["id"] = number % 16, number // 16
        halves = numpy.stack([number * 0x9E3779B97F4A7C15, number * 0xC2B2AE3D27D4EB4F + 1], axis=1)
        rows["uuid"] = halves.astype("<u8").view("V16").reshape(-1)
        rows["uuid"][::10] = rows["uuid"][0]
        rows["value"] = rng.random(len(rows))
        epochs[epoch] = rows
    raw.write_source(root, {epoch: numpy.array_split(rows, 4) for epoch, rows in epochs.items()})
    return root, epochs


@pytest.fixture(scope="module", params=["uuid", "cpu,id", "cpu,uuid"])
def dataset(request, source, scratch):
    out = scratch / request.param.replace(",", "-")
    turbidite(*raw.ingest_arguments(source[0], out, f"hash:{request.param}", "--ranks", 4, "--memtable", "256KiB", "--part-bytes", 0))
    return out, request.param.split(",")


def text(row: numpy.void, names: list[str], quoted: bool) -> list[str]:
    """The values of a key: literals of the expression language, or ids of the command line."""
    hexadecimal = "x'{}'" if quoted else "0x{}"
    return [hexadecimal.format(row[name].tobytes().hex()) if name == "uuid" else str(row[name]) for name in names]


def test_every_form_finds_the_rows_that_numpy_finds(dataset, source):
    out, names = dataset
    turbidite("verify", out)
    for epoch, rows in source[1].items():
        for row in rows[[0, 1, 17, 199_999]]:
            expected = rows[numpy.logical_and.reduce([rows[name] == row[name] for name in names])]["value"]
            literals = text(row, names, quoted=True)
            forms = [" AND ".join(f"{name} = {value}" for name, value in zip(names, literals))]
            forms.append(f"({', '.join(names)}) IN (({', '.join(literals)}))" if len(names) > 1 else f"{names[0]} IN ({literals[0]})")
            for arguments in (*(["query", out, "--where", form] for form in forms), ["get", out, ":".join(text(row, names, quoted=False))]):
                lines = turbidite(*arguments, "--columns", "value", "--epoch", epoch, "--json").stdout.splitlines()
                found = numpy.sort(numpy.array([json.loads(line)["value"] for line in lines], "f4"))
                assert numpy.array_equal(found, numpy.sort(expected)), arguments


def test_all_trajectories_are_those_of_numpy(dataset, source, tmp_path):
    out, names = dataset
    rows = source[1][1]
    listed, tracks = tmp_path / "ids.txt", tmp_path / "tracks.parquet"
    listed.write_text("\n".join(":".join(text(row, names, quoted=False)) for row in rows))
    summary = answer("tracks", out, "--ids", f"@{listed}", "-o", tracks, "--columns", "value")
    table = pyarrow.parquet.read_table(tracks)
    assert table.column_names == [*names, "epoch", "value"]
    found = sorted(zip(table.column("epoch").to_pylist(), table.column("value").to_pylist()))
    key = lambda row: tuple(row[name].tobytes() for name in names)
    known = {key(row) for row in rows}
    expected = [(epoch, float(row["value"])) for epoch in EPOCHS for row in source[1][epoch] if key(row) in known]
    assert found == sorted(expected) and summary["absent_ids"] == 0
    # The order of tuples is that of their values.
    if names == ["cpu", "id"]:
        keys = list(zip(*(table.column(name).to_pylist() for name in ("cpu", "id", "epoch"))))
        assert keys == sorted(keys)


def test_python_takes_every_form_of_ids(dataset, source):
    out, names = dataset
    opened, rows = package.open(out), source[1][2]
    some = rows[[1, 17, 199_999]]
    plain = [tuple(row[name].tobytes() if name == "uuid" else int(row[name]) for name in names) for row in some]
    masks = [numpy.logical_and.reduce([rows[name] == row[name] for name in names]) for row in some]
    expected = numpy.sort(rows["value"][numpy.logical_or.reduce(masks)])
    forms = [plain if len(names) > 1 else [one for (one,) in plain], some[names] if len(names) > 1 else some[names[0]]]
    forms += [numpy.array([(row["cpu"], row["id"]) for row in some], "u8")] if names == ["cpu", "id"] else []
    for ids in forms:
        found = opened.get(ids, epochs=2, columns=["value"]).to_numpy()
        assert numpy.array_equal(numpy.sort(found["value"]), expected), ids
    one = opened.get(plain[0] if len(names) > 1 else plain[0][0], epochs=2, columns=["value"]).to_numpy()
    assert numpy.array_equal(numpy.sort(one["value"]), numpy.sort(rows["value"][masks[0]]))
    with pytest.raises(package.UsageError):
        opened.get((1, 2, 3, 4, 5), columns=["value"]).to_numpy()


def test_duckdb_skips_row_groups_by_the_filters_of_byte_strings(source, scratch, tmp_path):
    out = tmp_path / "ds"
    turbidite(*raw.ingest_arguments(source[0], out, "hash:uuid", "--ranks", 2, "--memtable", "256KiB", "--part-bytes", 0))
    values = [source[1][1]["uuid"][place].tobytes() for place in (3, 123_456)]
    literals = ["'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB" for value in values]
    for where, count in ((f"uuid = {literals[0]}", 1), (f"uuid IN ({literals[0]}, {literals[1]})", 2)):
        table = f"read_parquet('{out}/data/epoch=1/*.parquet') WHERE {where}"
        ((rows,),) = duckdb.sql(f"SELECT count(*) FROM {table}").fetchall()
        read, total = duckdb_scan(f"SELECT sum(value) FROM {table}")
        assert rows == count and total >= 20 and count <= read <= count + 8, (where, rows, read, total)


def test_the_life_of_a_dataset(dataset, source, tmp_path):
    out, names = dataset
    assert ", ".join(names) in turbidite("inspect", out).stdout
    turbidite("inspect", out, "--epoch", 1)
    turbidite("stats", out)
    compacted = tmp_path / "compacted"
    turbidite("compact", out, "--out", compacted)
    turbidite("verify", compacted)
    row = source[1][2][17]
    done = turbidite("get", compacted, ":".join(text(row, names, quoted=False)), "--columns", "value")
    assert len(done.stdout.splitlines()) == 1 + sum(
        numpy.count_nonzero(numpy.logical_and.reduce([rows[name] == row[name] for name in names])) for rows in source[1].values()
    )


def test_ordered_queries_sort_by_the_whole_key(dataset):
    """DuckDB orders byte strings and tuples as we do."""
    out, names = dataset
    opened, key = package.open(out), ", ".join(names)
    for where, limit in ((None, 100), (None, 100_000), ("value < 0.01", None), ("cpu = 7 AND value > 0.5", 50)):
        found = opened.query(where, epochs=2, columns=names, order="key", limit=limit).to_arrow()
        condition = f"WHERE {where}" if where else ""
        table = f"SELECT {key} FROM read_parquet('{out}/data/epoch=2/*.parquet') {condition} ORDER BY {key} LIMIT {limit or 'ALL'}"
        expected = duckdb.sql(table).fetchall()
        assert list(zip(*(found.column(name).to_pylist() for name in names))) == expected, (where, limit)
    lines = turbidite("query", out, "--epoch", 1, "--order", "--limit", 20, "--columns", names[0]).stdout.splitlines()
    assert len(lines) == 21
