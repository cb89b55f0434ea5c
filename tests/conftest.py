"""Datasets that several tests read; each is written once per run of the tests."""

import json
import os
import shutil
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy
import pytest

from support import vpic
from support.command import answer, turbidite
from support.preload import empty_spool
from support.tools import NO_SKIPS, skips_are_forbidden

# The command finds the readers of the package in the interpreter of the tests.
os.environ.setdefault("TURBIDITE_PYTHON", sys.executable)

# Structures so small that a few hundred thousand records fill many of them: merging, page pruning, rolling over to new
# files and double buffering all happen. Tables made of eight points are wrong soon, which makes strays;
# a rank that neither gets nor awaits credit keeps its records, which makes spills.
SMALL = [
    "--receivers", 4, "--memtable", "32KiB", "--page-rows", 256, "--row-groups-per-part", 4,
    "--row-groups-per-run", 2, "--pivots", 8, "--renegotiate", 500, "--credit", 1, "--patience", 0,
]  # fmt: skip


@dataclass(frozen=True)
class Indexed:
    """A dataset beside the records it was written from."""

    name: str
    path: Path
    epochs: dict[int, numpy.ndarray]


def ingest_arguments(source: Path, target: Path, *more) -> list:
    derive = [argument for text in vpic.DERIVATIONS for argument in ("--derive", text)]
    return ["ingest", source, "--out", target, "--key", "energy", *derive, "--ranks", 16, *more]


@pytest.fixture(scope="session")
def shared_scratch(tmp_path_factory):
    """A folder for the datasets that many files of tests share, emptied afterwards."""
    path = tmp_path_factory.mktemp("shared")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """A folder for large files, emptied after the tests of one file: names are theirs alone."""
    path = tmp_path_factory.mktemp("scratch")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def spool():
    """An empty spool for the preload library; whatever a test does, nothing may be left in it."""
    with empty_spool() as folder:
        yield folder


@pytest.fixture(scope="session")
def dumps() -> Path:
    """The full dumps where they are at hand, the sample otherwise; the report's header says which."""
    return vpic.full_dumps() or vpic.sample_dumps()


def pytest_report_header() -> list[str]:
    skips = f"a test that is skipped {'fails' if skips_are_forbidden() else f'passes; {NO_SKIPS}=1 forbids it'}"
    return [f"particle dumps: {vpic.full_dumps() or vpic.sample_dumps()}", skips]


def pytest_configure(config) -> None:
    config.addinivalue_line("markers", "serial: measures what tests beside it would change; runs alone")


def pytest_runtest_setup(item) -> None:
    """Fails a serial test that runs beside others: targets of the Makefile that have none do not select."""
    if item.get_closest_marker("serial") and "PYTEST_XDIST_WORKER" in os.environ:
        pytest.fail("this test is marked serial and runs beside others; run it with -m serial, the others with -m 'not serial'")


SECONDS: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report) -> None:
    """Records how long each test took, with what it set up, for the report of `tools/times.py`."""
    SECONDS[report.nodeid] += report.duration
    path = os.environ.get("TURBIDITE_TIMES")
    # A process of pytest-xdist passes its reports on to the one that started it.
    if report.when == "teardown" and path and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(path, "a") as file:
            file.write(json.dumps({"test": report.nodeid, "seconds": SECONDS[report.nodeid]}) + "\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.skipped and skips_are_forbidden():
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"{item.nodeid}: {why}; {NO_SKIPS} forbids skips"
    return report


def build(name: str, dumps: Path, shared_scratch: Path, *more) -> Indexed:
    path = shared_scratch / name
    turbidite(*ingest_arguments(dumps, path, *more))
    return Indexed(name, path, vpic.read_dumps(dumps))


@pytest.fixture(scope="session")
def default_dataset(dumps, shared_scratch) -> Indexed:
    """Written with the default sizes; by one thread, so that its row groups and strays are always the same. Of all others the
    threads decide when tables come."""
    return build("default", dumps, shared_scratch, "--threads", 1)


@pytest.fixture(scope="session")
def small_dataset(dumps, shared_scratch) -> Indexed:
    """Written with small structures, forced strays and forced spills; it would prove little without them."""
    small = build("small", dumps, shared_scratch, *SMALL)
    strays = spills = 0
    for epoch in answer("stats", small.path):
        strays, spills = strays + epoch["metrics"]["strays"], spills + epoch["metrics"]["spills"]
        assert epoch["runs"] >= 8 * 4 and epoch["parts"] > 4, epoch
    print(f"small: {strays} strays, {spills} spills")
    assert strays > 0 and spills > 0
    return small


@pytest.fixture(scope="session", params=["default", "small"])
def indexed(request) -> Indexed:
    """Both datasets in turn."""
    return request.getfixturevalue(f"{request.param}_dataset")
