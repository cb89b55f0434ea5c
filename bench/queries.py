"""Range queries: in situ, on the compacted copy, and by other engines on tuned sorted copies and on unsorted files."""

import json
import sys
from pathlib import Path

from common import EXAMPLES, HERE, run, say

SELECTIVITIES = ("0.01%", "0.1%", "1%", "10%", "100%")
WIDTHS = (5, 20, 50, 100)
# Swept for each engine; the best counts.
ROW_GROUP_ROWS = (20_000, 65_536, 262_144)
OURS = ("turbidite", "compacted")
# Not a query: the part files of our dataset as bytes.
DIRECT = "direct on ours"
# Other engines on our files, as they are written and compacted.
ENGINES = ("duckdb on ours", "duckdb on compacted", "polars on ours", "polars on compacted")
PEERS = ("polars, sorted", "duckdb, sorted", "pyarrow, sorted", "polars, unsorted", "duckdb, unsorted", *ENGINES)


class Queries:
    """All queries of one epoch, and what they took."""

    def __init__(self, scratch: Path, label: int, unsorted: Path, quick: bool):
        self.scratch, self.label, self.unsorted = scratch, label, unsorted
        self.rounds = 3 if quick else 5
        self.ranges = scratch / "ranges"
        counts = ["--count", 7 if quick else 21, "--batch-count", 100 if quick else 1000]
        run([sys.executable, HERE / "query_ranges.py", unsorted, self.ranges, *counts])
        self.sorted = {}
        for rows in ROW_GROUP_ROWS[1:2] if quick else ROW_GROUP_ROWS:
            self.sorted[rows] = scratch / f"sorted-{rows}.parquet"
            command = [sys.executable, HERE / "query_peer.py", "sort", unsorted, self.sorted[rows], "--row-group-rows", rows]
            run(command)
        # Medians in microseconds: by (ranges, columns, cold), then by contestant.
        self.found: dict[str, dict[str, float]] = {}

    def own(self, folder: str, ranges: Path, rounds: int, cold: bool) -> dict[str, float]:
        """Median and processor microseconds of each mode."""
        command = [EXAMPLES / "query_speed", self.scratch / folder, "--epoch", self.label, "--ranges", ranges, "--rounds", rounds, "--json"]
        return json.loads(run([*command, *(["--cold"] if cold else [])]))["modes"]

    def peer(self, engine: str, files: list[Path], ranges: Path, columns: str, rounds: int, cold: bool) -> float:
        command = [sys.executable, HERE / "query_peer.py", engine, *files, "--ranges", ranges, "--columns", columns]
        command += ["--rounds", rounds, "--json", *(["--cold"] if cold else [])]
        return json.loads(run(command))["median_us"]

    def measure(self, ranges: Path, columns: str, rounds: int, cold: bool = False, peers=PEERS) -> None:
        key = f"{ranges.stem}, {'key only' if columns == 'key' else 'all columns'}, {'cold' if cold else 'warm'}"
        took: dict[str, float] = {}
        for contestant, folder in zip(OURS, ("dataset", "compacted")):
            modes = self.own(folder, ranges, rounds, cold)
            took[contestant] = modes[f"unordered-{columns}"]["median_us"]
            took[f"{contestant}, in order"] = modes[f"ordered-{columns}"]["median_us"]
        ours = {name: sorted((self.scratch / name / "data" / f"epoch={self.label}").glob("*.parquet")) for name in ("dataset", "compacted")}
        for contestant in peers:
            if contestant == DIRECT and ranges != self.file("share-100%"):
                continue
            engine, where = contestant.replace(" on ", ", ").split(", ")
            choices = {"sorted": [[path] for path in self.sorted.values()], "unsorted": [[self.unsorted]]}
            choices |= {"ours": [ours["dataset"]], "compacted": [ours["compacted"]]}
            took[contestant] = min(self.peer(engine, files, ranges, columns, rounds, cold) for files in choices[where])
        self.found[key] = took
        say(f"{key}: {took['turbidite']:.0f} us; {', '.join(f'{name} {us:.0f}' for name, us in took.items() if name != 'turbidite')}")

    def selectivities(self, columns: str, cold: bool, peers=PEERS) -> None:
        for share in SELECTIVITIES:
            self.measure(self.file(f"share-{share}"), columns, 3 if share == "100%" else self.rounds, cold, peers)

    def batches(self) -> None:
        for width in WIDTHS:
            self.measure(self.file(f"zipf-{width}"), "all", 1, peers=("polars, sorted",))

    def file(self, name: str) -> Path:
        return self.ranges / f"{name.replace('%', '')}.csv"

    def ratios(self) -> dict[str, float]:
        """By selectivity, all columns, warm. Below 1 we are faster."""
        found = {}
        for key, took in self.found.items():
            if key.endswith("all columns, warm") and not key.startswith("zipf"):
                share = key.split(",")[0].removeprefix("share-")
                found[f"query {share} % / polars sorted"] = took["turbidite"] / took["polars, sorted"]
                found[f"query {share} % / compacted"] = took["turbidite"] / took["compacted"]
        return found

    def table(self) -> list[str]:
        names = list(dict.fromkeys(name for took in self.found.values() for name in took))
        lines = ["| ranges | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]
        for key, took in self.found.items():
            mine = took["turbidite"]
            cells = [f"{took[name] / 1e3:.2f} ({took[name] / mine:.1f}x)" if name in took else "" for name in names]
            cells[0] = f"{mine / 1e3:.2f}"
            lines.append(f"| {key} | {' | '.join(cells)} |")
        return lines
