"""Ids of particles in structured arrays: fields are columns by their names, whatever their order."""

import numpy
import pytest
import turbidite

PAIRS = [("cpu", "<i4"), ("id", "<i4")]


@pytest.fixture
def paired(tmp_path) -> turbidite.Dataset:
    """Each particle has a twin whose cpu and id are exchanged."""
    path = tmp_path / "pairs.tbd"
    rows = {"cpu": [3, 5, 7, 9], "id": [5, 3, 9, 7], "x": [35, 53, 79, 97]}
    with turbidite.Writer(path, {"cpu": "int32", "id": "int32", "x": "f8"}, key="hash:cpu,id") as writer, writer.epoch(1):
        writer.append({name: numpy.array(values, "f8" if name == "x" else "i4") for name, values in rows.items()})
    return turbidite.open(path)


def found(tracks: turbidite.Tracks) -> list[tuple[int, int, float]]:
    rows = tracks.to_numpy()
    return sorted(zip(rows["cpu"].tolist(), rows["id"].tolist(), rows["x"].tolist(), strict=True))


@pytest.mark.parametrize(
    ("fields", "values"),
    [(["cpu", "id"], (3, 5)), (["id", "cpu"], (5, 3)), (["ID", "Cpu"], (5, 3))],
    ids=["order of the key", "other order", "other letters"],
)
def test_fields_are_columns_by_their_names(paired, fields, values):
    array = numpy.array([values], [(name, "i4") for name in fields])
    forms = [array, array.reshape(1, 1), array[0], array.view(numpy.recarray), array.astype([(name, "u8") for name in fields])]
    for ids in forms:
        for id in (None, "cpu,id", "id, cpu", "CPU,Id"):
            assert found(paired.get(ids, id=id)) == [(3, 5, 35.0)], (ids, id)
            assert found(paired.tracks(ids=ids, id=id)) == [(3, 5, 35.0)], (ids, id)


def test_many_ids_of_fields_are_those_of_tuples(paired):
    ids = numpy.array([(7, 9), (5, 3), (5, 4)], [("id", "i8"), ("cpu", "i2")])
    assert found(paired.get(ids)) == found(paired.get([(9, 7), (3, 5)])) == [(3, 5, 35.0), (9, 7, 97.0)]
    assert found(paired.get(ids[:0])) == []
    assert found(paired.get(numpy.array([(3, 5)]))) == [(3, 5, 35.0)], "an array without names has the order of the columns"


def test_the_ids_of_a_query_find_their_rows(paired):
    rows = paired.query("x < 40 or x > 90").to_numpy()
    ids = numpy.empty(len(rows["x"]), [("id", "i4"), ("cpu", "i4")])
    ids["id"], ids["cpu"] = rows["id"], rows["cpu"]
    assert found(paired.get(ids)) == [(3, 5, 35.0), (9, 7, 97.0)]


WRONG_FIELDS = {
    "another column": ([("cpu", "i4"), ("x", "i4")], None, "fields cpu, x, .* are cpu, id"),
    "an unknown name": ([("a", "i4"), ("b", "i4")], None, "fields a, b, .* are cpu, id"),
    "too few": ([("cpu", "i4")], None, "fields cpu, .* are cpu, id"),
    "too many": ([("cpu", "i4"), ("id", "i4"), ("x", "i4")], None, "fields cpu, id, x, .* are cpu, id"),
    "one column in two cases": ([("id", "i4"), ("ID", "i4")], None, "fields id, ID, .* are cpu, id"),
    "another single column": ([("cpu", "i4")], "id", "fields cpu, .* are id"),
    "two for one": ([("cpu", "i4"), ("id", "i4")], "id", "fields cpu, id, .* are id"),
    "several values": ([("cpu", "i4", 2), ("id", "i4")], None, "one value"),
    "floats": ([("cpu", "f4"), ("id", "i4")], None, "whole number"),
}


@pytest.mark.parametrize("name", WRONG_FIELDS)
def test_other_fields_are_refused(paired, name):
    dtype, id, words = WRONG_FIELDS[name]
    with pytest.raises(turbidite.UsageError, match=f"ids: .*{words}"):
        paired.get(numpy.zeros(2, dtype), id=id)


def test_a_single_column_has_a_single_field(paired):
    for name in ("id", "ID"):
        ids = numpy.array([(9,), (5,)], [(name, "i8")])
        assert found(paired.get(ids, id="id")) == [(3, 5, 35.0), (7, 9, 79.0)]
        assert found(paired.get(ids[0], id="id")) == [(7, 9, 79.0)]
    with pytest.raises(turbidite.UsageError, match="whole number"):
        paired.get(list(ids), id="id")


def test_names_with_commas_and_opaque_values(tmp_path):
    path = tmp_path / "commas.tbd"
    tags = numpy.array([b"ab\0", b"\0\0c"], "V3")
    schema = {"cpu,id": "int32", "cpu": "int32", "tag": "V3", "x": "f8"}
    rows = {"cpu,id": numpy.array([1, 2], "i4"), "cpu": numpy.array([2, 1], "i4"), "tag": tags, "x": numpy.array([0.5, 1.5])}
    with turbidite.Writer(path, schema, key="x") as writer, writer.epoch(1):
        writer.append(rows)
    dataset = turbidite.open(path)
    values = lambda ids, id: dataset.get(ids, id=id).to_numpy()["x"].tolist()  # noqa: E731
    assert values(numpy.array([(2,)], [("cpu,id", "i4")]), "cpu,id") == [1.5]
    assert values(numpy.array([(1,)], [("cpu", "i4")]), "cpu") == [1.5]
    for ids in (tags[1:], numpy.array([(tags[1],)], [("tag", "V3")]), tags[1]):
        assert values(ids, "tag") == [1.5]
    both = numpy.empty(1, [("tag", "V3"), ("cpu", "i4")])
    both["tag"], both["cpu"] = tags[0], 2
    assert values(both, "cpu,tag") == values((2, b"ab\0"), "cpu,tag") == [0.5]
    assert values(numpy.array([(2, tags[1])], [("cpu", "i4"), ("tag", "V3")]), "cpu,tag") == []
