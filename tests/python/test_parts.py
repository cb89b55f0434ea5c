"""Several files of an epoch: its parts, in every format that the package reads, against h5py and NumPy."""

import json
import re

import h5py
import numpy
import pyarrow
import pytest
import turbidite

from support.source_files import write_lammps, write_openpmd
from support.source_reader import Reader, read, refusal

STEPS = (7, 12)
PARTS = (0, 1, 2, 10)


def rows_of(step: int, part: int, order: int = 1) -> dict[str, numpy.ndarray]:
    """Rows that no other part has. Every second part has its columns in another order."""
    random = numpy.random.default_rng([step, part])
    count = 40 + part
    rows = {"x": random.standard_normal(count), "id": numpy.arange(count) + 1000 * part, "vx": random.standard_normal(count)}
    return dict(sorted(rows.items(), reverse=part % 2 == 0)[::order])


def write_hdf5(path, rows, **header) -> None:
    with h5py.File(path, "w") as file:
        for name, values in rows.items():
            file[f"PartType1/{name}"] = values
        if header:
            file.create_group("Header").attrs.update(header)


def write_arrow(path, rows) -> None:
    table = pyarrow.table(rows)
    with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


WRITERS = {
    "hdf5": write_hdf5,
    "npz": lambda path, rows: numpy.savez(path, **rows),
    "arrow": write_arrow,
    "lammpstrj": None,
}


def write_series(folder, ending: str, name) -> dict[int, dict[str, numpy.ndarray]]:
    """Writes all parts of all steps, and returns the rows of each step in the order of the parts' numbers."""
    for step in STEPS:
        for part in PARTS:
            path = folder / f"{name(step, part)}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            if ending == "lammpstrj":
                write_lammps(path, {step: rows_of(step, part)})
            else:
                WRITERS[ending](path, rows_of(step, part))
    parts = {step: [rows_of(step, part) for part in PARTS] for step in STEPS}
    return {step: {name: numpy.concatenate([one[name] for one in these]) for name in these[0]} for step, these in parts.items()}


def same(found: dict[str, numpy.ndarray], expected: dict[str, numpy.ndarray]) -> bool:
    return sorted(found) == sorted(expected) and all((found[name] == values).all() for name, values in expected.items())


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        (lambda step, part: f"snap_{step:03}.{part}", "snap_%T.{{rank}}.{}"),
        (lambda step, part: f"snap_{step:03}.{part}", "snap_{{epoch}}.*.{}"),
        (lambda step, part: f"snapdir_{step:03}/snap_{step:03}.{part:04}", "snapdir_{{epoch}}/snap_{{epoch}}.{{rank}}.{}"),
        (lambda step, part: f"rank{part}/snap_{step}", "rank{{rank}}/snap_*.{}"),
    ],
)
def test_parts_are_read_in_the_order_of_their_numbers(tmp_path, ending, name, pattern):
    expected = write_series(tmp_path, ending, name)
    inventory, found = read(tmp_path / pattern.format(ending))
    assert [(epoch["epoch"], epoch["rank"]) for epoch in inventory["epochs"]] == [
        (step, part) for step in STEPS for part in PARTS
    ]
    for step in STEPS:
        assert same(found[step], expected[step])


@pytest.mark.parametrize("ending", WRITERS)
def test_an_ingest_stores_the_rows_of_all_parts(tmp_path, ending):
    expected = write_series(tmp_path / "run", ending, lambda step, part: f"snap_{step:03}.{part}")
    pattern = tmp_path / "run" / f"snap_%T.{{rank}}.{ending}"
    report = turbidite.ingest(pattern, tmp_path / "ds", key="x", source_ranks=11, allow_missing_ranks=True, threads=2)
    assert report["rows"] == sum(len(rows["x"]) for rows in expected.values())
    assert any("7 (4 of 11 files)" in note for note in report["notes"])
    for step in STEPS:
        found = turbidite.open(tmp_path / "ds").query(epochs=step, columns=["id", "x", "vx"]).to_numpy()
        for name, values in expected[step].items():
            assert (found[name][numpy.argsort(found["id"])] == values).all()


def test_processors_of_lammps_that_write_a_file_each(tmp_path):
    """`dump split.%.lammpstrj`: each file has all steps."""
    for part in range(3):
        write_lammps(tmp_path / f"split.{part}.lammpstrj", {step: rows_of(step, part) for step in STEPS})
    for pattern in ("split.{rank}.lammpstrj", "split.*.lammpstrj", "split.?.lammpstrj"):
        inventory, found = read(tmp_path / pattern)
        assert bool(inventory["notes"]) == ("rank" not in pattern)
        for step in STEPS:
            assert same(
                found[step],
                {name: numpy.concatenate([rows_of(step, part)[name] for part in range(3)]) for name in "x id vx".split()},
            )
    report = turbidite.ingest(tmp_path / "split.{rank}.lammpstrj", tmp_path / "ds", key="x")
    assert [epoch["rows"] for epoch in report["epochs"]] == [123, 123]


def test_parts_with_other_steps_are_refused(tmp_path):
    write_lammps(tmp_path / "split.0.dump", {7: rows_of(7, 0), 12: rows_of(12, 0)})
    write_lammps(tmp_path / "split.1.dump", {7: rows_of(7, 1)})
    for pattern, words in {
        "split.{rank}.dump": ["--allow-missing-ranks"],
        "split.*.dump": ["{rank}", "--if-repeated last"],
    }.items():
        error = refusal(tmp_path / pattern)
        assert error.path.endswith("split.1.dump") and "split.0.dump" in error.message and " 12," in error.message
        assert all(word in error.message for word in words), error.message
    # The options that the messages propose.
    report = turbidite.ingest(tmp_path / "split.{rank}.dump", tmp_path / "parts", key="x", allow_missing_ranks=True)
    assert [epoch["rows"] for epoch in report["epochs"]] == [81, 40]
    report = turbidite.ingest(tmp_path / "split.*.dump", tmp_path / "repeated", key="x", if_repeated="last")
    assert [epoch["rows"] for epoch in report["epochs"]] == [41, 40]


def test_names_of_parts_that_are_no_numbers(tmp_path):
    for name in ("left", "right"):
        numpy.savez(tmp_path / f"s_7_{name}.npz", side=numpy.full(3, int(name == "right")))
    inventory, found = read(tmp_path / "s_{epoch}_*.npz")
    assert found[7]["side"].tolist() == [0, 0, 0, 1, 1, 1]
    assert "s_7_left.npz" in inventory["notes"][0]


def test_openpmd_in_parts(tmp_path):
    for part in range(2):
        write_openpmd(tmp_path / f"s.{part}.h5", {step: rows_of(step, part) for step in STEPS})
    _, found = read(tmp_path / "s.{rank}.h5")
    assert same(
        found[7], {name: numpy.concatenate([rows_of(7, part)[name] for part in range(2)]) for name in ("x", "id", "vx")}
    )


@pytest.mark.parametrize("ending", ["npz", "lammpstrj"])
def test_a_part_that_is_missing_is_named(tmp_path, ending):
    write_series(tmp_path, ending, lambda step, part: f"s_{step}.{PARTS.index(part):03}")
    (tmp_path / f"s_12.001.{ending}").unlink()
    pattern = tmp_path / f"s_%T.{{rank}}.{ending}"
    with pytest.raises(turbidite.OperationError) as refused:
        turbidite.ingest(pattern, tmp_path / "ds", key="x")
    assert f"s_12.001.{ending} is missing: epoch 12 has 3 of 4 ranks" in str(refused.value)
    assert "allow_missing_ranks" in str(refused.value)
    (tmp_path / f"s_12.003.{ending}").unlink()
    with pytest.raises(turbidite.OperationError, match="has 2 of the 4 ranks of epoch 7"):
        turbidite.ingest(pattern, tmp_path / "ds", key="x")
    assert turbidite.ingest(pattern, tmp_path / "one", key="x", epochs=7)["rows"] == 173
    assert turbidite.ingest(pattern, tmp_path / "two", key="x", allow_missing_ranks=True)["rows"] == 173 + 82
    with pytest.raises(turbidite.UsageError, match="source_ranks is for epochs with a file of each rank"):
        turbidite.ingest(
            tmp_path / f"s_7.000.{ending}",
            tmp_path / "no",
            key="x",
            source_ranks=2,
            **({"epoch": 7} if ending == "npz" else {}),
        )


def write_snapshot(folder, counts: list[list[int]], files: int | None = None, total: list[int] | None = None) -> None:
    """A snapshot as GADGET writes it: `counts` has the particles of each type in each file."""
    sums = numpy.sum(counts, axis=0) if total is None else numpy.array(total, "u8")
    for part, here in enumerate(counts):
        with h5py.File(folder / f"snap_012.{part}.hdf5", "w") as file:
            file.create_group("Header").attrs.update(
                NumPart_ThisFile=numpy.array(here, "i4"),
                NumPart_Total=(sums & 0xFFFFFFFF).astype("u4"),
                NumPart_Total_HighWord=(sums >> 32).astype("u4"),
                NumFilesPerSnapshot=len(counts) if files is None else files,
            )
            for kind, count in enumerate(here):
                if count:
                    file[f"PartType{kind}/ParticleIDs"] = numpy.arange(count, dtype="u8") + 1000 * part


def test_snapshots_of_gadget_are_compared_with_their_headers(tmp_path):
    pattern = tmp_path / "snap_%T.{rank}.hdf5"
    # A type that one of the files has not.
    write_snapshot(tmp_path, [[3, 5], [4, 0], [2, 6]])
    assert turbidite.ingest(pattern, tmp_path / "a", key="ParticleIDs", species="PartType0")["rows"] == 9
    assert turbidite.ingest(pattern, tmp_path / "b", key="ParticleIDs", species="PartType1")["rows"] == 11
    ids = turbidite.open(tmp_path / "b").query(columns=["ParticleIDs"]).to_numpy()["ParticleIDs"]
    assert sorted(ids) == [*range(5), *range(2000, 2006)]
    # The last file is missing, which no neighbour shows.
    (tmp_path / "snap_012.2.hdf5").unlink()
    with pytest.raises(
        turbidite.OperationError, match=r"snap_012\.2\.hdf5 is missing: epoch 12 has 2 of the 3 ranks that .*snap_012\.0"
    ):
        turbidite.ingest(pattern, tmp_path / "c", key="ParticleIDs", species="PartType0")
    assert (
        turbidite.ingest(pattern, tmp_path / "c", key="ParticleIDs", species="PartType0", allow_missing_ranks=True)["rows"] == 7
    )
    # One file alone.
    error = refusal(tmp_path / "snap_%T.0.hdf5", species="PartType0")
    assert (
        "3 of 9 records of PartType0" in error.message
        and "{rank}" in error.message
        and "--allow-missing-ranks" in error.message
    )
    report = turbidite.ingest(
        tmp_path / "snap_%T.0.hdf5", tmp_path / "d", key="ParticleIDs", species="PartType0", allow_missing_ranks=True
    )
    assert report["rows"] == 3
    write_snapshot(tmp_path, [[3, 5], [4, 1]], total=[2**32 + 7, 6])
    error = refusal(pattern, species="PartType0")
    assert f"the 2 files of epoch 12 have 7 of {2**32 + 7} records of PartType0" in error.message
    assert turbidite.ingest(pattern, tmp_path / "e", key="ParticleIDs", species="PartType1")["rows"] == 6


def test_parts_with_other_columns_name_both_files(tmp_path):
    numpy.savez(tmp_path / "s_7.0.npz", x=numpy.arange(3), y=numpy.arange(3))
    numpy.savez(tmp_path / "s_7.1.npz", x=numpy.arange(3.0), y=numpy.arange(3))
    error = refusal(tmp_path / "s_%T.{rank}.npz")
    assert error.path.endswith("s_7.1.npz") and "s_7.0.npz" in error.message and "'x' is f64, before i64" in error.message
    [names] = re.findall(r"--columns (\S+)", error.message)
    assert turbidite.ingest(tmp_path / "s_%T.{rank}.npz", tmp_path / "ds", key="y", columns=names.split(","))["rows"] == 6


def test_messages_propose_patterns_that_work(tmp_path):
    for part in range(2):
        numpy.savez(tmp_path / f"part_012.{part}.npz", x=numpy.arange(3.0))
        write_lammps(tmp_path / f"dump.{part}.lammpstrj", {7: rows_of(7, part)})
    error = refusal(tmp_path / "part_*.npz")
    [pattern] = re.findall("as in '(.+)'", error.message)
    assert turbidite.ingest(pattern, tmp_path / "npz", key="x")["rows"] == 6
    error = refusal(tmp_path, format="lammps")
    assert "if they are repetitions" in error.message
    [pattern] = re.findall("give the pattern '(.+?)'", error.message)
    assert turbidite.ingest(pattern, tmp_path / "lammps", key="x")["rows"] == 81


def test_one_epoch_may_be_stated_for_all_parts(tmp_path):
    for part in range(2):
        numpy.savez(tmp_path / f"s_7.{part}.npz", x=numpy.arange(3) + 3 * part)
    with Reader() as reader:
        reader.open(tmp_path / "s_7.{rank}.npz", epoch=5)
        assert reader.epoch(5)["x"].tolist() == list(range(6))
    error = refusal(tmp_path / "s_7.{rank}.npz")
    assert error.kind == "usage" and "--epoch" in error.message


def test_epochs_that_are_not_whole_are_left_out(tmp_path):
    """As the message about a file that h5py cannot open proposes."""
    for step in (1, 2):
        write_hdf5(tmp_path / f"s_{step}.hdf5", rows_of(step, 0))
    (tmp_path / "s_2.hdf5").write_bytes((tmp_path / "s_2.hdf5").read_bytes()[:3000])
    with pytest.raises(turbidite.OperationError, match="complete_only reads the epochs that are whole"):
        turbidite.ingest(tmp_path / "s_%T.hdf5", tmp_path / "ds", key="x", species="PartType1")
    report = turbidite.ingest(tmp_path / "s_%T.hdf5", tmp_path / "ds", key="x", species="PartType1", complete_only=True)
    assert [epoch["epoch"] for epoch in report["epochs"]] == [1]
    assert "epoch 2 is left out" in report["notes"][0] and "s_2.hdf5" in report["notes"][0]


def test_a_text_is_scanned_on_from_its_last_step(tmp_path):
    """Once all steps before it have been read, and if it is still there."""
    path = tmp_path / "run.lammpstrj"
    write_lammps(path, {step: rows_of(step, 0) for step in (0, 10, 20)})
    text = path.read_text()
    third = text.index("ITEM: TIMESTEP\n20\n")
    path.write_text(text[:third])
    with Reader() as reader:
        resume = json.dumps(reader.open(path, complete_only=True)["index"]["details"]["resume"])
    # A scan from the beginning fails.
    second = text.index("ITEM: TIMESTEP\n10\n")
    path.write_text(text.replace("TIMESTEP\n0\n", "TIMESTEP\nx\n"))
    stated = {"complete_only": True, "resume": resume}
    with Reader() as reader:
        inventory = reader.open(path, done=[0, 10], **stated)
        assert (inventory["labels"], inventory["left_out"]) == ([0, 10, 20], [])
        assert same(reader.epoch(20), rows_of(20, 0))
    with Reader() as reader:
        assert reader.open(path, done=[0], **stated)["left_out"]
    path.write_text(text[:second] + text[third:])
    with Reader() as reader:
        inventory = reader.open(path, done=[0, 10], **stated)
        assert (inventory["labels"], inventory["left_out"]) == ([0, 20], [])


def test_defects_of_epochs_that_are_not_read(tmp_path):
    write_series(tmp_path, "npz", lambda step, part: f"s_{step}.{PARTS.index(part)}")
    (tmp_path / "s_7.1.npz").write_bytes(b"PK\x03\x04")
    pattern = tmp_path / "s_%T.{rank}.npz"
    assert turbidite.ingest(pattern, tmp_path / "ds", key="x", epochs=12)["rows"] == 173
    with pytest.raises(turbidite.UsageError, match="has no epoch 3; it has 7, 12"):
        turbidite.ingest(pattern, tmp_path / "no", key="x", epochs=3)
    text = tmp_path / "run.lammpstrj"
    write_lammps(text, {step: rows_of(step, 0) for step in (0, 10, 20)})
    broken = text.read_text().replace(
        "ITEM: TIMESTEP\n10\nITEM: NUMBER OF ATOMS\n40", "ITEM: TIMESTEP\n10\nITEM: NUMBER OF ATOMS\n39"
    )
    text.write_text(broken + "ITEM: TIMEST")
    for step in (0, 20):
        assert turbidite.ingest(text, tmp_path / f"lammps-{step}", key="x", epochs=step)["rows"] == 40
    assert "expected 'ITEM: TIMESTEP' after the 39 atoms of step 10" in refusal(text).message
    assert "expected 'ITEM: TIMESTEP' after the 39 atoms of step 10" in refusal(text, epochs=[[5, 15, 1]]).message
    write_openpmd(tmp_path / "o_%T.h5", {1: rows_of(1, 0), 2: rows_of(2, 0)})
    (tmp_path / "o_1.h5").write_bytes((tmp_path / "o_1.h5").read_bytes()[:500])
    assert turbidite.ingest(tmp_path / "o_%T.h5", tmp_path / "openpmd", key="x", epochs=2)["rows"] == 40


def write_steps(path, steps: dict[int, dict[str, numpy.ndarray]]) -> None:
    """A file of H5Part."""
    with h5py.File(path, "w") as file:
        for step, rows in steps.items():
            for name, values in rows.items():
                file[f"Step#{step}/{name}"] = values


def test_steps_in_files_of_several_parts(tmp_path):
    for part in (0, 1):
        write_steps(tmp_path / f"s.{part}.h5", {step: rows_of(step, part) for step in STEPS})
    inventory, found = read(tmp_path / "s.{rank}.h5")
    assert [(epoch["epoch"], epoch["rank"]) for epoch in inventory["epochs"]] == [(7, 0), (7, 1), (12, 0), (12, 1)]
    for step in STEPS:
        parts = [rows_of(step, part) for part in (0, 1)]
        assert same(found[step], {name: numpy.concatenate([one[name] for one in parts]) for name in parts[0]})
    # The columns of step 12 differ in length, which concerns nobody who reads step 7.
    write_steps(tmp_path / "s.1.h5", {7: rows_of(7, 1), 12: rows_of(12, 1) | {"x": numpy.zeros(3)}})
    assert "differ" in refusal(tmp_path / "s.{rank}.h5").message
    inventory, found = read(tmp_path / "s.{rank}.h5", epochs=[[7, 7, 1]])
    assert list(found) == [7] and inventory["labels"] == [*STEPS]
    inventory, found = read(tmp_path / "s.{rank}.h5", complete_only=True)
    assert list(found) == [7] and [one["epoch"] for one in inventory["left_out"]] == [12]
    # Its number is not an epoch, so that it may have one that is read.
    (tmp_path / "s.2.h5").write_bytes(b"")
    assert refusal(tmp_path / "s.*.h5", epochs=[[7, 7, 1]]).path == str(tmp_path / "s.2.h5")


def test_openpmd_in_parts_that_are_not_whole(tmp_path):
    for step in STEPS:
        for part in (0, 1):
            write_openpmd(tmp_path / f"o_{step}.{part}.h5", {step: rows_of(step, part)})
    pattern = tmp_path / "o_%T.{rank}.h5"
    inventory, found = read(pattern)
    assert [len(rows["x"]) for rows in found.values()] == [81, 81]
    content = (tmp_path / "o_12.1.h5").read_bytes()
    (tmp_path / "o_12.1.h5").write_bytes(content[: len(content) // 2])
    assert "copy it again" in refusal(pattern).message
    inventory, found = read(pattern, complete_only=True)
    assert list(found) == [7] and [one["epoch"] for one in inventory["left_out"]] == [12]
    assert list(read(pattern, epochs=[[7, 7, 1]])[1]) == [7]
    assert turbidite.ingest(pattern, tmp_path / "ds", key="x", complete_only=True)["rows"] == 81
    (tmp_path / "o_12.1.h5").unlink()
    with pytest.raises(turbidite.OperationError, match=re.escape("o_12.1.h5")):
        turbidite.ingest(pattern, tmp_path / "ds", key="x", if_exists="skip")


def test_the_box_of_parts(tmp_path):
    for part in (0, 1):
        write_lammps(tmp_path / f"s.{part}.dump", {step: rows_of(step, part) for step in STEPS})
    inventory, _ = read(tmp_path / "s.{rank}.dump")
    periods = [epoch["periods"] for epoch in inventory["epochs"]]
    assert len(periods) == 4 and all("x" in of_part for of_part in periods)
