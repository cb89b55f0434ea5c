"""What people try first: heads, batches by column, negative epochs, ranges, truth values, ids of any form and number."""

import numpy
import polars
import pyarrow
import pytest
import turbidite

ROWS = 1000


@pytest.fixture(scope="module")
def dataset(scratch) -> turbidite.Dataset:
    path = scratch / "few.tbd"
    rows = {"energy": numpy.linspace(0, 10, ROWS, dtype="f4"), "id": numpy.arange(ROWS, dtype="u8")}
    with turbidite.Writer(path, {"energy": "f4", "id": "uint64"}, key="energy") as writer:
        for epoch in (100, 200, 300):
            with writer.epoch(epoch):
                writer.append(rows)
    return turbidite.open(path)


def test_heads_are_the_first_rows(dataset):
    hot = dataset.query("energy > 9.9", epochs=-1, order="key")
    assert hot.head(3)["id"].tolist() == hot.to_numpy()["id"][:3].tolist()
    assert hot.head()["epoch"].tolist() == [300] * 5 and len(dataset.head()["energy"]) == 5
    assert len(dataset.query(limit=2).head()["id"]) == 2 and len(hot.head(10**6)["id"]) == hot.count()
    assert [len(array) for array in dataset.head(0).values()] == [0, 0, 0]
    with pytest.raises(turbidite.UsageError, match="^rows: -1 is negative"):
        hot.head(-1)


def test_batches_have_columns_by_name(dataset):
    [batch] = dataset.query("id < 3", epochs=100)
    assert batch["id"].tolist() == [0, 1, 2] and batch["id"].dtype == numpy.dtype("u8")
    assert batch["energy"].base is not None, "a view"
    with pytest.raises(KeyError, match="Id"):
        batch["Id"]


def test_negative_epochs_count_from_the_last(dataset):
    assert dataset.query(epochs=-1).count() == dataset.query(epochs=[-1]).count() == ROWS
    assert dataset.query(epochs=[-1, 100]).count() == 2 * ROWS
    assert dataset.stats(-1) == dataset.stats(300) and dataset.row_groups(-2) == dataset.row_groups(200)
    tracks = dataset.tracks(of="energy > 9.99", at=-1, id="id")
    assert set(tracks.to_numpy()["id"].tolist()) == {ROWS - 1}
    with pytest.raises(turbidite.UsageError, match="^epoch: -4 is before the first of 3 epochs"):
        dataset.stats(-4)


def test_ranges_with_missing_epochs_name_the_slice(dataset):
    assert dataset.query(epochs=range(100, 400, 100)).count() == 3 * ROWS == dataset.query(epochs=slice(0, 300)).count()
    assert dataset.query(epochs=range(0)).count() == 0
    for act in (
        lambda: dataset.query(epochs=range(300)).count(),
        lambda: dataset.get(1, id="id", epochs=range(300)).to_numpy(),
        lambda: dataset.quantiles("energy", epochs=range(300)),
        lambda: dataset.histogram("energy", epochs=range(300)),
        lambda: dataset.query(epochs=range(300)).write("none.csv"),
    ):
        with pytest.raises(
            turbidite.OperationError, match=r"^epochs: epoch 0 of range\(0, 300\) does not exist; slice\(0, 299\) has"
        ):
            act()


def test_results_have_no_truth_value(dataset):
    for result in (dataset.query("id = 1"), dataset.get(1, id="id")):
        with pytest.raises(TypeError, match=r"count\(\) > 0"):
            bool(result)


def test_ids_of_any_form(dataset):
    ids = [5, 3, 999]
    forms = [ids, tuple(ids), set(ids), (one for one in ids), numpy.array(ids), numpy.array(ids, "i2"), pyarrow.array(ids)]
    forms += [pyarrow.chunked_array([[5], [3, 999]]), polars.Series(ids)]
    for form in forms:
        assert sorted(set(dataset.get(form, id="id").to_numpy()["id"].tolist())) == sorted(ids), form
    for wrong in (pyarrow.array([1, None]), pyarrow.array(["1"]), polars.Series([0.5])):
        with pytest.raises(turbidite.UsageError, match="^ids: a whole number is needed"):
            dataset.get(wrong, id="id")


def test_any_number_of_ids_is_looked_up(dataset):
    """More ids than the core looks up at once, in any order, some twice, and of which few exist."""
    ids = numpy.random.default_rng(1).permutation(numpy.arange(2_300_000) % 2_200_000)
    found = dataset.get(ids, id="id", columns=["energy"])
    rows = found.to_numpy()
    assert (
        rows["id"].tolist() == [id for id in range(ROWS) for _ in range(3)] and rows["epoch"].tolist() == [100, 200, 300] * ROWS
    )
    late = dataset.get(2**40 + ids[:1_500_000], id="id").to_numpy()
    assert len(late["id"]) == 0
    spread = numpy.concatenate([ids[ids >= ROWS][:1_000_001], numpy.array([0, ROWS - 1]), 2**50 + ids[:1_000_001]])
    some = dataset.tracks(ids=spread, id="id", limit=4).to_numpy()
    assert some["id"].tolist() == [0, 0, 0, ROWS - 1]
    assert len(list(dataset.tracks(ids=spread, id="id"))) >= 1


def test_long_lists_name_get(dataset):
    listed = ", ".join(map(str, range(200_000)))
    with pytest.raises(turbidite.UsageError, match="look up long lists of ids by get"):
        dataset.query(f"id in ({listed})").count()


def test_errors_have_the_names_of_arguments(tmp_path):
    numpy.savez(tmp_path / "p_1.npz", x=numpy.arange(3.0))
    with pytest.raises(turbidite.UsageError, match="nulls fill for HDF5"):
        turbidite.ingest(tmp_path / "p_%T.npz", tmp_path / "p.tbd", key="x", nulls="fill")
    with pytest.raises(turbidite.UsageError, match=r"^source: a path or a pattern is needed, such as 'diags/\*\.h5', not \["):
        turbidite.ingest([tmp_path / "p_1.npz"], tmp_path / "p.tbd", key="x")
    error = turbidite.UsageError("state --key, --no-check, --if-exists or run 'turbidite verify --json'; a -- b")
    assert str(error) == "state key, check=False, if_exists or run 'turbidite verify --json'; a -- b"
