"""Writing through the package: arrays of every kind, and whatever must not be stored."""

import os
import shutil
import threading
import warnings

import numpy
import pandas
import polars
import pyarrow
import pytest
import turbidite

from support.command import ROOT, answer
from support.command import turbidite as command
from support.vpic import DERIVATIONS

TYPES = {
    "key": "f4", "a": "int8", "b": "int16", "c": "int32", "d": "int64", "e": "uint8", "f": "uint16", "g": "uint32",
    "h": "uint64", "i": "f8", "j": "V5",
}  # fmt: skip


def rows_of(count: int, seed: int) -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(seed)
    made = {name: random.bytes(count * numpy.dtype(dtype).itemsize) for name, dtype in TYPES.items()}
    rows = {name: numpy.frombuffer(made[name], numpy.dtype(dtype)) for name, dtype in TYPES.items()}
    rows["h"] = numpy.arange(count, dtype="uint64") + (1 << 63)
    rows["key"] = random.standard_normal(count).astype("f4")
    return rows


def read(path, epoch: int) -> dict[str, numpy.ndarray]:
    found = turbidite.open(path).query(epochs=epoch).to_numpy()
    order = numpy.argsort(found["h"])
    return {name: found[name][order] for name in TYPES}


def same(found: dict[str, numpy.ndarray], expected: dict[str, numpy.ndarray]) -> bool:
    return all(found[name].tobytes() == expected[name].tobytes() for name in TYPES)


def test_every_type_comes_back(tmp_path):
    rows = rows_of(20_000, 1)
    path = tmp_path / "all.tbd"
    with turbidite.Writer(path, TYPES, key="key", ranks=3, units={"key": "MeV"}) as writer:
        for epoch in (1, 2):
            with writer.epoch(epoch):
                for rank in range(3):
                    part = {name: array[rank::3] for name, array in rows.items()}
                    assert writer.append(part, rank=rank) == len(part["h"])
            assert writer.last["rows"] == 20_000
    assert same(read(path, 1), rows) and same(read(path, 2), rows)
    assert turbidite.open(path).schema.columns[0] == turbidite.Column("key", "f32", "MeV")
    assert answer("verify", path)["findings"] == []


def test_columns_are_indexed_while_rows_are_written(tmp_path):
    path = tmp_path / "indexed.tbd"
    random = numpy.random.default_rng(4)
    rows = {"key": random.random(30_000, "f4"), "id": random.permutation(30_000).astype("u8")}
    with turbidite.Writer(path, {"key": "f4", "id": "uint64"}, key="key", ranks=2, indexes=["hash:id"]) as writer:
        for epoch in (1, 2):
            with writer.epoch(epoch):
                for rank in range(2):
                    writer.append({name: array[rank::2] for name, array in rows.items()}, rank=rank)
    dataset = turbidite.open(path)
    (index,) = dataset.indexes
    assert (index.name, index.entries, index.missing) == ("id", 60_000, ())
    for use in ("id", "scan"):
        found = dataset.query("id IN (5, 17)", epochs=2, use=use).to_numpy()
        assert sorted(found["id"]) == [5, 17]
        assert numpy.array_equal(numpy.sort(found["key"]), numpy.sort(rows["key"][numpy.isin(rows["id"], [5, 17])])), use
    with pytest.raises(turbidite.UsageError, match="'nothing'"):
        turbidite.Writer(tmp_path / "none.tbd", {"key": "f4"}, key="key", indexes="nothing")


def test_structured_strided_and_backward_arrays_need_no_conversion(tmp_path):
    rows = rows_of(999, 2)
    structured = numpy.empty(999, [(name, dtype) for name, dtype in TYPES.items()])
    for name in TYPES:
        structured[name] = rows[name]
    path = tmp_path / "forms.tbd"
    simple = {name: dtype for name, dtype in TYPES.items() if name in ("key", "h")}
    with turbidite.Writer(path, TYPES, key="key") as writer:
        with writer.epoch(1):
            writer.append(structured)
        with writer.epoch(2):
            writer.append(structured[::-1])
        with writer.epoch(3):
            writer.append({name: array[:0] for name, array in rows.items()})
            writer.append({name: numpy.repeat(array, 2)[::2] for name, array in rows.items()})
    for epoch in (1, 2, 3):
        assert same(read(path, epoch), rows), epoch
    frame = tmp_path / "frame.tbd"
    with turbidite.Writer(frame, simple, key="key") as writer, writer.epoch(1):
        writer.append(pandas.DataFrame({name: rows[name] for name in simple}))
        writer.append(polars.DataFrame({name: rows[name] for name in simple}))
        writer.append(pyarrow.table({name: rows[name] for name in simple}))
        writer.append({"key": numpy.broadcast_to(numpy.float32(1), 5), "h": numpy.arange(5, dtype="u8")})
    assert turbidite.open(frame).query().count() == 3 * 999 + 5


WRONG_ROWS = {
    "another type": ({"key": numpy.zeros(3), "id": numpy.zeros(3, "u8")}, "float64"),
    "big-endian": ({"key": numpy.zeros(3, ">f4"), "id": numpy.zeros(3, "u8")}, "'<f4'"),
    "objects": ({"key": numpy.array([1, None, 2]), "id": numpy.zeros(3, "u8")}, "object"),
    "masked": ({"key": numpy.ma.masked_array(numpy.zeros(3, "f4"), [0, 1, 0]), "id": numpy.zeros(3, "u8")}, "masked"),
    "no dimension": ({"key": numpy.float32(1), "id": numpy.uint64(1)}, "one dimension"),
    "two dimensions": ({"key": numpy.zeros((3, 1), "f4"), "id": numpy.zeros(3, "u8")}, "one dimension"),
    "lengths": ({"key": numpy.zeros(3, "f4"), "id": numpy.zeros(4, "u8")}, "differ in length"),
    "a missing column": ({"key": numpy.zeros(3, "f4")}, "'id' is missing"),
    "a surplus column": ({"key": numpy.zeros(3, "f4"), "id": numpy.zeros(3, "u8"), "select": numpy.zeros(3)}, "'select'"),
    "a list": ([1, 2, 3], "dict of arrays"),
    "a bare array": (numpy.zeros(3, "f4"), "named fields"),
    "missing values of pandas": ({"key": pandas.array([1, None, 3], "Float32"), "id": numpy.zeros(3, "u8")}, "'key', row 1: missing values"),
    "missing values of Arrow": ({"key": pyarrow.array([1, None, 3], "float32"), "id": numpy.zeros(3, "u8")}, "'key', row 1: missing values"),
    "missing values of Polars": ({"key": polars.Series([1, 2, None], dtype=polars.Float32), "id": numpy.zeros(3, "u8")}, "row 2: missing"),
    "references": ({"key": numpy.zeros(3, "f4"), "id": numpy.array([(1,), (2,), (3,)], [("o", object)])}, "objects"),
    "names that are no text": (pandas.DataFrame({1: [1.0]}), "data frame"),
    "a lazy frame": (polars.LazyFrame({"key": [1.0], "id": [1]}), r"\.collect\(\)"),
    "python numbers": ({"key": [1.0, 2.0], "id": [1, 2]}, "float64"),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_rows_that_do_not_fit_are_refused_and_abort_the_epoch(tmp_path, name):
    rows, word = WRONG_ROWS[name]
    path = tmp_path / "wrong.tbd"
    fine = {"key": numpy.ones(10, "f4"), "id": numpy.arange(10, dtype="u8")}
    with turbidite.Writer(path, {"key": "f4", "id": "uint64"}, key="key") as writer:
        with pytest.raises(turbidite.UsageError, match=word), writer.epoch(1):
            writer.append(fine)
            writer.append(rows)
        with writer.epoch(2):
            writer.append(fine)
    assert turbidite.open(path).epochs == [2], "the epoch with the error is not stored"
    assert answer("salvage", path)["unfinished"] == []


WRONG_SCHEMAS = {
    "u8": ({"key": "u8"}, "8 bytes in NumPy"),
    "no key": ({"other": "f4"}, "key"),
    "dates": ({"key": "datetime64[s]"}, "datetime64"),
    "big-endian": ({"key": ">f4"}, "cannot be stored"),
    "complex": ({"key": "c16"}, "complex"),
    "nothing": ({"key": None}, "type is missing"),
    "text": ({"key": "f4", "name": "S5"}, "cannot be stored"),
    "no type at all": ({"key": "nonsense"}, "column 'key'"),
    "references": ({"key": "f4", "o": numpy.dtype([("o", object)])}, "cannot be stored"),
    "an opaque key": ({"key": "V8"}, "fixed_bytes"),
    "a name that is no text": ({1: "f4"}, "schema: the name of a column is needed, not 1"),
    "several values": ({"key": "f4", "q": ("f4", 3)}, r"column 'q': .* shape \(3,\); state a column of float32 for each component"),
    "a text of several values": ({"key": "f4", "q": "3f4"}, "column 'q': .* for each component"),
    "a matrix": ({"key": "f4", "q": numpy.dtype(("i2", (2, 3)))}, r"column 'q': .* shape \(2, 3\); state a column of int16"),
    "a field of several values": (numpy.dtype([("key", "f4"), ("q", "f8", 2)]), "column 'q': .* a column of float64"),
    "a big-endian field": (numpy.dtype([("key", ">f4")]), "cannot be stored"),
    "a plain dtype": (numpy.dtype("f4"), "schema: a dict .* a structured dtype .* not Float32DType"),
    "a type alone": ("f4", "schema: a dict .* not str"),
    "rows": (numpy.zeros(2, [("key", "f4")]), "schema: a dict .* not ndarray"),
    "a number": (5, "schema: a dict .* not int"),
}


@pytest.mark.parametrize("name", WRONG_SCHEMAS)
def test_schemas_that_cannot_be_stored_are_refused(tmp_path, name):
    schema, word = WRONG_SCHEMAS[name]
    with pytest.raises(turbidite.UsageError, match=word):
        turbidite.Writer(tmp_path / "new.tbd", schema, key="key")
    assert not (tmp_path / "new.tbd").exists()


def test_the_dtype_of_structured_arrays_is_a_schema(tmp_path):
    rows = rows_of(500, 3)
    structured = numpy.empty(500, numpy.dtype([(name, dtype) for name, dtype in TYPES.items()], align=True))
    for name in TYPES:
        structured[name] = rows[name]
    with turbidite.Writer(tmp_path / "fields.tbd", structured.dtype, key="key") as writer, writer.epoch(1):
        assert writer.append(structured) == 500
    with turbidite.Writer(tmp_path / "names.tbd", TYPES, key="key") as writer:
        pass
    assert turbidite.open(tmp_path / "fields.tbd").schema == turbidite.open(tmp_path / "names.tbd").schema
    assert same(read(tmp_path / "fields.tbd", 1), rows)


WRONG_ARGUMENTS = {
    "key": ({"key": 1}, "key: a text such as 'energy' is needed, not 1"),
    "if_exists": ({"if_exists": None}, "if_exists: a text such as 'error' is needed, not None"),
    "ranks": ({"ranks": "2"}, "ranks: a whole number is needed, not '2'"),
    "too many ranks": ({"ranks": 2**32}, "ranks: 4294967296 needs more than 32 bits"),
    "units": ({"units": {"x": 1}}, "units: a unit by column is needed"),
    "derive": ({"derive": 1}, "derive: give a list of texts"),
    "indexes": ({"indexes": ["x", 1]}, r"indexes: give a list of texts, .* not \['x', 1\]"),
}


@pytest.mark.parametrize("name", WRONG_ARGUMENTS)
def test_arguments_of_writers_are_checked(tmp_path, name):
    stated, words = WRONG_ARGUMENTS[name]
    with pytest.raises(turbidite.UsageError, match=words):
        turbidite.Writer(tmp_path / "new.tbd", {"x": "f4"}, **{"key": "x", **stated})
    assert not (tmp_path / "new.tbd").exists()


def test_appends_outside_a_block_name_it(tmp_path):
    path = tmp_path / "blocks.tbd"
    rows = {"x": numpy.ones(10, "f4")}
    with turbidite.Writer(path, {"x": "f4"}, key="x", if_exists="skip") as writer:
        writer.epoch(0)
        with pytest.raises(turbidite.UsageError, match=r"outside an epoch: append in a block, 'with writer\.epoch\(0\) as begun:'"):
            writer.append(rows)
        with writer.epoch(1):
            writer.append(rows)
        with pytest.raises(turbidite.UsageError, match="if begun is True"), writer.epoch(1):
            writer.append(rows)
        with writer.epoch(2):
            writer.append(rows)
    assert turbidite.open(path).epochs == [1, 2] and turbidite.open(path).query().count() == 20


def test_errors_within_an_epoch_abort_it(tmp_path):
    path = tmp_path / "aborted.tbd"
    rows = {"key": numpy.ones(1000, "f4")}
    with pytest.raises(ZeroDivisionError), turbidite.Writer(path, {"key": "f4"}, key="key") as writer:
        with writer.epoch(5):
            writer.append(rows)
        with writer.epoch(6):
            writer.append(rows)
            raise ZeroDivisionError
    assert turbidite.open(path).epochs == [5]
    with turbidite.Writer(path, {"key": "f4"}, key="key", if_exists="skip") as writer, writer.epoch(5) as begun:
        assert not begun
    with pytest.raises(turbidite.OperationError, match="epoch 5 already exists"):
        with turbidite.Writer(path, {"key": "f4"}, key="key") as writer, writer.epoch(5):
            pass
    with pytest.raises(turbidite.UsageError, match="closed"):
        writer.append(rows)
    with pytest.raises(turbidite.UsageError, match="rank 1"):
        with turbidite.Writer(path, {"key": "f4"}, key="key") as writer, writer.epoch(7):
            writer.append(rows, rank=1)


def test_ingest_stores_what_the_command_stores(tmp_path):
    source = ROOT / "testdata" / "vpic"
    report = turbidite.ingest(source, tmp_path / "ours.tbd", key="energy", derive=DERIVATIONS, ranks=4)
    derive = [argument for text in DERIVATIONS for argument in ("--derive", text)]
    command("ingest", source, "--out", tmp_path / "theirs.tbd", "--key", "energy", *derive, "--ranks", 4)
    ours, theirs = [turbidite.open(tmp_path / name) for name in ("ours.tbd", "theirs.tbd")]
    assert report["rows"] == ours.query().count() == theirs.query().count() > 0
    both = [dataset.query(order="key").to_numpy() for dataset in (ours, theirs)]
    assert (numpy.sort(both[0]["id"]) == numpy.sort(both[1]["id"])).all()
    with pytest.raises(turbidite.UsageError, match="speed"):
        turbidite.ingest(source, tmp_path / "more.tbd", key="speed")
    with pytest.raises(turbidite.OperationError, match="already exists"):
        turbidite.ingest(source, tmp_path / "ours.tbd", key="energy", derive=DERIVATIONS)
    shutil.rmtree(tmp_path / "ours.tbd")


@pytest.mark.parametrize(
    ("epochs", "found"),
    [
        (3, [3]),
        (slice(2, 3), [2, 3]),
        (slice(None, 2), [1, 2]),
        (slice(3, None), [3, 4]),
        (slice(None), [1, 2, 3, 4]),
        (slice(1, 4, 2), [1, 3]),
        ([4, 2], [2, 4]),
        ("1..4..3,last", [1, 4]),
        (-2, [3]),
    ],
)
def test_ingest_takes_epochs_as_queries_do(tmp_path, epochs, found):
    for epoch in (1, 2, 3, 4):
        numpy.savez(tmp_path / f"rows_{epoch}.npz", x=numpy.arange(5.0))
    turbidite.ingest(tmp_path / "rows_%T.npz", tmp_path / "run.tbd", key="x", epochs=epochs)
    assert turbidite.open(tmp_path / "run.tbd").epochs == found


def test_ingest_refuses_epochs_that_it_has_not(tmp_path):
    numpy.savez(tmp_path / "rows_1.npz", x=numpy.arange(5.0))
    for epochs, words in (("1-2", "1-2"), (slice(1, 9, 0), "1..9..0"), ([1, 2], "no epoch 1,2"), (-2, "no epoch -2"), (1.0, "1.0")):
        with pytest.raises(turbidite.UsageError, match=words):
            turbidite.ingest(tmp_path / "rows_%T.npz", tmp_path / "run.tbd", key="x", epochs=epochs)


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [ValueError("\udcff"), Unprintable(), KeyboardInterrupt()])
def test_any_exception_aborts_and_is_the_one_that_is_raised(tmp_path, error):
    path = tmp_path / "any.tbd"
    with turbidite.Writer(path, {"key": "f4"}, key="key") as writer:
        with pytest.raises(type(error)) as raised, writer.epoch(1):
            writer.append({"key": numpy.ones(100, "f4")})
            raise error
        assert raised.value is error and not getattr(error, "__notes__", [])
        with writer.epoch(2):
            writer.append({"key": numpy.ones(100, "f4")})
    assert turbidite.open(path).epochs == [2]


def test_an_epoch_waits_for_the_appends_of_other_threads(tmp_path):
    path = tmp_path / "threads.tbd"
    rows = {"key": numpy.random.default_rng(1).random(1_000_000, "f4")}
    appended = []
    with turbidite.Writer(path, {"key": "f4"}, key="key", ranks=2) as writer:
        with writer.epoch(1):
            began = threading.Event()

            def append() -> None:
                began.set()
                try:
                    appended.append(writer.append(rows, rank=1))
                except turbidite.UsageError:
                    appended.append(0)

            thread = threading.Thread(target=append)
            thread.start()
            began.wait()
        thread.join()
    assert turbidite.open(path).query().count() == appended[0], "all rows of an append, or none"


def test_a_fork_leaves_its_parents_epoch_alone(tmp_path):
    path = tmp_path / "fork.tbd"
    rows = {"key": numpy.ones(1000, "f4")}
    with turbidite.Writer(path, {"key": "f4"}, key="key") as writer, writer.epoch(1):
        writer.append(rows)
        child = os.fork()
        if child == 0:
            try:
                writer.append(rows)
            except turbidite.UsageError as error:
                os._exit(0 if "forked" in str(error) and not del_writer(writer) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        writer.append(rows)
    assert turbidite.open(path).query().count() == 2000


def del_writer(writer: turbidite.Writer) -> bool:
    """Drops the writer's core as the end of an interpreter does; returns False."""
    writer._core = None
    return False


def test_units_must_have_their_columns(tmp_path):
    with pytest.raises(turbidite.UsageError, match="energi"):
        turbidite.Writer(tmp_path / "units.tbd", {"key": "f4"}, key="key", units={"energi": "MeV"})


def test_frames_hold_bytes_and_may_be_changed(tmp_path):
    path = tmp_path / "bytes.tbd"
    payload = numpy.array([b"ab", b"cd", b"ef"], "V2")
    with turbidite.Writer(path, {"key": "f4", "payload": "V2"}, key="key") as writer, writer.epoch(1):
        writer.append({"key": numpy.arange(3, dtype="f4"), "payload": payload})
    frame = turbidite.open(path).query(order="key").to_pandas()
    assert frame["payload"].tolist() == [b"ab", b"cd", b"ef"] and "ab" in str(frame)
    frame.loc[0, "key"] = 7
    assert frame["key"].tolist() == [7, 1, 2]


@pytest.mark.parametrize("given", [{"key": "-ux"}, {"derive": ["-e = ux"]}, {"ranks": -1}, {"columns": "ux,uy"}])
def test_arguments_of_ingest_are_never_options(tmp_path, given):
    with pytest.raises(turbidite.UsageError):
        turbidite.ingest(ROOT / "testdata" / "vpic", tmp_path / "no.tbd", **{"key": "ux", **given})
    with pytest.raises(turbidite.TurbiditeError, match="-nothing"):
        turbidite.ingest("-nothing", tmp_path / "no.tbd", key="ux")


SQUARE = {"column": "square", "overflows": 100_001, "underflows": 1}


def test_derived_values_out_of_range_are_counted_and_warned_of_once(tmp_path):
    """Several steps of an append are counted together, and each epoch for itself."""
    values = numpy.full(100_003, 1e20, "f4")
    values[[70, 99_999]] = 1, 1e-30
    path = tmp_path / "a.tbd"
    with turbidite.Writer(path, {"x": "f4"}, key="x", derive=["square = x*x"], ranks=2) as writer:
        with pytest.warns(RuntimeWarning, match="column 'square': 100001 values too large .* 1 value too small .*square:f64") as warned:
            with writer.epoch(1):
                writer.append({"x": values}, rank=1)
        assert len(warned) == 1 and warned[0].filename == __file__
        assert writer.last["out_of_range"] == [SQUARE]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with writer.epoch(2):
                writer.append({"x": values})
                writer.append(pyarrow.table({"x": values}), rank=1)
            assert writer.last["out_of_range"] == [SQUARE | {"overflows": 200_002, "underflows": 2}]
            with writer.epoch(3):
                writer.append({"x": values[70:71]})
            assert "out_of_range" not in writer.last
    found = turbidite.open(path).query(epochs=1, columns=["square"]).to_numpy()["square"]
    assert numpy.isinf(found).sum() == 100_001 and (found == 0).sum() == 1


def test_ingest_warns_of_values_out_of_range_unless_they_are_in_si_units(tmp_path):
    """Momenta in kg m/s are in f32's range, and their squares are not."""
    momenta = numpy.linspace(1e-23, 2e-23, 1000).astype("f4")
    numpy.savez(tmp_path / "run_1.npz", p=momenta)
    source, derive = str(tmp_path / "run_%T.npz"), ["square = p*p"]
    with pytest.warns(RuntimeWarning, match="column 'square': 1000 values too small .*derive it as 'square:f64=") as warned:
        report = turbidite.ingest(source, tmp_path / "a.tbd", key="p", derive=derive)
    assert len(warned) == 1 and warned[0].filename == __file__
    assert report["out_of_range"] == [{"column": "square", "overflows": 0, "underflows": 1000}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = turbidite.ingest(source, tmp_path / "si.tbd", key="p", derive=derive, si=True)
    assert report["out_of_range"] == []
    found = turbidite.open(tmp_path / "si.tbd").query(order="key").to_numpy()
    assert found["square"].dtype == "f8" and (found["square"] == found["p"].astype("f8") ** 2).all()
