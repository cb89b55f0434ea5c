"""Reading through the package: what the command and NumPy find, in every form that Python uses."""

import gc
import json
import multiprocessing
import pickle
import shutil
import threading

import duckdb
import numpy
import pandas
import polars
import pyarrow
import pytest
import turbidite
from pyarrow import parquet

from support.command import turbidite as command
from support.predicates import Generator
from support.sweeps import taken

ROWS = ["id", "energy", "ux"]


def in_order(found: dict[str, numpy.ndarray]) -> list[numpy.ndarray]:
    order = numpy.lexsort([found[name] for name in sorted(found)])
    return [found[name][order].view(f"V{found[name].dtype.itemsize}") for name in sorted(found)]


def check(dataset: turbidite.Dataset, epochs: dict[int, numpy.ndarray], predicate, labels: list[int]) -> None:
    chosen = [epochs[label][predicate.mask(epochs[label])] for label in labels]
    expected = {name: numpy.concatenate([rows[name] for rows in chosen]) for name in ROWS}
    expected["epoch"] = numpy.concatenate([numpy.full(len(rows), label, "i8") for rows, label in zip(chosen, labels, strict=True)])
    query = dataset.query(predicate.text, epochs=labels, columns=[*ROWS, "epoch"])
    found = query.to_numpy()
    assert {name: array.dtype for name, array in found.items()} == {name: array.dtype for name, array in expected.items()}
    for ours, theirs in zip(in_order(found), in_order(expected), strict=True):
        assert (ours == theirs).all(), predicate.text
    assert query.count() == len(expected["id"]), "a query can be run again"


def test_random_predicates_equal_numpy(indexed):
    generator = Generator(20261120, indexed.epochs)
    cases = [(generator.predicate(), generator.epoch_range()[1]) for _ in range(60)]
    for predicate, labels in taken(cases, 6):
        check(turbidite.open(indexed.path), indexed.epochs, predicate, labels)


def test_the_whole_dataset_is_what_was_written(indexed):
    dataset = turbidite.open(indexed.path)
    assert dataset.epochs == sorted(indexed.epochs)
    assert dataset.schema.key == "energy" and set(ROWS) <= set(dataset.schema.names)
    everything = dataset.query().to_numpy()
    rows = numpy.concatenate(list(indexed.epochs.values()))
    assert set(everything) == {*dataset.schema.names, "epoch"}
    assert numpy.array_equal(numpy.sort(everything["id"]), numpy.sort(rows["id"]))
    assert sum(dataset.stats(epoch)["rows"] for epoch in dataset.epochs) == len(rows) == len(everything["id"])


def test_every_form_has_the_same_rows(default_dataset):
    dataset = turbidite.open(default_dataset.path)
    query = dataset.query("energy >= 0.5", columns=ROWS, order="key", epochs=max(default_dataset.epochs))
    arrays = query.to_numpy()
    assert len(arrays["id"]) > 100 and (numpy.diff(arrays["energy"]) >= 0).all()
    forms = {
        "arrow": query.to_arrow(),
        "pyarrow": pyarrow.table(query),
        "pandas": query.to_pandas(),
        "pandas from a stream": pandas.DataFrame.from_arrow(query),
        "polars": query.to_polars(),
        "polars from a stream": polars.DataFrame(query),
    }
    for name, form in forms.items():
        for column in ROWS:
            assert numpy.array_equal(numpy.asarray(form[column]), arrays[column]), (name, column)
    streamed = pyarrow.table(query)
    assert duckdb.sql("SELECT count(*), sum(id) FROM streamed").fetchall() == [(len(arrays["id"]), int(arrays["id"].sum()))]
    ids = numpy.concatenate([numpy.asarray(batch.column("id")) for batch in query])
    assert numpy.array_equal(ids, arrays["id"])


def test_no_column_is_copied(default_dataset):
    stream = iter(turbidite.open(default_dataset.path).query("energy > 1", columns=ROWS))
    batch = next(stream)
    arrow = pyarrow.record_batch(batch)
    for name in ROWS:
        array = numpy.asarray(batch.column(name))
        assert array.__array_interface__["data"][0] == arrow[name].buffers()[1].address + arrow[name].offset * array.itemsize
        assert not array.flags.writeable and not array.flags.owndata
    kept = numpy.asarray(batch.column("id"))
    expected = kept.copy()
    del batch, arrow, stream
    assert numpy.array_equal(kept, expected), "an array keeps the memory of its batch"


def test_arrow_allocates_nothing_for_a_result(default_dataset):
    query = turbidite.open(default_dataset.path).query()
    # Arrays of other tests may be freed at any time: they must not count as allocations of this one.
    gc.collect()
    before = pyarrow.total_allocated_bytes()
    table, (batch, *_) = query.to_arrow(), pyarrow.RecordBatchReader.from_stream(query)
    assert table.num_rows > 100_000 and pyarrow.total_allocated_bytes() <= before
    for column in batch.columns:
        shown = numpy.asarray(column).__array_interface__["data"][0]
        assert shown == column.buffers()[1].address + column.offset * column.type.bit_width // 8


def test_limits_slices_and_orders(default_dataset):
    dataset = turbidite.open(default_dataset.path)
    labels = sorted(default_dataset.epochs)
    assert dataset.query(limit=7).count() == 7 == len(dataset.query(limit=7).to_numpy()["id"])
    chosen = {int(label) for label in dataset.query(epochs=slice(labels[0], labels[1]), columns=["epoch"]).to_numpy()["epoch"]}
    assert chosen == set(labels[:2])
    assert dataset.query(epochs=labels[-1]).count() == len(default_dataset.epochs[labels[-1]])
    none = dataset.query("energy < -1", columns=["id", "epoch"]).to_numpy()
    assert {name: (len(array), array.dtype.str) for name, array in none.items()} == {"id": (0, "<i4"), "epoch": (0, "<i8")}


def test_distributions_are_those_of_the_command(default_dataset):
    dataset = turbidite.open(default_dataset.path)
    epoch = max(default_dataset.epochs)
    energies = default_dataset.epochs[epoch]["energy"]
    finite = energies[numpy.isfinite(energies)]
    exact = dataset.histogram("energy", bins=10, range=(0, 2), epochs=epoch)
    assert exact.counts.tolist() == numpy.histogram(finite, exact.x.edges)[0].tolist()
    loose = dataset.histogram("energy", bins=10, range=(0, 2), epochs=epoch, source="bounds")
    assert (loose.least <= exact.counts).all() and (exact.counts <= loose.most).all()
    for quantile in dataset.quantiles("energy", [0.1, 0.5, 0.99], epochs=epoch, source="bounds"):
        truth = numpy.sort(finite)[int(numpy.ceil(quantile.share * len(finite))) - 1]
        assert quantile.least <= truth <= quantile.most


def test_explanations_are_those_of_the_command(default_dataset):
    query = turbidite.open(default_dataset.path).query("energy > 3 and ux < 0", columns=["id"])
    stated = json.loads(command("query", default_dataset.path, "--where", "energy > 3 and ux < 0", "--columns", "id", "--explain", "--json").stdout)
    assert query.plan().items() <= stated.items() or query.plan() == stated
    assert "energy" in query.explain()


def test_trajectories(default_dataset):
    dataset = turbidite.open(default_dataset.path)
    at = sorted(default_dataset.epochs)[1]
    rows = default_dataset.epochs[at]
    threshold = float(numpy.sort(rows["energy"][numpy.isfinite(rows["energy"])])[-20])
    ids = numpy.unique(rows["id"][rows["energy"] > threshold])
    tracks = dataset.tracks(of=f"energy > {threshold!r}", at=at, id="id", columns=["energy"])
    found = tracks.to_numpy()
    expected = []
    for label, epoch in sorted(default_dataset.epochs.items()):
        chosen = epoch[numpy.isin(epoch["id"], ids)]
        expected += [(int(row["id"]), label, row["energy"].tobytes()) for row in chosen]
    stated = [(int(i), int(e), v.tobytes()) for i, e, v in zip(found["id"], found["epoch"], found["energy"], strict=True)]
    assert stated == sorted(expected, key=lambda row: row[:2]) and len(stated) > len(ids)
    assert polars.DataFrame(tracks).height == len(expected)


def test_rows_of_ids(default_dataset):
    """Some of the ids exist, one twice in the list, and one nowhere."""
    dataset = turbidite.open(default_dataset.path)
    epochs = sorted(default_dataset.epochs.items())
    known = numpy.unique(epochs[0][1]["id"])[3:40:9]
    nowhere = max(int(rows["id"].max()) for _, rows in epochs) + 1
    ids = numpy.concatenate([known, known[:1], [nowhere]]).astype(known.dtype)
    expected = []
    for label, rows in epochs:
        expected += [(int(row["id"]), label, row["energy"].tobytes()) for row in rows[numpy.isin(rows["id"], ids)]]
    for stated in (ids, ids.tolist(), (int(one) for one in ids)):
        found = dataset.get(stated, id="id", columns=["energy"]).to_numpy()
        rows = [(int(i), int(e), v.tobytes()) for i, e, v in zip(found["id"], found["epoch"], found["energy"], strict=True)]
        assert sorted(rows) == sorted(expected) and [row[:2] for row in rows] == sorted(row[:2] for row in rows)
    one = dataset.get(int(known[0]), id="id", epochs=epochs[0][0]).to_numpy()
    assert set(one["id"]) == {known[0]} and set(one["epoch"]) == {epochs[0][0]}
    assert len(dataset.get([], id="id").to_numpy()["id"]) == 0
    assert len(dataset.tracks(ids=[nowhere], id="id").to_numpy()["id"]) == 0


def test_the_key_identifies_particles_unless_it_is_a_float(tmp_path):
    names = numpy.array([b"ab\0", b"abc", b"\xff\xfe\0"], dtype="S3")
    rows = {"id": numpy.array([-7, 4, 4], dtype=numpy.int8), "name": names.view("V3"), "x": numpy.arange(3.0)}
    with turbidite.Writer(tmp_path / "ds", {"id": "int8", "name": "V3", "x": "f64"}, key="id") as writer, writer.epoch(5):
        writer.append(rows)
    dataset = turbidite.open(tmp_path / "ds")
    assert dataset.get(4).to_numpy()["x"].tolist() == [1.0, 2.0] or dataset.get(4).to_numpy()["x"].tolist() == [2.0, 1.0]
    assert dataset.get(-7).to_numpy()["x"].tolist() == [0.0]
    for ids in (b"ab\0", [b"ab\0"], names[:1], names.view("V3")[:1], list(names.view("V3")[:1])):
        assert dataset.get(ids, id="name").to_numpy()["x"].tolist() == [0.0]


def test_ids_of_a_dataset_that_is_clustered_by_hash(tmp_path):
    ids = numpy.random.default_rng(3).permutation(50_000).astype("u8")
    columns = {"id": "u64", "x": "f64"}
    with turbidite.Writer(tmp_path / "ds", columns, key="hash:id", ranks=3) as writer:
        for epoch in (1, 2):
            with writer.epoch(epoch):
                writer.append({"id": ids, "x": ids / epoch})
    dataset = turbidite.open(tmp_path / "ds")
    found = dataset.get([777, 50_000]).to_numpy()
    assert (found["id"].tolist(), found["epoch"].tolist(), found["x"].tolist()) == ([777, 777], [1, 2], [777.0, 388.5])
    assert dataset.query("id = 777").to_numpy()["x"].tolist() == [777.0, 388.5] and "hash" not in dataset.schema.key


def count_of(query: turbidite.Query) -> int:
    return query.count()


def test_datasets_and_queries_travel_to_other_processes(default_dataset):
    dataset = turbidite.open(default_dataset.path)
    query = dataset.query("energy > 1", epochs=min(default_dataset.epochs))
    again = pickle.loads(pickle.dumps(query))
    assert again.count() == query.count() and pickle.loads(pickle.dumps(dataset)).epochs == dataset.epochs
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(count_of, [query]) == [query.count()]


def test_threads_share_a_dataset(default_dataset):
    dataset = turbidite.open(default_dataset.path)
    counts = []
    work = [threading.Thread(target=lambda: counts.append(dataset.query("energy > 1", threads=1).count())) for _ in range(4)]
    for one in work:
        one.start()
    for one in work:
        one.join()
    assert len(counts) == 4 and len(set(counts)) == 1


def test_corruption_has_fields(default_dataset, scratch):
    path = scratch / "corrupt.tbd"
    shutil.copytree(default_dataset.path, path)
    part = max((path / "data").rglob("*.parquet"), key=lambda found: found.stat().st_size)
    metadata = parquet.ParquetFile(part).metadata
    chunk = metadata.row_group(0).column(0)
    with part.open("r+b") as file:
        file.seek(chunk.data_page_offset + chunk.total_compressed_size - 1)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(turbidite.CorruptionError) as raised:
        turbidite.open(path).query().to_numpy()
    assert raised.value.path == str(part) and raised.value.page is not None and "page" in raised.value.place
    assert pickle.loads(pickle.dumps(raised.value)).page == raised.value.page
    for use in (turbidite.Query.to_arrow, turbidite.Query.to_polars, turbidite.Query.to_pandas):
        with pytest.raises(turbidite.CorruptionError, match="checksum"):
            use(turbidite.open(path).query())
    with pytest.raises(pyarrow.lib.ArrowInvalid, match="checksum"):
        pyarrow.table(turbidite.open(path).query())
    assert turbidite.open(path).query(check=False).to_numpy()["id"].size > 0
    shutil.rmtree(path)


WRONG = {
    "an unknown column": (lambda dataset: dataset.query("speed > 1").count(), turbidite.UsageError, "speed"),
    "half an expression": (lambda dataset: dataset.query("energy >").count(), turbidite.UsageError, "at character 9"),
    "an unknown output": (lambda dataset: dataset.query(columns=["nothing"]).to_numpy(), turbidite.UsageError, "nothing"),
    "a name for a list": (lambda dataset: dataset.query(columns="id"), turbidite.UsageError, "list of names"),
    "an order by no column": (lambda dataset: dataset.query(order="speed").to_numpy(), turbidite.UsageError, "no column 'speed'"),
    "a missing epoch": (lambda dataset: dataset.query(epochs=3).count(), turbidite.OperationError, "epoch 3"),
    "no particles": (lambda dataset: dataset.tracks(of=" ", at=500, id="id").to_numpy(), turbidite.UsageError, "which particles"),
    "an id of floats": (lambda dataset: dataset.tracks(of="energy > 5", at=500, id="ux").to_numpy(), turbidite.UsageError, "ux"),
    "no particles and no ids": (lambda dataset: dataset.tracks(id="id"), turbidite.UsageError, "either ids, or at with of or box"),
    "particles and ids": (lambda dataset: dataset.tracks(of="ux > 1", at=500, ids=[1], id="id"), turbidite.UsageError, "either"),
    "no column of ids": (lambda dataset: dataset.get(1), turbidite.UsageError, "the key, 'energy', is f32"),
    "ids as text": (lambda dataset: dataset.get("17", id="id"), turbidite.UsageError, "not the text '17'"),
    "ids as texts": (lambda dataset: dataset.get(["17"], id="id"), turbidite.UsageError, "whole number"),
    "a float as an id": (lambda dataset: dataset.get(numpy.array([1.0]), id="id"), turbidite.UsageError, "whole number"),
    "bytes for a number": (lambda dataset: dataset.get(b"17", id="id").to_numpy(), turbidite.UsageError, "x'3137' is no possible"),
    "an id beyond its type": (lambda dataset: dataset.get(2**40, id="id").to_numpy(), turbidite.UsageError, "1099511627776 is no possible"),
    "an id beyond all types": (lambda dataset: dataset.get(2**200, id="id").to_numpy(), turbidite.UsageError, "64 bits"),
    "a label that is no number": (lambda dataset: dataset.query(epochs=[500.7]), turbidite.UsageError, "500.7"),
    "no label as text": (lambda dataset: dataset.query(epochs="12.5"), turbidite.UsageError, "12.5"),
    "labels as bytes": (lambda dataset: dataset.query(epochs=b"12"), turbidite.UsageError, "12"),
    "a mask for labels": (lambda dataset: dataset.query(epochs=numpy.array([True, False])), turbidite.UsageError, "whole number"),
    "a place before the first epoch": (lambda dataset: dataset.query(epochs=-100).count(), turbidite.UsageError, "-100"),
    "a stride of 0": (lambda dataset: dataset.query(epochs=slice(0, None, 0)), turbidite.UsageError, "0..last..0"),
    "a limit as text": (lambda dataset: dataset.query(limit="5"), turbidite.UsageError, "limit"),
    "no threads": (lambda dataset: dataset.query(threads=-1), turbidite.UsageError, "threads"),
    "a column for columns": (lambda dataset: dataset.tracks(of="ux > 1", at=500, id="id", columns="ux"), turbidite.UsageError, "list"),
    "shares beyond 1": (lambda dataset: dataset.quantiles("energy", [1.5]), turbidite.UsageError, "1.5"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_requests_are_named(default_dataset, name):
    act, kind, word = WRONG[name]
    with pytest.raises(kind, match=word):
        act(turbidite.open(default_dataset.path))


def test_an_order_needs_no_index_where_all_rows_fit_into_memory(default_dataset):
    epoch, rows = next(iter(default_dataset.epochs.items()))
    found = turbidite.open(default_dataset.path).query(order="ux", epochs=epoch, columns=["ux"]).to_numpy()["ux"]
    assert numpy.array_equal(found, numpy.sort(rows["ux"]))


def test_a_path_without_a_dataset_is_refused(tmp_path):
    with pytest.raises(turbidite.TurbiditeError, match="not a Turbidite dataset"):
        turbidite.open(tmp_path)


def test_an_exported_stream_is_not_read_twice(default_dataset):
    stream = turbidite.open(default_dataset.path).query(limit=5)._start()
    assert pyarrow.table(stream).num_rows == 5
    with pytest.raises(turbidite.UsageError, match="taken"):
        next(iter(stream))


def test_results_without_rows_or_columns_have_the_same_form(default_dataset):
    dataset = turbidite.open(default_dataset.path)
    some, none = (dataset.query(where, limit=5).to_numpy() for where in (None, "energy < -1"))
    assert [(name, array.dtype) for name, array in some.items()] == [(name, array.dtype) for name, array in none.items()]
    epoch = dataset.epochs[0]
    bare = dataset.query(columns=[], epochs=epoch)
    assert bare.to_numpy() == {} and len(bare.to_pandas()) == bare.to_arrow().num_rows == bare.count() > 0
    followed, nobody = (dataset.tracks(of=of, at=epoch, id="id", limit=5).to_numpy() for of in ("energy > 1", "energy > 1e30"))
    assert [(name, array.dtype) for name, array in followed.items()] == [(name, array.dtype) for name, array in nobody.items()]
    with pytest.raises(TypeError, match="to_numpy"):
        numpy.asarray(dataset.query())


def test_a_dataset_stays_where_it_is(default_dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(default_dataset.path.parent)
    dataset = turbidite.open(default_dataset.path.name)
    query = dataset.query(epochs=slice(None, None))
    expected = query.count()
    monkeypatch.chdir(tmp_path)
    assert query.count() == expected > 0 and pickle.loads(pickle.dumps(query)).count() == expected


def test_large_integers_stay_exact(tmp_path):
    path = tmp_path / "large.tbd"
    values = numpy.array([0, 2**53 + 1, 2**63, 2**64 - 3, 2**64 - 1], "uint64")
    with turbidite.Writer(path, {"id": "uint64"}, key="id") as writer, writer.epoch(1):
        writer.append({"id": values})
    dataset = turbidite.open(path)
    [largest] = dataset.quantiles("id", 1.0)
    assert (largest.least, largest.estimate, largest.most) == (2**64 - 1,) * 3
    top = dataset.histogram("id", bins=1, range=(2**64 - 3, 2**64 - 1))
    assert top.counts.sum() + top.unbinned["above"] == 2 and top.unbinned["below"] == 3 and int(top.x.edges[0]) == 2**64 - 3
    odd = dataset.histogram("id", bins=1, range=(2**53 + 1, 2**53 + 2))
    assert int(odd.x.edges[0]) == 2**53 + 1 and odd.counts.sum() == 1


def test_slices_of_epochs_follow_the_dataset(tmp_path):
    path = tmp_path / "growing.tbd"
    rows = {"key": numpy.ones(10, "f4")}
    with turbidite.Writer(path, {"key": "f4"}, key="key") as writer:
        with writer.epoch(1):
            writer.append(rows)
        query = turbidite.open(path).query(epochs=slice(0, None))
        assert query.count() == 10
        with writer.epoch(2):
            writer.append(rows)
        assert query.count() == 20
