"""Parquet as a source: files as DuckDB, Polars and pyarrow write them, in every encoding and compression that is common."""

import json
import os
import sys
from pathlib import Path

import duckdb
import numpy
import pandas
import polars
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
import turbidite as package
from support.command import FAILED, ROOT, USAGE, answer, turbidite

ROWS = 30_000


def table() -> pyarrow.Table:
    """All types there are, with values at their ends, and some that repeat, so that writers choose dictionaries."""
    rng = numpy.random.default_rng(31)
    columns = {}
    for bits in (8, 16, 32, 64):
        for kind in ("i", "u"):
            info = numpy.iinfo(f"{kind}{bits // 8}")
            values = rng.integers(info.min, info.max, ROWS, dtype=f"{kind}{bits // 8}", endpoint=True)
            values[:2] = info.min, info.max
            columns[f"{kind}{bits}"] = values
    columns["f32"] = rng.lognormal(0, 2, ROWS).astype("f4")
    columns["f32"][:3] = numpy.nan, numpy.inf, -0.0
    columns["f64"] = rng.normal(size=ROWS)
    columns["few"] = rng.integers(0, 5, ROWS).astype("f4")
    columns["row"] = numpy.arange(ROWS, dtype="u4")
    return pyarrow.table(columns)


def read_back(target: Path, columns) -> dict[str, numpy.ndarray]:
    """The dataset's rows in the order of `row`, by pyarrow."""
    found = pyarrow.dataset.dataset(target / "data", format="parquet").to_table(columns=list(columns)).sort_by("row")
    return {name: found.column(name).to_numpy() for name in columns}


def assert_stored(target: Path, rows: pyarrow.Table) -> None:
    found = read_back(target, rows.column_names)
    for name in rows.column_names:
        expected = rows.column(name).to_numpy()
        assert found[name].dtype == expected.dtype and found[name].tobytes() == expected.tobytes(), name


def by_pyarrow(rows: pyarrow.Table, path: Path, **options) -> None:
    pyarrow.parquet.write_table(rows, path, **options)


def by_duckdb(rows: pyarrow.Table, path: Path, **options) -> None:
    with duckdb.connect() as connection:
        connection.register("records", rows)
        extra = "".join(f", {name} {value}" for name, value in options.items())
        connection.execute(f"COPY records TO '{path}' (FORMAT parquet{extra})")


def by_polars(rows: pyarrow.Table, path: Path, **options) -> None:
    polars.from_arrow(rows).write_parquet(path, **options)


WRITERS = {
    "pyarrow snappy": (by_pyarrow, {}),
    "pyarrow zstd, small groups and pages": (
        by_pyarrow,
        {"compression": "zstd", "row_group_size": 1_000, "data_page_size": 2_000},
    ),
    "pyarrow gzip, pages of version 2": (by_pyarrow, {"compression": "gzip", "data_page_version": "2.0"}),
    "pyarrow brotli": (by_pyarrow, {"compression": "brotli"}),
    "pyarrow lz4": (by_pyarrow, {"compression": "lz4"}),
    "pyarrow plain": (by_pyarrow, {"compression": "none", "use_dictionary": False}),
    "pyarrow checksums, no statistics": (by_pyarrow, {"write_page_checksum": True, "write_statistics": False}),
    "pyarrow deltas and split bytes": (
        by_pyarrow,
        {
            "use_dictionary": False,
            "column_encoding": {
                **{name: "DELTA_BINARY_PACKED" for name in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "row")},
                **{name: "BYTE_STREAM_SPLIT" for name in ("f32", "f64", "few")},
            },
        },
    ),
    "DuckDB snappy": (by_duckdb, {}),
    "DuckDB zstd, small groups": (by_duckdb, {"COMPRESSION": "zstd", "ROW_GROUP_SIZE": 2_048}),
    "DuckDB lz4_raw, version 2": (by_duckdb, {"COMPRESSION": "lz4_raw", "PARQUET_VERSION": "v2"}),
    "DuckDB gzip": (by_duckdb, {"COMPRESSION": "gzip"}),
    "Polars zstd": (by_polars, {}),
    "Polars snappy, small groups": (by_polars, {"compression": "snappy", "row_group_size": 1_500}),
    "Polars lz4": (by_polars, {"compression": "lz4"}),
}


def with_smaller_steps(rows: pyarrow.Table) -> pyarrow.Table:
    """The same with halved integers of 32 bits, so that neighbours differ by less than 2^31."""
    for name in ("i32", "u32"):
        place = rows.column_names.index(name)
        rows = rows.set_column(place, name, pyarrow.array(rows.column(name).to_numpy() >> 1))
    return rows


def test_a_writer_that_breaks_the_format_is_refused_and_not_misread(tmp_path):
    """DuckDB's pages of version 2 hold differences of 32-bit integers in 33 bits; pyarrow refuses these files too."""
    path = tmp_path / "records.parquet"
    by_duckdb(table(), path, PARQUET_VERSION="v2")
    done = turbidite("ingest", path, "--epoch", 5, "--out", tmp_path / "ds", "--key", "f64", expect=FAILED)
    assert "records.parquet: row group 0 cannot be read" in done.stderr
    with pytest.raises(OSError):
        pyarrow.parquet.read_table(path)


@pytest.mark.parametrize("writer", WRITERS)
def test_files_of_every_writer(writer, tmp_path):
    write, options = WRITERS[writer]
    rows, path = table(), tmp_path / "records.parquet"
    if "PARQUET_VERSION" in options:
        rows = with_smaller_steps(rows)
    write(rows, path, **options)
    report = answer("ingest", path, "--epoch", 5, "--out", tmp_path / "ds", "--key", "f64", "--ranks", 3)
    assert report["rows"] == ROWS and [epoch["epoch"] for epoch in report["epochs"]] == [5]
    assert_stored(tmp_path / "ds", rows)
    assert answer("verify", tmp_path / "ds")["clean"]


def test_folders_ranks_derivations_and_opaque_bytes(tmp_path):
    """Two epochs of three files, whose numbers have leading zeros; derived columns; bytes of fixed size as UUIDs are."""
    rows = table()
    words = [bytes([row % 256, 255]) + row.to_bytes(14, "big") for row in range(ROWS)]
    rows = rows.append_column("name", pyarrow.array(words, pyarrow.binary(16)))
    for epoch in (100, 200):
        folder = tmp_path / "out" / f"epoch={epoch}"
        folder.mkdir(parents=True)
        for rank in range(3):
            part = rows.slice(rank * ROWS // 3, ROWS // 3)
            pyarrow.parquet.write_table(part, folder / f"part-{rank:05}.parquet", row_group_size=777)
    layout = tmp_path / "layout.toml"
    layout.write_text('format = "parquet"\npath = "epoch={epoch}/part-{rank}.parquet"\n')
    base = ["ingest", tmp_path / "out", "--layout", layout, "--key", "square", "--derive", "square:f64=f64*f64"]
    for ranks in ("3", "8"):
        target = tmp_path / f"ds{ranks}"
        report = answer(*base, "--out", target, "--columns", "name,row,f64", "--ranks", ranks)
        assert report["rows"] == 2 * ROWS and report["ranks"] == int(ranks)
        with duckdb.connect() as connection:
            found = connection.execute(
                f"SELECT row, square, f64, name FROM read_parquet('{target}/data') WHERE epoch = 200 ORDER BY row"
            ).fetchnumpy()
        wide = rows.column("f64").to_numpy()
        assert numpy.array_equal(found["f64"], wide) and numpy.array_equal(found["square"], wide * wide)
        assert [bytes(name) for name in found["name"]] == words
    assert answer(*base, "--out", tmp_path / "defaults", "--columns", "f64", "--epochs", 100)["ranks"] == 3


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("step-{epoch}", "step-%T.parquet"),
        ("step-{epoch:06}.{rank}", "step-%06T.{rank}.parquet"),
        ("{epoch}/part-{rank:05}", "{epoch}/part-*.parquet"),
        ("step-{epoch}", "step-*.parquet"),
    ],
)
def test_patterns_need_no_layout(tmp_path, name, pattern):
    """The columns of every second file are in another order."""
    rows = table()
    ranks = 3 if "rank" in name else 1
    for epoch in (100, 200):
        for rank in range(ranks):
            path = tmp_path / "run" / f"{name.format(epoch=epoch, rank=rank)}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            columns = rows.column_names[:: -1 if (epoch + rank) % 2 else 1]
            share = ROWS // ranks
            pyarrow.parquet.write_table(rows.select(columns).slice(rank * share, share), path)
    report = answer("ingest", tmp_path / "run" / pattern, "--out", tmp_path / "ds", "--key", "f64", "--epochs", "100..200")
    assert [epoch["rows"] for epoch in report["epochs"]] == [ROWS // ranks * ranks] * 2
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT row, f64 FROM read_parquet('{tmp_path}/ds/data') WHERE epoch = 200 ORDER BY row"
        ).fetchnumpy()
    assert numpy.array_equal(found["f64"], rows.column("f64").to_numpy()[: len(found["f64"])])


def test_parts_that_are_missing_or_broken(tmp_path):
    for epoch in (1, 2):
        for rank in range(3):
            pyarrow.parquet.write_table(table(), tmp_path / f"s-{epoch}.{rank:02}.parquet")
    arguments = ["ingest", tmp_path / "s-%T.{rank}.parquet", "--key", "f64", "--out"]
    (tmp_path / "s-2.01.parquet").unlink()
    said = turbidite(*arguments, tmp_path / "a", expect=FAILED).stderr
    assert "s-2.01.parquet is missing: epoch 2 has 2 of 3 ranks" in said and "--allow-missing-ranks" in said
    assert answer(*arguments, tmp_path / "a", "--allow-missing-ranks")["rows"] == 5 * ROWS
    (tmp_path / "s-2.02.parquet").write_bytes(b"PAR1")
    assert answer(*arguments, tmp_path / "b", "--epochs", 1)["rows"] == 3 * ROWS
    said = turbidite(*arguments, tmp_path / "c", "--epochs", 3, expect=USAGE).stderr
    assert "has no epoch 3; it has 1, 2" in said
    said = turbidite("ingest", tmp_path / "s-*.parquet", "--key", "f64", "--out", tmp_path / "d", expect=USAGE).stderr
    assert "put {epoch} into the pattern" in said and "{rank}" in said
    said = turbidite("ingest", tmp_path / "t-%T.parquet", "--key", "f64", "--out", tmp_path / "d", expect=FAILED).stderr
    assert "no file matches" in said


def test_our_own_files_are_a_source_too(default_dataset, tmp_path):
    """A dataset's data folder, and the output of a query, whose epoch column has to be dropped."""
    epoch = max(default_dataset.epochs)
    out = tmp_path / "hot.parquet"
    turbidite("query", default_dataset.path, "--epoch", epoch, "--where", "energy > 3", "-o", out)
    base = ["ingest", out, "--epoch", epoch, "--out", tmp_path / "ds", "--key", "ux"]
    refused = turbidite(*base, expect=USAGE)
    assert "--drop epoch leaves it out" in refused.stderr
    rows = default_dataset.epochs[epoch]
    rows = rows[rows["energy"] > 3]
    assert answer(*base, "--drop", "epoch")["rows"] == len(rows)
    found = numpy.sort([int(line) for line in turbidite("query", tmp_path / "ds", "--columns", "id").stdout.split()[1:]])
    assert numpy.array_equal(found, numpy.sort(rows["id"]))


REFUSED = {
    "text": (pyarrow.array(["a", "b", "c"]), "unsupported type text"),
    "dates": (pyarrow.array([1, 2, 3], pyarrow.timestamp("us")), "date or time"),
    "decimals": (pyarrow.array([1, 2, 3], pyarrow.decimal128(10, 2)), "decimal"),
    "lists": (pyarrow.array([[1.0], [], [2.0]]), "nested"),
    "structs": (pyarrow.array([{"x": 1}, {"x": 2}, {"x": 3}]), "nested"),
    "bytes": (pyarrow.array([b"a", b"bc", b""], pyarrow.binary()), "variable-length binary"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_columns_that_cannot_be_stored_are_named(kind, tmp_path):
    values, words = REFUSED[kind]
    path = tmp_path / "records.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"odd one": values, "a": [1.5, 2.5, 3.5], "b": [1, 2, 3]}), path)
    base = ["ingest", path, "--epoch", 1, "--out", tmp_path / "ds", "--key", "a"]
    done = turbidite(*base, expect=USAGE)
    assert "records.parquet: column 'odd one' has the unsupported type " in done.stderr and words in done.stderr, done.stderr
    assert "--columns a,b" in done.stderr and not (tmp_path / "ds").exists()
    assert answer(*base, "--columns", "a,b")["rows"] == 3


def test_booleans_and_16_bit_floats_are_widened(tmp_path):
    count = 30_000
    halves = numpy.random.default_rng(8).integers(0, 1 << 16, count).astype("u2").view("f2")
    truth = numpy.arange(count) % 3 == 0
    table = pyarrow.table({"n": numpy.arange(count), "half": pyarrow.array(halves), "truth": truth})
    pyarrow.parquet.write_table(table, tmp_path / "records.parquet", row_group_size=7_000)
    report = answer("ingest", tmp_path / "records.parquet", "--epoch", 1, "--out", tmp_path / "ds", "--key", "n")
    assert report["notes"] == ["booleans are stored as u8: truth", "16-bit floats are stored as f32: half"]
    rows = package.open(tmp_path / "ds").query(order="n").to_numpy()
    assert rows["half"].dtype == "f4" and numpy.array_equal(rows["half"], halves.astype("f4"), equal_nan=True)
    assert rows["truth"].dtype == "u1" and (rows["truth"] == truth).all()


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_pandas_stores_nan_as_null(ending, tmp_path, monkeypatch):
    """The refusal names the cause, and the option that it proposes reads the NaNs."""
    monkeypatch.setenv("TURBIDITE_PYTHON", sys.executable)
    frame = pandas.DataFrame({"id": numpy.arange(20_000), "e": numpy.arange(20_000.0), "single": numpy.ones(20_000, "f4")})
    frame.loc[[3, 11_000], ["e", "single"]] = numpy.nan
    path = tmp_path / f"records.{ending}"
    frame.to_parquet(path, row_group_size=6_000) if ending == "parquet" else frame.to_feather(path, compression="uncompressed")
    base = ["ingest", path, "--epoch", 1, "--out", tmp_path / "ds", "--key", "id"]
    refused = turbidite(*base, expect=FAILED).stderr
    assert "has nulls" in refused and "pandas stores NaN as null: --nulls nan reads nulls as NaN" in refused
    assert answer(*base, "--nulls", "nan")["rows"] == len(frame)
    rows = package.open(tmp_path / "ds").query(order="id").to_numpy()
    for name in ("e", "single"):
        assert rows[name].dtype == frame[name].dtype and numpy.array_equal(rows[name], frame[name], equal_nan=True)
    with pytest.raises(package.UsageError, match=r"missing values cannot be stored; .* null for NaN"):
        with package.Writer(tmp_path / "w", {"e": "f8"}, key="e") as writer, writer.epoch(1):
            writer.append(pyarrow.Table.from_pandas(frame[["e"]]))


def test_nulls_as_nan_is_for_files_with_nulls(tmp_path, dumps, monkeypatch):
    monkeypatch.setenv("TURBIDITE_PYTHON", sys.executable)
    numpy.savez(tmp_path / "p_1.npz", x=numpy.arange(3.0))
    for source in (tmp_path / "p_1.npz", dumps):
        said = turbidite(
            "ingest",
            source,
            "--out",
            tmp_path / "ds",
            "--key",
            "x",
            "--nulls",
            "nan",
            *(["--epoch", 1] if source != dumps else []),
            expect=USAGE,
        )
        assert "--nulls nan is for Parquet and Arrow files, --nulls fill for HDF5 files" in said.stderr
    ids = pyarrow.table({"id": pyarrow.array([1, None]), "x": [1.0, 2.0]})
    pyarrow.parquet.write_table(ids, tmp_path / "i.parquet")
    said = turbidite(
        "ingest", tmp_path / "i.parquet", "--epoch", 1, "--out", tmp_path / "ds", "--key", "x", "--nulls", "nan", expect=FAILED
    )
    assert "column 'id' has nulls" in said.stderr and "fill them" in said.stderr


@pytest.mark.parametrize("statistics", [True, False])
def test_nulls_are_refused_and_dictionaries_are_not(statistics, tmp_path):
    path = tmp_path / "records.parquet"
    values = numpy.arange(50_000, dtype="f8")
    mask = numpy.zeros(len(values), bool)
    mask[43_210] = True
    columns = {"a": pyarrow.array(values, mask=mask), "b": values, "c": pyarrow.array(values % 3).dictionary_encode()}
    pyarrow.parquet.write_table(pyarrow.table(columns), path, write_statistics=statistics, row_group_size=20_000)
    base = ["ingest", path, "--epoch", 1, "--key", "b", "--out"]
    done = turbidite(*base, tmp_path / "none", expect=FAILED)
    place = "row group 2" if statistics else "record 43210"
    assert f"records.parquet: column 'a' has nulls ({place})" in done.stderr and "--columns b,c" in done.stderr, done.stderr
    assert answer(*base, tmp_path / "ds", "--columns", "b,c")["rows"] == len(values)
    assert turbidite("query", tmp_path / "ds", "--count", "--where", "c = 2").stdout == f"{len(values) // 3}\n"


def test_a_corrupt_file_is_named_and_leaves_no_epoch(tmp_path):
    path = tmp_path / "records.parquet"
    pyarrow.parquet.write_table(table(), path, row_group_size=5_000, write_page_checksum=True)
    whole = path.read_bytes()
    base = ["ingest", path, "--epoch", 1, "--out", tmp_path / "ds", "--key", "f64"]
    for content in (whole[:-1], whole[: len(whole) // 2], whole[:20], whole[:4] + whole[200:]):
        path.write_bytes(content)
        done = turbidite(*base, expect=FAILED)
        assert "records.parquet" in done.stderr and "panicked" not in done.stderr, done.stderr
    spoilt = bytearray(whole)
    spoilt[len(whole) // 2] ^= 0x40
    path.write_bytes(spoilt)
    done = turbidite(*base, expect=FAILED)
    assert "records.parquet: row group" in done.stderr and "internal error" not in done.stderr, done.stderr
    assert not list((tmp_path / "ds" / "data").glob("epoch=*"))
    path.write_bytes(whole)
    assert answer(*base)["rows"] == ROWS


def test_wrong_requests_say_what_to_do(tmp_path):
    path = tmp_path / "records.parquet"
    pyarrow.parquet.write_table(table(), path)
    target = ["--out", tmp_path / "ds", "--key", "f64"]
    for arguments, words in [
        ([path], "--epoch"),
        ([path, "--epoch", 1, "--epochs", "1"], "--epochs"),
        ([path, "--epoch", 1, "--columns", "f64,nope"], "no column 'nope'"),
        ([path, "--epoch", 1, "--columns", "row"], "--key"),
        ([path, "--epoch", 1, "--species", "ion"], "--species"),
        ([tmp_path, "--epoch", 1], "--epochs"),
        ([tmp_path, "--columns", "f64"], "--drop"),
    ]:
        done = turbidite("ingest", *arguments, *target, expect=USAGE)
        assert words in done.stderr, done.stderr


@pytest.mark.serial
def test_memory_does_not_grow_with_row_groups(scratch):
    """The same records in one row group and in many take about the same memory, far less than the row group."""
    rng = numpy.random.default_rng(32)
    rows = 4_000_000
    records = pyarrow.table({name: rng.random(rows) for name in ("a", "b", "c", "d")})
    peaks = {}
    for name, size in (("one", rows), ("many", 50_000)):
        path, figures = scratch / f"{name}.parquet", scratch / f"{name}.json"
        pyarrow.parquet.write_table(records, path, row_group_size=size, use_dictionary=False, compression="zstd")
        measure = (sys.executable, "-S", ROOT / "tests" / "support" / "measure.py", figures)
        arguments = ["ingest", path, "--epoch", 0, "--out", scratch / f"{name}-ds", "--key", "a", "--ranks", 1, "--threads", 1]
        turbidite(*arguments, prefix=measure)
        peaks[name] = json.loads(figures.read_text())["peak_bytes"]
        os.remove(path)
    print(f"peak memory: {peaks['one'] / 2**20:.0f} MiB of one row group, {peaks['many'] / 2**20:.0f} MiB of many")
    assert peaks["one"] < peaks["many"] + (16 << 20) and peaks["one"] < 80 << 20
