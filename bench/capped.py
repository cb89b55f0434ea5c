"""Ingest while storage takes no more than so many bytes a second, next to raw writes under the same limit.

The limit is that of a control group of the kernel (version 1, `blkio.throttle.write_bps_device`). Most machines do not let
a process make one: then the reason stands in the table's place.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ingest
from common import EPOCHS, HERE, ingest_speed, median, run
from support.examples import mpi_tool
from support.libraries import prefix

GROUPS = Path("/sys/fs/cgroup/blkio")
MB = 1_000_000
# Of each core; 400 MB/s are the goal.
LIMITS_MB = (100, 200, 400)
SECONDS = 10
RAW = ingest.RAW[1]


class Refused(Exception):
    """The kernel does not limit writes here."""


@contextmanager
def limited(folder: Path, bytes_per_s: int) -> Iterator[list[str]]:
    """Yields the beginning of a command whose writes to the device of `folder` are limited."""
    device = os.stat(folder).st_dev
    group = GROUPS / f"turbidite-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise Refused(f"no control group can be made in {GROUPS}: {error.strerror}") from None
    try:
        limit = f"{os.major(device)}:{os.minor(device)} {bytes_per_s}"
        try:
            (group / "blkio.throttle.write_bps_device").write_text(limit)
        except OSError as error:
            raise Refused(f"the writes to {folder} cannot be limited: {error.strerror}") from None
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "limited"]
    finally:
        group.rmdir()


def study(scratch: Path, most_bytes: int, rounds: int) -> dict[int, dict[str, list[dict]]]:
    """Measures each limit, in MB/s of all cores. The input lies in memory and takes ten seconds, if `most_bytes` allow."""
    found = {}
    for limit_mb in LIMITS_MB:
        bytes_per_s = limit_mb * MB * (os.cpu_count() or 1)
        options = ["--bytes", min(bytes_per_s * SECONDS, most_bytes), "--epochs", EPOCHS, "--width", 64, "--rounds", rounds]
        with limited(scratch, bytes_per_s) as prefix:
            lines = ingest_speed(scratch, [RAW, ingest.MAIN], *options, prefix=prefix)
        found[bytes_per_s // MB] = {contestant: [one for one in lines if one["contestant"] == contestant] for contestant in (RAW, ingest.MAIN)}
    return found


def table(found: dict[int, dict[str, list[dict]]]) -> list[str]:
    lines = ["| limit, MB/s | raw, MB/s | turbidite, MB/s | of raw | CPU s | MB |", "| ---: | ---: | ---: | ---: | ---: | ---: |"]
    for limit_mb, contestants in found.items():
        raw, ours = contestants[RAW], contestants[ingest.MAIN]
        raw_s, ours_s = (median(one["wall_s"] for one in of) for of in (raw, ours))
        megabytes, cpu_s = ours[0]["bytes"] / MB, median(one["cpu_s"] for one in ours)
        figures = f"{megabytes / raw_s:.0f} | {megabytes / ours_s:.0f} | {raw_s / ours_s:.2f} | {cpu_s:.1f} | {megabytes:.0f}"
        lines.append(f"| {limit_mb} | {figures} |")
    return lines


# The program that computes on all cores: how many loops and records a rank has in each step, which takes about four seconds,
# and how much slower storage is than the records of a step come.
OVERLAPPED = {"epochs": 6, "loops": 1_200_000_000, "rows": 3_125_000}
OVERLAPPED_LIMIT_MB = 100


def overlapped(scratch: Path, rounds: int) -> list[dict]:
    """Runs `overlapped.c` under a limit on writes, with and without indexing in turn."""
    libraries = prefix()
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        program, dataset = Path(folder) / "overlapped", Path(folder) / "dataset"
        link = ["-L", libraries / "lib", f"-Wl,-rpath,{libraries / 'lib'}", "-lturbidite_mpi", "-lturbidite", "-lm"]
        subprocess.run([mpi_tool("mpicc"), "-O2", "-o", program, HERE / "overlapped.c", "-I", libraries / "include", *link], check=True)
        found = []
        with limited(scratch, OVERLAPPED_LIMIT_MB * MB * (os.cpu_count() or 1)) as limit:
            for _ in range(rounds):
                pair = []
                for out in ("-", dataset):
                    shutil.rmtree(dataset, ignore_errors=True)
                    pair.append(json.loads(run([*limit, mpi_tool("mpiexec"), "-n", os.cpu_count() or 1, program, out, *OVERLAPPED.values()])))
                computed, indexed = pair
                found.append(indexed | {"computed_s": computed["wall_s"], "indexing_cpu_s": indexed["cpu_s"] - computed["cpu_s"]})
        return found


def overlapped_table(found: list[dict]) -> list[str]:
    of = {name: median(one[name] for one in found) for name in ("computed_s", "wall_s", "indexing_cpu_s", "blocked_s")}
    beyond = of["wall_s"] - of["computed_s"] - of["indexing_cpu_s"]
    megabytes = OVERLAPPED["epochs"] * OVERLAPPED["rows"] * 64 / MB
    return [
        "| computation alone, s | with indexing, s | CPU time of indexing, s | beyond that, % | blocked in calls, % | MB per rank |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
        f"| {of['computed_s']:.2f} | {of['wall_s']:.2f} | {of['indexing_cpu_s']:.2f} | {100 * beyond / of['computed_s']:.1f} "
        f"| {100 * of['blocked_s'] / of['wall_s']:.1f} | {megabytes:.0f} |",
    ]
