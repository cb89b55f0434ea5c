"""Sources that cannot be read: an error that names the file and what to do, never a crash or other rows."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys

import h5py
import numpy
import openpmd_api
import pyarrow
import pyarrow.feather
import pytest
import turbidite

from support.command import AMPLE_S, ROOT
from support.source_files import replace_record, structure, write_lammps, write_openpmd
from support.source_reader import Reader, Refused, refusal

SCALAR = openpmd_api.Record_Component.SCALAR


def rows_of(count: int, **more) -> dict[str, numpy.ndarray]:
    return {"weighting": numpy.arange(count, dtype="f4"), "id": numpy.arange(count, dtype="u8")} | more


def cut(path, share: float = 0.5) -> None:
    os.truncate(path, int(os.path.getsize(path) * share))


def check(error: Refused, kind: str, path, *words: str) -> None:
    assert (error.kind, error.path) == (kind, str(path)), (error.kind, str(error))
    for word in words:
        assert word in error.message, error.message
    assert str(path) not in error.message and "\n" not in error.message and "Traceback" not in error.message


# ---- protocol


def test_requests_that_are_none_are_refused(tmp_path):
    numpy.savez(tmp_path / "p.npz", x=numpy.arange(10_000))
    with Reader() as reader:
        for request in (
            {},
            {"open": 3},
            {"close": {}},
            {"read": {"epoch": 1}},
            {"open": {"version": 2, "path": "x", "colour": 1}},
        ):
            with pytest.raises(Refused) as caught:
                reader.ask(request)
            assert caught.value.kind == "usage"
        with pytest.raises(Refused, match="different releases"):
            reader.ask({"open": {"version": 3, "path": "x"}})
        with pytest.raises(Refused, match="not one of an open source"):
            reader.ask({"read": {"epoch": 1, "rank": 0, "first": 0, "rows": 1}})
        reader.open(tmp_path / "p.npz", epoch=1)
        for epoch, first, rows in ((2, 0, 1), (1, 5, 10), (1, 0, 9999), (1, -1, 1), (1, 10_000, 1)):
            with pytest.raises(Refused) as caught:
                reader.ask({"read": {"epoch": epoch, "rank": 0, "first": first, "rows": rows}})
            assert caught.value.kind == "usage"
        assert reader.epoch(1)["x"].tolist() == list(range(10_000))
        with pytest.raises(Refused, match="index"):
            reader.open(tmp_path / "p.npz", epoch=1, index={"found": 2})


def test_a_command_that_is_gone_ends_the_reader(tmp_path):
    numpy.savez(tmp_path / "p.npz", x=numpy.arange(1_000_000))
    stated = {"version": 2, "path": str(tmp_path / "p.npz"), "epoch": 1}
    requests = [{"open": stated}, {"read": {"epoch": 1, "rank": 0, "first": 0, "rows": 524_288}}]
    process = subprocess.Popen([sys.executable, "-m", "turbidite.sources"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write("".join(json.dumps(request) + "\n" for request in requests).encode())
    process.stdin.flush()
    for _ in ("the greeting", "the inventory"):
        process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=AMPLE_S) == 1
    process.stdin.close()


def test_what_libraries_print_is_no_answer(tmp_path):
    (tmp_path / "h5py.py").write_text("import os\nos.write(1, b'{}' + bytes([10]))\nraise ImportError('h5py')\n")
    with h5py.File(tmp_path / "p_1.h5", "w") as file:
        file["x"] = numpy.arange(3)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ['PYTHONPATH']}"}
    with Reader(quiet=False, env=environment) as reader:
        with pytest.raises(Refused, match=r"pip install 'turbidite\[hdf5\]'"):
            reader.open(tmp_path / "p_1.h5")


# ---- series of files


def test_names_that_do_not_match(tmp_path):
    for label in (100, 200):
        numpy.savez(tmp_path / f"electrons_{label}.npz", x=numpy.arange(3))
    (tmp_path / "empty").mkdir()
    (tmp_path / "a1b2.npz").write_bytes((tmp_path / "electrons_100.npz").read_bytes())
    near = "electrons_100.npz, electrons_200.npz"
    for name in ("electron_%T.npz", "electrons_%06T.npz", "electrons_300.npz", "electrons_{epoch}.np"):
        check(refusal(tmp_path / name), "usage", tmp_path / name, near)
    check(refusal(tmp_path / "no" / "where_%T.h5"), "usage", tmp_path / "no" / "where_%T.h5")
    check(refusal(tmp_path / "empty"), "usage", tmp_path / "empty", ".npz", ".h5")
    check(refusal(tmp_path / "electrons_100.npz"), "usage", tmp_path / "electrons_100.npz", "--epoch", "{epoch}")
    check(refusal(tmp_path / "a*b*.npz"), "usage", tmp_path / "a1b2.npz", "1, 2", "{epoch}")
    check(refusal(tmp_path / "e*_%T.npz", epoch=3), "usage", tmp_path / "electrons_100.npz", "--epoch", "2 files")
    error = refusal(tmp_path / "electrons_100.npz", format="netCDF")
    assert error.kind == "usage" and "openPMD, HDF5, LAMMPS, npz, Arrow" in error.message


def test_two_files_of_one_epoch(tmp_path):
    for name in ("a_1.npz", "a_01.npz"):
        numpy.savez(tmp_path / name, x=numpy.arange(3))
    check(refusal(tmp_path / "a_*.npz"), "failed", tmp_path / "a_01.npz", str(tmp_path / "a_1.npz"), "epoch 1")
    for name in ("x_1.h5", "y_1.h5"):
        write_openpmd(tmp_path / name, {1: rows_of(3)})
    check(refusal(tmp_path, format="openpmd"), "failed", tmp_path / "x_1.h5", str(tmp_path / "y_1.h5"), "epoch 1", "{rank}", "last")
    for name in ("x.dump", "y.dump"):
        write_lammps(tmp_path / name, {7: rows_of(3)})
    check(refusal(tmp_path, format="lammps"), "failed", tmp_path / "x.dump", str(tmp_path / "y.dump"), "epoch 7", "{rank}", "last")
    text = (tmp_path / "x.dump").read_text()
    (tmp_path / "x.dump").write_text(text + text)
    check(refusal(tmp_path / "x.dump"), "failed", tmp_path / "x.dump", "epoch 7 twice")


def test_files_of_no_format(tmp_path):
    for name, content in (("empty", b""), ("text", b"some words"), ("noise", bytes(range(256)))):
        (tmp_path / name).write_bytes(content)
        check(refusal(tmp_path / name), "usage", tmp_path / name, "openPMD, HDF5, LAMMPS, npz, Arrow", "--format")
    for kind, word in (
        ("openPMD", "h5py"),
        ("HDF5", "h5py"),
        ("LAMMPS", "ITEM: TIMESTEP"),
        ("npz", "NumPy"),
        ("Arrow", "Arrow"),
    ):
        error = refusal(tmp_path / "noise", format=kind, epoch=None if kind in ("openPMD", "LAMMPS") else 1)
        assert error.kind in ("failed", "corrupt") and error.path == str(tmp_path / "noise"), str(error)
        assert word.lower() in error.message.lower(), str(error)


@pytest.mark.parametrize(
    "name", ["p_1.h5", "q_1.h5", "p_1.npz", "c_1.npz", "p_1.arrow", "p_1.arrows", "p_1.dump", "p_1.dump.gz"]
)
def test_truncated_files(tmp_path, name):
    """Wherever a file is cut, there is an error, or the rows before it is noticed are right."""
    path = tmp_path / name
    values = numpy.random.default_rng(1).random(20_000)
    if name == "p_1.h5":
        write_openpmd(path, {1: {"weighting": values}})
    elif name == "q_1.h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=values, chunks=(1000,), compression="gzip")
    elif name.endswith("npz"):
        (numpy.savez if name[0] == "p" else numpy.savez_compressed)(path, x=values)
    elif "arrow" in name:
        new = pyarrow.ipc.new_file if name.endswith("arrow") else pyarrow.ipc.new_stream
        with new(path, pyarrow.schema([("x", pyarrow.float64())])) as writer:
            writer.write_table(pyarrow.table({"x": values}), max_chunksize=1000)
    else:
        write_lammps(tmp_path / "p_1.dump", {1: {"x": values}})
        if name.endswith("gz"):
            path.write_bytes(gzip.compress((tmp_path / "p_1.dump").read_bytes()))
    whole = path.read_bytes()
    for share in (0.02, 0.5, 0.999):
        path.write_bytes(whole[: int(len(whole) * share)])
        error = refusal(tmp_path / name.replace("1", "%T"))
        assert error.kind in ("failed", "corrupt") and error.path == str(path), str(error)
        assert len(error.message) < 600 and "Traceback" not in error.message, error.message


def test_a_file_that_changes_after_it_was_opened(tmp_path):
    def h5(path, count):
        with h5py.File(path, "w") as file:
            file["x"] = numpy.arange(count, dtype="f8")

    makers = {
        "p_1.npz": lambda path, count: numpy.savez(path, x=numpy.arange(count)),
        "p_1.h5": h5,
        "p_1.dump": lambda path, count: write_lammps(path, {1: rows_of(count)}),
        "p_1.feather": lambda path, count: pyarrow.feather.write_feather(pyarrow.table({"x": numpy.arange(count)}), path),
    }
    for name, make in makers.items():
        path = tmp_path / name
        make(path, 1000)
        with Reader() as reader:
            reader.open(tmp_path / name.replace("1", "%T"))
            path.unlink()
            make(path, 500)
            with pytest.raises(Refused) as caught:
                reader.epoch(1)
            assert caught.value.path == str(path) and caught.value.kind in ("failed", "corrupt")
            path.unlink()
            with pytest.raises(Refused) as caught, Reader() as other:
                other.open(path, index=reader.inventory["index"])
                other.inventory = reader.inventory
                other.epoch(1)
            assert caught.value.path == str(path)


# ---- columns


def test_columns_that_change_between_epochs(tmp_path):
    write_openpmd(tmp_path / "s.h5", {1: rows_of(3), 2: rows_of(3, charge=numpy.zeros(3))})
    check(
        refusal(tmp_path / "s.h5"),
        "failed",
        tmp_path / "s.h5",
        "epoch 2",
        "epoch 1",
        "'charge' added",
        "--columns id,weighting",
    )
    with Reader() as reader:
        assert len(reader.open(tmp_path / "s.h5", columns=["id", "weighting"])["epochs"]) == 2
    write_openpmd(tmp_path / "t.h5", {1: rows_of(3), 2: rows_of(3) | {"weighting": numpy.zeros(3)}})
    check(refusal(tmp_path / "t.h5"), "failed", tmp_path / "t.h5", "'weighting' is f64, before f32", "--columns id")
    write_lammps(tmp_path / "d", {1: rows_of(3), 2: {"id": numpy.arange(3)}})
    check(refusal(tmp_path / "d"), "failed", tmp_path / "d", "without 'weighting'")
    numpy.savez(tmp_path / "n_1.npz", x=numpy.arange(3))
    numpy.savez(tmp_path / "n_2.npz", x=numpy.arange(3.0))
    check(refusal(tmp_path / "n_%T.npz"), "failed", tmp_path / "n_2.npz", "'x' is f64, before i64")


def test_columns_and_species_that_do_not_exist(tmp_path):
    write_openpmd(tmp_path / "s.h5", {1: rows_of(3)})
    write_openpmd(tmp_path / "t.h5", {1: rows_of(3)}, species="ions")
    numpy.savez(tmp_path / "n_1.npz", **rows_of(3))
    write_lammps(tmp_path / "d", {1: rows_of(3)})
    for name, more in (("s.h5", {}), ("n_%T.npz", {}), ("d", {})):
        path = tmp_path / name.replace("%T", "1")
        error = refusal(tmp_path / name, columns=["id", "speed"], **more)
        check(error, "usage", path, "no column 'speed'", "id", "weighting")
        check(refusal(tmp_path / name, columns=["id", "id"], **more), "usage", path, "twice")
    check(refusal(tmp_path / "s.h5", species="ions"), "usage", tmp_path / "s.h5", "no species 'ions'", "electrons")
    check(refusal(tmp_path / "?.h5"), "usage", tmp_path / "?.h5", "--species", "electrons, ions")
    check(refusal(tmp_path / "d", species="ions"), "usage", tmp_path / "d", "--species")
    check(refusal(tmp_path / "n_%T.npz", species="ions"), "usage", tmp_path / "n_1.npz", "--species")
    check(refusal(tmp_path / "s.h5", epoch=3), "usage", tmp_path / "s.h5", "--epoch")
    check(refusal(tmp_path / "d", epoch=3), "usage", tmp_path / "d", "--epoch")


def virtual(path, sources: int) -> None:
    """A snapshot in two files and the file that shows them as one, of which 'mass' has as many sources."""
    for part in range(2):
        with h5py.File(path.with_suffix(f".{part}.h5"), "w") as file:
            file["id"], file["mass"] = numpy.arange(50) + 50 * part, numpy.ones(50)
    with h5py.File(path, "w") as file:
        for name, count in (("id", 2), ("mass", sources)):
            layout = h5py.VirtualLayout((100,), "i8" if name == "id" else "f8")
            for part in range(count):
                layout[50 * part : 50 * part + 50] = h5py.VirtualSource(path.with_suffix(f".{part}.h5").name, name, (50,))
            file.create_virtual_dataset(name, layout)


def test_values_that_a_virtual_dataset_lacks_are_not_invented(tmp_path):
    path = tmp_path / "snap.h5"
    virtual(path, 2)
    with Reader() as reader:
        reader.open(path, epoch=1)
        assert reader.epoch(1)["id"].tolist() == list(range(100))
    virtual(path, 1)
    check(refusal(path, epoch=1), "failed", path, "'/mass' has sources for 50 of its 100 values", "--columns id")
    with Reader() as reader:
        reader.open(path, epoch=1, columns=["id"])
        assert reader.epoch(1)["id"].tolist() == list(range(100))
    virtual(path, 2)
    with h5py.File(tmp_path / "snap.1.h5", "a") as file:
        del file["mass"]
    check(refusal(path, epoch=1), "failed", path, "'/mass' lacks its source 'mass' in", "snap.1.h5", "--columns id")
    (tmp_path / "snap.1.h5").unlink()
    check(refusal(path, epoch=1), "failed", path, "lacks its source snap.1.h5 for rows 50 to 99: put the file back")


def test_a_locked_file_is_not_called_incomplete(tmp_path):
    path = tmp_path / "live.h5"
    with h5py.File(path, "w") as file:
        file["x"] = numpy.arange(10.0)
    hold = "import h5py, sys; file = h5py.File(sys.argv[1], 'r+'); print('open', flush=True); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", hold, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"open\n"
        error = refusal(path, epoch=1)
        check(error, "failed", path, "locked by another process", "HDF5_USE_FILE_LOCKING=FALSE")
        assert "copy it again" not in error.message
    finally:
        holder.communicate()


def test_a_filter_that_is_not_installed_is_named(tmp_path):
    path = tmp_path / "filtered.h5"
    with h5py.File(path, "w") as file:
        file["x"] = numpy.arange(10.0)
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_chunk((10,))
        # A number that no filter has.
        layout.set_filter(511, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((10,))
        h5py.h5d.create(file.id, b"z", h5py.h5t.NATIVE_DOUBLE, space, layout).write_direct_chunk((0,), bytes(80))
    with Reader() as reader, pytest.raises(Refused) as refused:
        reader.open(path, epoch=1)
        reader.epoch(1)
    check(refused.value, "failed", path, "HDF5 filter", "hdf5plugin")
    assert "incomplete" not in refused.value.message
    with Reader() as reader:
        reader.open(path, epoch=1, columns=["x"])
        assert reader.epoch(1)["x"].tolist() == list(range(10))


def test_arrays_that_have_no_rows(tmp_path):
    x = numpy.arange(3)
    numpy.savez(tmp_path / "o_1.npz", x=x, o=numpy.array([1, None, 3], object))
    check(refusal(tmp_path / "o_%T.npz"), "failed", tmp_path / "o_1.npz", "'o' has Python objects", "pickle", "astype")
    for name, array, words in (
        ("scalar", numpy.float64(3), "0 dimensions"),
        ("text", numpy.array(["a", "b", "c"]), "text"),
        ("long", numpy.zeros(3, "g"), "128-bit floats"),
        ("dates", numpy.zeros(3, "M8[s]"), "dates"),
        ("cube", numpy.zeros((3, 2, 2)), "shape"),
        ("wide", numpy.zeros((3, 17)), "16 components"),
    ):
        numpy.savez(tmp_path / "u_1.npz", **{"x": x, name: array})
        check(refusal(tmp_path / "u_%T.npz"), "usage", tmp_path / "u_1.npz", f"'{name}'", words, "--columns x")
        check(refusal(tmp_path / "u_%T.npz", columns=[name]), "usage", tmp_path / "u_1.npz", f"'{name}'", words)
        with Reader() as reader:
            reader.open(tmp_path / "u_%T.npz", columns=["x"])
            assert reader.epoch(1)["x"].tolist() == [0, 1, 2]
    numpy.savez(tmp_path / "l_1.npz", x=x, y=numpy.arange(4), z=numpy.arange(3))
    check(refusal(tmp_path / "l_%T.npz"), "failed", tmp_path / "l_1.npz", "'y' has 4 rows", "--columns x,z")
    numpy.savez(tmp_path / "c_1.npz", u_x=x, u=numpy.zeros((3, 3)))
    check(refusal(tmp_path / "c_%T.npz"), "usage", tmp_path / "c_1.npz", "u_x", "several columns")
    # A masked array is stored by NumPy as two arrays, or as its pickle.
    numpy.save(tmp_path / "m_1.npy", numpy.ma.masked_array([1, 2], [True, False]).astype(object), allow_pickle=True)
    check(refusal(tmp_path / "m_%T.npy"), "failed", tmp_path / "m_1.npy", "Python objects")
    numpy.save(tmp_path / "e_1.npy", structure({"a": x, "b": x})[:0])
    with Reader() as reader:
        assert reader.open(tmp_path / "e_%T.npy")["epochs"][0]["records"] == 0


def test_arrow_columns_that_cannot_be_stored(tmp_path):
    table = pyarrow.table({"x": pyarrow.array([1, None]), "s": ["a", "b"], "y": [1.0, 2.0], "l": [[1], [2]]})
    pyarrow.feather.write_feather(table, tmp_path / "a_1.feather")
    check(refusal(tmp_path / "a_%T.feather"), "usage", tmp_path / "a_1.feather", "'s'", "string", "--columns x,y")
    check(refusal(tmp_path / "a_%T.feather", columns=["x", "y"]), "failed", tmp_path / "a_1.feather", "'x' has nulls (row 1)")
    twice = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["x", "x"])
    with pyarrow.ipc.new_file(tmp_path / "t_1.arrow", twice.schema) as writer:
        writer.write_table(twice)
    check(refusal(tmp_path / "t_%T.arrow"), "failed", tmp_path / "t_1.arrow", "several columns called 'x'")
    encoded = pyarrow.table({"d": pyarrow.array(["a", "b"]).dictionary_encode(), "y": [1.0, 2.0]})
    with pyarrow.ipc.new_stream(tmp_path / "d_1.arrows", encoded.schema) as writer:
        writer.write_table(encoded)
    with Reader() as reader:
        reader.open(tmp_path / "d_%T.arrows", columns=["y"])
        assert reader.epoch(1)["y"].tolist() == [1.0, 2.0]


def test_hdf5_groups(tmp_path):
    with h5py.File(tmp_path / "g_1.h5", "w") as file:
        file["a/x"], file["b/x"], file["b/y"] = numpy.arange(3), numpy.arange(3), numpy.arange(4)
    path = tmp_path / "g_1.h5"
    check(refusal(tmp_path / "g_%T.h5"), "usage", path, "--species: a, b")
    check(refusal(tmp_path / "g_%T.h5", species="c"), "usage", path, "no group 'c'", "a, b")
    check(refusal(tmp_path / "g_%T.h5", species="b"), "failed", path, "'x' has 3 rows, 'y' has 4", "--columns x")
    with h5py.File(tmp_path / "n_1.h5", "w") as file:
        file["field"], file["time"] = numpy.zeros((4, 5, 6)), 3.0
    check(refusal(tmp_path / "n_%T.h5"), "failed", tmp_path / "n_1.h5", "no one-dimensional datasets", "it has field, time")


# ---- openPMD


def test_openpmd_without_particles(tmp_path):
    write_openpmd(tmp_path / "s.h5", {1: {}, 2: {}})
    check(refusal(tmp_path / "s.h5"), "failed", tmp_path / "s.h5", "no iteration has particles")
    write_openpmd(tmp_path / "t.h5", {1: rows_of(0)})
    check(refusal(tmp_path / "t.h5"), "failed", tmp_path / "t.h5", "no iteration has particles", "electrons")


def test_openpmd_records_of_different_lengths(tmp_path):
    write_openpmd(tmp_path / "s.h5", {1: rows_of(3)})
    replace_record(tmp_path / "s.h5", 1, "weighting", numpy.arange(4, dtype="f4"))
    check(refusal(tmp_path / "s.h5"), "failed", tmp_path / "s.h5", "'weighting' has 4 rows", "'id' has 3", "--columns id")
    write_openpmd(tmp_path / "c.h5", {1: rows_of(3)}, constants={"charge": -1.0, "mass": 1.0}, constant_length=4)
    check(
        refusal(tmp_path / "c.h5"),
        "failed",
        tmp_path / "c.h5",
        "'charge' has 4 rows",
        "'weighting' has 3",
        "--columns charge,mass",
    )
    write_openpmd(tmp_path / "a.bp", {1: rows_of(3)}, constants={"charge": -1.0, "mass": 1.0}, constant_length=4)
    check(refusal(tmp_path / "a.bp"), "corrupt", tmp_path / "a.bp", "differ in length", "'charge' has 4", "'weighting' has 3")


@pytest.mark.parametrize("name", ["md.0", "md.idx"])
def test_truncated_adios2(tmp_path, name):
    path = tmp_path / "s.bp"
    write_openpmd(path, {1: rows_of(300), 2: rows_of(300)})
    cut(path / name)
    error = refusal(path)
    assert error.kind in ("failed", "corrupt") and error.path == str(path) and "openpmd-api" in error.message
    shutil.rmtree(path)
    path.mkdir()
    check(refusal(path), "failed", path, "openpmd-api")


# ---- LAMMPS


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("\n1 1.0 \n", "\n1 q1.0 \n", ["line 11", "column 'weighting' has 'q1.0'", "not a number"]),
        ("\n1 1.0 \n", "\n1 1.0 7 \n", ["line 11", "2 columns", "3 values"]),
        ("\n1 1.0 \n2 2.0 \n", "\n1 1.0 2 \n2.0 \n", ["line 11", "2 columns", "3 values"]),
        ("\n1 1.0 \n", "\n1.5 1.0 \n", ["line 11", "'1.5'", "integer"]),
        ("\n1 1.0 \n", "\n99999999999999999999 1.0 \n", ["line 11", "'99999999999999999999'", "i64"]),
        ("\n1 1.0 \n", "\n\n", ["line 11", "0 values"]),
        ("\n1 1.0 \n", "\n", ["line 16 is '1'", "after the 6 atoms of step 0"]),
        ("ATOMS\n6\n", "ATOMS\n600\n", ["line 31", "step 0", "after 21 of 600 atoms"]),
        ("5.0 \n", "5.0 \n6 6.0 \n", ["line 16 is '6 6.0'", "after the 6 atoms of step 0"]),
        ("ATOMS\n6\n", "ATOMS\nsix\n", ["line 4", "'six', not a number"]),
        ("ATOMS\n6\n", "ATOMS\n-6\n", ["line 4", "'-6'"]),
        ("ITEM: ATOMS id weighting", "ITEM: ATOMS", ["line 9", "names no columns"]),
        ("ITEM: ATOMS id weighting", "ITEM: ATOMS id id", ["line 9", "twice"]),
        ("ITEM: NUMBER OF ATOMS\n6\n", "", ["step 0", "number of atoms"]),
        ("ITEM: ATOMS", "ITEM: ENTRIES", ["line 9", "expected 'ITEM: ATOMS'"]),
        ("\n5 5.0 \n", "\n5 5.0x \n", ["line 15", "'5.0x'"]),
        ("5.0 \n", "5.0", ["ITEM: TIMESTEP"]),
    ],
)
def test_malformed_lammps_dumps(tmp_path, old, new, words):
    path = tmp_path / "d"
    rows = {"id": numpy.arange(6), "weighting": numpy.arange(6.0)}
    write_lammps(path, {0: rows, 1: rows})
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    error = refusal(path)
    assert error.kind in ("failed", "corrupt") and error.path == str(path)
    assert all(word in error.message for word in words), error.message


def test_labels_that_no_epoch_has(tmp_path):
    """A minus sign is none between two words."""
    for name, label in (("n_-5", -5), ("run-7", 7), ("-3", -3)):
        folder = tmp_path / name
        folder.mkdir()
        numpy.savez(folder / f"{name}.npz", x=numpy.arange(3))
        if label < 0:
            check(refusal(folder), "usage", folder / f"{name}.npz", f"{label}, is negative")
        else:
            with Reader() as reader:
                reader.open(folder)
                assert reader.epoch(label)["x"].tolist() == [0, 1, 2]
    numpy.savez(tmp_path / f"big_{2**63}.npz", x=numpy.arange(3))
    check(refusal(tmp_path / "big_%T.npz"), "failed", tmp_path / f"big_{2**63}.npz", f"larger than {2**63 - 1}")


def test_other_styles_of_lammps_are_named(tmp_path):
    write_lammps(tmp_path / "local.dump", {0: rows_of(3)})
    text = (
        (tmp_path / "local.dump")
        .read_text()
        .replace("NUMBER OF ATOMS", "NUMBER OF ENTRIES")
        .replace("ITEM: ATOMS", "ITEM: ENTRIES")
    )
    (tmp_path / "local.dump").write_text(text)
    check(refusal(tmp_path / "local.dump"), "usage", tmp_path / "local.dump", "dump local", "dump custom")
    (tmp_path / "yaml.dump").write_text("---\ncreator: LAMMPS\ntimestep: 0\n")
    check(refusal(tmp_path / "yaml.dump"), "usage", tmp_path / "yaml.dump", "dump yaml", "dump custom")


def test_repeated_steps_name_the_option(tmp_path):
    """The command that the message proposes works."""
    write_lammps(tmp_path / "one.dump", {10: rows_of(3)})
    (tmp_path / "twice.dump").write_text(2 * (tmp_path / "one.dump").read_text())
    check(refusal(tmp_path / "twice.dump"), "failed", tmp_path / "twice.dump", "has epoch 10 twice", "--if-repeated last")
    assert turbidite.ingest(tmp_path / "twice.dump", tmp_path / "ds", key="weighting", if_repeated="last")["rows"] == 3
    with pytest.raises(turbidite.UsageError, match="if_repeated is for LAMMPS"):
        turbidite.ingest(ROOT / "testdata" / "vpic", tmp_path / "other", key="ux", if_repeated="last")


def test_a_folder_of_names_without_a_known_ending(tmp_path):
    """The message has a pattern, which works."""
    (tmp_path / "run").mkdir()
    for step in (0, 100):
        write_lammps(tmp_path / "run" / f"dump.melt.{step}", {step: rows_of(3)})
    with pytest.raises(turbidite.UsageError) as refused:
        turbidite.ingest(tmp_path / "run", tmp_path / "ds", key="weighting")
    [pattern] = re.findall(r"give the pattern '(.+)' for 2 of its files", str(refused.value))
    assert turbidite.ingest(pattern, tmp_path / "ds", key="weighting")["rows"] == 6


def test_a_failed_ingest_names_the_file_and_leaves_nothing(tmp_path):
    write_openpmd(tmp_path / "s_%T.h5", {1: rows_of(3), 2: rows_of(3)})
    cut(tmp_path / "s_2.h5")
    with pytest.raises(turbidite.OperationError, match=r"s_2\.h5"):
        turbidite.ingest(tmp_path / "s_%T.h5", tmp_path / "ds", key="weighting")
    assert not (tmp_path / "ds").exists()
    with pytest.raises(turbidite.UsageError, match="no species 'ions'"):
        turbidite.ingest(tmp_path / "s_1.h5", tmp_path / "ds", key="weighting", species="ions")


def shorter_openpmd(folder) -> None:
    replace_record(folder / "s_1.h5", 1, "weighting", numpy.arange(50, dtype="f4"))


def shorter_hdf5(folder) -> None:
    with h5py.File(folder / "s_1.h5", "w") as file:
        file["weighting"] = numpy.arange(50, dtype="f4")


def shorter_lammps(folder) -> None:
    write_lammps(folder / "s_1.lammpstrj", {1: rows_of(50)})


@pytest.mark.parametrize("change", [shorter_openpmd, shorter_hdf5, shorter_lammps])
def test_a_file_that_changes_after_the_scan(tmp_path, change):
    if change is shorter_openpmd:
        write_openpmd(tmp_path / "s_1.h5", {1: rows_of(300)})
    elif change is shorter_hdf5:
        with h5py.File(tmp_path / "s_1.h5", "w") as file:
            file["weighting"] = numpy.arange(300, dtype="f4")
    else:
        write_lammps(tmp_path / "s_1.lammpstrj", {1: rows_of(300)})
    [path] = tmp_path.iterdir()
    stated = {"epoch": 1} if change is shorter_hdf5 else {}
    with Reader() as scanner:
        index = scanner.open(path, **stated)["index"]
    change(tmp_path)
    with Reader() as reader:
        reader.open(path, **stated, index=index)
        with pytest.raises(Refused, match="has changed since the source was opened; run again") as caught:
            reader.epoch(1)
    assert caught.value.path == str(path)
