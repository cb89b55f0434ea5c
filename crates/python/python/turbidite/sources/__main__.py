"""Runs one reader: requests come on standard input, answers go to standard output."""

from __future__ import annotations

from turbidite.sources.server import main

if __name__ == "__main__":
    main()
