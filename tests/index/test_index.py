"""Indexes of columns that a dataset is not clustered by: the rows are those of a full scan, whoever made the index."""

import json
import shutil
import uuid
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import numpy
import pyarrow.parquet
import pytest

import turbidite as package
from support import raw, vpic
from support.command import CORRUPTION, FAILED, OK, USAGE, answer, turbidite
from support.libraries import prefix
from support.mpi import Mpi, run

RANKS = 16
DERIVE = [argument for text in vpic.DERIVATIONS[:2] for argument in ("--derive", text)]
COLUMNS = ["id", "energy", "ux", "w"]


@pytest.fixture(scope="module")
def by_energy(dumps, scratch) -> Path:
    """The dumps, clustered by energy, in many parts and without an index."""
    dataset = scratch / "by-energy"
    turbidite("ingest", dumps, "--out", dataset, "--key", "energy", *DERIVE, "--ranks", RANKS, "--memtable", "256KiB", "--part-bytes", 0)
    return dataset


@pytest.fixture(scope="module")
def indexed(by_energy, scratch) -> Path:
    """A copy with three indexes."""
    dataset = scratch / "indexed"
    shutil.copytree(by_energy, dataset)
    for definition in ("id", "uy", "hash:i"):
        turbidite("index", "add", dataset, definition)
    return dataset


def trajectories(epochs: dict[int, numpy.ndarray]) -> dict[str, bytes]:
    """The columns of all rows, sorted by id and epoch. No two rows of an epoch share an id."""
    ids = numpy.concatenate([rows["id"] for rows in epochs.values()])
    labels = numpy.repeat(numpy.array(list(epochs), "i8"), [len(rows) for rows in epochs.values()])
    order = numpy.lexsort((labels, ids))
    found = {name: numpy.concatenate([rows[name] for rows in epochs.values()])[order] for name in COLUMNS}
    return {name: values.tobytes() for name, values in (found | {"epoch": labels[order]}).items()}


@pytest.mark.parametrize("way", ["ingest", "hash", "add", "mpiexec ingest", "mpiexec add"])
def test_all_trajectories_by_the_index_are_those_of_a_full_scan(dumps, by_energy, tmp_path, way):
    dataset, command = tmp_path / "ds", prefix() / "bin" / "turbidite"
    many = [Mpi.find(tmp_path).bin / "mpiexec", "-n", RANKS, command] if way.startswith("mpiexec") else []
    definition = "hash:id" if way == "hash" else "id"
    if way.endswith("add"):
        shutil.copytree(by_energy, dataset)
        arguments = ["index", "add", dataset, definition]
    else:
        arguments = ["ingest", dumps, "--out", dataset, "--key", "energy", *DERIVE, "--index", definition]
    if many:
        run(*many, *arguments)
    else:
        turbidite(*arguments)
    epochs = vpic.read_dumps(dumps)
    ids = numpy.unique(next(iter(epochs.values()))["id"]).tolist()
    listed, out = tmp_path / "ids.txt", tmp_path / "tracks.parquet"
    listed.write_text("\n".join(map(str, ids)))
    summary = answer("tracks", dataset, "--ids", f"@{listed}", "--id", "id", "--use", "id", "-o", out, "--columns", ",".join(COLUMNS[1:]))
    assert summary["absent_ids"] == summary["missing"] == summary["duplicates"] == 0
    assert summary["read"]["entries_read"] == len(ids) * len(epochs), summary
    table = pyarrow.parquet.read_table(out)
    assert {name: table.column(name).to_numpy().tobytes() for name in [*COLUMNS, "epoch"]} == trajectories(epochs)
    turbidite("verify", dataset)
    (index,) = answer("index", "list", dataset)["indexes"]
    assert index["entries"] == len(ids) * len(epochs) and index["missing"] == [], index


def chunks(index: Path) -> dict[str, list[bytes]]:
    """The bytes of all column chunks of an index, by file: dictionaries and pages with their headers."""
    found = {}
    for path in sorted((index / "data").rglob("*.parquet")):
        content, metadata = path.read_bytes(), pyarrow.parquet.ParquetFile(path).metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        columns = [group.column(number) for group in groups for number in range(group.num_columns)]
        begins = [(column.data_page_offset, column.total_compressed_size) for column in columns]
        found[str(path.relative_to(index))] = [content[begin : begin + size] for begin, size in begins] + [str(len(content)).encode()]
    return found


def test_added_entries_are_the_same_bytes_for_any_number_of_processes_and_threads(by_energy, tmp_path):
    """The UUID of the commit differs, and with it seals, footers and manifests: crates/core has tests that fix it."""
    command, made = prefix() / "bin" / "turbidite", []
    mpiexec = Mpi.find(tmp_path).bin / "mpiexec"
    for number, way in enumerate((["--threads", 1], ["--threads", 4], [mpiexec, 3], [mpiexec, RANKS])):
        dataset = tmp_path / str(number)
        shutil.copytree(by_energy, dataset)
        for definition in ("id,with=energy", "hash:i"):
            if way[0] == mpiexec:
                run(mpiexec, "-n", way[1], command, "index", "add", dataset, definition)
            else:
                turbidite("index", "add", dataset, definition, *way)
        turbidite("verify", dataset)
        made.append([chunks(dataset / "_turbidite" / "index" / name) for name in ("id", "i")])
    assert all(len(files) > 0 for files in made[0])
    assert all(other == made[0] for other in made)


def test_random_predicates_by_every_plan_are_those_of_numpy(dumps, indexed):
    epochs, rng = vpic.read_dumps(dumps), numpy.random.default_rng(8)
    dataset = package.open(indexed)
    used = 0
    for _ in range(40):
        epoch = int(rng.choice(list(epochs)))
        rows = epochs[epoch]
        low = numpy.float32(rng.choice(rows["uy"]))
        ids = rng.choice(rows["id"], 3)
        cell = int(rng.choice(rows["i"]))
        width = numpy.float32(rng.choice([0.0, 1e-4, 0.01, 1]))
        for where, mask in (
            (f"id IN ({ids[0]}, {ids[1]}, {ids[2]})", numpy.isin(rows["id"], ids)),
            (f"id BETWEEN {ids[0]} AND {ids[0] + 40} AND energy < 1", (rows["id"] >= ids[0]) & (rows["id"] <= ids[0] + 40) & (rows["energy"] < 1)),
            (f"uy >= {low!s} AND uy <= {low + width!s}", (rows["uy"] >= low) & (rows["uy"] <= low + width)),
            (f"i = {cell} AND uy > {low!s}", (rows["i"] == cell) & (rows["uy"] > low)),
            (f"id = {ids[0]} OR id = {ids[1]} OR uy = {low!s}", numpy.isin(rows["id"], ids[:2]) | (rows["uy"] == low)),
            (f"NOT (id <> {ids[0]})", rows["id"] == ids[0]),
        ):
            expected = numpy.sort(rows["id"][mask])
            for use in (None, "scan", "id", "uy", "i"):
                query = dataset.query(where, epochs=epoch, columns=["id"], use=use)
                assert numpy.array_equal(numpy.sort(query.to_numpy()["id"]), expected), (where, use)
            assert query.count() == len(expected)
            plan = dataset.query(where, epochs=epoch).plan()["epochs"][0]
            used += any(path["is_used"] and path["path"] != "scan" for path in plan.get("alternatives", []))
    assert used > 40, used


def test_duckdb_joins_an_index(dumps, indexed):
    epochs = vpic.read_dumps(dumps)
    epoch, rows = max(epochs), epochs[max(epochs)]
    ids = numpy.random.default_rng(2).choice(rows["id"], 200, replace=False)
    # As docs/cli.md has it.
    found = duckdb.sql(
        f"""SELECT records.* EXCLUDE (filename, file_row_number)
        FROM read_parquet('{indexed}/_turbidite/index/id/data/epoch={epoch}/*.parquet') AS entries
        JOIN read_parquet('{indexed}/data/epoch={epoch}/*.parquet', filename = true, file_row_number = true) AS records
        ON entries.row = records.file_row_number
        AND entries.part = 4096 * regexp_extract(records.filename, 'part-(\\d+)', 1)::INT
                           + coalesce(nullif(regexp_extract(records.filename, 'part-\\d+-(\\d+)', 1), '')::INT, 0)
        WHERE entries.id IN ({", ".join(map(str, ids))}) ORDER BY records.id"""
    ).fetchnumpy()
    expected = numpy.sort(rows[numpy.isin(rows["id"], ids)], order="id")
    assert len(expected) == 200
    for name in COLUMNS:
        assert numpy.array_equal(found[name], expected[name]), name
    ((entries,),) = duckdb.sql(f"SELECT count(*) FROM read_parquet('{indexed}/_turbidite/index/id/data/*/*.parquet')").fetchall()
    assert entries == sum(map(len, epochs.values()))


def test_a_lookup_by_the_index_reads_little(dumps, indexed):
    rows = vpic.read_dumps(dumps)
    epoch = max(rows)
    ident = int(rows[epoch]["id"][1234])
    bytes_of = lambda *more: answer("query", indexed, "--epoch", epoch, "--where", f"id = {ident}", "--count", *more)["cost"]["metrics"]["bytes_read"]
    assert 0 < 4 * bytes_of() < bytes_of("--use", "scan")
    explained = turbidite("query", indexed, "--epoch", epoch, "--where", f"id = {ident}", "--explain").stdout
    assert "access path id" in explained and "access path scan" in explained and "index id" in explained, explained


def test_the_life_of_an_index(by_energy, dumps, tmp_path):
    """Epochs are cut off, written again, and compacted; the index follows when it is completed."""
    dataset = tmp_path / "ds"
    shutil.copytree(by_energy, dataset)
    turbidite("index", "add", dataset, "id", "--epoch", "500..2000")
    labels = sorted(vpic.read_dumps(dumps))
    (index,) = answer("index", "list", dataset)["indexes"]
    assert index["missing"] == [label for label in labels if label > 2000], index
    first = turbidite("index", "list", dataset).stdout
    assert "id: " in first and "missing" in first, first
    done = turbidite("index", "add", dataset, "id")
    assert "4 epochs" in done.stdout, done.stdout
    assert "every epoch already" in turbidite("index", "add", dataset, "id").stdout
    turbidite("truncate", dataset, "--after", 1000)
    entries = dataset / "_turbidite" / "index" / "id" / "data"
    assert sorted(folder.name for folder in entries.iterdir()) == ["epoch=1000", "epoch=500"]
    turbidite("ingest", dumps, "--out", dataset, "--key", "energy", *DERIVE, "--if-exists", "replace", "--epochs", "1000..1500")
    (index,) = answer("index", "list", dataset)["indexes"]
    assert index["missing"] == [1000, 1500], index
    plan = turbidite("query", dataset, "--where", "id = 80", "--explain").stdout
    assert plan.count("access path id") == 1, plan
    lines = turbidite("query", dataset, "--where", "id = 80", "--columns", "id,epoch").stdout.splitlines()
    assert sorted(lines[1:]) == ["80,1000", "80,1500", "80,500"], lines
    turbidite("verify", dataset)
    turbidite("index", "add", dataset, "id")
    assert "missing" not in turbidite("index", "list", dataset).stdout
    compacted = tmp_path / "compacted"
    turbidite("compact", dataset, "--out", compacted)
    (original,), (copied,) = (answer("index", "list", path)["indexes"] for path in (dataset, compacted))
    assert [copied[what] for what in ("definition", "entries", "missing", "problem")] == ["id", original["entries"], [], None]
    for place in (dataset, compacted):
        lines = turbidite("get", place, 80, 88, "--id", "id", "--use", "id", "--columns", "energy").stdout.splitlines()
        assert len(lines) == 7, lines
    found = answer("stats", dataset)
    assert sum(epoch["indexes"][0]["entries"] for epoch in found) == original["entries"], found
    assert "entries of indexes" in turbidite("stats", dataset).stdout
    assert [index["bytes"] for index in answer("inspect", dataset)["indexes"]] == [original["bytes"]]
    assert first.split(":")[0] == "id" and "indexes:\n  id: " in turbidite("inspect", dataset).stdout
    turbidite("report", dataset, "-o", tmp_path / "report.html")
    page = ElementTree.parse(tmp_path / "report.html").getroot()
    cells = [cell.text for table in page.findall(".//{*}table[@id='indexes']") for cell in table.findall(".//{*}td")]
    assert cells[:3] == ["id", "3", "0"], cells
    # `salvage` ignores files of a killed build, and `verify` names their index.
    (dataset / "_turbidite" / "index" / "id" / "_turbidite" / "tmp" / f"500.{uuid.uuid4()}").mkdir()
    assert answer("verify", dataset)["unfinished"] == 0
    assert "the next 'turbidite index add' removes it" in turbidite("verify", dataset).stderr
    assert "no unfinished epochs" in turbidite("salvage", dataset).stdout
    turbidite("index", "drop", dataset, "id")
    assert not (dataset / "_turbidite" / "index" / "id").exists()
    assert "no indexes" in turbidite("index", "list", dataset).stdout
    assert len(turbidite("get", dataset, 80, "--id", "id", "--columns", "energy").stdout.splitlines()) == 4


def test_a_corrupt_index_costs_time_and_no_row(indexed, dumps, tmp_path):
    dataset = tmp_path / "ds"
    shutil.copytree(indexed, dataset)
    epoch = max(vpic.read_dumps(dumps))
    for part in (dataset / "_turbidite" / "index" / "id" / "data" / f"epoch={epoch}").iterdir():
        content = bytearray(part.read_bytes())
        for place in range(2000, len(content), 500):
            content[place] ^= 0x10
        part.write_bytes(content)
    done = turbidite("verify", dataset, expect=CORRUPTION)
    assert "index/id/" in done.stdout + done.stderr, done.stdout + done.stderr
    query = ["query", dataset, "--epoch", epoch, "--where", "id = 80", "--columns", "id", "--use", "id"]
    done = turbidite(*query, expect=OK)
    assert done.stdout.split() == ["id", "80"] and "an index that cannot be read was ignored" in done.stderr, done.stdout + done.stderr
    with pytest.warns(RuntimeWarning, match="indexes were ignored"):
        assert package.open(dataset).query("id = 80", epochs=epoch, columns=["id"], use="id").to_numpy()["id"].tolist() == [80]
    (dataset / "_turbidite" / "index" / "id" / "_turbidite" / "dataset.json").write_text("no JSON")
    (index,) = [index for index in answer("index", "list", dataset)["indexes"] if index["name"] == "id"]
    assert "dataset.json" in index["problem"] and index["epochs"] == 0, index
    assert "cannot be read" in turbidite("index", "list", dataset).stdout
    done = turbidite("compact", dataset, "--out", tmp_path / "compacted")
    assert "index id is not made" in done.stderr, done.stderr
    turbidite("index", "drop", dataset, "id")
    turbidite("index", "add", dataset, "id")
    turbidite("verify", dataset)
    assert not turbidite(*query).stderr
    (dataset / "_turbidite" / "index" / "id" / "_turbidite" / "dataset.json").unlink()
    assert "index/id/_turbidite/dataset.json" in turbidite("verify", dataset, expect=CORRUPTION).stderr, "the entries are there"
    done = turbidite("query", dataset, "--epoch", epoch, "--where", "id = 80", "--columns", "id")
    assert done.stdout.split() == ["id", "80"] and "an index that cannot be read was ignored" in done.stderr, done.stderr
    turbidite("index", "drop", dataset, "id")
    assert "id" not in [index["name"] for index in answer("index", "list", dataset)["indexes"]]
    turbidite("verify", dataset)


def test_indexes_are_made_beside_a_writer(tmp_path):
    path = tmp_path / "ds"
    rows = {"energy": numpy.linspace(0, 10, 20_000, dtype="f4"), "id": numpy.arange(20_000, dtype="u8")[::-1].copy()}
    with package.Writer(path, {"energy": "f4", "id": "uint64"}, key="energy") as writer:
        with writer.epoch(1):
            writer.append(rows)
        with writer.epoch(2):
            writer.append(rows)
            dataset = package.open(path)
            assert dataset.indexes.add("id").epochs == 1
        assert dataset.indexes["id"].missing == (2,)
    assert dataset.indexes.add("id").missing == ()
    assert dataset.query("id = 17", use="id").to_numpy()["epoch"].tolist() == [1, 2]
    assert [index.definition for index in dataset.indexes] == ["id"] and len(dataset.indexes) == 1
    with pytest.raises(KeyError):
        dataset.indexes["energy"]
    with pytest.raises(package.UsageError, match="no column 'speed'"):
        dataset.indexes.add("speed")
    dataset.indexes.drop("id")
    assert len(dataset.indexes) == 0
    with pytest.raises(package.UsageError, match="no index 'id'"):
        dataset.query("id = 17", use="id").count()


def test_requests_that_make_no_sense_are_refused(by_energy, indexed, tmp_path):
    for arguments, words, code in (
        (["index", "add", by_energy, "speed"], "no column 'speed'", USAGE),
        (["index", "add", by_energy, "hash:uy"], "the column 'uy', which is f32", USAGE),
        (["index", "add", by_energy, "a/b"], "cannot be indexed", USAGE),
        (["index", "add", tmp_path / "nowhere", "id"], "nowhere", FAILED),
        (["index", "add", indexed, "hash:id"], "its key is 'id', but 'hash:id' was requested", FAILED),
        (["index", "drop", indexed, "energy"], "no index 'energy'; the dataset has 'i', 'id', 'uy'", USAGE),
        (["query", indexed, "--where", "id = 4", "--use", "energy"], "no index 'energy'", USAGE),
    ):
        done = turbidite(*arguments, expect=code)
        assert words in done.stderr and "panic" not in done.stderr, done.stderr
    assert not (by_energy / "_turbidite" / "index").exists()
    assert json.loads(turbidite("index", "list", indexed, "--json").stdout)["indexes"][0]["name"] == "i"


@pytest.mark.parametrize("way", ["ingest", "add", "mpiexec ingest", "writer"])
def test_tracks_of_carried_columns_touch_no_records(dumps, by_energy, tmp_path, way):
    dataset, command, definition = tmp_path / "ds", prefix() / "bin" / "turbidite", "id,with=energy,with=ux,with=w"
    epochs = vpic.read_dumps(dumps)
    if way == "add":
        shutil.copytree(by_energy, dataset)
        package.open(dataset).indexes.add(definition)
    elif way == "writer":
        rows = {label: {name: rows[name].copy() for name in [*COLUMNS, "uy"]} for label, rows in epochs.items()}
        types = {name: str(values.dtype) for name, values in next(iter(rows.values())).items()}
        with package.Writer(dataset, types, key="energy", indexes=[definition]) as writer:
            for label, columns in rows.items():
                with writer.epoch(label):
                    writer.append(columns)
    else:
        many = [Mpi.find(tmp_path).bin / "mpiexec", "-n", RANKS] if way.startswith("mpiexec") else []
        run(*many, command, "ingest", dumps, "--out", dataset, "--key", "energy", *DERIVE, "--index", definition)
    (index,) = answer("index", "list", dataset)["indexes"]
    assert index["definition"] == definition and index["missing"] == [], index
    assert f"{definition}: " in turbidite("inspect", dataset).stdout
    ids = numpy.random.default_rng(3).choice(next(iter(epochs.values()))["id"], 12, replace=False)
    arguments = ["tracks", dataset, "--ids", ",".join(map(str, ids)), "--id", "id", "--columns", ",".join(COLUMNS[1:])]
    scanned = answer(*arguments, "--use", "scan", "-o", tmp_path / "scanned.parquet")["read"]
    (label,) = (max(epochs),)
    joined = duckdb.sql(f"SELECT id, energy, ux, w FROM '{dataset}/_turbidite/index/id/data/epoch={label}/*.parquet' ORDER BY id").fetchnumpy()
    expected = numpy.sort(epochs[label], order="id")
    assert all(numpy.array_equal(joined[name], expected[name]) for name in COLUMNS)
    # Nothing but the ends of the records' files is left, which name their commits.
    for part in (dataset / "data").rglob("*.parquet"):
        with part.open("r+b") as file:
            file.write(b"\xa5" * (part.stat().st_size // 2))
    out = tmp_path / "tracks.parquet"
    read = answer(*arguments, "-o", out)["read"]
    assert read["runs_touched"] == 0 < read["bytes_read"] < scanned["bytes_read"], (read, scanned)
    table = pyarrow.parquet.read_table(out)
    wanted = trajectories({label: rows[numpy.isin(rows["id"], ids)] for label, rows in epochs.items()})
    assert {name: table.column(name).to_numpy().tobytes() for name in [*COLUMNS, "epoch"]} == wanted
    explained = turbidite("query", dataset, "--where", f"id = {ids[0]} AND ux < 5", "--columns", "w", "--explain").stdout
    assert explained.count("no records are read") == len(epochs), explained
    turbidite("verify", dataset, expect=CORRUPTION)
    turbidite("query", dataset, "--where", f"id = {ids[0]}", "--columns", "uy", expect=CORRUPTION)


@pytest.mark.parametrize("order", ["uy", "id", "ux"])
def test_the_first_rows_by_a_column_are_those_of_duckdb(dumps, indexed, order):
    """Rows in the order of an index by range, of an index of ids, and of a column without an index."""
    dataset, rng = package.open(indexed), numpy.random.default_rng(4)
    epoch = int(rng.choice(list(vpic.read_dumps(dumps))))
    table = f"read_parquet('{indexed}/data/epoch={epoch}/*.parquet')"
    for where in (None, "uy > 0.05", "energy < 0.01 AND id % 2 = 0", f"{order} > 1e30"):
        for limit in (1, 5, 200, 10_000):
            for use in (None, "scan", "uy", "id"):
                query = dataset.query(where, epochs=epoch, columns=["id", order, "w"] if order != "id" else ["id", "w"], order=order, limit=limit, use=use)
                found = query.to_numpy()
                condition = "" if where is None else f"WHERE {where}"
                expected = duckdb.sql(f"SELECT {order} FROM {table} {condition} ORDER BY {order} LIMIT {limit}").fetchnumpy()[order]
                assert numpy.array_equal(found[order], expected), (where, limit, use)
                assert len(numpy.unique(found["id"])) == len(found["id"])
    full = turbidite("query", indexed, "--epoch", epoch, "--order", order, "--limit", 30, "--columns", f"id,{order}" if order != "id" else "id")
    expected = duckdb.sql(f"SELECT {order} FROM {table} ORDER BY {order} LIMIT 30").fetchnumpy()[order]
    printed = [line.split(",")[-1] for line in full.stdout.splitlines()[1:]]
    assert numpy.array_equal(numpy.array(printed).astype(expected.dtype), expected)


def test_the_order_of_a_column_is_explained(indexed, dumps):
    epoch = max(vpic.read_dumps(dumps))
    query = ["query", indexed, "--epoch", epoch, "--limit", 5, "--order"]
    for column, more, words in (
        ("uy", ["--use", "uy"], "ordered by the entries of index uy, until the limit"),
        ("uy", ["--use", "uy", "--columns", "uy"], "ordered by the entries of index uy, which has all columns: no records are read"),
        ("uy", ["--use", "scan"], "ordered by a scan of all matching rows"),
        ("ux", [], "ordered by a scan of all matching rows"),
    ):
        explained = turbidite(*query, column, *more, "--explain").stdout
        assert words in explained and f"in the order of {column}" in explained, explained
    assert "merged in key order" in turbidite(*query, "energy", "--explain").stdout
    # All rows of an epoch, in the order of an index and of a column without one.
    for column in ("uy", "ux"):
        lines = turbidite("query", indexed, "--epoch", epoch, "--order", column, "--columns", column).stdout.splitlines()[1:]
        assert len(lines) == len(vpic.read_dumps(dumps)[epoch]) and [float(line) for line in lines] == sorted(map(float, lines))
    for arguments, words in (
        (["--order", "speed"], "no column 'speed'"),
        (["--order", "epoch"], "orders no rows"),
    ):
        done = turbidite("query", indexed, *arguments, expect=USAGE)
        assert words in done.stderr and "panic" not in done.stderr, done.stderr
