"""Which MPIs have the same ABI, by what they say of themselves."""

import pytest

from support.mpi import SOURCES, run

MPICH, OPEN_MPI, STANDARD, UNKNOWN = "MPICH", "Open MPI", "MPI 5's standard", "an unknown MPI"

# The texts of MPI_Get_library_version, by its first lines.
VERSIONS = [
    ("MPICH Version:\t3.3.2\nMPICH Release date:\tTue Nov 12 21:23:16 CST 2019\n", MPICH),
    ("MPICH Version:\t4.0.2\nMPICH configure:\t--prefix=/opt/Open MPI --disable-static\n", MPICH),
    ("MPICH Version:      5.0.2\nMPICH ABI:          18:2:6\n", MPICH),
    ("Intel(R) MPI Library 2021.13 for Linux* OS\n", MPICH),
    ("Intel(R) MPI Library 5.1.3 for Linux* OS\n", MPICH),
    ("MPI VERSION    : CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)\nMPI BUILD INFO : Sun Feb 26 15:15 2023\n", MPICH),
    ("MVAPICH2 Version      :\t2.3.7\nMVAPICH2 Release date :\tWed March 02 22:00:00 EST 2022\n", MPICH),
    ("MVAPICH Version:        3.0\nMVAPICH Release date:   10/10/2023\n", MPICH),
    ("ParaStation MPI 5.9.2-1\n", MPICH),
    ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022", OPEN_MPI),
    ("Open MPI v5.0.11, package: Open MPI user@mpich Distribution, ident: 5.0.11, Sep 16, 2026", OPEN_MPI),
    ("Open MPI v4.1.1rc4, package: Open MPI root@MPICH-host Distribution", OPEN_MPI),
    ("IBM Spectrum MPI v10.4.0.6", OPEN_MPI),
    ("FUJITSU MPI Library 4.0.1 (4.0.1fj4.0.0)", OPEN_MPI),
    ("MPItrampoline 5.5.0, using MPIwrapper 2.11.1, wrapping MPICH Version: 4.2.3", UNKNOWN),
    ("HPE MPT 2.25  08/08/21 03:17:22", UNKNOWN),
    ("", UNKNOWN),
]
LIBRARY = "/opt/mpich/lib/libmpi.so.12"
# MPICH 4.3 had the ABI's library before the function that names its version.
ABI = [
    (1, "/opt/mpi/lib/libmpi_abi.so.1", STANDARD),
    (1, "", STANDARD),
    (0, LIBRARY, STANDARD),
    (-1, "/opt/mpi/lib/libmpi_abi.so.0", STANDARD),
    (-1, "libmpi_abi.so.12", STANDARD),
    (-1, "/opt/libmpi_abi.d/libmpi.so.12", None),
    (-1, LIBRARY, None),
    (-1, "", None),
]


@pytest.fixture(scope="module")
def program(mpi):
    """Two sources of the library, one of which alone knows the MPI."""
    return mpi.compile("family_test", SOURCES / "tests" / "family_test.c", SOURCES / "family.c", SOURCES / "family_built.c")


def test_families(mpi, program):
    cases = [(version, major, file, family or own) for version, own in VERSIONS for major, file, family in ABI]
    said = run(program, *(part for case in cases for part in case[:3])).stdout.splitlines()
    assert said[0] == (OPEN_MPI if mpi.options else MPICH)
    wrong = [(case, found) for case, found in zip(cases, said[1:], strict=True) if case[3] != found]
    assert not wrong
