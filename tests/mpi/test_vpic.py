"""VPIC's calls, with the configuration of examples/vpic: two species, one of them dumped twice in a step.

The oracle is NumPy's reading of the files that the same program leaves without the preload library.
"""

from pathlib import Path

import pytest
from numpy.lib.recfunctions import repack_fields

from support import vpic
from support.command import ROOT
from support.examples import build_example
from support.libraries import library
from support.preload import Form, check_rows, complaints, written

EXAMPLE = ROOT / "examples" / "vpic" / "turbidite.toml"
PRELOAD = ("libturbidite_preload.so", "libturbidite_preload_mpi.so")
STEPS = "500,1000,1500"
SPECIES = ["eparticle", "Hparticle"]
MODES = ["keep", "replace"]
# More ranks than cores: those that wait have to let the others run.
YIELDING = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "100"}


class Dumps(Form):
    """What the example's configuration makes of a species' files."""

    def rows(self, path: str, content: bytes):
        return repack_fields(vpic.read_dump_content(path, content)[[*vpic.PARTICLE.names, "energy", "x"]])


def form(species: str) -> Form:
    return Dumps(f"particle/T.{{epoch}}/{species}.{{epoch}}.{{rank}}", 115, vpic.PARTICLE, "energy")


def configure(folder: Path, mode: str, spool: Path) -> Path:
    """The example's configuration; datasets go to the folder."""
    text = EXAMPLE.read_text()
    changes = [('mode = "keep"', f'mode = "{mode}"', 2), ('spool = "/dev/shm"', f'spool = "{spool}"', 2)]
    changes += [(f'out = "{species}.tbd"', f'out = "{folder}/{species}.tbd"', 1) for species in SPECIES]
    for old, new, times in changes:
        assert text.count(old) == times
        text = text.replace(old, new)
    path = folder / "turbidite.toml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def program(mpi, tmp_path_factory) -> Path:
    return build_example("dump", "vpic_dump", tmp_path_factory.mktemp("dump"), mpicc=mpi.bin / "mpicc")


@pytest.fixture(scope="module")
def plain(mpi, program, tmp_path_factory):
    """The files of both species without the preload library; each number of ranks once."""
    known: dict[int, dict[str, bytes]] = {}

    def files(ranks: int) -> dict[str, bytes]:
        if ranks not in known:
            out = tmp_path_factory.mktemp("plain")
            options = ("--steps", STEPS, "--species", "e,H")
            mpi.start(ranks, program, vpic.sample_dumps(), out, *options, environment=YIELDING)
            known[ranks] = written(out)
            assert len(known[ranks]) == 2 * 3 * ranks
        return known[ranks]

    return files


def check(mpi, program, tmp_path, spool, mode: str, ranks: int, expected: dict[str, bytes], *options) -> None:
    """Runs the program with the example's configuration, and compares its files and both datasets."""
    environment = YIELDING | {"TURBIDITE_CONFIG": str(configure(tmp_path, mode, spool))}
    preload = tuple(library(name) for name in PRELOAD)
    arguments = (vpic.sample_dumps(), tmp_path / "out", "--steps", STEPS, "--species", "e,H", *options)
    done = mpi.start(ranks, program, *arguments, preload=preload, environment=environment)
    assert complaints(done.stderr) == ""
    assert written(tmp_path / "out") == (expected if mode == "keep" else {})
    for species in SPECIES:
        check_rows(tmp_path / f"{species}.tbd", form(species), expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("options", ["--barrier", "--posix --turns"])
def test_two_species(mpi, program, plain, tmp_path, spool, options, ranks, mode):
    check(mpi, program, tmp_path, spool, mode, ranks, plain(ranks), *options.split())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "options",
    ["--twice H", "--twice H --barrier", "--twice H --leave-open", "--twice H --apart", "--twice e --apart --pwrite"],
)
def test_a_species_that_is_dumped_twice_in_a_step(mpi, program, plain, tmp_path, spool, options, mode):
    """It is there once, with what the second dump wrote, also when the first one was indexed in between: ranks ask each
    other at least once in as many collectives as `--apart` makes."""
    check(mpi, program, tmp_path, spool, mode, 2, plain(2), *options.split())
