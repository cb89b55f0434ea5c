"""The particle-in-cell example through the C interface, through plain files, and through plain files that are indexed
from outside: three ways to the same rows, bit for bit."""

import struct
from pathlib import Path

import numpy
import pyarrow.parquet
import pytest

from support.command import answer, turbidite
from support.examples import build_example, mpi_tool
from support.libraries import library, prefix
from support.mpi import run

RANKS, STEPS = 4, [20, 40, 60]
PARTICLES = 32 * 24 * 8
ARGUMENTS = ("--grid", "32,24", "--per-cell", 8, "--steps", STEPS[-1], "--dump", STEPS[0], "--seed", 11)

# The header is 115 bytes; its last number but two is the bytes of a record, its last the records.
HEADER_BYTES, ELEMENT_BYTES_AT, COUNT_AT = 115, 103, 111
RECORD = numpy.dtype(
    [(name, "<i4" if name == "i" else "<f4") for name in ("dx", "dy", "dz", "i", "ux", "uy", "uz", "w")]
    + [("id", "<i8"), ("origin", "<i8")]
)
ENERGY = "sqrt(1+ux*ux+uy*uy+uz*uz)-1"


def start(program: Path, out: Path, environment: dict | None = None) -> None:
    given = [f"{name}={value}" for name, value in (environment or {}).items()]
    run(mpi_tool("mpiexec"), "-n", RANKS, "env", *given, program, "--out", out, *ARGUMENTS)


def build(program: str, target: Path) -> Path:
    return build_example(
        "pic", program, target, f"TURBIDITE_INCLUDE={prefix() / 'include'}", f"TURBIDITE_LIB={prefix() / 'lib'}"
    )


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> dict[str, Path]:
    target = tmp_path_factory.mktemp("pic")
    return {name: build(name, target) for name in ("pic_files", "pic_turbidite")}


@pytest.fixture(scope="module")
def files(programs, tmp_path_factory) -> Path:
    """What the program writes when nothing of Turbidite is near."""
    out = tmp_path_factory.mktemp("files")
    start(programs["pic_files"], out)
    return out


def dumped(out: Path, step: int) -> numpy.ndarray:
    """A step's particles by id, with their energies."""
    parts = []
    for rank in range(RANKS):
        content = (out / "particle" / f"T.{step}" / f"eparticle.{step}.{rank}").read_bytes()
        assert struct.unpack_from("<i", content, ELEMENT_BYTES_AT) == (RECORD.itemsize,)
        (count,) = struct.unpack_from("<i", content, COUNT_AT)
        parts.append(numpy.frombuffer(content, RECORD, count, HEADER_BYTES))
    particles = numpy.concatenate(parts)
    particles = particles[numpy.argsort(particles["id"])]
    assert numpy.array_equal(particles["id"], numpy.arange(PARTICLES))
    rows = numpy.empty(len(particles), RECORD.descr + [("energy", "<f4")])
    for name in RECORD.names:
        rows[name] = particles[name]
    ux, uy, uz = (particles[name].astype("f8") for name in ("ux", "uy", "uz"))
    rows["energy"] = numpy.sqrt(1 + ux * ux + uy * uy + uz * uz) - 1
    return rows


def indexed(dataset: Path, step: int) -> numpy.ndarray:
    """The same of a dataset."""
    files = (dataset / "data" / f"epoch={step}").glob("*.parquet")
    table = pyarrow.concat_tables([pyarrow.parquet.ParquetFile(file).read() for file in files]).sort_by("id")
    rows = numpy.empty(table.num_rows, RECORD.descr + [("energy", "<f4")])
    assert sorted(table.column_names) == sorted(rows.dtype.names)
    for name in rows.dtype.names:
        column = table.column(name).to_numpy()
        assert column.dtype == rows.dtype[name], name
        rows[name] = column
    return rows


def check(dataset: Path, files: Path) -> None:
    turbidite("verify", dataset)
    assert {epoch["epoch"]: epoch["rows"] for epoch in answer("stats", dataset)} == dict.fromkeys(STEPS, PARTICLES)
    for step in STEPS:
        expected, found = dumped(files, step), indexed(dataset, step)
        for name in expected.dtype.names:
            assert found[name].tobytes() == expected[name].tobytes(), (step, name)


def test_the_c_interface_and_plain_files_hold_the_same_rows(programs, files, tmp_path):
    start(programs["pic_turbidite"], tmp_path)
    assert not (tmp_path / "particle").exists()
    check(tmp_path / "particles.tbd", files)


def configuration(dataset: Path) -> str:
    kinds = {"f4": "f32", "i4": "i32", "i8": "i64"}
    fields = "".join(
        f'[[dataset.field]]\nname = "{name}"\ntype = "{kinds[RECORD[name].str[1:]]}"\n' for name in RECORD.names
    )
    return (
        f'[[dataset]]\nfiles = "particle/T.{{epoch}}/eparticle.{{epoch}}.{{rank}}"\nout = "{dataset}"\nkey = "energy"\n'
        f'derive = ["energy = {ENERGY}"]\nheader_bytes = {HEADER_BYTES}\n{fields}'
    )


def test_files_that_are_indexed_from_outside_hold_the_same_rows(programs, files, tmp_path):
    """The preload library beside a program that knows nothing of it: its files stay as they were, too."""
    config = tmp_path / "config.toml"
    config.write_text(configuration(tmp_path / "dataset"))
    preload = f"{library('libturbidite_preload.so')}:{library('libturbidite_preload_mpi.so')}"
    start(programs["pic_files"], tmp_path / "out", {"TURBIDITE_CONFIG": config, "LD_PRELOAD": preload})
    check(tmp_path / "dataset", files)
    paths = sorted(path.relative_to(files) for path in files.rglob("eparticle.*"))
    assert len(paths) == RANKS * len(STEPS)
    assert sorted(path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("eparticle.*")) == paths
    for path in paths:
        assert (tmp_path / "out" / path).read_bytes() == (files / path).read_bytes(), path
