"""What HDF5 files lack, leave elsewhere, or store in chunks: values that were never written, links, filters, caches."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy
import pytest
import turbidite
from turbidite.sources import hdf5_files
from turbidite.sources.inventory import Options
from turbidite.sources.detect import source_class

from support.source_files import write_openpmd
from support.source_reader import read, refusal

# ---- values that were never written


def test_chunks_that_were_never_written(tmp_path):
    path = tmp_path / "s.h5"
    with h5py.File(path, "w") as file:
        file["id"] = numpy.arange(1000)
        for name, shape, chunks in (("x", (1000,), (100,)), ("u", (1000, 3), (100, 2))):
            made = file.create_dataset(name, shape, "f4", chunks=chunks, compression="gzip", fillvalue=7)
            made[:200] = numpy.ones((200, *shape[1:]))
            made[300:450] = numpy.ones((150, *shape[1:]))
            made[700:] = numpy.ones((300, *shape[1:]))
        # All but one of two chunks of each row.
        file["u"][200:300, :2] = numpy.zeros((100, 2))
    error = refusal(path, epoch=1)
    assert error.kind == "failed" and error.path == str(path)
    assert "the dataset '/u' has no values in rows 200 to 299, 500 to 699, which were never written" in error.message
    assert "--nulls fill" in error.message and error.message.endswith("--columns id")
    with h5py.File(path, "r") as file:
        expected = {"x": file["x"][:], "id": file["id"][:]} | {
            f"u_{axis}": file["u"][:, place] for place, axis in enumerate("xyz")
        }
    _, found = read(path, epoch=1, nulls="fill")
    assert all(found[1][name].tolist() == values.tolist() for name, values in expected.items())
    # The command that the message proposes works; other columns are not judged.
    for name, options in (("ids", {"columns": ["id"]}), ("filled", {"nulls": "fill"})):
        assert turbidite.ingest(path, tmp_path / name, key="id", epoch=1, **options)["rows"] == 1000
    with pytest.raises(turbidite.UsageError, match="nulls nan is for Parquet and Arrow files, nulls fill for HDF5 files"):
        turbidite.ingest(path, tmp_path / "other", key="id", epoch=1, nulls="nan")


@pytest.mark.parametrize("form", ["contiguous", "chunked", "early", "compact", "empty"])
def test_datasets_that_were_never_written(tmp_path, form):
    with h5py.File(tmp_path / "s_1.h5", "w") as file:
        count = 0 if form == "empty" else 50
        file["id"] = numpy.arange(count)
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if form == "chunked":
            layout.set_chunk((10,))
        if form == "early":
            layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        if form == "compact":
            layout.set_layout(h5py.h5d.COMPACT)
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((count,)), layout)
    if form in ("contiguous", "chunked"):
        assert "'/x' has no values in rows 0 to 49" in refusal(tmp_path / "s_%T.h5").message
        assert read(tmp_path / "s_%T.h5", nulls="fill")[1][1]["x"].tolist() == [0] * 50
    else:
        # Their space was allocated, and filled, when they were created.
        assert read(tmp_path / "s_%T.h5")[1][1]["x"].tolist() == [0] * count


def test_unwritten_values_of_one_step_are_those_of_a_step(tmp_path):
    with h5py.File(tmp_path / "md.h5", "w") as file:
        values = file.create_dataset("particles/all/position/value", (3, 100, 3), "f4", chunks=(1, 40, 3))
        values[0], values[1, :40], values[1, 80:] = 1, 1, 1
        file["particles/all/position/step"] = [0, 10, 20]
    error = refusal(tmp_path / "md.h5")
    assert "has no values in rows 40 to 79 of frame 1" in error.message


def test_unwritten_values_of_openpmd(tmp_path):
    write_openpmd(tmp_path / "s.h5", {1: {"weighting": numpy.arange(9.0), "id": numpy.arange(9)}})
    with h5py.File(tmp_path / "s.h5", "a") as file:
        species = file["data/1/particles/electrons"]
        del species["weighting"]
        species.create_dataset("weighting", (9,), "f8")
    error = refusal(tmp_path / "s.h5")
    assert "'/data/1/particles/electrons/weighting' has no values in rows 0 to 8" in error.message
    assert read(tmp_path / "s.h5", columns=["id"])[1][1]["id"].tolist() == list(range(9))


def test_sources_of_a_virtual_dataset_are_judged_like_others(tmp_path):
    path = tmp_path / "whole.h5"
    layout = h5py.VirtualLayout((200,), "f8")
    for part in range(2):
        with h5py.File(tmp_path / f"part{part}.h5", "w") as file:
            made = file.create_dataset("x", (100,), "f8", chunks=(10,))
            made[: 100 - 20 * part] = numpy.arange(100.0 - 20 * part)
        layout[100 * part : 100 * part + 100] = h5py.VirtualSource(f"part{part}.h5", "x", (100,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)
    error = refusal(path, epoch=1)
    assert "'/x' has values that were never written of its source 'x' in" in error.message
    assert "for rows 100 to 199" in error.message and "--nulls fill" in error.message
    assert read(path, epoch=1, nulls="fill")[1][1]["x"][180:].tolist() == [0.0] * 20
    with h5py.File(tmp_path / "part1.h5", "w") as file:
        file["x"] = numpy.arange(60.0)
    assert "needs 100 rows of its source 'x'" in refusal(path, epoch=1).message
    with h5py.File(path, "a") as file:
        # Sources without an end.
        layout = h5py.VirtualLayout((60,), "f8", maxshape=(None,))
        whole = h5py.VirtualSource("part1.h5", "x", (60,), maxshape=(None,))
        layout[: h5py.h5s.UNLIMITED] = whole[: h5py.h5s.UNLIMITED]
        file.create_virtual_dataset("open/x", layout)
    (tmp_path / "part1.h5").unlink()
    # A source lies beside the file that names it, also behind a link.
    (tmp_path / "links").mkdir()
    with h5py.File(tmp_path / "links" / "l_1.h5", "w") as file:
        file["x"] = h5py.ExternalLink(str(path), "/x")
    assert "lacks its source part1.h5 for rows 100 to 199" in refusal(tmp_path / "links" / "l_%T.h5").message
    assert "'/open/x' lacks its source part1.h5: put" in refusal(path, epoch=1, species="open").message
    error = refusal(path, epoch=1)
    assert "lacks its source part1.h5 for rows 100 to 199: put the file back" in error.message
    assert read(path, epoch=1, nulls="fill")[1][1]["x"][100:].tolist() == [0.0] * 100
    with h5py.File(tmp_path / "part0.h5", "w"):
        pass
    assert "lacks its source 'x' in" in refusal(path, epoch=1).message
    assert read(path, epoch=1, nulls="fill")[1][1]["x"].tolist() == [0.0] * 200


def test_raw_files_that_are_too_short(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with h5py.File(tmp_path / "s_1.h5", "w") as file:
        made = file.create_dataset("x", (10,), "f8", external=[("x.raw", 0, 80)])
        made[:] = numpy.arange(10.0)
    assert read(tmp_path / "s_%T.h5")[1][1]["x"].tolist() == list(range(10))
    os.truncate(tmp_path / "x.raw", 40)
    assert "x.raw, which has 40 of 80 bytes" in refusal(tmp_path / "s_%T.h5").message


# ---- links, and what is left out


def test_links_are_followed_and_dangling_ones_named(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["deep/x"] = numpy.arange(5.0)
        file["deep/y"] = -numpy.arange(5.0)
    with h5py.File(tmp_path / "s_1.h5", "w") as file:
        file["all/x"] = h5py.ExternalLink("other.h5", "/deep/x")
        file["all/own"] = numpy.arange(5)
        file["all/soft"] = h5py.SoftLink("/all/own")
        file["all/loop"] = h5py.SoftLink("/all")
        file["all/gone"] = h5py.SoftLink("/nowhere")
        file["all/far"] = h5py.ExternalLink("absent.h5", "/x")
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/deep")
    inventory, found = read(tmp_path / "s_%T.h5", species="all")
    assert {name: values.tolist() for name, values in found[1].items()} == {
        "x": [0, 1, 2, 3, 4],
        "own": [0, 1, 2, 3, 4],
        "soft": [0, 1, 2, 3, 4],
    }
    assert inventory["notes"] == [
        "'far' is a link to 'absent.h5:/x', which does not exist; it is left out",
        "'gone' is a link to '/nowhere', which does not exist; it is left out",
    ]
    error = refusal(tmp_path / "s_%T.h5", species="all", columns=["far"])
    assert error.kind == "usage" and "column 'far' is a link to 'absent.h5:/x'" in error.message
    assert "is a link to '/nowhere'" in refusal(tmp_path / "s_%T.h5", species="all/gone").message
    assert read(tmp_path / "s_%T.h5", species="elsewhere")[1][1]["y"].tolist() == [0, -1, -2, -3, -4]
    assert "choose one with --species: all, elsewhere" in refusal(tmp_path / "s_%T.h5").message
    with h5py.File(tmp_path / "o_1.h5", "w") as file:
        # By the name of its hard link, whatever the order.
        file["a"], file["b/x"] = h5py.SoftLink("/b/x"), numpy.arange(5.0)
    assert list(read(tmp_path / "o_%T.h5")[1][1]) == ["x"]
    with h5py.File(tmp_path / "e_1.h5", "w") as file:
        file["y"] = h5py.ExternalLink("other.h5", "/deep/y")
    assert read(tmp_path / "e_%T.h5")[1][1]["y"].tolist() == [0, -1, -2, -3, -4]


def test_other_groups_are_named(tmp_path):
    with h5py.File(tmp_path / "s_1.h5", "w") as file:
        file["p/x"] = numpy.arange(5.0)
        file["fields/e"] = numpy.zeros((4, 5, 6))
        file["p/name"] = [b"a"] * 5
        file["Header/time"] = 0.5
        file["gone"] = h5py.SoftLink("/nowhere")
    inventory, found = read(tmp_path / "s_%T.h5")
    assert found[1]["x"].tolist() == [0, 1, 2, 3, 4]
    assert inventory["notes"] == [
        "only the group 'p' is read; left out: gone, Header/time, fields/e",
        "'name' has the unsupported type objects, or text of any length; it is left out",
    ]
    assert len(read(tmp_path / "s_%T.h5", species="p")[0]["notes"]) == 1


def test_steps_and_times_alone_are_no_records(tmp_path):
    with h5py.File(tmp_path / "f_1.h5", "w") as file:
        file["time"], file["step"] = numpy.arange(3.0), numpy.arange(3)
        file["field"] = numpy.zeros((3, 4, 5, 6))
    error = refusal(tmp_path / "f_%T.h5")
    assert (
        error.kind == "failed"
        and "only step, time can be read" in error.message
        and "'field' has rows of shape" in error.message
    )
    assert read(tmp_path / "f_%T.h5", columns=["step", "time"])[1][1]["step"].tolist() == [0, 1, 2]
    with h5py.File(tmp_path / "g_1.h5", "w") as file:
        file["time"], file["fields/e"] = numpy.arange(3.0), numpy.zeros((3, 4, 5, 6))
    assert "only time can be read, and not fields/e" in refusal(tmp_path / "g_%T.h5").message
    assert read(tmp_path / "g_%T.h5", columns=["time"])[1][1]["time"].tolist() == [0, 1, 2]
    with h5py.File(tmp_path / "t_1.h5", "w") as file:
        file["time"] = numpy.arange(3.0)
    assert read(tmp_path / "t_%T.h5")[1][1]["time"].tolist() == [0, 1, 2]


# ---- files that cannot be opened


def test_files_that_are_no_hdf5_are_called_what_they_are(tmp_path):
    contents = {
        b"CDF\x01" + bytes(60): "netCDF-3",
        b"\x0e\x03\x13\x01" + bytes(60): "HDF4",
        b"PK\x03\x04" + bytes(60): "zip archive",
        b"": "empty",
        b"version https://git-lfs.github.com/spec/v1\n": "Git LFS",
        bytes(range(1, 99)): "begins with b'\\x01\\x02",
    }
    for content, words in contents.items():
        (tmp_path / "s.h5").write_bytes(content)
        error = refusal(tmp_path / "s.h5", epoch=1)
        assert error.kind == "failed" and "is not HDF5" in error.message and words in error.message, error.message
        assert "copy it again" not in error.message


def test_a_file_that_is_cut_has_its_lengths(tmp_path):
    with h5py.File(tmp_path / "s_1.h5", "w") as file:
        file["x"] = numpy.arange(10_000.0)
    length = os.path.getsize(tmp_path / "s_1.h5")
    os.truncate(tmp_path / "s_1.h5", 5000)
    error = refusal(tmp_path / "s_%T.h5")
    assert (
        error.kind == "corrupt"
        and f"is cut: it has 5000 of {length} bytes" in error.message
        and "copy it again" in error.message
    )


def test_a_file_of_a_killed_writer(tmp_path):
    code = (
        "import h5py, numpy, os, sys\nfile = h5py.File(sys.argv[1], 'w', libver='latest')\n"
        "file['x'] = numpy.arange(5.0)\nfile.swmr_mode = True\nos._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "s_1.h5"], check=True)
    error = refusal(tmp_path / "s_%T.h5")
    assert error.kind == "failed" and "marked as open for writing" in error.message and "h5clear" in error.message


# ---- chunks

_REVERSE = 0x0100
_COUNTING = 300
"""The number of a filter for tests."""


class _Filter(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_int),
        ("id", ctypes.c_int),
        ("encoder_present", ctypes.c_uint),
        ("decoder_present", ctypes.c_uint),
        ("name", ctypes.c_char_p),
        ("can_apply", ctypes.c_void_p),
        ("set_local", ctypes.c_void_p),
        ("filter", ctypes.c_void_p),
    ]


@pytest.fixture
def decoded() -> Iterator[Callable[[], int]]:
    """Returns the number of chunks that HDF5 has decoded since the last call. The filter changes no bytes."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    library = ctypes.CDLL(next(line.split()[-1] for line in lines if "/libhdf5-" in line or "/libhdf5.so" in line))
    count = 0

    def apply(flags, values, parameters, used, allocated, buffer):
        nonlocal count
        count += bool(flags & _REVERSE)
        return used

    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    called = ctypes.CFUNCTYPE(size, ctypes.c_uint, size, pointer, size, pointer, pointer)(apply)
    made = _Filter(1, _COUNTING, 1, 1, b"counts", None, None, ctypes.cast(called, pointer).value)
    assert library.H5Zregister(ctypes.byref(made)) >= 0

    def taken() -> int:
        nonlocal count
        before, count = count, 0
        return before

    yield taken
    assert library.H5Zunregister(_COUNTING) >= 0


def filtered(file: h5py.File, name: str, values: numpy.ndarray, chunks: tuple[int, ...]) -> None:
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_chunk(chunks)
    layout.set_filter(_COUNTING, h5py.h5z.FLAG_MANDATORY)
    space = h5py.h5s.create_simple(values.shape)
    kind = h5py.h5t.py_create(values.dtype)
    dataset = h5py.Dataset(h5py.h5d.create(file.id, name.encode(), kind, space, layout))
    dataset[...] = values


def values_of(path, **options) -> tuple[dict[str, numpy.ndarray], int]:
    """The values of all epochs, read in this process, and the number of blocks."""
    kind = source_class(None, Options(str(path)))
    inventory = kind.scan(Options(str(path), **options))
    source = kind(inventory)
    blocks = [
        source.read(epoch, first, min(epoch.block_rows, epoch.records - first))
        for epoch in inventory.epochs
        for first in range(0, epoch.records, epoch.block_rows)
    ]
    names = [column.name for column in inventory.columns]
    return {name: numpy.concatenate([block[place] for block in blocks]) for place, name in enumerate(names)}, len(blocks)


def test_a_chunk_of_many_blocks_is_decoded_once(tmp_path, decoded):
    """44 bytes a row: 2^20 rows are more than a block."""
    random, count, rows = numpy.random.default_rng(1), 1 << 20, 1_200_000
    made = {f"c{number}": random.random(rows) for number in range(5)} | {"w": random.random(rows).astype("f4")}
    with h5py.File(tmp_path / "s.h5", "w") as file:
        for name, values in made.items():
            filtered(file, name, values, (count,))
    decoded()
    found, blocks = values_of(tmp_path / "s.h5", epoch=1)
    assert decoded() == 6 * 2 and blocks > 2 * 2
    assert all((found[name] == values).all() for name, values in made.items())


def test_chunks_of_several_frames_are_decoded_once(tmp_path, decoded):
    made = numpy.random.default_rng(1).random((7, 5000, 3))
    with h5py.File(tmp_path / "md.h5", "w") as file:
        group = file.create_group("particles/all/position")
        filtered(group, "value", made, (4, 1500, 2))
        group["step"] = numpy.arange(7)
    decoded()
    found, _ = values_of(tmp_path / "md.h5")
    assert decoded() == 2 * 4 * 2
    assert all((found[f"position_{axis}"] == made[:, :, place].reshape(-1)).all() for place, axis in enumerate("xyz"))


def test_chunks_of_the_sources_of_a_virtual_dataset_are_decoded_once(tmp_path, decoded):
    made = numpy.random.default_rng(1).random((2, 900_000))
    layout = h5py.VirtualLayout((1_800_000,), "f8")
    for part in range(2):
        with h5py.File(tmp_path / f"part{part}.h5", "w") as file:
            filtered(file, "x", made[part], (450_000,))
        layout[900_000 * part : 900_000 * part + 900_000] = h5py.VirtualSource(f"part{part}.h5", "x", (900_000,))
    with h5py.File(tmp_path / "whole.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    decoded()
    found, blocks = values_of(tmp_path / "whole.h5", epoch=1)
    assert decoded() == 4 and blocks == 4 and (found["x"] == made.reshape(-1)).all()


def test_the_cache_is_bounded_and_holds_the_columns_that_fit(tmp_path, decoded, monkeypatch):
    monkeypatch.setattr(hdf5_files, "CACHE_BYTES", 5 << 20)
    made = {
        name: numpy.random.default_rng(1).random(1 << 20).astype("f4") for name in ("a", "b", "c", "d", "e", "f", "g", "h", "i")
    }
    with h5py.File(tmp_path / "s.h5", "w") as file:
        for name, values in made.items():
            filtered(file, name, values, (1 << 20,))
    decoded()
    found, blocks = values_of(tmp_path / "s.h5", epoch=1)
    assert blocks > 1 and decoded() == 1 + 8 * blocks
    assert all((found[name] == values).all() for name, values in made.items())
