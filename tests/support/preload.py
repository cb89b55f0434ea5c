"""Runs unmodified programs with the preload libraries and compares the dataset with the programs' own files."""

import os
import re
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy
from pyarrow import parquet

from support import vpic
from support.command import AMPLE_S, turbidite
from support.examples import mpi_tool
from support.raw import column_type


def libraries(with_mpi: bool = True) -> str:
    """`LD_PRELOAD` for a program with or without MPI: `TURBIDITE_PREFIX`, as the Makefile sets it."""
    folder = Path(os.environ.get("TURBIDITE_PREFIX", "/nonexistent")) / "lib"
    names = ["libturbidite_preload.so", "libturbidite_preload_mpi.so"][: 2 if with_mpi else 1]
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        raise RuntimeError(f"{missing} missing in {folder}; run the tests with: make test-python")
    return ":".join(str(folder / name) for name in names)


@dataclass(frozen=True)
class Form:
    """What a kind of file holds, as a configuration says it, and the same in NumPy."""

    pattern: str
    header_bytes: int
    record: numpy.dtype
    key: str
    derive: tuple[str, ...] = ()
    constants: tuple[tuple[str, str, int], ...] = ()

    def configuration(self, out: Path, options: dict) -> str:
        values = {"files": self.pattern, "out": str(out), "key": self.key, "header_bytes": self.header_bytes}
        lines = ["[[dataset]]"]
        for name, value in (values | options).items():
            text = str(value).lower() if isinstance(value, bool) else value if isinstance(value, int | list) else f'"{value}"'
            lines.append(f"{name} = {text}")
        lines.append("derive = [" + ", ".join(f'"{text}"' for text in self.derive) + "]")
        for name in self.record.names:
            lines += ["[[dataset.field]]", f'name = "{name}"', f'type = "{column_type(self.record[name])}"']
        for name, kind, offset in self.constants:
            lines += ["[[dataset.constant]]", f'name = "{name}"', f'type = "{kind}"', f"offset = {offset}"]
        return "\n".join(lines) + "\n"

    def epoch(self, path: str) -> int | None:
        """The epoch of a file of this kind."""
        expression = re.escape(self.pattern).replace(re.escape("{epoch}"), "([0-9]+)", 1)
        for placeholder in ("{epoch}", "{rank}", "{id}"):
            expression = expression.replace(re.escape(placeholder), "[0-9]+")
        found = re.search(rf"(^|/){expression}$", path)
        return int(found[2]) if found else None

    def rows(self, path: str, content: bytes) -> numpy.ndarray:
        """The rows of one file."""
        if self.derive == VPIC.derive:
            return vpic.read_dump_content(path, content)
        return numpy.frombuffer(content[self.header_bytes :], self.record)


VPIC = Form(
    pattern="particle/T.{epoch}/eparticle.{epoch}.{rank}",
    header_bytes=vpic.HEADER.size,
    record=vpic.PARTICLE,
    key="energy",
    derive=tuple(text.replace('"', "") for text in vpic.DERIVATIONS),
    constants=(("header.nx", "i32", 35), ("header.dx", "f32", 51), ("header.x0", "f32", 63)),
)


class Particles(Form):
    """One file for each particle, whose name becomes a column."""

    def rows(self, path: str, content: bytes) -> numpy.ndarray:
        stored = numpy.frombuffer(content, self.record)
        rows = numpy.empty(len(stored), numpy.dtype(self.record.descr + [("id", "<u8")]))
        for name in self.record.names:
            rows[name] = stored[name]
        rows["id"] = int(path.rsplit("/", 1)[1])
        return rows


PARTICLES = Particles("T.{epoch}/{id}", 0, vpic.PARTICLE, "ux")

SMALL_RECORD = numpy.dtype([("key", "<f8"), ("number", "<u8")])
# Files of tests/preload/writer.c and its counterparts in other languages.
SMALL = Form("E.{epoch}/rows.{rank}", 8, SMALL_RECORD, "key")
OTHER = Form("H.{epoch}/rows.{rank}", 8, SMALL_RECORD, "key")


def written(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def configure(path: Path, *sections: tuple[Form, Path, dict]) -> Path:
    """Writes a configuration that says nothing where all is well: what is said is then a mistake."""
    path.write_text("\n".join(["quiet = true", *(form.configuration(out, options) for form, out, options in sections)]))
    return path


def start(command: list, config: Path | None, ranks: int | None = None, preload: str | None = None, said: Path | None = None, **options):
    """Starts a program, under mpiexec when it has ranks; without a configuration as if we were not there. What processes
    say on standard error goes to files of their own below `said`, where it is given: mpiexec may lose what a rank says
    last."""
    variables = []
    if config is not None:
        variables = [f"TURBIDITE_CONFIG={config}", f"LD_PRELOAD={preload or libraries(ranks is not None)}"]
    launcher = [mpi_tool("mpiexec"), "-n", ranks] if ranks is not None else []
    apart = ["sh", "-c", 'exec "$@" 2> "$0/$$"', said] if said is not None else []
    line = [str(part) for part in [*launcher, *apart, "env", *variables, *command]]
    # More ranks than cores: those that wait have to let the others run.
    yielding = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "100"}
    options = {"env": os.environ | yielding} | options
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    return subprocess.Popen(line, **options)


def run(command: list, config: Path | None, expect: int = 0, **options) -> str:
    """Runs a program to its end; what was said on standard error."""
    process = start(command, config, **options)
    try:
        said, complained = process.communicate(timeout=AMPLE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == expect, f"exit {process.returncode}, expected {expect}\n{said}\n{complained}"
    return complained


@contextmanager
def empty_spool():
    """A spool that has to be empty again at the end. In memory as users have it, since a file system that is nearly
    full is not used."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="spool-", dir=memory if os.access(memory, os.W_OK) else None) as name:
        folder = Path(name)
        yield folder
        assert list(folder.rglob("*")) == []


def complaints(said: str) -> str:
    """What a program said on standard error but for how much was indexed, and where files are until then."""
    usual = r"turbidite: (indexed \d+ epochs?,|files are spooled in .* until they are indexed$)"
    return "".join(line for line in said.splitlines(True) if not re.match(usual, line))


def in_order(rows: numpy.ndarray) -> numpy.ndarray:
    """Rows as words, in an order of their own that tells every bit apart."""
    # Few words are sorted in less time.
    word = "<u8" if rows.dtype.itemsize % 8 == 0 else "<u4"
    words = numpy.frombuffer(rows.tobytes(), word).reshape(len(rows), -1)
    return words[numpy.lexsort(words.T)]


def stored(out: Path, dtype: numpy.dtype) -> dict[int, numpy.ndarray]:
    """All rows of a dataset by epoch, from its data files alone."""
    epochs = {}
    for folder in (out / "data").iterdir():
        tables = [parquet.read_table(part, partitioning=None) for part in sorted(folder.iterdir())]
        rows = numpy.empty(sum(table.num_rows for table in tables), dtype)
        for name in dtype.names:
            rows[name] = numpy.concatenate([table.column(name).to_numpy() for table in tables])
        assert all(set(table.column_names) == set(dtype.names) for table in tables)
        epochs[int(folder.name.removeprefix("epoch="))] = rows
    return epochs


def check_rows(out: Path, form: Form, files: dict[str, bytes]) -> None:
    """The dataset has exactly the records of the program's files, bit for bit, each once; and it verifies clean."""
    expected: dict[int, list] = {}
    for path, content in files.items():
        epoch = form.epoch(path)
        if epoch is not None and content:
            expected.setdefault(epoch, []).append(form.rows(path, content))
    assert expected, "there is nothing to compare with"
    found = stored(out, next(iter(expected.values()))[0].dtype)
    assert set(found) == set(expected)
    for epoch, pieces in expected.items():
        rows = numpy.concatenate(pieces)
        assert len(found[epoch]) == len(rows), f"epoch {epoch}: {len(found[epoch])} rows, the files have {len(rows)}"
        assert numpy.array_equal(in_order(found[epoch]), in_order(rows)), f"epoch {epoch}: rows differ"
    turbidite("verify", out)
