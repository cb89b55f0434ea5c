"""Checks that code does not use names that were replaced: one thing has one name.

A name is looked for in Rust and in our C headers, outside comments and literals. Standard library only, so that `make check` needs no
installation.
"""

import re
import subprocess
import sys
from pathlib import Path

from check_layers import ROOT, without_comments_and_strings

# Each with the name that replaced it.
REPLACED = {
    "catalogue": "inventory of a source",
    "ColumnSummary": "ColumnStatistics",
    "Commons": "ProcessResources",
    "commons": "resources",
    "Crew": "WorkerPool",
    "crew": "workers",
    "damage": "corruption",
    "Damage": "Corruption",
    "EngineFigures": "EngineMetrics",
    "EngineStatistics": "EngineMetrics",
    "EpochFigures": "EpochMetrics",
    "EpochStatistics": "EpochMetrics",
    "ExchangeStatistics": "ExchangeMetrics",
    "figures": "metrics",
    "foretell": "forecast",
    "Gather": "RowGroupBuilder",
    "Landing": "PageRead",
    "Lie": "RowDistribution",
    "mend": "fix",
    "Patience": "Timeouts",
    "PostOffice": "Mailboxes",
    "QueryFigures": "QueryMetrics",
    "RankStage": "RankDriver",
    "RunEntry": "RowGroupEntry",
    "shelf": "cache",
    "Sieve": "CellSelection",
    "SpaceCopy": "SpatialIndex",
    "Spread": "RangeCount",
    "spreads": "range_counts",
    "Station": "Endpoint",
    "TableShelf": "TableCache",
    "told": "stated or found",
    "Truth": "TruthValue",
    "unwilling": "unresponsive",
    "Want": "ColumnRequest",
}

CODE = ["bench/studies/**/*.rs", "crates/**/*.rs", "crates/capi/include/*", "fuzz/**/*.rs"]


def tracked(patterns: list[str]) -> list[Path]:
    """Lists the files of the checkout that match one of the patterns."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *(f":(glob){pattern}" for pattern in patterns)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )
    return [ROOT / name for name in sorted(set(listing.stdout.splitlines())) if (ROOT / name).is_file()]


def main() -> None:
    names = re.compile(r"\b(?:" + "|".join(REPLACED) + r")\b")
    problems, files = [], tracked(CODE)
    for file in files:
        code = without_comments_and_strings(file.read_text())
        for match in names.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            problems.append(f"{file.relative_to(ROOT)}:{line}: '{match.group()}': the name is {REPLACED[match.group()]}")
    if problems:
        sys.exit("\n".join(problems))
    print(f"words: {len(files)} files use none of {len(REPLACED)} names that were replaced")


if __name__ == "__main__":
    main()
