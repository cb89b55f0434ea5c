"""Many small epochs, as molecular dynamics write them: what ingest, counts, lookups, indexes and reports take, by the
number of epochs. Reads are warm. The goals are those for 100,000 epochs."""

import shutil
import tempfile
from pathlib import Path

from common import COMMAND, Cost, measure, median, say

ROWS = 1_000
HEADER = "ITEM: TIMESTEP\n{}\nITEM: NUMBER OF ATOMS\n{}\nITEM: BOX BOUNDS pp pp pp\n0 1\n0 1\n0 1\nITEM: ATOMS id x\n"
# Goals in seconds of wall time for 100,000 epochs, and in microseconds of processor time for each epoch.
GOALS = {
    "ingest": "≤ 600 s",
    "count by manifests": "≤ 3 s, ≤ 40 µs",
    "count, every part read": "≤ 10 s",
    "get by scan": "≤ 10 s",
    "get": "≤ by scan",
    "index add": "≤ 120 s",
    "report": "≤ 10 s, ≤ 5 MB",
    "verify": "",
}


def write_dump(path: Path, epochs: int) -> None:
    """Writes a LAMMPS text of some steps, whose atoms have other ids and places in each."""
    bodies = [
        "".join(f"{(atom * 7 + shift) % ROWS + 1} {(atom * 31 + shift * 17) % 997 / 997:.4f}\n" for atom in range(ROWS))
        for shift in range(16)
    ]
    with path.open("w") as dump:
        for step in range(epochs):
            dump.write(HEADER.format(step, ROWS) + bodies[step % 16])


def requests(dataset: Path, report: Path) -> dict[str, list]:
    get = [COMMAND, "get", dataset, 17, "--id", "id"]
    return {
        "count by manifests": [COMMAND, "query", dataset, "--count"],
        "count, every part read": [COMMAND, "query", dataset, "--where", "x > 0.5", "--count"],
        "get by scan": [*get, "--use", "scan"],
        "index add": [COMMAND, "index", "add", dataset, "id"],
        "get": get,
        "report": [COMMAND, "report", dataset, "--output", report],
        "verify": [COMMAND, "verify", dataset],
    }


def study(scratch: Path, numbers: tuple[int, ...], rounds: int) -> dict[int, dict[str, Cost]]:
    """All numbers of epochs. What writes is measured once, and reads as often as there are rounds."""
    found = {}
    for epochs in numbers:
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            dump, dataset, report = (Path(folder) / name for name in ("dump.lammpstrj", "dataset", "report.html"))
            write_dump(dump, epochs)
            costs = {
                "ingest": [measure([COMMAND, "ingest", dump, "--out", dataset, "--key", "x"], output=Path(folder) / "output")]
            }
            for name, command in requests(dataset, report).items():
                times = 1 if name == "index add" else rounds
                costs[name] = [measure(command, output=Path(folder) / "output") for _ in range(times)]
                say(f"{epochs} epochs, {name}: {costs[name][0]}")
            found[epochs] = {name: middle(of) for name, of in costs.items()} | {"page": report.stat().st_size}
            shutil.rmtree(dataset)
    return found


def middle(costs: list[Cost]) -> Cost:
    failures = [cost.failure for cost in costs if cost.failure]
    return Cost(
        *(median(getattr(cost, field) for cost in costs) for field in ("wall_s", "cpu_s", "peak_mib")),
        failures[0] if failures else None,
    )


def table(found: dict[int, dict[str, Cost]]) -> list[str]:
    numbers = list(found)
    lines = [
        f"| | {' | '.join(f'{epochs:,} epochs: s, µs of CPU an epoch' for epochs in numbers)} | goal for 100,000 |",
        f"| --- |{' ---: |' * len(numbers)} --- |",
    ]

    def cell(epochs: int, name: str) -> str:
        cost = found[epochs][name]
        if cost.failure:
            return cost.failure
        page = f", {found[epochs]['page'] / 1e6:.2f} MB" if name == "report" else ""
        return f"{cost.wall_s:.2f}, {cost.cpu_s / epochs * 1e6:.0f}{page}"

    return lines + [
        f"| {name} | {' | '.join(cell(epochs, name) for epochs in numbers)} | {goal} |" for name, goal in GOALS.items()
    ]
