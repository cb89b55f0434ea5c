"""Ingest next to plain writes of the same bytes, and to plain writes followed by a sort."""

import shutil
import sys
from collections import defaultdict
from pathlib import Path

from common import COMMAND, EPOCHS, HERE, RANKS, Cost, ingest_speed, measure, median, say, spread

# The device's own limit is looked for among these; the fastest counts.
RAW = [f"direct,threads={threads},depth={depth}" for threads, depth in ((1, 1), (2, 1), (4, 1), (8, 1), (2, 4))]
RAW += [f"buffered,threads={threads}" for threads in (1, 2, 4)]
# The same with less and less of the work, down to what moving a record takes.
PARTLY = ["shuffle", "local", "sort", "copy"]
OURS = ["index,ranks=4", "index,ranks=16", "index,ranks=64", *PARTLY]
MAIN = "index,ranks=16"

NAMES = {
    "index": "turbidite, {ranks} ranks",
    "shuffle": "turbidite without storage, 16 ranks",
    "local": "turbidite without shuffle",
    "sort": "turbidite without shuffle and storage",
    "copy": "copying the records once",
}


def name(contestant: str) -> str:
    kind, *settings = contestant.split(",")
    values = dict(setting.split("=") for setting in settings)
    if kind in NAMES:
        return NAMES[kind].format(**values)
    return f"raw {kind}, " + ", ".join(f"{key} {value}" for key, value in values.items())


def from_memory(scratch: Path, width: int, total_bytes: int, rounds: int, contestants: list[str]) -> dict[str, list[dict]]:
    """Everything that takes its records from memory, by contestant."""
    options = ["--bytes", total_bytes, "--epochs", EPOCHS, "--width", width, "--rounds", rounds]
    found = defaultdict(list)
    for line in ingest_speed(scratch, contestants, *options):
        found[line["contestant"]].append(line)
    return dict(found)


def sorts(scratch: Path, unsorted: dict[int, Path], engines: list[str], rounds: int) -> dict[str, list[Cost]]:
    """Sorting what was written, all epochs one after the other, each in a process of its own as a batch job would."""
    found = defaultdict(list)
    for _ in range(rounds):
        for engine in engines:
            costs = []
            for path in unsorted.values():
                target = scratch / "sorted.parquet"
                costs.append(measure([sys.executable, HERE / "sort_peer.py", engine, path, target], own_clock=True))
                target.unlink(missing_ok=True)
            failure = next((cost.failure for cost in costs if cost.failure), None)
            wall_s, cpu_s = sum(cost.wall_s for cost in costs), sum(cost.cpu_s for cost in costs)
            found[engine].append(Cost(wall_s, cpu_s, max(cost.peak_mib for cost in costs), failure))
            say(f"{engine}: {wall_s:.2f} s, {cpu_s:.2f} CPU s")
    return dict(found)


def dataset(scratch: Path) -> Path:
    """The generated source as a dataset, for the queries."""
    source, target = scratch / "source", scratch / "dataset"
    arguments = ["ingest", source, "--layout", source / "layout.toml", "--out", target, "--key", "energy", "--ranks", RANKS]
    measure([COMMAND, *arguments])
    return target


def compaction(scratch: Path, rounds: int) -> list[Cost]:
    costs = []
    for _ in range(rounds):
        shutil.rmtree(scratch / "compacted", ignore_errors=True)
        costs.append(measure([COMMAND, "compact", scratch / "dataset", "--out", scratch / "compacted"]))
        say(f"compact: {costs[-1].wall_s:.2f} s, {costs[-1].cpu_s:.2f} CPU s")
    return costs


def fastest_raw(memory: dict[str, list[dict]]) -> str:
    raw = [contestant for contestant in memory if contestant.startswith(("direct", "buffered"))]
    return min(raw, key=lambda contestant: median(line["wall_s"] for line in memory[contestant]))


def ratios(memory: dict[str, list[dict]], sorted_by: dict[str, list[Cost]]) -> dict[str, float]:
    """The figures that are compared from run to run. Above 1 we are better, but for MB per processor second."""
    raw, ours = memory[fastest_raw(memory)], memory[MAIN]
    wall_s, cpu_s = median(line["wall_s"] for line in ours), median(line["cpu_s"] for line in ours)
    raw_s, raw_cpu_s = median(line["wall_s"] for line in raw), median(line["cpu_s"] for line in raw)
    found = {"ingest / raw write": raw_s / wall_s, "MB per CPU s": ours[0]["bytes"] / 1e6 / cpu_s}
    for engine, costs in sorted_by.items():
        if engine in ("duckdb", "polars") and not any(cost.failure for cost in costs):
            found[f"raw write + {engine} sort, wall"] = (raw_s + median(cost.wall_s for cost in costs)) / wall_s
            found[f"raw write + {engine} sort, CPU"] = (raw_cpu_s + median(cost.cpu_s for cost in costs)) / cpu_s
    return found


def table(memory: dict[str, list[dict]], sorted_by: dict[str, list[Cost]], compacted: list[Cost]) -> list[str]:
    ours = memory[MAIN]
    megabytes = ours[0]["bytes"] / 1e6
    wall, cpu = median(line["wall_s"] for line in ours), median(line["cpu_s"] for line in ours)
    raw = fastest_raw(memory)
    raw_s, raw_cpu_s = (median(line[key] for line in memory[raw]) for key in ("wall_s", "cpu_s"))
    lines = [
        "| | wall s (least–most) | MB/s | MB per CPU s | peak MiB | bytes written / bytes of records | wall / ours | CPU / ours |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]

    def row(label: str, walls: list[float], cpus: list[float], peak: float, written: str, plus=(0.0, 0.0)) -> str:
        wall_s, cpu_s = median(walls) + plus[0], median(cpus) + plus[1]
        shown = spread(value + plus[0] for value in walls)
        rates = f"{megabytes / wall_s:.0f} | {megabytes / max(cpu_s, 0.01):.0f}"
        return f"| {label} | {shown} | {rates} | {peak:.0f} | {written} | {wall_s / wall:.2f} | {cpu_s / cpu:.2f} |"

    order = sorted(memory, key=lambda key: (key in OURS, OURS.index(key) if key in OURS else median(line["wall_s"] for line in memory[key])))
    for contestant in order:
        measured = memory[contestant]
        written = median(line["written_bytes"] for line in measured) / measured[0]["bytes"]
        walls, cpus = [line["wall_s"] for line in measured], [line["cpu_s"] for line in measured]
        peak = max(line["peak_mib"] for line in measured)
        lines.append(row(name(contestant), walls, cpus, peak, f"{written:.4f}" if written else ""))
    for engine, costs in sorted_by.items():
        failure = next((cost.failure for cost in costs if cost.failure), None)
        label = "Parquet written unsorted by pyarrow" if engine == "pyarrow" else f"raw write, then sort with {engine}"
        if failure:
            lines.append(f"| {label} | {failure} | | | {max(cost.peak_mib for cost in costs):.0f} | | | |")
            continue
        plus = (0.0, 0.0) if engine == "pyarrow" else (raw_s, raw_cpu_s)
        lines.append(row(label, [cost.wall_s for cost in costs], [cost.cpu_s for cost in costs], max(cost.peak_mib for cost in costs), "", plus))
    if compacted:
        label = "turbidite, then `turbidite compact`"
        lines.append(row(label, [cost.wall_s for cost in compacted], [cost.cpu_s for cost in compacted], max(cost.peak_mib for cost in compacted), "", (wall, cpu)))
    lines += ["", f"Fastest raw write: {name(raw)}. Ingest reaches {raw_s / wall:.2f} of it.", ""]
    lines += stages(ours)
    return lines


def stages(ours: list[dict]) -> list[str]:
    """Where the time of all threads went: waiting for the device is in writing."""
    keys = [("route_s", "route"), ("sort_s", "sort"), ("encode_s", "encode"), ("write_s", "write"), ("sync_s", "sync")]
    shown = ", ".join(f"{label} {median(line[key] for line in ours):.2f}" for key, label in keys)
    strays = median(line["strays"] for line in ours)
    return [f"Seconds by stage, over all threads: {shown}; {strays:.0f} strays, {median(line['tables'] for line in ours):.0f} tables."]
