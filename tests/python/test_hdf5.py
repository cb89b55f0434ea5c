"""Files of HDF5 as simulations write them, by the protocol of readers: h5py and NumPy have the same values."""

import os
import subprocess
import sys

import h5py
import numpy
import pyarrow
import pyarrow.feather
import pytest
import turbidite
from turbidite.sources import openpmd
from turbidite.sources.errors import SourceError

from support.source_files import AXES, replace_record, write_beam, write_openpmd
from support.source_reader import read, refusal

Rows = dict[str, numpy.ndarray]


def same(found: Rows, expected: Rows) -> bool:
    return sorted(found) == sorted(expected) and all(
        found[name].dtype == expected[name].dtype and found[name].tobytes() == expected[name].tobytes() for name in expected
    )


def units(inventory: dict) -> dict[str, str | None]:
    return {column["name"]: column["unit"] for column in inventory["columns"]}


# ---- steps within a file


def write_steps(path, pattern: str, labels) -> dict[int, Rows]:
    """A group for each step, of other lengths. Returns the rows of each."""
    made = {}
    with h5py.File(path, "w") as file:
        for label in labels:
            random = numpy.random.default_rng(label)
            made[label] = {"id": numpy.arange(label + 3), "px": random.random(label + 3).astype("f4")}
            group = file.create_group(pattern.replace("{epoch}", str(label)))
            group.attrs["TimeValue"] = label / 8
            for name, values in made[label].items():
                group[name] = values
    return made


def test_steps_of_h5part(tmp_path):
    made = write_steps(tmp_path / "run.h5part", "Step#{epoch}", (0, 3, 20))
    with h5py.File(tmp_path / "run.h5part", "a") as file:
        file.create_group("Step#7")
        file["Step#3/Block/E"] = numpy.zeros((4, 5, 6))
        file["extra"] = numpy.arange(3)
    for species in (None, "Step#{epoch}", "Step#%T"):
        inventory, found = read(tmp_path / "run.h5part", species=species)
        assert sorted(found) == [0, 3, 7, 20] and len(found[7]["id"]) == 0
        assert all(same(found[label], rows) for label, rows in made.items())
    assert "epochs without records: 7" in inventory["notes"]
    inventory, _ = read(tmp_path)
    assert {"only the groups 'Step#{epoch}' are read; left out: extra", "groups of 'Step#{epoch}' are left out: Block"} < {
        *inventory["notes"]
    }
    assert "states the epochs; omit the option" in refusal(tmp_path / "run.h5part", epoch=3).message


def test_other_groups_of_steps_are_proposed_by_a_pattern(tmp_path):
    """The command that the message proposes works, for several files, too."""
    for name, labels in (("a.h5", (0, 100)), ("b.h5", (200,))):
        made = write_steps(tmp_path / name, "Timestep_{epoch}/electron", labels)
    message = refusal(tmp_path / "a.h5").message
    assert "several groups have columns" in message and message.endswith("--species 'Timestep_{epoch}/electron'")
    done = turbidite.ingest(tmp_path / "?.h5", tmp_path / "ds", key="px", species="Timestep_{epoch}/electron")
    assert [epoch["epoch"] for epoch in done["epochs"]] == [0, 100, 200]
    rows = turbidite.open(tmp_path / "ds").query(epochs=200, order="id").to_numpy()
    assert same({name: rows[name] for name in made[200]}, made[200])
    error = refusal(tmp_path / "a.h5", species="Step_{epoch}/electron")
    assert error.kind == "usage" and "no group matches" in error.message and "Timestep_0/electron" in error.message


def write_h5md(path, frames: int, count: int, chunks=None, step=None) -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(5)
    made = {"position": random.random((frames, count, 3)).astype("f4"), "id": numpy.stack([random.permutation(count)] * frames)}
    made |= {"image": random.integers(-3, 3, (frames, count, 3)), "mass": random.random(count)}
    with h5py.File(path, "w") as file:
        file.create_group("h5md")
        for name in ("position", "image", "id"):
            group = file.create_group(f"particles/all/{name}")
            group.create_dataset("value", data=made[name], chunks=chunks, compression="gzip" if chunks else None)
            group["step"] = numpy.arange(frames) * 10 if step is None else step
            group["time"] = numpy.arange(frames) / 4
        file["particles/all/position/value"].attrs["unit"] = "nm"
        file["particles/all/mass"] = made["mass"]
        file["particles/all/box/edges/value"] = numpy.ones((frames, 3, 3))
        file["particles/all/box/edges/step"] = numpy.arange(frames) * 10
        file["observables/temperature/value"] = numpy.arange(float(frames))
        file["observables/temperature/step"] = numpy.arange(frames)
        file["observables/centre/value"] = numpy.ones((frames, 3))
        file["observables/centre/step"] = numpy.arange(frames)
    return made


def frame_of(made: dict[str, numpy.ndarray], frame: int, *names: str) -> Rows:
    rows = {}
    for name in names:
        values = made[name] if name == "mass" else made[name][frame]
        rows |= {f"{name}_{axis}": values[:, place] for place, axis in enumerate(AXES)} if values.ndim == 2 else {name: values}
    return {name: numpy.ascontiguousarray(values) for name, values in rows.items()}


@pytest.mark.parametrize("chunks", [None, (1, 1000, 3), (2, 700, 2)])
def test_frames_of_h5md(tmp_path, chunks):
    path, names = tmp_path / "md.h5", ("position", "id", "image", "mass")
    made = write_h5md(path, 5, 100_000 if chunks is None else 3000, None)
    if chunks is not None:
        with h5py.File(path, "a") as file:
            del file["particles/all/position/value"]
            file["particles/all/position"].create_dataset("value", data=made["position"], chunks=chunks, compression="gzip")
    inventory, found = read(path)
    assert sorted(found) == [0, 10, 20, 30, 40]
    assert all(same(rows, frame_of(made, label // 10, *names)) for label, rows in found.items())
    [note] = inventory["notes"]
    assert "only the group 'particles/all' is read" in note and "observables/temperature/value" in note
    # One array by its own group, or by its columns.
    inventory, found = read(path, species="particles/all/position")
    assert same(found[30], frame_of(made, 3, "position")) and inventory["notes"] == []
    _, found = read(path, columns=["image_z", "id"])
    assert (
        found[20]["image_z"].tolist() == made["image"][2, :, 2].tolist() and found[20]["id"].tolist() == made["id"][2].tolist()
    )
    error = refusal(path, epoch=3)
    assert error.kind == "usage" and "the 'step' of 'position' states the epochs; omit the option" in error.message


def test_steps_of_h5md_in_other_forms(tmp_path):
    path = tmp_path / "md.h5"
    made = write_h5md(path, 3, 4, step=50)
    _, found = read(path, species="particles/all")
    assert sorted(found) == [0, 50, 100]
    with h5py.File(path, "a") as file:
        for name in ("position", "id"):
            file[f"particles/all/{name}/step"].attrs["offset"] = 7
    inventory, found = read(path, species="particles/all")
    assert sorted(found) == [7, 57, 107] and same(found[57], frame_of(made, 1, "position", "id", "mass"))
    assert inventory["notes"] == [f"'image_{axis}' has other steps than 'position'; it is left out" for axis in AXES]
    _, found = read(path, species="particles/all", columns=["image_x"])
    assert sorted(found) == [0, 50, 100]
    assert "other steps" in refusal(path, species="particles/all", columns=["image_x", "id"]).message
    with h5py.File(path, "a") as file:
        for name in ("position", "id", "image"):
            del file[f"particles/all/{name}/step"]
    inventory, found = read(path, species="particles/all")
    assert sorted(found) == [0, 1, 2] and any("times without steps" in note for note in inventory["notes"])
    with h5py.File(path, "a") as file:
        file["particles/all/position/step"] = [1, 2]
    assert "has 3 frames, and its 'step' has 2 values" in refusal(path, species="particles/all/position").message
    with h5py.File(path, "a") as file:
        del file["particles/all/position/step"]
        file["particles/all/position/step"] = [0, 0.5, 1]
    assert "not integers" in refusal(path, species="particles/all/position").message
    assert sorted(read(path, species="particles/all", columns=["image_x"])[1]) == [0, 1, 2]


def test_rows_of_h5md_without_a_particle(tmp_path):
    with h5py.File(tmp_path / "md.h5", "w") as file:
        ids = file.create_group("particles/all/id")
        ids.create_dataset("value", data=[[1, 2, 3], [4, -1, -1]], fillvalue=-1)
        ids["step"] = [5, 6]
        file["particles/all/position/value"] = numpy.arange(18.0).reshape(2, 3, 3)
        file["particles/all/position/step"] = [5, 6]
    error = refusal(tmp_path / "md.h5", columns=["position_x"])
    assert "2 rows of frame 1 have no particle" in error.message and "--nulls fill" in error.message
    _, found = read(tmp_path / "md.h5", nulls="fill")
    assert found[6]["id"].tolist() == [4, -1, -1]


# ---- GADGET and SWIFT


def test_constant_masses_of_gadget(tmp_path):
    for label, table in ((1, [0, 0.25, 3]), (2, [0, 0.5, 3])):
        with h5py.File(tmp_path / f"snap_{label}.hdf5", "w") as file:
            file.create_group("Header").attrs["MassTable"] = numpy.array(table)
            for kind in (0, 1, 2):
                file[f"PartType{kind}/ParticleIDs"] = numpy.arange(kind + 4, dtype="u8")
            file["PartType2/Masses"] = numpy.arange(6, dtype="f4")
    inventory, found = read(tmp_path / "snap_%T.hdf5", species="PartType1")
    assert found[1]["Masses"].tolist() == [0.25] * 5 and found[2]["Masses"].tolist() == [0.5] * 5
    assert inventory["notes"] == ["the constant of Header/MassTable: Masses"]
    for kind, names in ((0, ["ParticleIDs"]), (2, ["Masses", "ParticleIDs"])):
        inventory, found = read(tmp_path / "snap_%T.hdf5", species=f"PartType{kind}")
        assert sorted(found[1]) == names and inventory["notes"] == []
    assert found[1]["Masses"].dtype == "f4" and found[1]["Masses"].tolist() == list(range(6))
    # Groups of types are no steps.
    assert "{epoch}" not in refusal(tmp_path / "snap_%T.hdf5").message


SWIFT = "Conversion factor to CGS (not including cosmological corrections)"


def test_units_of_swift_and_gadget(tmp_path):
    attributes = {
        "Coordinates": {SWIFT: [3.08567758e24], "U_L exponent": [1.0], "a-scale exponent": [1.0], "h-scale exponent": [0.0]},
        "Velocities": {SWIFT: [1e5], "U_L exponent": [1.0], "U_t exponent": [-1.0], "a-scale exponent": [0.0]},
        "Temperatures": {SWIFT: [1.0], "U_T exponent": [1.0]},
        "ParticleIDs": {SWIFT: [1.0]},
        "Density": {
            "to_cgs": 2e-31,
            "length_scaling": -3.0,
            "mass_scaling": 1.0,
            "velocity_scaling": 0.0,
            "a_scaling": -3.0,
            "h_scaling": 2.0,
        },
        "Speed": {"to_cgs": 1e5, "length_scaling": 0.0, "mass_scaling": 0.0, "velocity_scaling": 1.0, "a_scaling": 0.5},
        "Flag": {"to_cgs": 0.0, "length_scaling": 0.0, "mass_scaling": 0.0, "velocity_scaling": 0.0},
        "Stated": {"units": numpy.bytes_(b"cm"), SWIFT: [7.0]},
    }
    with h5py.File(tmp_path / "snap_7.hdf5", "w") as file:
        for name, own in attributes.items():
            file[f"PartType0/{name}"] = numpy.ones((4, 3)) if name == "Coordinates" else numpy.ones(4)
            file[f"PartType0/{name}"].attrs.update(own)
        file["GasParticles"] = h5py.SoftLink("/PartType0")
    inventory, _ = read(tmp_path / "snap_%T.hdf5")
    assert units(inventory) == {
        "Coordinates_x": "3.08567758e+22 m",
        "Coordinates_y": "3.08567758e+22 m",
        "Coordinates_z": "3.08567758e+22 m",
        "Velocities": "1000.0 m s^-1",
        "Temperatures": "K",
        "ParticleIDs": None,
        "Density": f"{2e-31 * 1000} kg m^-3",
        "Speed": "1000.0 m s^-1",
        "Flag": None,
        "Stated": "cm",
    }
    assert sorted(inventory["notes"]) == [
        "values without the cosmological factor a: Coordinates_x, Coordinates_y, Coordinates_z",
        "values without the cosmological factor a^-3 h^2: Density",
        "values without the cosmological factor a^0.5: Speed",
    ]


# ---- types and order


def test_types_of_hdf5(tmp_path):
    levels = numpy.array([0, 3, 1], "i2")
    with h5py.File(tmp_path / "t_1.h5", "w") as file:
        file["flag"] = numpy.array([True, False, True])
        file.create_dataset("level", data=levels, dtype=h5py.enum_dtype({"LOW": 0, "HIGH": 3, "MID": 1}, basetype="i2"))
        file.create_dataset("vector", data=numpy.arange(6.0).reshape(3, 2), dtype=None)
        array = file.create_dataset("array", (3,), numpy.dtype("(3,)f4"))
        array[...] = numpy.arange(9.0).reshape(3, 3)
        file.create_dataset("ragged", (3,), h5py.vlen_dtype("i4"))
        file["label"] = ["a", "b", "c"]
        file["kind"] = numpy.dtype("f8")
        file["none"] = h5py.Empty("f8")
    inventory, found = read(tmp_path / "t_%T.h5")
    expected = {"flag": numpy.array([1, 0, 1], "u1"), "level": levels, "vector_0": [0.0, 2, 4], "vector_1": [1.0, 3, 5]}
    expected |= {f"array_{axis}": numpy.arange(9, dtype="f4")[place::3] for place, axis in enumerate(AXES)}
    assert same(found[1], {name: numpy.array(values) for name, values in expected.items()})
    notes = "\n".join(inventory["notes"])
    for words in (
        "as u8: flag",
        "'ragged' has the unsupported type",
        "'label' has the unsupported type",
        "'none' has no values",
    ):
        assert words in notes, notes


@pytest.mark.parametrize("ending", ["h5", "npz", "feather"])
def test_columns_in_another_order_match_by_name(tmp_path, ending):
    rows = {"x": numpy.arange(4.0), "y": -numpy.arange(4.0), "id": numpy.arange(4)}
    for label, names in ((1, ["x", "y", "id"]), (2, ["id", "y", "x"])):
        path = tmp_path / f"p_{label}.{ending}"
        ordered = {name: rows[name] * label for name in names}
        if ending == "h5":
            with h5py.File(path, "w", track_order=True) as file:
                for name, values in ordered.items():
                    file[name] = values
        elif ending == "npz":
            numpy.savez(path, **ordered)
        else:
            pyarrow.feather.write_feather(pyarrow.table(ordered), path, compression="uncompressed")
    _, found = read(tmp_path / f"p_%T.{ending}")
    assert all(same(found[label], {name: values * label for name, values in rows.items()}) for label in (1, 2))


# ---- openPMD


def test_files_of_beamphysics(tmp_path):
    made = write_beam(tmp_path / "beam.h5", 1000)
    inventory, found = read(tmp_path / "beam.h5")
    assert inventory["format"] == "openPMD" and list(found) == [0] and same(found[0], made)
    assert units(inventory)["position_x"] == "m" and units(inventory)["momentum_z"] == "5.344285992678308e-28 kg m s^-1"
    assert inventory["notes"] == [f"{tmp_path / 'beam.h5'} has no iterations, and is epoch 0; --epoch states another one"]
    assert list(read(tmp_path / "beam.h5", epoch=9)[1]) == [9]
    (tmp_path / "beam.h5").rename(tmp_path / "beam_4.h5")
    inventory, found = read(tmp_path / "beam_%T.h5", species="electron")
    assert list(found) == [4] and inventory["notes"] == []
    # Bmad gives each iteration a single species.
    made = write_beam(tmp_path / "bmad.h5", 10, base="/data/%T/", group="data/00012")
    assert same(read(tmp_path / "bmad.h5")[1][12], made)


def test_openpmd_without_its_library(tmp_path):
    """h5py alone reads openPMD in HDF5."""
    write_openpmd(tmp_path / "s.h5", {5: {"weighting": numpy.arange(9.0)}})
    (tmp_path / "lean").mkdir()
    (tmp_path / "lean" / "openpmd_api.py").write_text("raise ImportError('openpmd_api')\n")
    code = (
        "from turbidite.sources.detect import source_class\nfrom turbidite.sources.inventory import Options\nimport sys\n"
        "options = Options(sys.argv[1])\nkind = source_class(None, options)\ninventory = kind.scan(options)\n"
        "print(*kind(inventory).read(inventory.epochs[0], 0, 9)[0])"
    )
    environment = {"PYTHONPATH": f"{tmp_path / 'lean'}:{':'.join(sys.path)}"}
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "s.h5"], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stdout.split() == [str(value) for value in numpy.arange(9.0)], done.stderr


def test_defects_of_openpmd_matter_only_if_selected(tmp_path):
    write_openpmd(tmp_path / "s.h5", {1: {"weighting": numpy.arange(3.0), "id": numpy.arange(3)}, 2: {}})
    with h5py.File(tmp_path / "s.h5", "a") as file:
        particles = file["data/1/particles"]
        particles.create_group("ions")
        particles["photons/weighting"] = h5py.Empty("f8")
        particles["electrons"].create_group("void")
        particles["electrons/none"] = h5py.Empty("f8")
        particles["electrons/charge"] = h5py.SoftLink("/nowhere")
        file.create_group("data/3/particles/electrons")
    assert "choose one with --species: electrons, ions, photons" in refusal(tmp_path / "s.h5").message
    inventory, found = read(tmp_path / "s.h5", species="electrons")
    assert same(found[1], {"weighting": numpy.arange(3.0), "id": numpy.arange(3)}) and [
        len(found[label]["id"]) for label in (2, 3)
    ] == [0, 0]
    assert inventory["notes"] == [
        "'charge' is a link to '/nowhere', which does not exist; it is left out",
        "'none' has no values (its dataspace is null); it is left out",
        "'void' is an empty group; it is left out",
        "epochs without records: 2, 3",
    ]
    assert "'charge' is a link to" in refusal(tmp_path / "s.h5", species="electrons", columns=["charge"]).message
    for species in ("ions", "photons"):
        assert f"no iteration has particles of the species '{species}'" in refusal(tmp_path / "s.h5", species=species).message


def test_types_that_openpmd_api_refuses(tmp_path):
    count = 300
    write_openpmd(tmp_path / "s.h5", {1: {name: numpy.zeros(count, "f4") for name in ("weighting", "half", "flag", "psi")}})
    values = {"weighting": numpy.arange(count, dtype=">f4"), "half": numpy.arange(count, dtype="f2")}
    values |= {"flag": numpy.arange(count) % 2 == 0, "psi": numpy.arange(count) * (1 - 2j)}
    for name, own in values.items():
        replace_record(tmp_path / "s.h5", 1, name, own)
    _, found = read(tmp_path / "s.h5")
    expected = {"weighting": values["weighting"].astype("<f4"), "half": values["half"].astype("f4")}
    expected |= {"flag": values["flag"].astype("u1"), "psi_re": values["psi"].real.copy(), "psi_im": values["psi"].imag.copy()}
    assert same(found[1], expected)


def test_records_that_openpmd_api_skips_are_an_error():
    """The library leaves out a record that it cannot read, and prints it on standard error."""
    printed = b"Cannot read particle record 'weighting' and will skip it due to read error:\nunexpected type\n"
    with pytest.raises(SourceError, match="cannot read particle record 'weighting': unexpected type"), openpmd._errors("s.bp"):
        os.write(2, printed)
