"""The MPI whose compiler and launcher build and run the parallel C programs."""

import pytest

from support.mpi import Mpi


@pytest.fixture(scope="session")
def mpi(tmp_path_factory) -> Mpi:
    found = Mpi.find(tmp_path_factory.mktemp("mpi"))
    found.build_libraries()
    return found
