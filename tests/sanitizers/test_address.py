"""The C interface under AddressSanitizer: programs of one rank and of several, with libturbidite, the transport and the
programs themselves all instrumented, and leaks counted. `make sanitize-address` builds the library and names it."""

import os
from pathlib import Path

import pytest

from support.command import ROOT
from support.mpi import INCLUDES, STRICT, Mpi, run

C = ROOT / "tests" / "c"
TRANSPORT = [ROOT / "mpi" / f"{name}.c" for name in ("transport", "topology", "send", "receive", "connection")]
INSTRUMENTED = ("-O1", "-fsanitize=address", "-fno-omit-frame-pointer")
# MPI itself never frees these.
SUPPRESSED = "".join(f"leak:{name}\n" for name in ("libmpi", "libopen-pal", "libpmix", "libprrte", "libucp", "libucs"))


@pytest.fixture(scope="module")
def mpi(tmp_path_factory) -> Mpi:
    return Mpi.find(tmp_path_factory.mktemp("mpi"))


def build(mpi: Mpi, compiler: Path | str, source: Path, *more) -> Path:
    """A program against the static library and the runtime that belongs to its compiler; cc would link its own."""
    folder = mpi.out / f"{source.stem}-{Path(compiler).name}"
    folder.mkdir()
    sources = [source, *(part for part in more if str(part).endswith(".c"))]
    options = [part for part in more if part not in sources]
    run(compiler, *STRICT, *INSTRUMENTED, *INCLUDES, *options, "-c", *sources, cwd=folder)
    library, runtime = os.environ["TURBIDITE_ADDRESS"].split()
    objects = sorted(folder.glob("*.o"))
    all_of_it = ("-Wl,--whole-archive", runtime, "-Wl,--no-whole-archive")
    run(compiler, "-o", folder / "program", *objects, library, *all_of_it, "-rdynamic", "-lm", "-ldl", "-lpthread", "-lrt", "-lresolv")
    return folder / "program"


def start(mpi: Mpi, ranks: int, program: Path, *arguments) -> str:
    """Runs it to its good end; without MPI for one rank."""
    ignored = mpi.out / "suppressed"
    ignored.write_text(SUPPRESSED)
    # Whole stacks, since MPI is built without frame pointers and would not be found in them.
    environment = {
        "ASAN_OPTIONS": "detect_leaks=1:fast_unwind_on_malloc=0:detect_stack_use_after_return=1:exitcode=99",
        "LSAN_OPTIONS": f"suppressions={ignored}:print_suppressions=0",
    }
    if ranks == 0:
        return run(program, *arguments, env=os.environ | environment).stdout
    return mpi.start(ranks, program, *arguments, environment=environment).stdout


@pytest.fixture(scope="module")
def mpi_write(mpi) -> Path:
    return build(mpi, mpi.bin / "mpicc", C / "mpi_write.c", *TRANSPORT)


@pytest.fixture(scope="module")
def broken(mpi) -> Path:
    return build(mpi, "cc", ROOT / "tests" / "sanitizers" / "broken.c")


def test_write_and_read(mpi, tmp_path):
    assert start(mpi, 0, build(mpi, "cc", C / "write_and_read.c"), tmp_path / "dataset") == "ok\n"


@pytest.mark.parametrize("habit", ["together", "after"])
def test_species(mpi, habit, tmp_path):
    compiler = ("cc",) if habit == "together" else (mpi.bin / "mpicc", "-DWITH_MPI", *TRANSPORT)
    program = build(mpi, compiler[0], C / "species.c", *compiler[1:])
    assert start(mpi, 0 if habit == "together" else 3, program, tmp_path, 3, 120_000, habit)


@pytest.mark.parametrize("part", ["epochs", "failures", "schemas", "token"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks(mpi, mpi_write, ranks, part, tmp_path):
    (tmp_path / "records").mkdir()
    for name in (part, "restart") if part == "epochs" else (part,):
        assert start(mpi, ranks, mpi_write, name, tmp_path / "dataset", tmp_path / "records").endswith("ok\n")


ERRORS = [
    ("overrun", "heap-buffer-overflow"),
    ("metrics", "heap-buffer-overflow"),
    ("closed", "heap-use-after-free"),
    ("leak", r"byte\(s\) leaked"),
]


@pytest.mark.parametrize("kind, found", ERRORS)
def test_errors_are_found(mpi, broken, kind, found, tmp_path):
    """The sanitizer sees the errors that the other tests look for, in the Rust code too."""
    assert start(mpi, 0, broken, tmp_path / "good", "nothing") == "ok\n"
    with pytest.raises(AssertionError, match=f"exit 99(?s:.*){found}"):
        start(mpi, 0, broken, tmp_path / "bad", kind)
