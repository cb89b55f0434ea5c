"""Epochs in results, their physical times and their attributes."""

import numpy
import pyarrow
import pytest
import turbidite

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
