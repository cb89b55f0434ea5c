"""`turbidite.Writer(comm=...)` under mpiexec, and the libraries with which it uses MPI.

Under the MPI among the tools, or the one that TURBIDITE_MPI_BIN names; mpi4py and NumPy are beside its mpiexec.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy
import pytest
import turbidite

from support.command import AMPLE_S, ROOT, answer
from support.mpi import Mpi
from support.mpi import run as succeed

PROGRAMS = Path(__file__).parent / "ranks"
PACKAGE = Path(turbidite.__file__).parent


@pytest.fixture(scope="module")
def mpi(tmp_path_factory) -> Mpi:
    return Mpi.find(tmp_path_factory.mktemp("mpi"))


@pytest.fixture(scope="module")
def family(mpi) -> str:
    """The family of the MPI, by what mpi4py says of itself."""
    program = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_abi_version()[0] > 0)"
    standard = succeed(mpi.bin / "python", "-c", program).stdout == "True\n"
    return "standard" if standard else "openmpi" if mpi.options else "mpich"


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    """A folder with the package, but without libraries for MPI."""
    folder = tmp_path_factory.mktemp("bare")
    shutil.copytree(PACKAGE, folder / "turbidite", ignore=shutil.ignore_patterns("libturbidite_mpi-*", "__pycache__"))
    return folder


def start(mpi: Mpi, ranks: int, *arguments, **environment) -> str:
    """Runs a program of Python on some ranks. Returns what all have said."""
    return mpi.start(ranks, mpi.bin / "python", *arguments, environment=environment).stdout


def rows(path: Path, epoch: int) -> numpy.ndarray:
    """All rows of an epoch, in the order of their ids."""
    found = turbidite.open(path).query(epochs=epoch).to_numpy()
    table = numpy.rec.fromarrays([found[name] for name in ("id", "energy", "payload")], names="id,energy,payload")
    return table[numpy.argsort(table["id"])]


@pytest.fixture(scope="module")
def alone(mpi, scratch) -> Path:
    path = scratch / "alone"
    succeed(mpi.bin / "python", PROGRAMS / "rows.py", path, "alone")
    return path


@pytest.mark.parametrize("ranks, environment", [(1, {}), (4, {}), (4, {"TURBIDITE_RANKS_PER_NODE": "2"}), (5, {})])
def test_the_same_rows_as_of_one_process(mpi, family, scratch, alone, ranks, environment):
    path = scratch / "-".join(map(str, (ranks, *environment.values())))
    said = start(mpi, ranks, PROGRAMS / "rows.py", path, **environment).split()
    assert said[:2] == [str(ranks), "ranks"] and f"libturbidite_mpi-{family}.so" in said[-1] + said[-2], said
    dataset = turbidite.open(path)
    assert dataset.schema == turbidite.open(alone).schema and dataset.epochs == turbidite.open(alone).epochs == [100, 200]
    for epoch in dataset.epochs:
        assert rows(path, epoch).tobytes() == rows(alone, epoch).tobytes()
    assert answer("verify", path)["findings"] == []
    count = sum(len(rows(path, epoch)) for epoch in dataset.epochs)
    found = [(index.definition, index.missing, index.entries) for index in dataset.indexes]
    assert found == [("bitmap:id,energy", (), count), ("hash:id", (), count)]


SCENARIOS = [
    "one_raises", "several_raise", "arguments", "two_writers", "parts_of_the_world", "finalized", "not_initialized", "collected",
    "left_at_exit", "missing", "forked", "threads",
]  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_goes_wrong(mpi, tmp_path, scenario, ranks):
    said = start(mpi, ranks, PROGRAMS / "scenarios.py", scenario, tmp_path / "ds", RANKS=ranks)
    assert said.count("passed\n") == ranks, said
    for path in tmp_path.glob("*"):
        if scenario in ("one_raises", "several_raise"):
            assert answer("salvage", path)["unfinished"] == [], "an aborted epoch leaves no files"
        # Epochs that ranks have left, or whose failure was no exception of theirs, stay for salvage.
        assert all(finding["kind"] == "notice" for finding in answer("verify", path)["findings"])


@pytest.mark.parametrize("level", ["single", "funneled", "serialized"])
def test_levels_of_threads(mpi, tmp_path, level):
    assert start(mpi, 2, PROGRAMS / "scenarios.py", "threads", tmp_path / "ds", LEVEL=level).count("passed\n") == 2


def test_an_exception_outside_of_epochs_ends_the_job(mpi, tmp_path):
    with pytest.raises(AssertionError, match="ZeroDivisionError: outside"):
        start(mpi, 3, "-m", "mpi4py", PROGRAMS / "scenarios.py", "raises_outside", tmp_path / "ds")
    assert turbidite.open(tmp_path / "ds").epochs == []


def build(mpi: Mpi, package: Path, *arguments, **environment) -> subprocess.CompletedProcess:
    command = [mpi.bin / "python", "-m", "turbidite.mpi", "build", *arguments]
    own = os.environ | {"PYTHONPATH": str(package)} | environment
    return subprocess.run([str(word) for word in command], env=own, capture_output=True, text=True, timeout=AMPLE_S)


def test_a_missing_library_is_named_and_can_be_built(mpi, family, bare, tmp_path):
    environment = {"PYTHONPATH": bare, "XDG_DATA_HOME": tmp_path, "LIBRARIES": PACKAGE / "_mpi"}
    said = start(mpi, 3, PROGRAMS / "scenarios.py", "no_library", tmp_path / "ds", **environment)
    lines = re.findall(r"^said: (.*)$", said, re.MULTILINE)
    assert len(lines) == 3 and sum(line.startswith("rank 2 could not open the writer: ") for line in lines) == 2, said
    for line in lines:
        assert f"of the family '{family}'" in line and re.search(r"/libmpi(_abi)?\.so", line), line
        assert "libraries for: none" in line and "python -m turbidite.mpi build" in line, line
    # A library for another MPI only.
    other = "mpich" if family == "standard" else "standard"
    (tmp_path / "other").mkdir()
    shutil.copy(PACKAGE / "_mpi" / f"libturbidite_mpi-{other}.so", tmp_path / "other")
    settings = environment | {"TURBIDITE_MPI_LIBRARIES": tmp_path / "other"}
    said = start(mpi, 1, PROGRAMS / "scenarios.py", "no_library", tmp_path / "ds", **settings)
    assert f"libraries for: {'MPICH and' if other == 'mpich' else 'the standard ABI of MPI 5.'}" in said
    assert not (tmp_path / "ds").exists()

    built = build(mpi, bare, "--mpicc", mpi.bin / "mpicc", XDG_DATA_HOME=str(tmp_path))
    assert built.returncode == 0 and str(mpi.bin / "mpicc") in built.stdout, built.stderr
    [library] = tmp_path.glob("turbidite/*/*.so")
    assert library.name == f"libturbidite_mpi-{family}.so" and f"built {library} with" in built.stdout
    assert "libmpi" not in succeed("readelf", "-d", library).stdout, "it is not linked to an MPI"
    for package in (bare, PACKAGE.parent):
        settings = {"PYTHONPATH": package, "XDG_DATA_HOME": tmp_path}
        said = start(mpi, 2, PROGRAMS / "rows.py", tmp_path / f"ds-{package.name}", **settings)
        assert str(library) in said, "the user's own library comes first"


@pytest.mark.parametrize("wrong", ["standard", "mpich", "nonsense", "another"])
def test_libraries_that_do_not_fit(mpi, family, tmp_path, wrong):
    """Also a library under the name of another: functions are called alike in all of them."""
    library = tmp_path / f"libturbidite_mpi-{family}.so"
    if wrong == "nonsense":
        library.write_bytes(b"\x7fELF")
    elif wrong == "another" or wrong == family:
        # A library that can be loaded, but is no transport.
        (tmp_path / "empty.c").write_text("int nothing;")
        succeed("cc", "-shared", "-fPIC", tmp_path / "empty.c", "-o", library)
    else:
        shutil.copy(PACKAGE / "_mpi" / f"libturbidite_mpi-{wrong}.so", library)
    settings = {"TURBIDITE_MPI_LIBRARIES": tmp_path, "LIBRARIES": tmp_path}
    said = start(mpi, 2, PROGRAMS / "scenarios.py", "no_library", tmp_path / "ds", **settings)
    assert said.count("said: ") == 2 and f"{library} does not fit" in said and "turbidite.mpi build" in said, said


def test_builds_that_fail_say_why(mpi, tmp_path):
    failed = build(mpi, PACKAGE.parent, "--mpicc", "mpicc-of-nobody", "--out", tmp_path)
    assert failed.returncode == 1 and "there is no mpicc-of-nobody" in failed.stderr, failed.stderr
    failed = build(mpi, PACKAGE.parent, "--mpicc", "cc", "--out", tmp_path)
    assert failed.returncode == 1 and "mpi.h" in failed.stderr and "transport.c" in failed.stderr, failed.stderr
    (tmp_path / "file").write_text("")
    failed = build(mpi, PACKAGE.parent, "--mpicc", mpi.bin / "mpicc", "--out", tmp_path / "file")
    assert failed.returncode == 1 and str(tmp_path / "file") in failed.stderr, failed.stderr
    failed = build(mpi, PACKAGE.parent, "--mpicc", mpi.bin / "mpicc", "--cc", "false", "--out", tmp_path)
    assert failed.returncode == 1 and "false -shared" in failed.stderr, failed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_example_of_the_guide_runs(mpi, tmp_path):
    [program] = re.findall(r"```python mpi\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)
    (tmp_path / "write.py").write_text(program)
    mpi.start(4, mpi.bin / "python", "-m", "mpi4py", "write.py", cwd=tmp_path)
    dataset = turbidite.open(tmp_path / "parallel.tbd")
    assert dataset.epochs == [100, 200] and dataset.query().count() == 2 * 4 * 1000
