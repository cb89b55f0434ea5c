"""Four hosts with four ranks each. `make test-hosts` runs these tests; they need root, so other runs of pytest leave
them out."""

import os
from pathlib import Path

import pytest

from support.command import ROOT
from support.hosts import Hosts
from support.libraries import linked, prefix
from support.mpi import Mpi

HOSTS, RANKS_PER_HOST = 4, 4

collect_ignore_glob = [] if os.environ.get("TURBIDITE_HOSTS") else ["test_*.py"]


@pytest.fixture(scope="session")
def mpi(tmp_path_factory) -> Mpi:
    return Mpi.find(tmp_path_factory.mktemp("mpi"))


@pytest.fixture(scope="session")
def hosts(tmp_path_factory):
    with Hosts(HOSTS, RANKS_PER_HOST, tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts


@pytest.fixture(scope="session")
def program(mpi) -> Path:
    source = ROOT / "tests" / "hosts" / "epochs.c"
    libraries = linked("turbidite_mpi", "turbidite")
    return mpi.compile("epochs", "-O2", f"-I{prefix() / 'include'}", source, *libraries, "-lm")
