"""Fixtures of the tests of random files."""

import shutil
from pathlib import Path

import pytest

from support.source_reader import Reader


@pytest.fixture(scope="module")
def reader():
    with Reader() as started:
        yield started


@pytest.fixture
def place(tmp_path):
    """Makes an empty folder for each example, with a name of its own: libraries remember files by their names."""
    numbers = iter(range(10**9))

    def make() -> Path:
        for old in tmp_path.iterdir():
            shutil.rmtree(old)
        folder = tmp_path / f"example-{next(numbers)}"
        folder.mkdir()
        return folder

    return make
