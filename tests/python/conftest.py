"""The Python package, as `make wheel` has built it."""

import sys

import pytest


def pytest_collection_modifyitems(config, items):
    """Fails at once where the package is missing, rather than test by test."""
    if items and "turbidite" not in sys.modules:
        try:
            import turbidite  # noqa: F401
        except ImportError as error:
            raise pytest.UsageError(f"{error}: run the tests with: make test-python") from None
