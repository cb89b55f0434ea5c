"""Pieces of queries in other processes, answers as files, and reports."""

import json
import multiprocessing
import pickle

import numpy
import pyarrow.parquet
import pytest
import turbidite

EPOCHS, ROWS = (3, 7), 200_000


def rows(epoch: int) -> dict[str, numpy.ndarray]:
    rng = numpy.random.default_rng(epoch)
    energy = rng.lognormal(0, 2, ROWS).astype("f4")
    energy[:50] = numpy.nan
    return {"energy": energy, "id": numpy.arange(ROWS, dtype="u8") + epoch * ROWS}


def write(path, epochs=EPOCHS, **options) -> None:
    with turbidite.Writer(path, {"energy": "f4", "id": "uint64"}, key="energy", ranks=2, **options) as writer:
        for epoch in epochs:
            with writer.epoch(epoch):
                found = rows(epoch)
                for rank in range(2):
                    writer.append({name: values[rank::2] for name, values in found.items()}, rank=rank)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("pieces") / "run.tbd"
    write(path)
    return turbidite.open(path)


def expected(where, epochs=EPOCHS) -> numpy.ndarray:
    return numpy.sort(numpy.concatenate([found["id"][where(found["energy"])] for found in map(rows, epochs)]))


CASES = [
    ("energy > 2", lambda energy: energy > numpy.float32(2), EPOCHS),
    ("energy between 0.5 and 0.6", lambda energy: (energy >= numpy.float32(0.5)) & (energy <= numpy.float32(0.6)), EPOCHS),
    ("energy > 2 and epoch = 7", lambda energy: energy > numpy.float32(2), (7,)),
    ("energy > 1e30", lambda energy: energy > 1e30, EPOCHS),
]


@pytest.mark.parametrize(("where", "judge", "epochs"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("size", [0, 100_000, 1 << 40])
def test_pieces_return_every_row_once(dataset, where, judge, epochs, size):
    pieces = dataset.pieces(dataset.query(where, columns=["id"]), size)
    sent = [turbidite.Piece.from_json(piece.to_json()) for piece in pieces]
    ids = [piece.to_numpy()["id"] for piece in sent]
    assert (numpy.sort(numpy.concatenate([*ids, numpy.empty(0, "u8")])) == expected(judge, epochs)).all()
    assert sum(piece.count() for piece in sent) == len(expected(judge, epochs))
    assert all(len(found) <= piece.rows_most for found, piece in zip(ids, pieces, strict=True))
    if size == 1 << 40:
        assert len(pieces) <= len(EPOCHS)
    elif size:
        # A piece of several row groups keeps to the limit.
        assert len(pieces) > len(epochs) or not len(expected(judge, epochs))
        for piece in pieces:
            first, end = json.loads(json.loads(piece.to_json())["piece"])["row_groups"]
            assert piece.bytes_most <= size or end - first == 1


@pytest.mark.parametrize(("where", "judge", "epochs"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_shares_return_every_row_once(dataset, where, judge, epochs, count):
    query = dataset.query(where, columns=["id"])
    shares = [
        [turbidite.Piece.from_json(piece.to_json()) for piece in dataset.share(rank, count, query)] for rank in range(count)
    ]
    ids = [piece.to_numpy()["id"] for share in shares for piece in share]
    assert (numpy.sort(numpy.concatenate([*ids, numpy.empty(0, "u8")])) == expected(judge, epochs)).all()
    sizes = [sum(piece.rows_most for piece in share) for share in shares]
    assert max(sizes) - min(sizes) <= 1, sizes
    assert all(len({piece.epoch for piece in share}) == len(share) for share in shares)


def test_shares_that_do_not_exist_are_refused(dataset):
    for index, count in [(3, 3), (0, 0), (-1, 2), (0.5, 2)]:
        with pytest.raises(turbidite.UsageError, match="share: "):
            dataset.share(index, count)
    with pytest.raises(turbidite.UsageError, match="limit"):
        dataset.share(0, 2, dataset.query(limit=3))


def count(piece: turbidite.Piece) -> tuple[int, int]:
    return piece.epoch, len(piece.to_numpy()["id"])


def test_other_processes_execute_pieces(dataset):
    pieces = dataset.pieces("energy > 1", 200_000)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(count, pieces)
    for epoch in EPOCHS:
        assert sum(rows for label, rows in found if label == epoch) == (rows(epoch)["energy"] > 1).sum()


def test_an_ordered_piece_is_ordered(dataset):
    for piece in dataset.pieces(dataset.query("energy > 1", order="key"), 300_000):
        energy = piece.to_numpy()["energy"]
        assert (numpy.diff(energy) >= 0).all()


def test_a_piece_of_a_replaced_epoch_says_so(tmp_path):
    write(tmp_path / "run.tbd")
    dataset = turbidite.open(tmp_path / "run.tbd")
    pieces = dataset.pieces("energy > 1", 1 << 40)
    assert [piece.count() > 0 for piece in pieces] == [True, True]
    write(tmp_path / "run.tbd", [7], if_exists="replace")
    assert pieces[0].count() > 0
    for use in (pieces[1].count, pieces[1].to_numpy, lambda: list(pickle.loads(pickle.dumps(pieces[1])))):
        with pytest.raises(turbidite.OperationError, match="epoch 7 of .*run.tbd was replaced.*make the pieces anew"):
            use()
    assert dataset.pieces("energy > 1", 1 << 40)[1].count() > 0


def test_what_is_no_piece_is_refused(dataset, tmp_path):
    [piece, *_] = dataset.pieces("energy > 1", 1 << 40)
    stated = json.loads(piece.to_json())
    inner = json.loads(stated["piece"])
    for text in ("", "[]", "{}", '{"version": 1}', json.dumps({**stated, "more": 1}), json.dumps({**stated, "piece": None})):
        with pytest.raises(turbidite.UsageError, match="not a piece"):
            turbidite.Piece.from_json(text)
    with pytest.raises(turbidite.UsageError, match="version 2, but this release reads 1"):
        turbidite.Piece.from_json(json.dumps({**stated, "version": 2}))
    for wrong, words in (
        ({"version": 9}, "version 9"),
        ({"row_groups": [5, 1]}, "descending"),
        ({"commit": "x"}, "not a piece"),
    ):
        altered = turbidite.Piece.from_json(json.dumps({**stated, "piece": json.dumps({**inner, **wrong})}))
        with pytest.raises(turbidite.UsageError, match=words):
            altered.count()
    away = turbidite.Piece.from_json(json.dumps({**stated, "path": str(tmp_path / "not-here")}))
    with pytest.raises(turbidite.TurbiditeError, match="not-here"):
        away.count()
    with pytest.raises(turbidite.UsageError, match="limit"):
        dataset.pieces(dataset.query(limit=5))
    write(tmp_path / "other.tbd", [1])
    with pytest.raises(turbidite.UsageError, match="other.tbd"):
        dataset.pieces(turbidite.open(tmp_path / "other.tbd").query())


@pytest.mark.parametrize("epochs", [None, 7, [3, 7], []], ids=str)
def test_a_query_becomes_a_file(dataset, tmp_path, epochs):
    query = dataset.query("energy > 2 or energy < 0.01", epochs=epochs, columns=["energy", "id"], order="key", threads=1)
    told = query.write(tmp_path / "hot.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "hot.parquet")
    found = query.to_numpy()
    assert table.column_names == ["energy", "id"] and table.num_rows == len(found["id"]) == query.count()
    assert (table["energy"].to_numpy() == found["energy"]).all()
    assert isinstance(told, dict)
    with pytest.raises(turbidite.UsageError, match="parquet"):
        query.write(tmp_path / "hot.xyz")


def test_a_report_is_a_page(dataset, tmp_path):
    page = dataset.report(tmp_path / "report.html", epoch=7)
    assert "<svg" in open(page).read()
    with pytest.raises(turbidite.TurbiditeError, match="99"):
        dataset.report(tmp_path / "other.html", epoch=99)
