"""Writing from Arrow's streams and objects, and derived columns of a Writer."""

import ctypes
import re
import signal
import subprocess
import sys

import duckdb
import numpy
import pandas
import polars
import pyarrow
import pytest
import turbidite

from support.command import AMPLE_S, ROOT, answer
from support.command import turbidite as command
from support.vpic import DERIVATIONS, read_dumps

SCHEMA = {"ux": "f4", "id": "uint64", "kind": "int16", "tag": "V3"}
ROWS = 150_000


def rows(seed: int = 1, count: int = ROWS) -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(seed)
    return {
        "ux": random.standard_normal(count).astype("f4"),
        "id": numpy.arange(count, dtype="u8") + (1 << 63),
        "kind": random.integers(-9, 9, count).astype("i2"),
        "tag": numpy.frombuffer(random.bytes(3 * count), "V3"),
    }


def table(found: dict[str, numpy.ndarray]) -> pyarrow.Table:
    tag = pyarrow.array(found["tag"].tolist(), pyarrow.binary(3))
    return pyarrow.table({name: tag if name == "tag" else pyarrow.array(found[name]) for name in ("kind", "tag", "id", "ux")})


def batches(whole: pyarrow.Table, size: int = 7_001):
    return pyarrow.RecordBatchReader.from_batches(whole.schema, iter(whole.to_batches(max_chunksize=size)))


def cut(whole: pyarrow.Table) -> pyarrow.Table:
    """The same rows as slices, whose memory does not begin with them."""
    return pyarrow.concat_tables([whole.slice(0, 5), whole.slice(5, 10_001), whole.slice(10_006)])


class Stream:
    """Has Arrow's stream, and nothing else."""

    def __init__(self, whole: pyarrow.Table):
        self.whole = whole

    def __arrow_c_stream__(self, requested_schema=None):
        return batches(self.whole).__arrow_c_stream__(requested_schema)


FORMS = {
    "table": lambda whole: whole,
    "slices": cut,
    "reader": batches,
    "batch": lambda whole: whole.combine_chunks().to_batches()[0].slice(0),
    "stream alone": Stream,
    "empty batches": lambda whole: pyarrow.concat_tables([whole.slice(0, 0), whole, whole.slice(ROWS)]),
}


@pytest.mark.parametrize("form", FORMS)
def test_arrow_rows_come_back(tmp_path, form):
    given = rows()
    with turbidite.Writer(tmp_path / "a.tbd", SCHEMA, key="ux") as writer, writer.epoch(1):
        assert writer.append(FORMS[form](table(given))) == ROWS
    found = turbidite.open(tmp_path / "a.tbd").query().to_numpy()
    order = numpy.argsort(found["id"])
    assert all(found[name][order].tobytes() == given[name].tobytes() for name in SCHEMA)
    assert answer("verify", tmp_path / "a.tbd")["findings"] == []


def test_frames_and_relations_of_other_packages(tmp_path):
    given = {name: values for name, values in rows().items() if name != "tag"}
    schema = {name: values.dtype for name, values in given.items()}
    relation = duckdb.from_arrow(pyarrow.table(given))
    with turbidite.Writer(tmp_path / "a.tbd", schema, key="ux") as writer, writer.epoch(1):
        frame = polars.DataFrame(given)
        appended = [writer.append(one) for one in (pandas.DataFrame(given), frame, polars.concat([frame[:9], frame[9:]]), relation)]
    assert appended == [ROWS] * 4
    other = turbidite.open(tmp_path / "a.tbd").query("kind > 3", columns=list(schema))
    with turbidite.Writer(tmp_path / "b.tbd", schema, key="ux") as writer, writer.epoch(1):
        count = writer.append(other)
        for batch in other:
            writer.append(batch)
    assert count == other.count() == 4 * (given["kind"] > 3).sum()
    assert turbidite.open(tmp_path / "b.tbd").query().count() == 2 * count


@pytest.mark.serial
def test_a_stream_is_never_in_memory_at_once(tmp_path):
    """480 MB of rows, with a derived column, through a process that takes less."""
    program = """
import re
import numpy, pyarrow, turbidite
batch = pyarrow.record_batch({"x": numpy.random.default_rng(1).random(500_000, "f4"), "y": numpy.arange(500_000, dtype="f4")})
batches = (batch for _ in range(80))
with turbidite.Writer("a.tbd", batch.schema, key="x", derive=["z:f32 = x * y"]) as writer, writer.epoch(1):
    rows = writer.append(pyarrow.RecordBatchReader.from_batches(batch.schema, batches))
# Unlike getrusage(), this knows nothing of the process that has started this one.
print(rows, re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=AMPLE_S)
    assert done.returncode == 0, done.stderr
    rows, resident_kib = map(int, done.stdout.split())
    assert rows == 40_000_000 and resident_kib * 1024 < 300e6, f"{resident_kib} KiB"


def test_derived_columns_are_those_of_ingest(tmp_path):
    """The particle dumps, appended as arrays and as a stream, give the rows of the command."""
    source = ROOT / "testdata" / "vpic"
    derivations = [text for text in DERIVATIONS if "header." not in text]
    derive = [argument for text in derivations for argument in ("--derive", text)]
    command("ingest", source, "--out", tmp_path / "theirs.tbd", "--key", "energy", *derive)
    names = ["dx", "dy", "dz", "i", "ux", "uy", "uz", "w"]
    theirs = turbidite.open(tmp_path / "theirs.tbd")
    stored = {label: theirs.query(epochs=label, columns=names).to_numpy() for label in theirs.epochs}
    units = {column.name: column.unit for column in theirs.schema.columns if column.name in names and column.unit}
    schema = pyarrow.schema([(name, pyarrow.from_numpy_dtype(values.dtype)) for name, values in next(iter(stored.values())).items()])
    with turbidite.Writer(tmp_path / "ours.tbd", schema, key="energy", derive=derivations, units=units) as writer:
        for label, found in stored.items():
            half = len(found["w"]) // 2
            with writer.epoch(label):
                writer.append({name: values[:half] for name, values in found.items()})
                writer.append(batches(pyarrow.table({name: values[half:] for name, values in found.items()}), 999))
    ours = turbidite.open(tmp_path / "ours.tbd")
    assert ours.schema == theirs.schema and ours.epochs == theirs.epochs
    for label, epoch in read_dumps(source).items():
        found = ours.query(epochs=label, columns=["id", "energy"]).to_numpy()
        order, expected = numpy.argsort(found["id"]), numpy.argsort(epoch["id"])
        assert (found["id"][order] == epoch["id"][expected]).all()
        assert found["energy"][order].tobytes() == epoch["energy"][expected].tobytes()
    stated = answer("inspect", tmp_path / "ours.tbd")["derivations"]
    assert stated == answer("inspect", tmp_path / "theirs.tbd")["derivations"] == derivations


@pytest.mark.parametrize("derive", ["e:f32 = 2*x", ["e:f32 = 2*x"]])
def test_derived_columns_have_units(tmp_path, derive):
    with turbidite.Writer(tmp_path / "a.tbd", {"x": "f4"}, key="e", derive=derive, units={"e": "MeV", "x": "m"}) as writer:
        with writer.epoch(1):
            writer.append({"x": numpy.ones(3, "f4")})
        with pytest.raises(turbidite.UsageError, match="units: there is no column y"):
            turbidite.Writer(tmp_path / "b.tbd", {"x": "f4"}, key="x", derive=derive, units={"y": "m"})
    units = {column.name: column.unit for column in turbidite.open(tmp_path / "a.tbd").schema.columns}
    assert units == {"x": "m", "e": "MeV"}


def test_long_arrays_are_derived_in_order(tmp_path):
    x = numpy.random.default_rng(3).standard_normal(200_001).astype("f4")
    derive = ["y:f64 = x * 2", "n:i8 = floor(abs(y))"]
    with turbidite.Writer(tmp_path / "a.tbd", {"x": "f4"}, key="y", derive=derive) as writer, writer.epoch(1):
        assert writer.append({"x": x[::-1]}) == len(x)
    found = turbidite.open(tmp_path / "a.tbd").query(order="key").to_numpy()
    expected = numpy.sort(x.astype("f8") * 2)
    assert (found["y"] == expected).all() and (found["n"] == numpy.floor(numpy.abs(expected))).all()


WRONG = {
    "another type": (lambda t: t.set_column(3, "ux", t["ux"].cast("float64")), "column 'ux': Arrow's Float64 is given, but .* f32"),
    "text": (lambda t: t.set_column(0, "kind", pyarrow.array(["a"] * len(t))), "column 'kind': Arrow's Utf8"),
    "a missing column": (lambda t: t.drop_columns("id"), "'id' is missing"),
    "a surplus column": (lambda t: t.append_column("extra", t["ux"]), "no column 'extra'"),
    "a repeated column": (lambda t: t.append_column("ux", t["ux"]), "'ux' occurs twice"),
    "missing values": (
        lambda t: pyarrow.concat_tables([t, t.slice(0, 1).set_column(2, "id", pyarrow.array([None], "uint64"))]),
        "column 'id', row 1000: missing values",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_streams_that_do_not_fit_abort_the_epoch(tmp_path, name):
    change, words = WRONG[name]
    with turbidite.Writer(tmp_path / "a.tbd", SCHEMA, key="ux") as writer:
        with pytest.raises(turbidite.UsageError, match=words), writer.epoch(1):
            writer.append(change(table(rows(count=1000))))
        with writer.epoch(2):
            writer.append(table(rows(count=1000)))
    assert turbidite.open(tmp_path / "a.tbd").epochs == [2]


def test_a_stream_that_fails_aborts_the_epoch(tmp_path):
    whole = table(rows(count=1000))

    def failing():
        yield from whole.to_batches()
        raise ValueError("the detector has gone")

    with turbidite.Writer(tmp_path / "a.tbd", whole.schema, key="ux") as writer:
        with pytest.raises(turbidite.OperationError, match="the detector has gone"), writer.epoch(1):
            writer.append(pyarrow.RecordBatchReader.from_batches(whole.schema, failing()))
        with writer.epoch(2):
            assert writer.append(batches(whole)) == 1000
    assert turbidite.open(tmp_path / "a.tbd").epochs == [2]


@pytest.mark.parametrize("error", [KeyboardInterrupt, KeyboardInterrupt("enough")], ids=["bare", "with a text"])
def test_an_interrupt_in_a_producer_stays_one(tmp_path, error):
    whole = table(rows(count=1000))

    def interrupted():
        yield from whole.to_batches()
        if error is KeyboardInterrupt:
            signal.raise_signal(signal.SIGINT)
        raise error

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with turbidite.Writer(tmp_path / "a.tbd", whole.schema, key="ux") as writer:
            with pytest.raises(KeyboardInterrupt), writer.epoch(1):
                writer.append(pyarrow.RecordBatchReader.from_batches(whole.schema, interrupted()))
    finally:
        signal.signal(signal.SIGINT, before)
    assert turbidite.open(tmp_path / "a.tbd").epochs == []


def test_an_error_that_mentions_an_interrupt_is_none(tmp_path):
    def failing():
        raise ValueError("no KeyboardInterrupt: KeyboardInterrupt was not raised")
        yield

    schema = pyarrow.schema([("x", "f8")])
    with turbidite.Writer(tmp_path / "a.tbd", schema, key="x") as writer:
        with pytest.raises(turbidite.OperationError, match="was not raised"), writer.epoch(1):
            writer.append(pyarrow.RecordBatchReader.from_batches(schema, failing()))


class Array:
    """An Arrow array without columns."""

    def __arrow_c_array__(self, requested_schema=None):
        return pyarrow.array([1.0, 2.0]).__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("given", [Array(), polars.Series("x", [1.0, 2.0]), pyarrow.chunked_array([[1.0], [2.0]])], ids=type)
def test_arrays_without_columns_are_refused(tmp_path, given):
    with turbidite.Writer(tmp_path / "a.tbd", {"x": "f8"}, key="x") as writer:
        with pytest.raises(turbidite.UsageError, match="named columns"), writer.epoch(1):
            writer.append(given)


@pytest.mark.parametrize("form", [lambda rows: rows, lambda rows: pyarrow.chunked_array([rows[:3], rows[3:]])], ids=["array", "stream"])
def test_missing_rows_are_refused(tmp_path, form):
    """A row that is missing as a whole hides values, which are those of the memory."""
    x = pyarrow.array(numpy.arange(5.0))
    hidden = pyarrow.StructArray.from_arrays([x], names=["x"], mask=pyarrow.array([False] * 4 + [True]))
    shown = pyarrow.StructArray.from_arrays([x], names=["x"])
    with turbidite.Writer(tmp_path / "a.tbd", {"x": "f8"}, key="x") as writer:
        with pytest.raises(turbidite.UsageError, match="row 4: missing rows"), writer.epoch(1):
            writer.append(form(hidden))
        with writer.epoch(2):
            assert writer.append(form(shown[1:])) == 4
    assert turbidite.open(tmp_path / "a.tbd").query(order="key").to_numpy()["x"].tolist() == [1, 2, 3, 4]


class Silent:
    """Arrow's stream of a producer that fails without a text, of the functions of the C stream interface."""

    def __init__(self, fails_at: str):
        call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        text, release = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p), ctypes.CFUNCTYPE(None, ctypes.c_void_p)

        def get_schema(stream: int, out: int) -> int:
            if fails_at == "schema":
                return 5
            pyarrow.schema([("x", "f8")])._export_to_c(out)
            return 0

        def mark_released(stream: int) -> None:
            ctypes.c_void_p.from_address(stream + 3 * ctypes.sizeof(ctypes.c_void_p)).value = None

        self.functions = [call(get_schema), call(lambda stream, out: 5), text(lambda stream: None), release(mark_released)]
        self.stream = (ctypes.c_void_p * 5)(*(ctypes.cast(one, ctypes.c_void_p) for one in self.functions), None)

    def __arrow_c_stream__(self, requested_schema=None):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.stream), b"arrow_array_stream", None)


@pytest.mark.parametrize("fails_at", ["schema", "batch"])
def test_a_producer_need_not_have_a_reason(tmp_path, fails_at):
    with turbidite.Writer(tmp_path / "a.tbd", {"x": "f8"}, key="x") as writer:
        with pytest.raises(turbidite.OperationError, match="gives no reason"), writer.epoch(1):
            writer.append(Silent(fails_at))


def test_a_stream_that_was_read_is_refused(tmp_path):
    empty = pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("x", "f8")]), iter([]))
    capsule = empty.__arrow_c_stream__()
    once = type("Once", (), {"__arrow_c_stream__": lambda self, requested_schema=None: capsule})()
    pyarrow.RecordBatchReader.from_stream(once)
    with turbidite.Writer(tmp_path / "a.tbd", {"x": "f8"}, key="x") as writer:
        with pytest.raises(turbidite.OperationError, match="read already"), writer.epoch(1):
            writer.append(once)


@pytest.mark.parametrize(
    ("derive", "words"),
    [
        ("e", "derive: .*not a derivation"),
        (["x = x"], "'x'"),
        (["e = speed"], "derive: .*no column 'speed'"),
        (["e"], "derive: .*not a derivation"),
        (["e = header.dx"], "constant 'header.dx'"),
    ],
)
def test_derivations_that_are_none_are_refused(tmp_path, derive, words):
    with pytest.raises(turbidite.UsageError, match=words):
        turbidite.Writer(tmp_path / "a.tbd", {"x": "f4"}, key="x", derive=derive)
    assert not (tmp_path / "a.tbd").exists()


def test_derived_values_that_do_not_fit_name_their_row(tmp_path):
    x = numpy.zeros(100_000, "f4")
    x[70_123] = 1000
    with turbidite.Writer(tmp_path / "a.tbd", {"x": "f4"}, key="x", derive=["n:u8 = x"]) as writer:
        for rows in ({"x": x}, batches(pyarrow.table({"x": x}))):
            with pytest.raises(turbidite.UsageError, match=re.escape("'n', row 70123: 1000.0 does not fit u8")), writer.epoch(1):
                writer.append(rows)
    with pytest.raises(turbidite.OperationError, match="derivations"):
        turbidite.Writer(tmp_path / "a.tbd", {"x": "f4"}, key="x", derive=["n:u8 = x + 0"])


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (pyarrow.schema([("x", "float32"), ("name", "string")]), "column 'name': Arrow's Utf8 cannot be stored"),
        (pyarrow.schema([("x", "float32"), ("x", "float64")]), "same name"),
        (pyarrow.schema([("x", "float32"), ("b", "bool")]), "column 'b': Arrow's Boolean"),
    ],
)
def test_arrow_schemas_that_cannot_be_stored_are_refused(tmp_path, schema, words):
    with pytest.raises(turbidite.UsageError, match=words):
        turbidite.Writer(tmp_path / "a.tbd", schema, key="x")
