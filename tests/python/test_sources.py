"""The readers of scientific formats, by their protocol: the rows that h5py, NumPy and the writers have are what comes back."""

import bz2
import gzip
import os

import h5py
import numpy
import openpmd_api
import pyarrow
import pyarrow.feather
import pytest

from support.source_files import AXES, replace_record, structure, write_lammps, write_openpmd, zstandard
from support.source_reader import Reader, read

ENCODINGS = openpmd_api.Iteration_Encoding


def rows_of(count: int, seed: int) -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(seed)
    rows = {f"position_{axis}": random.random(count) for axis in AXES}
    rows |= {f"momentum_{axis}": random.standard_normal(count).astype("f4") for axis in AXES}
    rows["id"] = numpy.arange(count, dtype="u8") + (1 << 63)
    return rows


def same(found: dict[str, numpy.ndarray], expected: dict[str, numpy.ndarray]) -> bool:
    return sorted(found) == sorted(expected) and all(
        found[name].dtype == expected[name].dtype and found[name].tobytes() == expected[name].tobytes() for name in expected
    )


def columns(inventory: dict) -> dict[str, tuple[str, str | None]]:
    return {column["name"]: (column["type"], column["unit"]) for column in inventory["columns"]}


# ---- openPMD


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("one_%T.h5", ENCODINGS.file_based),
        ("padded_%06T.h5", ENCODINGS.file_based),
        ("all.h5", ENCODINGS.group_based),
        ("one_%T.bp", ENCODINGS.file_based),
        ("all.bp4", ENCODINGS.group_based),
        ("all.bp", ENCODINGS.variable_based),
        ("all.bp5", ENCODINGS.variable_based),
    ],
)
def test_openpmd_in_every_encoding(tmp_path, name, encoding):
    # Of different lengths, more than a block, with a gap in the labels.
    epochs = {5: rows_of(150_000, 1), 20: rows_of(7, 2), 1300: rows_of(4096, 3)}
    write_openpmd(tmp_path / name, epochs, encoding=encoding, unit=1e-6, constants={"charge": -1.5e-19}, offset=0.0)
    inventory, found = read(tmp_path / name)
    assert inventory["format"] == "openPMD" and inventory["notes"] == [] and sorted(found) == sorted(epochs)
    units = columns(inventory)
    assert units["position_x"] == ("f64", "1e-06 m") and units["charge"] == ("f64", "s A")
    assert units["id"] == ("u64", None) and units["momentum_z"] == ("f32", None)
    for label, rows in epochs.items():
        assert same(found[label], rows | {"charge": numpy.full(len(rows["id"]), -1.5e-19)}), label
    assert 150_000 > inventory["epochs"][0]["block_rows"] >= 4096


def test_openpmd_values_are_those_of_h5py(tmp_path):
    write_openpmd(tmp_path / "s_%T.h5", {7: rows_of(1000, 1)})
    _, found = read(tmp_path / "s_7.h5")
    with h5py.File(tmp_path / "s_7.h5") as file:
        group = file["data/7/particles/electrons"]
        for name, values in found[7].items():
            assert values.tobytes() == group[name.replace("_", "/")][:].tobytes()


@pytest.mark.parametrize("form", ["constant", "array", "sometimes"])
def test_position_offsets_are_added_as_f64(tmp_path, form):
    epochs = {label: {name: values.astype("f4") for name, values in rows_of(500, label).items()} for label in (1, 2)}
    shifts = {axis: numpy.random.default_rng(place).integers(0, 1000, 500).astype("f8") for place, axis in enumerate(AXES)}

    def offset(label, axis):
        if form == "array":
            return shifts[axis]
        return 250.0 if form == "constant" or label == 2 else 0.0

    write_openpmd(tmp_path / "s.h5", epochs, unit=1e-6, offset=offset, offset_unit=1e-3)
    inventory, found = read(tmp_path / "s.h5")
    assert columns(inventory)["position_y"] == ("f64", "1e-06 m")
    assert inventory["notes"] == ["positionOffset is added, as f64: position_x, position_y, position_z"]
    assert not any("Offset" in name for name in columns(inventory))
    for label, rows in epochs.items():
        for axis in AXES:
            expected = rows[f"position_{axis}"].astype("f8") + offset(label, axis) * (1e-3 / 1e-6)
            assert (found[label][f"position_{axis}"] == expected).all()


@pytest.mark.parametrize("name", ["s_%T.h5", "s.bp"])
def test_constants_of_length_one_are_values_of_every_particle(tmp_path, name):
    """FBPIC gives its constants the length 1, also in iterations without particles."""
    epochs = {0: rows_of(0, 1), 1: rows_of(150_000, 2), 2: rows_of(1, 3)}
    constants = {"charge": -1.5e-19, "mass": 9e-31}
    write_openpmd(tmp_path / name, epochs, constants=constants, constant_length=1, offset=250.0)
    inventory, found = read(tmp_path / name)
    assert [epoch["records"] for epoch in inventory["epochs"]] == [0, 150_000, 1]
    for label, rows in epochs.items():
        count = len(rows["id"])
        expected = rows | {key: numpy.full(count, value) for key, value in constants.items()}
        expected |= {f"position_{axis}": rows[f"position_{axis}"] + 250.0 for axis in AXES}
        assert same(found[label], expected), label
    write_openpmd(tmp_path / f"one_{name}", {7: {}}, constants=constants, constant_length=1)
    _, found = read(tmp_path / f"one_{name}")
    assert same(found[7], {key: numpy.array([value]) for key, value in constants.items()})


def test_openpmd_species_are_chosen_and_may_be_absent(tmp_path):
    series = openpmd_api.Series(str(tmp_path / "s.h5"), openpmd_api.Access.create)
    for label, counts in ((1, {"ions": 3, "electrons": 5}), (2, {"ions": 3}), (3, {"ions": 4, "electrons": 2})):
        iteration = series.write_iterations()[label]
        for species, count in counts.items():
            weights = numpy.full(count, label, "f4")
            component = iteration.particles[species]["weighting"][openpmd_api.Record_Component.SCALAR]
            component.reset_dataset(openpmd_api.Dataset(weights.dtype, [count]))
            component.store_chunk(weights)
            series.flush()
        iteration.close()
    series.close()
    inventory, found = read(tmp_path / "s.h5", species="electrons")
    assert [len(rows["weighting"]) for rows in found.values()] == [5, 0, 2]
    assert inventory["notes"] == ["epochs without records: 2"]
    assert (found[3]["weighting"] == 3).all()


def test_complex_records_of_adios2_are_two_columns(tmp_path):
    values = numpy.random.default_rng(1).random((2, 500))
    psi = values[0] + 1j * values[1]
    write_openpmd(tmp_path / "s.bp", {1: {"psi": psi, "chi": psi.astype("c8"), "id": numpy.arange(500)}})
    _, found = read(tmp_path / "s.bp")
    single = psi.astype("c8")
    expected = {"psi_re": values[0], "psi_im": values[1], "chi_re": single.real.copy(), "chi_im": single.imag.copy()}
    assert same(found[1], expected | {"id": numpy.arange(500)})
    assert list(columns(read(tmp_path / "s.bp", columns=["psi_im"])[0])) == ["psi_im"]


def test_compressed_chunks_are_read_once(tmp_path):
    """A block of compressed data is a chunk, or several."""
    write_openpmd(tmp_path / "s.h5", {1: {"weighting": numpy.zeros(800_000)}})
    values = numpy.random.default_rng(1).random(800_000)
    chunks = {"chunks": (700_000,), "compression": "gzip", "compression_opts": 1}
    replace_record(tmp_path / "s.h5", 1, "weighting", values, **chunks)
    inventory, found = read(tmp_path / "s.h5")
    assert inventory["epochs"][0]["block_rows"] == 700_000
    assert (found[1]["weighting"] == values).all()


# ---- HDF5


def test_hdf5_datasets_components_and_fields_become_columns(tmp_path):
    random, count = numpy.random.default_rng(1), 120_000
    for label in (10, 20):
        with h5py.File(tmp_path / f"run2_{label}.h5", "w") as file:
            file["x"] = random.random(count)
            file["x"].attrs["units"] = "m"
            file["u"] = random.random((count, 3)).astype("f4")
            file["tag"] = random.integers(0, 9, (count, 2))
            file.create_dataset("big", data=numpy.arange(count, dtype=">i4"), chunks=(100,), compression="gzip")
            file["flag"] = random.random(count) > 0.5
            file["name"] = [b"text"] * count
            file["time"] = 0.5
            file["fields/e"] = random.random((4, 5, 6))
            file.create_dataset(
                "more/table", data=structure({"a": numpy.arange(5, dtype="f8"), "b": numpy.arange(5, dtype=">u8")})
            )
    inventory, found = read(tmp_path / "run2_{epoch}.h5")
    assert inventory["format"] == "HDF5" and sorted(found) == [10, 20]
    assert columns(inventory)["x"] == ("f64", "m") and columns(inventory)["flag"] == ("u8", None)
    with h5py.File(tmp_path / "run2_20.h5") as file:
        expected = {"x": file["x"][:], "big": file["big"][:].astype("<i4"), "flag": file["flag"][:].astype("u1")}
        expected |= {f"u_{axis}": file["u"][:, place] for place, axis in enumerate(AXES)}
        expected |= {f"tag_{place}": file["tag"][:, place] for place in range(2)}
    assert same(found[20], expected)
    notes = "\n".join(inventory["notes"])
    for words in ("'name' has the unsupported type", "'time' is a single value", "little-endian: big", "as u8: flag"):
        assert words in notes, notes
    chosen, rows = read(tmp_path / "run2_10.h5", epoch=3, columns=["u_z", "x"])
    assert [column["name"] for column in chosen["columns"]] == ["u_z", "x"] and list(rows) == [3] and chosen["notes"] == []
    for species in ("more", "more/table"):
        _, rows = read(tmp_path / "run2_%T.h5", species=species)
        assert same(rows[20], {"a": numpy.arange(5, dtype="f8"), "b": numpy.arange(5, dtype="u8")})


# ---- LAMMPS


COMPRESSIONS = {"gz": lambda content: gzip.compress(content, 1), "bz2": bz2.compress, "zst": zstandard}


@pytest.mark.parametrize("form", ["one file", "a file for each step", *COMPRESSIONS])
def test_lammps_dumps(tmp_path, monkeypatch, form):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    random = numpy.random.default_rng(4)
    epochs = {}
    for label, count in ((0, 90_000), (50, 1), (1_000_000, 0), (7_000_000_000, 200)):
        rows = {
            "id": random.permutation(count) + (2**62 if label == 50 else 1),
            "type": random.integers(1, 9, count).astype("i4"),
        }
        rows |= {axis: random.standard_normal(count) * 10.0 ** random.integers(-300, 300, count) for axis in AXES}
        epochs[label] = rows | {"ix": random.integers(-9, 9, count).astype("i4")}
    source = tmp_path / "dump.lammpstrj"
    if form == "one file":
        write_lammps(source, epochs)
    else:
        for label, rows in epochs.items():
            write_lammps(tmp_path / f"dump.{label}.lammpstrj", {label: rows}, text="Si")
        source = tmp_path / "dump.*.lammpstrj"
    if form in COMPRESSIONS:
        for path in tmp_path.glob("dump.*"):
            (tmp_path / f"{path.name}.{form}").write_bytes(COMPRESSIONS[form](path.read_bytes()))
            path.unlink()
        source = tmp_path / f"dump.*.lammpstrj.{form}"
    inventory, found = read(source)
    assert inventory["format"] == "LAMMPS" and sorted(found) == sorted(epochs)
    assert columns(inventory) == {
        name: ({"id": "i64", "type": "i32", "ix": "i32"}.get(name, "f64"), None) for name in ("id", "type", *AXES, "ix")
    }
    assert all(same(found[label], rows) for label, rows in epochs.items())
    assert inventory["notes"] == ([] if form == "one file" else ["'element' is text; it is left out"])
    assert list((tmp_path / "scratch").iterdir()) == []
    chosen, rows = read(source, columns=["z", "id"])
    assert list(columns(chosen)) == ["z", "id"] and (rows[50]["id"] == epochs[50]["id"]).all()


def test_lammps_formats_of_numbers(tmp_path):
    content = "ITEM: UNITS\nreal\n" + "ITEM: TIME\n0.5\n"
    text = f"ITEM: TIMESTEP\n3\n{content}ITEM: NUMBER OF ATOMS\n2\nITEM: BOX BOUNDS xy xz yz pp pp pp\n0 1 0\n0 1 0\n0 1 0\n"
    text += "ITEM: ATOMS id mol q c_pe v_a i_tag\n9007199254740993 -1 nan inf -1e-320 7\n  +4\t5  0.1 -inf 3 -8\r\n"
    (tmp_path / "d").write_text(text)
    inventory, found = read(tmp_path / "d")
    assert columns(inventory)["mol"] == ("i64", None) and columns(inventory)["i_tag"] == ("i32", None)
    rows = found[3]
    assert (
        rows["id"].tolist() == [9007199254740993, 4] and rows["mol"].tolist() == [-1, 5] and rows["i_tag"].tolist() == [7, -8]
    )
    assert numpy.isnan(rows["q"][0]) and rows["q"][1] == 0.1
    assert rows["c_pe"].tolist() == [numpy.inf, -numpy.inf] and rows["v_a"].tolist() == [-1e-320, 3]


def test_lammps_headers_in_the_order_of_lammps(tmp_path):
    """`dump_modify units yes time yes`: the units once, and the time before each step."""
    write_lammps(
        tmp_path / "plain",
        {0: {"id": numpy.arange(3), "x": numpy.arange(3.0)}, 5: {"id": numpy.arange(3), "x": -numpy.arange(3.0)}},
    )
    text = (tmp_path / "plain").read_text()
    (tmp_path / "timed").write_text("ITEM: UNITS\nlj\n" + text.replace("ITEM: TIMESTEP", "ITEM: TIME\n0.25\nITEM: TIMESTEP"))
    (_, plain), (_, timed) = read(tmp_path / "plain"), read(tmp_path / "timed")
    assert sorted(timed) == [0, 5] and all(same(timed[label], plain[label]) for label in timed)


@pytest.mark.parametrize("count", [1, 90_000])
def test_a_last_line_of_lammps_without_its_end(tmp_path, count):
    """It is read, and a note says so, since a writer may have been cut there."""
    rows = {"id": numpy.arange(count), "x": numpy.arange(count) / 4}
    write_lammps(tmp_path / "d", {3: rows})
    (tmp_path / "d").write_text((tmp_path / "d").read_text().rstrip())
    inventory, found = read(tmp_path / "d")
    assert same(found[3], rows)
    assert inventory["notes"] == [f"{tmp_path / 'd'}: the last line has no line end; its last value may be cut"]


def test_repeated_steps(tmp_path):
    """After a restart, in one file and in several."""
    steps = [(0, 1.0), (10, 2.0), (10, 3.0), (20, 4.0)]
    for place, (label, value) in enumerate(steps):
        write_lammps(tmp_path / f"part{place}.dump", {label: {"x": numpy.full(2, value)}})
    (tmp_path / "all").write_text("".join((tmp_path / f"part{place}.dump").read_text() for place in range(4)))
    for source in (tmp_path / "all", tmp_path / "part*.dump"):
        for which, value in (("first", 2.0), ("last", 3.0)):
            inventory, found = read(source, if_repeated=which)
            assert {label: set(rows["x"].tolist()) for label, rows in found.items()} == {0: {1.0}, 10: {value}, 20: {4.0}}
            assert inventory["notes"] == [f"read the {which} occurrence of each epoch that is repeated: 10"]


# ---- NumPy and Arrow


def test_types_that_are_widened(tmp_path):
    """16-bit floats, complex numbers and booleans, in each format of arrays."""
    random = numpy.random.default_rng(6)
    half = random.integers(0, 1 << 16, 30_000).astype("u2").view("f2")
    single, double = random.random((30_000, 2)).astype("f4").view("c8")[:, 0], random.random((30_000, 3)) * (1 - 2j)
    arrays = {"half": half, "single": single, "double": double}
    numpy.savez(tmp_path / "p_1.npz", **arrays)
    with h5py.File(tmp_path / "p_1.h5", "w") as file:
        for name, values in arrays.items():
            file[name] = values
    expected = {"half": half.astype("f4"), "single_re": single.real, "single_im": single.imag}
    for axis, place in zip(AXES, range(3), strict=True):
        expected |= {f"double_re_{axis}": double.real[:, place], f"double_im_{axis}": double.imag[:, place]}
    notes = {"16-bit floats are stored as f32: half"}
    for ending in ("npz", "h5"):
        inventory, found = read(tmp_path / f"p_%T.{ending}")
        assert same(found[1], expected) and notes < set(inventory["notes"])
        assert any(note.startswith("complex numbers are stored as two columns: ") for note in inventory["notes"])
    pyarrow.feather.write_feather(pyarrow.table({"half": half}), tmp_path / "f_1.feather", compression="uncompressed")
    inventory, found = read(tmp_path / "f_%T.feather")
    assert same(found[1], {"half": half.astype("f4")}) and set(inventory["notes"]) == notes


def test_a_series_of_arrays(tmp_path):
    """The column has the name without the number of the epoch."""
    for label in (0, 12):
        numpy.save(tmp_path / f"energy_{label}.npy", numpy.arange(3.0) + label)
    inventory, found = read(tmp_path / "energy_%T.npy")
    assert list(columns(inventory)) == ["energy"] and found[12]["energy"].tolist() == [12, 13, 14]


def test_files_that_are_left_out_are_named(tmp_path):
    for label, ending in ((0, "h5"), (10, "H5"), (20, "nc"), (30, "hdf5")):
        with h5py.File(tmp_path / f"d_{label}.{ending}", "w") as file:
            file["x"] = numpy.arange(3.0)
    numpy.savez(tmp_path / "d_40.npz", x=numpy.arange(3.0))
    inventory, found = read(tmp_path)
    assert sorted(found) == [0, 30]
    assert inventory["notes"] == ["files that do not end in .h5, .hdf5, .hdf, .h5part, .h5md are left out: d_10.H5, d_20.nc, d_40.npz"]


@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
def test_npz(tmp_path, monkeypatch, save):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    random = numpy.random.default_rng(1)
    for label in (8, 9):
        arrays = {"x": random.random(200_000), "id": numpy.arange(200_000, dtype="u8") + (1 << 63)}
        arrays |= {"u": random.random((200_000, 3)).astype("f4"), "f": numpy.asfortranarray(random.random((200_000, 2)))}
        arrays |= {
            "be": numpy.arange(200_000, dtype=">i2"),
            "flag": numpy.ones(200_000, bool),
            "raw": numpy.full(200_000, b"abc", "V3"),
        }
        save(tmp_path / f"p{label}.npz", **arrays)
    inventory, found = read(tmp_path / "p*.npz")
    expected = {"x": arrays["x"], "id": arrays["id"], "be": arrays["be"].astype("<i2"), "flag": arrays["flag"].astype("u1")}
    expected |= {f"u_{axis}": arrays["u"][:, place] for place, axis in enumerate(AXES)} | {"raw": arrays["raw"]}
    expected |= {f"f_{place}": arrays["f"][:, place] for place in range(2)}
    assert inventory["format"] == "npz" and same(found[9], expected)
    assert inventory["notes"] == ["big-endian values are stored as little-endian: be", "booleans are stored as u8: flag"]
    assert list((tmp_path / "scratch").iterdir()) == []
    numpy.save(tmp_path / "s.npy", structure({"x": arrays["x"], "id": arrays["id"]}))
    _, found = read(tmp_path / "s.npy", epoch=0)
    assert same(found[0], {"x": arrays["x"], "id": arrays["id"]})


@pytest.mark.parametrize("form", ["file", "stream", "feather", "plain feather"])
def test_arrow(tmp_path, monkeypatch, form):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    random = numpy.random.default_rng(1)
    fields = {
        "x": random.random(300_001),
        "id": numpy.arange(300_001, dtype="u8") + (1 << 63),
        "raw": numpy.frombuffer(random.bytes(5 * 300_001), "V5"),
    }
    table = pyarrow.table(
        {"x": fields["x"], "id": fields["id"], "raw": pyarrow.array(fields["raw"].tolist(), pyarrow.binary(5))}
    )
    path = tmp_path / "p_4.arrow"
    if "feather" in form:
        pyarrow.feather.write_feather(table, path, compression="uncompressed" if "plain" in form else "lz4")
    else:
        new = pyarrow.ipc.new_file if form == "file" else pyarrow.ipc.new_stream
        with new(path, table.schema) as writer:
            for first, count in ((0, 10), (10, 0), (10, 99_991), (100_001, 200_000)):
                writer.write_table(table.slice(first, count))
    inventory, found = read(tmp_path / "p_%T.arrow")
    assert inventory["format"] == "Arrow" and same(found[4], fields)
    _, found = read(tmp_path / "p_%T.arrow", columns=["raw", "x"])
    assert same(found[4], {"raw": fields["raw"], "x": fields["x"]})
    assert list((tmp_path / "scratch").iterdir()) == []


# ---- all formats


def test_a_killed_readers_folder_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    numpy.savez_compressed(tmp_path / "p.npz", x=numpy.arange(10))
    killed, other = Reader(), Reader()
    killed.open(tmp_path / "p.npz", epoch=1)
    left = set(os.listdir(tmp_path / "scratch"))
    assert len(left) == 1
    with other:
        other.open(tmp_path / "p.npz", epoch=1)
        # The first reader's folder stays for as long as it lives.
        assert len(os.listdir(tmp_path / "scratch")) == 2 and left < set(os.listdir(tmp_path / "scratch"))
    killed.process.kill()
    killed.process.communicate()
    assert set(os.listdir(tmp_path / "scratch")) == left
    _, found = read(tmp_path / "p.npz", epoch=1)
    assert found[1]["x"].tolist() == list(range(10)) and os.listdir(tmp_path / "scratch") == []


def test_a_folder_is_a_series(tmp_path):
    for label in (3, 11):
        numpy.savez(tmp_path / f"p_{label:04}.npz", x=numpy.full(label, label))
    (tmp_path / "notes.txt").write_text("other files are left alone")
    _, found = read(tmp_path)
    assert {label: rows["x"].tolist() for label, rows in found.items()} == {3: [3] * 3, 11: [11] * 11}
