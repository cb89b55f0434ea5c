"""Debian's LAMMPS, and the MPI it is linked to; `make test-lammps` sees to both."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.command import ROOT
from support.libraries import library
from support.mpi import Mpi
from support.preload import written

INPUT = ROOT / "examples" / "lammps" / "in.melt"
PRELOAD = ("libturbidite_preload.so", "libturbidite_preload_mpi.so")


@dataclass(frozen=True)
class Lammps:
    mpi: Mpi

    def run(
        self, ranks: int, folder: Path, config: Path | None = None, script: Path = INPUT, **variables
    ) -> subprocess.CompletedProcess:
        """Runs an input, the example's as a rule, in a folder; with a configuration it is indexed."""
        folder.mkdir(exist_ok=True)
        given = [part for name, value in variables.items() for part in ("-var", name, str(value))]
        preload = {}
        if config is not None:
            libraries = tuple(library(name) for name in PRELOAD)
            preload = {"preload": libraries, "environment": {"TURBIDITE_CONFIG": str(config)}}
        return self.mpi.start(ranks, "lmp", "-in", script, *given, cwd=folder, **preload)

    def dumped(self, folder: Path) -> dict[str, bytes]:
        """Its dumps. The log has times in it, and the dataset is ours."""
        return {path: content for path, content in written(folder).items() if path.endswith(".bin")}


@pytest.fixture(scope="session")
def lammps(tmp_path_factory) -> Lammps:
    return Lammps(Mpi.find(tmp_path_factory.mktemp("mpi")))


@pytest.fixture(scope="session")
def plain(lammps, tmp_path_factory):
    """The dumps of LAMMPS alone; each kind of run once."""
    known: dict[tuple, dict[str, bytes]] = {}

    def files(ranks: int, **variables) -> dict[str, bytes]:
        key = (ranks, *variables.items())
        if key not in known:
            folder = tmp_path_factory.mktemp("plain")
            lammps.run(ranks, folder, **variables)
            known[key] = lammps.dumped(folder)
            assert known[key]
        return known[key]

    return files
