"""Collects these tests only under `make test-vpic`."""

import os

collect_ignore_glob = [] if "TURBIDITE_VPIC" in os.environ else ["test_*.py"]
