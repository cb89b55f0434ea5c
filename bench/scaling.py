"""How the cost of an ingest grows with what users may change: one thing at a time, everything else as by default."""

from pathlib import Path

from common import ingest_speed, median

STUDIES = {
    "ranks": [f"index,ranks={ranks}" for ranks in (4, 16, 64, 256)],
    "memtable, MiB": [f"index,memtable={mib << 20}" for mib in (1, 2, 4, 8, 16)],
    "row groups per run": [f"index,row-groups={count}" for count in (1, 2, 4)],
    "records per append": [f"index,append={rows}" for rows in (256, 1024, 4096, 65536)],
    "renegotiation": ["index", *(f"index,renegotiate={rows}" for rows in (2_000_000, 500_000, 100_000))],
    "pivots": [f"index,pivots={count}" for count in (64, 256, 512, 2048)],
}
# As CARP's evaluation has them: tables per epoch, and numbers in a rank's message.
CARP_TABLES = (2, 6, 13, 26)
CARP_PIVOTS = (64, 512, 2048)
RANKS = 16
COLUMNS = (2, 5, 10, 20, 40)
EPOCHS = (1, 4, 16)


def shown(contestant: str) -> str:
    """The value of the setting that is studied."""
    if "=" not in contestant:
        return "adaptive"
    setting, value = contestant.split(",")[1].split("=")
    return str(int(value) >> 20) if setting == "memtable" else value


def study(scratch: Path, total_bytes: int, rounds: int) -> dict[str, list[tuple[str, list[dict]]]]:
    """By study: each value with its measurements."""
    found = {}
    base = ["--bytes", total_bytes, "--rounds", rounds]
    contestants = [contestant for group in STUDIES.values() for contestant in group]
    lines = ingest_speed(scratch, list(dict.fromkeys(contestants)), *base, "--epochs", 2, "--width", 36)
    rank_records = total_bytes // 2 // 36 // RANKS
    for count in CARP_TABLES:
        group = [f"index,renegotiate={rank_records // count},pivots={pivots}" for pivots in CARP_PIVOTS]
        measured = ingest_speed(scratch, group, *base, "--epochs", 2, "--width", 36)
        found[f"CARP's study: a table {count} times an epoch; pivots"] = [
            (str(pivots), [line for line in measured if line["contestant"] == each]) for pivots, each in zip(CARP_PIVOTS, group)
        ]
    for name, group in STUDIES.items():
        found[name] = [(shown(each), [line for line in lines if line["contestant"] == each]) for each in group]
    found["columns of 4 bytes"] = [
        (str(count), ingest_speed(scratch, ["index"], *base, "--epochs", 2, "--columns", count, "--width", 4 * count)) for count in COLUMNS
    ]
    found["epochs"] = [(str(count), ingest_speed(scratch, ["index"], *base, "--epochs", count, "--width", 36)) for count in EPOCHS]
    return found


def rates(lines: list[dict]) -> tuple[float, float]:
    """MB per second and per processor second."""
    megabytes = lines[0]["bytes"] / 1e6
    return tuple(megabytes / median(line[key] for line in lines) for key in ("wall_s", "cpu_s"))


def table(found: dict[str, list[tuple[str, list[dict]]]]) -> list[str]:
    lines = ["| | value | MB/s | MB per CPU s | peak MiB | strays % | tables per epoch | imbalance % |", "| --- |" + " ---: |" * 7]
    for name, values in found.items():
        for value, measured in values:
            per_s, per_cpu_s = rates(measured)
            strays = 100 * median(line["strays"] for line in measured) * record_bytes(name, value) / measured[0]["bytes"]
            tables = median(line["tables"] for line in measured) / epochs(name, value)
            imbalance = 100 * median(line["load_imbalance"] for line in measured)
            peak = max(line["peak_mib"] for line in measured)
            lines.append(f"| {name} | {value} | {per_s:.0f} | {per_cpu_s:.0f} | {peak:.0f} | {strays:.2f} | {tables:.0f} | {imbalance:.1f} |")
    return lines


def record_bytes(study_name: str, value: str) -> int:
    return 4 * int(value) if study_name.startswith("columns") else 36


def epochs(study_name: str, value: str) -> int:
    return int(value) if study_name == "epochs" else 2
