"""Epochs in results, their physical times and their attributes."""

import pickle

import h5py
import numpy
import openpmd_api
import pyarrow
import pytest
import turbidite

from support.command import answer
from support.command import turbidite as turbidite_command

EPOCHS = [100, 200, 300]
ROWS = 1000


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> turbidite.Dataset:
    path = tmp_path_factory.mktemp("times") / "run.tbd"
    places = numpy.linspace(0, 8, ROWS, dtype="f4")
    rows = {"x": places, "y": places[::-1].copy(), "id": numpy.arange(ROWS, dtype="u8")}
    with turbidite.Writer(path, {"x": "f4", "y": "f4", "id": "uint64"}, key="space:x,y", levels=1) as writer:
        for epoch in EPOCHS:
            with writer.epoch(epoch):
                writer.append(rows)
    return turbidite.open(path)


def test_differences_of_epochs_are_negative_where_they_should_be(dataset):
    """Unsigned labels would wrap to 1.8e19."""
    query = dataset.query(columns=["epoch", "id"])
    tables = {
        "query": query.to_arrow(),
        "by a column": dataset.query(columns=["epoch"], order="id").to_arrow(),
        "tracks": dataset.tracks(of="id = 7", at=200, id="id").to_arrow(),
        "get": dataset.get(7, id="id").to_arrow(),
        "stream": pyarrow.RecordBatchReader.from_stream(query).read_all(),
        "cursor": pyarrow.Table.from_batches([batch for step in dataset.cursor(200, columns=["epoch"]) for batch in step.to_arrow().to_batches()]),
        "pieces": pyarrow.concat_tables([piece.to_arrow() for piece in dataset.pieces(query)]),
        "aggregate": dataset.aggregate({"n": "count()"}, by="epoch").to_arrow(),
    }
    for name, table in tables.items():
        assert table.schema.field("epoch").type == pyarrow.int64(), name
    frame = query.to_pandas()
    assert sorted(set(frame.epoch - 200)) == [-100, 0, 100]


def test_labels_that_results_could_not_have_are_refused(tmp_path):
    with (
        turbidite.Writer(tmp_path / "large.tbd", {"x": "f4"}, key="x") as writer,
        pytest.raises(turbidite.UsageError, match="9223372036854775808 is above 2.63 - 1"),
        writer.epoch(2**63),
    ):
        pass
    assert turbidite.open(tmp_path / "large.tbd").epochs == []


def written(path, **options) -> turbidite.Dataset:
    """Epochs of which all but the second have a time."""
    with turbidite.Writer(path, {"x": "f4", "id": "uint64"}, key="x", **options) as writer:
        for epoch in EPOCHS:
            with writer.epoch(epoch):
                writer.append({"x": numpy.linspace(0, 8, ROWS, dtype="f4"), "id": numpy.arange(ROWS, dtype="u8")})
                if epoch != 200:
                    writer.attribute("time", epoch / 100, "fs")
                    writer.attribute("charge", -epoch)
    return turbidite.open(path)


TIMES = [1e-15, float("nan"), 3e-15]
CHARGE = {"charge": (-100.0, None), "time": (TIMES[0], "s")}


def test_times_stand_beside_epochs(tmp_path):
    dataset = written(tmp_path / "run.tbd")
    assert dataset.times.dtype == "f8" and numpy.array_equal(dataset.times, TIMES, equal_nan=True)
    assert dataset.attributes(100) == CHARGE and dataset.attributes(200) == {} and dataset.attributes(-1)["time"] == (TIMES[2], "s")
    shown = turbidite_command("inspect", dataset.path).stdout
    assert [line.split()[-2:] for line in shown.splitlines() if line.startswith(("100", "300"))] == [["1e-15", "s"], ["3e-15", "s"]]
    assert "attributes of epoch 300: charge = -300" in turbidite_command("inspect", dataset.path, "--epoch", 300).stdout
    found = answer("inspect", dataset.path)["epochs"]
    assert [epoch["time"] for epoch in found] == [TIMES[0], None, TIMES[2]]
    assert found[0]["attributes"]["charge"] == {"value": -100.0}
    assert numpy.array_equal(pickle.loads(pickle.dumps(dataset)).times, TIMES, equal_nan=True)


def test_rows_have_the_time_of_their_epoch(tmp_path):
    """By scans, value indexes, entries alone, copies in space, and in the order of a column."""
    dataset = written(tmp_path / "run.tbd", indexes=["id,with=x"])
    by_epoch = dict(zip(EPOCHS, TIMES, strict=True))
    ways = {
        "all": ({}, 3 * ROWS), "few": ({"where": "id = 7"}, 3), "no index": ({"where": "id < 40", "use": "scan"}, 120),
        "ordered": ({"order": "key"}, 3 * ROWS), "by a column": ({"order": "id"}, 3 * ROWS), "none": ({"where": "x > 9"}, 0),
    }  # fmt: skip
    for name, (arguments, rows) in ways.items():
        found = dataset.query(columns=["time", "epoch", "x"], **arguments).to_numpy()
        assert list(found) == ["time", "epoch", "x"] and found["time"].dtype == "f8" and len(found["time"]) == rows, name
        assert numpy.array_equal(found["time"], [by_epoch[epoch] for epoch in found["epoch"]], equal_nan=True), name
    assert numpy.isnan(dataset.query(columns=["time"], epochs=200).to_numpy()["time"]).all()
    tracks = dataset.get([3, 5], id="id", columns=["time", "x"]).to_numpy()
    assert list(tracks) == ["id", "epoch", "time", "x"]
    assert numpy.array_equal(tracks["time"], TIMES * 2, equal_nan=True)
    table = dataset.aggregate({"n": "count()", "E": "sum(x)"}, by=["time", "bins(x, 0, 8, 2)"])
    assert numpy.array_equal(table["time"], numpy.repeat(TIMES, 2), equal_nan=True) and table["n"].sum() == 3 * ROWS
    least = dataset.aggregate({"least": "min(x)"}, by="t = time")
    assert numpy.array_equal(least["t"], TIMES, equal_nan=True)
    axes = dataset.tracks(ids=[3], id="id").plot("time", "x")
    assert axes.get_xlabel() == "time (s)"


def test_copies_and_indexes_keep_times(tmp_path):
    dataset = written(tmp_path / "run.tbd")
    answer("index", "add", dataset.path, "id")
    answer("index", "add", dataset.path, "space:x,id")
    answer("compact", dataset.path, "--out", tmp_path / "sorted.tbd")
    for path in (dataset.path, tmp_path / "sorted.tbd"):
        kept = turbidite.open(path)
        assert numpy.array_equal(kept.times, TIMES, equal_nan=True) and kept.attributes(100) == CHARGE
    cursor = turbidite.open(dataset.path).cursor(300, columns=["time", "id"])
    assert {time for step in cursor for time in step.to_numpy()["time"]} == {TIMES[2]}


def test_wrong_attributes_are_refused_and_the_epoch_stays(tmp_path):
    with turbidite.Writer(tmp_path / "run.tbd", {"x": "f4"}, key="x") as writer:
        with pytest.raises(turbidite.UsageError, match="set_attribute is not allowed outside an epoch"):
            writer.attribute("time", 1)
        with writer.epoch(1):
            for name, value, unit, message in [
                ("time", float("inf"), None, "attribute: 'time': inf is not finite"), ("", 1, None, "names have 1 to 128 bytes"),
                ("time", "1", None, "value: a number is needed, not '1'"), (1, 1, None, "name: a text such as 'time' is needed"),
                ("time", 1, 2, "unit: a text such as 'fs' is needed"),
            ]:  # fmt: skip
                with pytest.raises(turbidite.UsageError, match=message):
                    writer.attribute(name, value, unit)
            writer.attribute("time", numpy.float32(0.5), "Myr")
    assert turbidite.open(tmp_path / "run.tbd").attributes(1) == {"time": (0.5, "Myr")}


def test_the_option_states_the_time(tmp_path):
    for step in (10, 20):
        numpy.savez(tmp_path / f"dump_{step}.npz", x=numpy.arange(5.0))
    turbidite.ingest(tmp_path / "dump_%T.npz", tmp_path / "a.tbd", key="x")
    assert numpy.isnan(turbidite.open(tmp_path / "a.tbd").times).all()
    turbidite.ingest(tmp_path / "dump_%T.npz", tmp_path / "b.tbd", key="x", time="epoch * 1.5e-15")
    assert turbidite.open(tmp_path / "b.tbd").times.tolist() == [10 * 1.5e-15, 20 * 1.5e-15]
    assert turbidite.open(tmp_path / "b.tbd").attributes(10) == {"time": (10 * 1.5e-15, "s")}
    for text, message in [("x * 2", "time: .* there is no column 'x'; the columns are epoch"), ("1 /", "^time: "), ("1 / (epoch - 20)", "attribute: 'time': inf is not finite")]:
        with pytest.raises(turbidite.UsageError, match=message):
            turbidite.ingest(tmp_path / "dump_%T.npz", tmp_path / "c.tbd", key="x", time=text)


def openpmd_files(folder, suffix):
    series = openpmd_api.Series(str(folder / f"data_%T.{suffix}"), openpmd_api.Access.create)
    for step in (100, 200):
        iteration = series.iterations[step]
        iteration.time, iteration.dt, iteration.time_unit_SI = step * 0.25, 0.25, 1e-9
        record = iteration.particles["e"]["position"]["x"]
        record.reset_dataset(openpmd_api.Dataset(numpy.dtype("f8"), [4]))
        record.store_chunk(numpy.arange(4.0))
        series.flush()
    series.close()


@pytest.mark.parametrize("suffix", ["bp", "h5"])
def test_openpmd_times_are_in_seconds(tmp_path, suffix):
    openpmd_files(tmp_path, suffix)
    turbidite.ingest(tmp_path / f"data_%T.{suffix}", tmp_path / "run.tbd", key="position_x", format="openpmd")
    dataset = turbidite.open(tmp_path / "run.tbd")
    assert dataset.epochs == [100, 200] and dataset.times.tolist() == [25.0 * 1e-9, 50.0 * 1e-9]
    assert dataset.attributes(100) == {"dt": (0.25 * 1e-9, "s"), "time": (25.0 * 1e-9, "s")}
    turbidite.ingest(tmp_path / f"data_%T.{suffix}", tmp_path / "other.tbd", key="position_x", format="openpmd", time="epoch")
    assert turbidite.open(tmp_path / "other.tbd").times.tolist() == [100, 200]


@pytest.mark.parametrize("units, expected", [("metal", (0.5e-12, "s")), ("real", (0.5e-15, "s")), ("lj", (0.5, None)), (None, (0.5, None))])
def test_lammps_times(tmp_path, units, expected):
    """The units stand before the first step alone, and the second step has no time."""
    step = "ITEM: TIMESTEP\n{}\nITEM: NUMBER OF ATOMS\n1\nITEM: BOX BOUNDS pp pp pp\n0 1\n0 1\n0 1\nITEM: ATOMS id x\n1 0.5\n"
    text = "" if units is None else f"ITEM: UNITS\n{units}\n"
    text += "ITEM: TIME\n0.25\n" + step.format(10) + step.format(20) + "ITEM: TIME\n0.5\n" + step.format(30)
    (tmp_path / "dump.lammpstrj").write_text(text)
    turbidite.ingest(tmp_path / "dump.lammpstrj", tmp_path / "run.tbd", key="x")
    dataset = turbidite.open(tmp_path / "run.tbd")
    assert dataset.epochs == [10, 20, 30] and numpy.isnan(dataset.times[1])
    assert dataset.attributes(30) == {"time": expected}


def test_hdf5_attributes(tmp_path):
    for step in (1, 2):
        with h5py.File(tmp_path / f"snap_{step}.hdf5", "w") as file:
            file["x"] = numpy.arange(4.0)
            file.attrs.update({"Time": 0.5 * step, "time_unit": "ps", "code": "x", "grid": [1, 2], "seed": numpy.int32(7), "bad": numpy.nan})
    turbidite.ingest(tmp_path / "snap_%T.hdf5", tmp_path / "run.tbd", key="x")
    dataset = turbidite.open(tmp_path / "run.tbd")
    assert dataset.times.tolist() == [0.5e-12, 1e-12]
    assert dataset.attributes(1) == {"seed": (7.0, None), "time": (0.5e-12, "s")}


@pytest.mark.parametrize("times", [[0.5, 0.75], 0.25])
def test_times_of_h5md_frames(tmp_path, times):
    with h5py.File(tmp_path / "run.h5", "w") as file:
        group = file.create_group("particles/all/position")
        group["value"] = numpy.arange(12.0).reshape(2, 2, 3)
        group["step"] = numpy.array([10, 20])
        group["time"] = times
        group["time"].attrs.update({"unit": "ps"} | ({"offset": 0.5} if times == 0.25 else {}))
    turbidite.ingest(tmp_path / "run.h5", tmp_path / "run.tbd", key="position_x")
    dataset = turbidite.open(tmp_path / "run.tbd")
    assert dataset.epochs == [10, 20] and dataset.times.tolist() == [0.5e-12, 0.75e-12]
