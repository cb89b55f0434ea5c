"""Epochs that few ranks store are ended while the next one is read: what is stored, and what is left if one of them fails."""

import numpy
import pyarrow
import pytest
from pyarrow import dataset, parquet

from support import raw
from support.command import FAILED, answer, turbidite

DTYPE = numpy.dtype([("energy", "<f8"), ("id", "<i8")])
RANKS = 4


def records(epoch: int, rank: int, count: int) -> numpy.ndarray:
    rows = numpy.empty(count, DTYPE)
    rows["energy"] = numpy.random.default_rng([epoch, rank]).lognormal(size=count)
    rows["id"] = (epoch << 40) + (rank << 32) + numpy.arange(count)
    return rows


def stored(folder) -> dict[int, numpy.ndarray]:
    """The sorted ids of each epoch."""
    table = dataset.dataset(folder / "data", partitioning="hive").to_table(columns=["id", "epoch"]).to_pandas()
    return {int(epoch): numpy.sort(rows["id"].to_numpy()) for epoch, rows in table.groupby("epoch")}


@pytest.mark.parametrize("threads", [1, 3])
def test_all_epochs_are_stored_in_their_order(tmp_path, threads):
    # Of 128 KiB a part: one receiver, none of the rows, four receivers (which are not joined by the next epoch), and one.
    counts = {1: 2000, 2: 0, 3: 1500, 4: 9000, 5: 9000, 6: 1, 7: 1000, 9: 800}
    epochs = {epoch: [records(epoch, rank, count) for rank in range(RANKS)] for epoch, count in counts.items()}
    raw.write_source(tmp_path / "source", epochs)
    arguments = raw.ingest_arguments(tmp_path / "source", tmp_path / "ds", "energy", "--part-bytes", "128KiB", "--threads", threads)
    done = answer(*arguments)
    assert [(epoch["epoch"], epoch["rows"]) for epoch in done["epochs"]] == [(epoch, RANKS * count) for epoch, count in counts.items()]
    assert [epoch["receivers"] for epoch in done["epochs"]] == [1, 1, 1, 4, 4, 1, 1, 1]
    found = stored(tmp_path / "ds")
    assert sorted(found) == [epoch for epoch, count in counts.items() if count]
    for epoch, ids in found.items():
        assert (ids == numpy.sort(numpy.concatenate(epochs[epoch])["id"])).all(), epoch
    turbidite("verify", tmp_path / "ds")
    again = answer(*arguments, "--if-exists", "skip")
    assert all(epoch["skipped"] for epoch in again["epochs"])


def write_step(folder, epoch: int, fails: bool) -> None:
    """A Parquet file of an epoch, whose statistics do not say that a value is missing."""
    rows = records(epoch, 0, 5000)
    energies = pyarrow.array(rows["energy"], mask=numpy.arange(len(rows)) == (4321 if fails else -1))
    table = pyarrow.table({"energy": energies, "id": rows["id"]})
    parquet.write_table(table, folder / f"step-{epoch}.parquet", row_group_size=1000, write_statistics=False)


@pytest.mark.parametrize("failing", [1, 3, 5])
def test_an_epoch_that_fails_ends_the_series(tmp_path, failing):
    source, target = tmp_path / "source", tmp_path / "ds"
    source.mkdir()
    (source / "layout.toml").write_text('format = "parquet"\npath = "step-{epoch}.parquet"\n')
    for epoch in range(1, 6):
        write_step(source, epoch, epoch == failing)
    arguments = raw.ingest_arguments(source, target, "energy")
    message = turbidite(*arguments, expect=FAILED).stderr
    assert f"step-{failing}.parquet" in message and "null" in message, message
    assert sorted(stored(target)) == list(range(1, failing)) if failing > 1 else not list(target.glob("data/*"))
    assert answer("salvage", target)["unfinished"] == []
    write_step(source, failing, False)
    done = answer(*arguments, "--if-exists", "skip")
    assert [epoch["skipped"] for epoch in done["epochs"]] == [epoch < failing for epoch in range(1, 6)]
    assert sorted(stored(target)) == list(range(1, 6))


def test_an_epoch_that_exists_ends_the_series(tmp_path):
    source, target = tmp_path / "source", tmp_path / "ds"
    raw.write_source(source, {epoch: [records(epoch, rank, 500) for rank in range(RANKS)] for epoch in range(1, 6)})
    arguments = raw.ingest_arguments(source, target, "energy")
    turbidite(*arguments, "--epochs", "3")
    assert "epoch 3" in turbidite(*arguments, expect=FAILED).stderr
    assert sorted(stored(target)) == [1, 2, 3]
    assert answer("salvage", target)["unfinished"] == []
