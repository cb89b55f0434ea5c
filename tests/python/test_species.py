"""Several datasets as one: against pandas.concat of their rows, with a column for the species."""

import pickle
from pathlib import Path

import numpy
import pandas
import polars
import pyarrow
import pytest
import turbidite
from hypothesis import given
from hypothesis import strategies as st
from support.sweeps import generated

Rows = dict[str, numpy.ndarray]
Datasets = dict[str, tuple[Path, pandas.DataFrame]]
"""The path of each species, and its rows."""

COLUMNS = {
    "e": {"energy": "f4", "x": "f8", "id": "uint64", "w": "f4"},
    "i": {"x": "f4", "energy": "f4", "id": "uint64", "charge": "int32"},
    "none": {"id": "uint64", "energy": "f4", "x": "f4"},
}
KEYS = {"e": "energy", "i": "hash:id", "none": "energy"}
EPOCHS = {"e": (100, 200, 300), "i": (200, 300, 500), "none": ()}
COMMON = ["energy", "x", "id", "epoch", "species"]


def drawn(random: numpy.random.Generator, columns: dict[str, str], count: int) -> Rows:
    """Random rows: few values of energy, some of them NaN, and ids that floats do not hold."""
    rows = {
        "energy": random.integers(0, 40, count) / 4,
        "x": random.normal(size=count),
        "id": 2**63 + random.permutation(count).astype("u8"),
        "w": random.random(count),
        "charge": random.integers(-2, 3, count),
    }
    rows["energy"][::17] = numpy.nan
    return {name: rows[name].astype(kind) for name, kind in columns.items()}


def write(path: Path, columns: dict[str, str], key: str, epochs: dict[int, Rows]) -> Path:
    with turbidite.Writer(path, columns, key=key) as writer:
        for epoch, rows in epochs.items():
            with writer.epoch(epoch):
                writer.append(rows)
    return path


@pytest.fixture(scope="module")
def written(scratch) -> Datasets:
    random = numpy.random.default_rng(53)
    found = {}
    for name, columns in COLUMNS.items():
        epochs = {epoch: drawn(random, columns, 700) for epoch in EPOCHS[name]}
        path = write(scratch / f"{name}.tbd", columns, KEYS[name], epochs)
        frames = [pandas.DataFrame(rows).assign(epoch=epoch) for epoch, rows in epochs.items()]
        empty = [pandas.DataFrame(drawn(random, columns, 0)).assign(epoch=0)]
        found[name] = (path, pandas.concat(frames or empty).assign(species=name))
    return found


@pytest.fixture(scope="module")
def species(written) -> turbidite.Species:
    return turbidite.open({name: path for name, (path, _) in written.items()})


def expected(written: Datasets, names: list[str]) -> pandas.DataFrame:
    return pandas.concat([rows for name, (_, rows) in written.items() if name in names], ignore_index=True)


def rows_of(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The common columns, in an order that no engine chooses: an id is in each epoch of a species once."""
    by = ["species", "epoch", "id"]
    plain = frame[COMMON].astype({"species": str, "epoch": "i8", "energy": "f8", "x": "f8"})
    return plain.sort_values(by, ignore_index=True)


SELECTIONS = [
    (None, (100, 200, 300, 500)),
    (200, (200,)),
    ([500, 100], (100, 500)),
    (range(200, 400, 100), (200, 300)),
    (slice(0, 400), (100, 200, 300)),
    (slice(200, None), (200, 300, 500)),
    (-1, (500,)),
    ("last,100", (100, 500)),
    ("-3..-2", (200, 300)),
    ("100..last..200", (100, 300, 500)),
    ([-9 + 8, 200], (200, 500)),
    ("-9..last..200", (100, 300, 500)),
    ("600..700", ()),
]


@generated(examples=60, parts=10)
@given(
    names=st.sets(st.sampled_from(list(COLUMNS)), min_size=1),
    selected=st.sampled_from(SELECTIONS),
    low=st.sampled_from([None, 0.0, 5.0, 20.0]),
    order=st.sampled_from([None, "energy", "x desc", "energy desc, id % 7", ["id % 7 DESC", "abs(x) asc"]]),
    per_epoch=st.booleans(),
    limit=st.sampled_from([None, 0, 1, 300, 10**6]),
    use=st.sampled_from([None, "scan"]),
)
def test_queries_are_those_of_the_concatenated_rows(
    written, species, names, selected, low, order, per_epoch, limit, use
):  # fmt: skip
    epochs, labels = selected
    if epochs is not None:
        has = {epoch for name in names for epoch in EPOCHS[name]}
        # Labels that no species has are errors, and the last epoch is that of the selected species.
        epochs, labels = (epochs, labels) if has == {100, 200, 300, 500} else (slice(200, 300), has & {200, 300})
    frame = expected(written, list(names))
    frame = frame[frame["epoch"].isin(labels)]
    where = None if low is None else f"energy >= {low}"
    frame = frame if low is None else frame[frame["energy"] >= low]
    query = species.query(where, species=sorted(names), epochs=epochs, order=order, per_epoch=per_epoch, limit=limit, use=use)
    assert query.count() == min(len(frame), len(frame) if limit is None else limit)
    found = query.to_pandas()
    assert list(found["species"].cat.categories) == list(COLUMNS)
    if limit is None or limit >= len(frame):
        pandas.testing.assert_frame_equal(rows_of(found), rows_of(frame))
    if order is None:
        whole = list(dict.fromkeys(found["species"]))
        assert whole == [name for name in COLUMNS if name in whole] and found["species"].cat.codes.is_monotonic_increasing
        return
    columns = order if isinstance(order, list) else order.split(", ")
    descends = [column.lower().endswith(" desc") for column in columns]
    keys, same = by_columns(frame, columns, per_epoch), by_columns(found, columns, per_epoch)
    keys = keys.sort_values(list(keys), ascending=[True] * per_epoch + [not one for one in descends])[:limit]
    numpy.testing.assert_array_equal(same.to_numpy(), keys.to_numpy())


def by_columns(frame: pandas.DataFrame, columns: list[str], per_epoch: bool) -> pandas.DataFrame:
    """The values that order rows."""
    values = {"energy": frame["energy"], "x": frame["x"], "id % 7": frame["id"] % 7, "abs(x)": frame["x"].abs()}
    names = [column.split(" desc")[0].removesuffix(" DESC").removesuffix(" asc") for column in columns]
    stated = {"epoch": frame["epoch"]} if per_epoch else {}
    return pandas.DataFrame({**stated, **{name: values[name] for name in names}}).astype("f8")


@pytest.mark.parametrize(("epochs", "labels"), SELECTIONS)
def test_epochs_are_those_that_any_species_has(species, epochs, labels):
    for order in (None, "x"):
        found = species.query(epochs=epochs, columns=["species", "epoch"], order=order).to_pandas().drop_duplicates()
        pairs = [(name, label) for name in COLUMNS for label in labels if label in EPOCHS[name]]
        assert sorted(found.itertuples(index=False, name=None)) == sorted(pairs)


def test_every_form_has_the_same_rows(written, species):
    query = species.query("energy < 3", columns=["species", "id", "twice = 2 * energy", "epoch"], epochs=slice(200, 300))
    arrays = query.to_numpy()
    assert list(arrays) == ["species", "id", "twice", "epoch"] and arrays["id"].dtype == "u8"
    frame = expected(written, ["e", "i"])
    frame = frame[(frame["energy"] < 3) & frame["epoch"].isin([200, 300])]
    key = ["species", "epoch", "id"]
    assert sorted(zip(*(arrays[name].tolist() for name in key), strict=True)) == sorted(
        frame[key].itertuples(index=False, name=None)
    )
    table = query.to_arrow()
    assert pyarrow.types.is_dictionary(table.schema.field("species").type) and not table.schema.field("id").nullable
    assert query.to_pandas()["species"].dtype == pandas.CategoricalDtype(list(COLUMNS))
    assert query.to_polars()["species"].dtype == polars.Categorical
    for form in (table, query.to_pandas(), query.to_polars(), pyarrow.table(query), polars.DataFrame(query)):
        for name, array in arrays.items():
            assert numpy.array_equal(numpy.asarray(form[name]), array), (type(form), name)
    batches = list(query)
    assert sum(map(len, batches)) == len(table) and [len(set(batch["species"])) for batch in batches] == [1] * len(batches)
    assert pyarrow.record_batch(batches[0]).schema == table.schema and batches[0].column_names == list(arrays)
    assert query.head(2)["id"].tolist() == arrays["id"][:2].tolist()
    assert set(query.plan()) == set(COLUMNS) and query.plan()["i"]["filter"] == "energy < 3.0"
    with pytest.raises(TypeError, match=r"count\(\) > 0"):
        bool(query)


def test_columns_of_no_rows_and_of_the_species_alone(species):
    none = species.query("energy < -1")
    assert none.to_numpy()["id"].dtype == "u8" and list(none.to_pandas()) == COMMON and list(none) == []
    assert none.to_arrow().schema == species.query().to_arrow().schema == pyarrow.table(none).schema
    alone = species.query(columns=["species"], epochs=300)
    assert alone.to_pandas()["species"].value_counts().to_dict() == {"e": 700, "i": 700, "none": 0}
    assert alone.to_arrow().num_rows == 1400 and species.query(columns=[], epochs=300).to_pandas().shape == (1400, 0)
    assert pyarrow.table(species.query(columns=[], epochs=300)).num_rows == 1400


def test_species_know_what_they_have_in_common(written, species):
    assert (list(species), len(species), species.epochs) == (list(COLUMNS), 3, [100, 200, 300, 500])
    found = {column.name: column.type for column in species.schema.columns}
    assert found == {"energy": "f32", "x": "f64/f32", "id": "u64"} and species.schema.key == ""
    assert turbidite.open({"e": written["e"][0], "n": written["none"][0]}).schema.key == "energy"
    assert species["i"].path == str(written["i"][0]) and species["i"].query().count() == 2100
    many = turbidite.open({f"s{number}": written["e"][0] for number in range(30)})
    text = repr(species)
    assert len(text.splitlines()) == 4 and "key hash:id; also charge" in text and "4 epochs; energy f32, x f64/f32" in text
    assert ">charge<" in species._repr_html_() and "…" in many._repr_html_()
    assert len(repr(many).splitlines()) == 14 and repr(many.query()).startswith("<SpeciesQuery of s0, s1, s2, s3, s4, s5, …, s24, ")
    query = species.query("x > 0", species="i", limit=7)
    assert repr(query) == "<SpeciesQuery of i: {'where': 'x > 0', 'limit': 7}>"
    for one, again in ((species.query(), pickle.loads(pickle.dumps(species)).query()), (query, pickle.loads(pickle.dumps(query)))):
        pandas.testing.assert_frame_equal(one.to_pandas(), again.to_pandas())


def test_another_name_for_the_column_of_the_species(tmp_path, written):
    columns = {"x": "f4", "species": "int32"}
    rows = {"x": numpy.zeros(3, "f4"), "species": numpy.arange(3, dtype="i4")}
    path = write(tmp_path / "s.tbd", columns, "x", {1: rows})
    with pytest.raises(turbidite.UsageError, match=r"^species_column: species 's' \(/.*s.tbd\) has a column 'species'; .*='kind'"):
        turbidite.open({"e": written["e"][0], "s": path})
    for wrong in ("Species", "epoch", "X"):
        with pytest.raises(turbidite.UsageError, match=f"has a column '{wrong}'"):
            turbidite.open({"s": path}, species_column=wrong)
    opened = turbidite.open({"s": path}, species_column="kind")
    assert pickle.loads(pickle.dumps(opened)).species_column == "kind"
    frame = opened.query().to_pandas()
    assert frame["species"].tolist() == [0, 1, 2] and frame["kind"].tolist() == ["s"] * 3


def test_keys_order_species_that_share_them(tmp_path, written, species):
    with pytest.raises(turbidite.UsageError, match="^order: the key of species 'e' is energy, that of species 'i' id; state"):
        species.query(order="key").to_numpy()
    random = numpy.random.default_rng(7)
    columns = {"tag": "V3", "cpu": "int32", "x": "f8"}
    paths, rows = {}, []
    for name in ("b", "a"):
        drawn_rows = {
            "tag": random.integers(0, 256, (200, 3), "u1").view("V3").ravel(),
            "cpu": random.integers(-5, 5, 200, "i4"),
            "x": random.normal(size=200),
        }
        paths[name] = write(tmp_path / f"{name}.tbd", columns, "hash:cpu,tag", {1: drawn_rows, 2: drawn_rows})
        keys = [(cpu, tag.tobytes()) for cpu, tag in zip(drawn_rows["cpu"].tolist(), drawn_rows["tag"], strict=True)]
        rows += [(epoch, *key, name) for epoch in (1, 2) for key in keys]
    query = turbidite.open(paths).query(columns=["tag", "species"], order="key", limit=500)
    frame = query.to_pandas()
    ordered = sorted(rows, key=lambda row: row[:3])[:500]
    assert frame["tag"].tolist() == [row[2] for row in ordered] and frame["species"].tolist() == [row[3] for row in ordered]
    assert query.to_arrow()["tag"].to_pylist() == frame["tag"].tolist() and list(frame) == ["tag", "species"]


def test_types_are_promoted_where_they_stay_exact(tmp_path):
    kinds = {"a": "f4", "b": "int16", "c": "uint64", "d": "int64", "e": "V2", "f": "V3", "g": "int32"}
    paths = {}
    for name, kind in kinds.items():
        value = numpy.zeros(2, kind) if kind[0] == "V" else numpy.arange(2).astype(kind)
        rows = {"k": numpy.zeros(2, "f4"), "v": value}
        paths[name] = write(tmp_path / f"{name}.tbd", {"k": "f4", "v": kind}, "k", {1: rows})
    several = turbidite.open(paths)
    for names, joint in (("ab", "f4"), ("ag", "f8"), ("bd", "i8"), ("bg", "i4"), ("c", "u8"), ("ee", "V2")):
        found = several.query(species=list(names), columns=["v"]).to_numpy()["v"]
        assert found.dtype == joint, names
        assert joint == "V2" or found.tolist() == [0, 1] * len(names)
    for names in ("cd", "ac", "ad", "ef", "be"):
        with pytest.raises(turbidite.UsageError, match=f"^columns: 'v' is .* in '{names[0]}', .* in '{names[1]}', and no type"):
            several.query(species=list(names)).to_numpy()
    assert several.query(columns=["k", "species"]).count() == 14


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"columns": ["id", "w"]}, turbidite.UsageError, r"^species 'i' \(/.*i.tbd\): there is no column 'w'; the columns are x"),
        ({"where": "charge > 0"}, turbidite.UsageError, r"^species 'e' \(/.*e.tbd\): .*no column 'charge'"),
        ({"where": "species = 1"}, turbidite.UsageError, "no column 'species'; .*; select species by `species`, such as species='e'"),
        ({"order": "species"}, turbidite.UsageError, "^species 'e' .*no column 'species'.*; select species"),
        ({"columns": ["species", "id", "species"]}, turbidite.UsageError, "^columns: 'species' is listed twice"),
        ({"columns": ["SPECIES", "Species"]}, turbidite.UsageError, "^columns: 'species' is listed twice"),
        ({"columns": ["Species = 2 * id"]}, turbidite.UsageError, "^columns: 'species' is the column of the species; name"),
        ({"species": "x"}, turbidite.UsageError, "^species: there is no 'x'; the species are e, i, none"),
        ({"species": []}, turbidite.UsageError, "^species: name at least one; the species are e"),
        ({"species": 3}, turbidite.UsageError, "^species: give a list of species, not 3"),
        ({"epochs": [100, 400]}, turbidite.OperationError, "^epochs: epoch 400 exists in none of the species e, i, none; a slice"),
        ({"epochs": range(100, 401, 100)}, turbidite.OperationError, "^epochs: epoch 400 exists in none"),
        ({"epochs": "100,400"}, turbidite.OperationError, "^epochs: epoch 400 exists in none"),
        ({"epochs": 500, "species": "e"}, turbidite.OperationError, "^epochs: epoch 500 exists in none of the species e; a slice"),
        ({"epochs": -5}, turbidite.UsageError, "^epochs: '-5' is before the first of 4 epochs"),
        ({"epochs": "last", "species": "none"}, turbidite.UsageError, "^epochs: 'last' is before the first of 0 epochs"),
        ({"use": "id"}, turbidite.TurbiditeError, r"^species 'e' \(/.*id"),
    ],
)  # fmt: skip
def test_errors_name_the_species_and_its_file(species, arguments, error, message):
    with pytest.raises(error, match=message):
        species.query(**arguments).to_numpy()


def test_species_are_refused_by_their_argument(tmp_path, written, species):
    for wrong in ({}, {"": written["e"][0]}, {1: written["e"][0]}):
        with pytest.raises(turbidite.UsageError, match="^path: give the path of each species by its name"):
            turbidite.open(wrong)
    with pytest.raises(turbidite.TurbiditeError, match="missing.tbd"):
        turbidite.open({"e": written["e"][0], "i": tmp_path / "missing.tbd"})
    with pytest.raises(KeyError, match="x"):
        species["x"]
    with pytest.raises(AttributeError, match=r"no attribute 'tracks' together; use that of a species, such as \['e'\].tracks"):
        species.tracks(ids=[1], id="id")
    with pytest.raises(AttributeError, match="no attribute 'traks' together$"):
        species.traks()


def test_aggregates_by_species(written, species):
    texts = {"n": "count()", "s": "sum(x)", "first": "min(id)", "m": "mean(energy)"}
    found = species.aggregate(texts, by=["epoch", "species"], where="energy < 5", epochs=slice(200, 500))
    frame = expected(written, ["e", "i"])
    frame = frame[(frame["energy"] < 5) & (frame["epoch"] >= 200)].astype({"energy": "f8", "x": "f8"})
    groups = frame.groupby(["species", "epoch"])
    table = found.to_pandas()
    assert list(table) == ["species", "epoch", "n", "s", "first", "m"] and found.rows == len(frame)
    assert list(zip(table["species"], table["epoch"], strict=True)) == list(groups.groups)
    assert table["n"].tolist() == groups.size().tolist() and table["first"].tolist() == groups["id"].min().tolist()
    numpy.testing.assert_allclose(table["s"], groups["x"].sum(), rtol=1e-12, atol=1e-11)
    numpy.testing.assert_allclose(table["m"], groups["energy"].mean(), rtol=1e-12)
    assert found["species"].tolist() == table["species"].tolist() and len(found) == 5
    assert pyarrow.table(found).equals(found.to_arrow()) and "5 groups of" in repr(found) and "i" in repr(found)
    whole = species.aggregate({"n": "count()", "least": "min(id)"}, by="species")
    assert whole["n"].tolist() == [2100, 2100, 0] and whole["least"].mask.tolist() == [False, False, True]
    assert whole.to_pandas()["least"].isna().tolist() == [False, False, True] == whole.to_polars()["least"].is_null().to_list()
    for text in ("mean(x)", "std(x)", "quantile(x, 0.5)", "error(count())", "n_eff(x)", "cov(x, x)", "var(x)"):
        with pytest.raises(turbidite.UsageError, match="^aggregates: 'a', .*, does not follow from those .*by='species'"):
            species.aggregate({"n": "count()", "a": text}, by="epoch")
    for named, by in (({"species": "count()"}, "epoch"), ({"n": "count()"}, ["Species", "species = id % 2"])):
        with pytest.raises(turbidite.UsageError, match="^aggregates: 'species' is the column of the species; name"):
            species.aggregate(named, by=by)
    with pytest.raises(turbidite.UsageError, match=r"^species 'i' \(/.*i.tbd\): .*no column 'w'"):
        species.aggregate({"s": "sum(w)"}, by="species")


def test_aggregates_of_all_species(written, species):
    texts = {"n": "count()", "s": " SUM (x)", "bad": "nan(energy)", "low": "min(energy)", "high": "max(id)", "t": "sum(id - 2**63)"}
    frame = expected(written, ["e", "i"]).astype({"energy": "f8", "x": "f8"})
    frame["q"], frame["bin"] = frame["id"] % 3, numpy.floor(frame["x"])
    frame["t"] = (frame["id"] - numpy.uint64(2**63)).astype("i8")
    frame = frame[frame["x"].abs() < 1]
    by = ["id % 3", "epoch", "b = bins(x, -1, 1, 2)"]
    found = species.aggregate(texts, by, where="abs(x) < 1").to_pandas()
    groups = frame.groupby(["q", "epoch", "bin"])
    keys = found[["id % 3", "epoch", "b_from"]].itertuples(index=False, name=None)
    assert list(keys) == list(groups.groups) and list(found)[2:5] == ["b_from", "b_to", "n"]
    assert found["n"].tolist() == groups.size().tolist() and found["t"].tolist() == groups["t"].sum().tolist()
    assert found["bad"].tolist() == groups["energy"].apply(lambda values: values.isna().sum()).tolist()
    assert found["low"].tolist() == groups["energy"].min().tolist() and found["high"].tolist() == groups["id"].max().tolist()
    numpy.testing.assert_allclose(found["s"], groups["x"].sum(), rtol=1e-12, atol=1e-12)
    whole = species.aggregate({"n": "count()", "low": "min(id)"}, where="x > 100")
    assert whole["n"].tolist() == [0] and whole["low"].mask.tolist() == [True] and len(whole) == 1 and whole.rows == 0
    part = species.aggregate({"n": "count()", "low": "min(id)", "high": "max(id)"}, by="epoch", where="id < 2**63 + 5")
    assert part["low"].tolist() == [2**63] * 4 and part["high"].tolist() == [2**63 + 4] * 4
    assert part["n"].tolist() == [5, 10, 10, 5] and part["epoch"].tolist() == [100, 200, 300, 500]
    # Of the three species, one has no rows.
    all_rows = species.aggregate({"low": "min(id)", "high": "max(id)"})
    assert (all_rows["low"].tolist(), all_rows["high"].tolist()) == ([2**63], [2**63 + 699])
    assert not numpy.ma.isMaskedArray(all_rows["low"])
    half = species.aggregate({"low": "min(id)", "high": "max(id)"}, by="epoch", where="x > 0 and energy < -5")
    assert half["low"].mask.all() and half["high"].mask.all()
    with pytest.raises(turbidite.OperationError, match="^aggregates: 't' of all species does not fit into uint64; ask for each"):
        species.aggregate({"t": "sum(id)"}, where="id < 2**63 + 1", epochs=[200])


def test_histograms_by_species(written, species):
    found = species.histogram("energy", bins=5, range=(0, 10), epochs=slice(200, 300), species=["i", "e"])
    assert list(found) == ["e", "i"]
    for name, histogram in found.items():
        rows = written[name][1]
        values = rows["energy"][rows["epoch"].isin([200, 300])]
        counts, _ = numpy.histogram(values.dropna(), 5, (0, 10))
        assert histogram.rows == len(values) == 1400
        assert (histogram.least <= counts).all() and (counts <= histogram.most).all()


def test_streams_end_at_the_limit_and_tell_their_progress(written):
    calls = []
    opened = turbidite.open({"e": written["e"][0], "i": written["i"][0]}, progress=lambda done, total: calls.append((done, total)))
    assert opened.query(limit=10, columns=["species"]).to_numpy()["species"].tolist() == ["e"] * 10
    calls.clear()
    opened.query("x > 0").to_numpy()
    assert sum(done == total for done, total in calls) == 2
    calls.clear()
    pyarrow.table(opened.query("x > 0"))
    assert calls == []
