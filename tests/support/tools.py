"""Tools that tests need and a machine may lack. Such a test is skipped; with TURBIDITE_NO_SKIPS, which CI sets, it fails."""

import os
import shutil
from pathlib import Path

import pytest

NO_SKIPS = "TURBIDITE_NO_SKIPS"


def skips_are_forbidden() -> bool:
    return bool(os.environ.get(NO_SKIPS))


def require(*tools: str | Path) -> None:
    """Skips the test where one of these commands is missing."""
    for tool in tools:
        if not shutil.which(tool):
            pytest.skip(f"there is no {tool}")
