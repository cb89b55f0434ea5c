"""What the output of a parallel program takes: `examples/pic` with plain files, each synced, with the same files indexed by the
preload library (`keep`, and `replace` with the spool in memory), and through the C interface.

The ways take turns. Output is from a barrier before a dump until all ranks know that it is on storage; CPU time is that of
the whole run, which computes a single step between dumps. Prints medians, and ratios to plain files.

Usage: output.py [--ranks N] [--rounds N] [--grid NX,NY] [--scratch FOLDER]
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy
from common import MEASURE, median, run, say
from support import vpic
from support.examples import build_example, mpi_tool
from support.libraries import prefix
from support.preload import Form, configure, libraries

DUMPS, PER_CELL, RECORD_BYTES = 3, 32, 48

# The program writes an id, and where a particle began, behind VPIC's fields.
TAGGED = Form(
    pattern="particle/T.{epoch}/eparticle.{epoch}.{rank}",
    header_bytes=vpic.HEADER.size,
    record=numpy.dtype(vpic.PARTICLE.descr + [("id", "<i8"), ("origin", "<i8")]),
    key="energy",
    derive=("energy = sqrt(1+ux*ux+uy*uy+uz*uz)-1",),
)
WAYS = ("plain", "keep", "replace", "interface")


def once(way: str, programs: dict[str, Path], options: argparse.Namespace, scratch: Path) -> dict:
    """A run: its figures, and the CPU time of all ranks."""
    out = scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(scratch / "dataset", ignore_errors=True)
    os.sync()
    environment = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as spool, tempfile.NamedTemporaryFile("r") as measured:
        if way in ("keep", "replace"):
            more = {"spool": spool} if way == "replace" else {}
            config = configure(scratch / "config.toml", (TAGGED, scratch / "dataset", {"mode": way} | more))
            environment = {"TURBIDITE_CONFIG": config, "LD_PRELOAD": libraries()}
        program = programs["pic_turbidite" if way == "interface" else "pic_files"]
        given = [f"{name}={value}" for name, value in environment.items()]
        sync = [] if way in ("replace", "interface") else ["--sync"]
        arguments = ["--out", out, "--grid", options.grid, "--per-cell", PER_CELL, "--steps", DUMPS, "--dump", 1, *sync]
        launch = [sys.executable, "-S", MEASURE, measured.name, mpi_tool("mpiexec"), "-n", options.ranks]
        figures = json.loads(run([*launch, "env", *given, program, *arguments]).splitlines()[-1])
        return figures | {"cpu_s": json.loads(measured.read())["cpu_s"]}


def table(found: dict[str, list[dict]], dump_bytes: int) -> list[str]:
    plain = median(figures["output_s"] for figures in found["plain"])
    lines = ["| way | output, s (least–most) | MB/s | × plain | CPU time of the run, s |", "| --- | ---: | ---: | ---: | ---: |"]
    for way, rounds in found.items():
        output = [figures["output_s"] for figures in rounds]
        cpu_s = median(figures["cpu_s"] for figures in rounds)
        rate = DUMPS * dump_bytes / median(output) / 1e6
        lines.append(
            f"| {way} | {median(output):.2f} ({min(output):.2f}–{max(output):.2f}) | {rate:.0f} | {median(output) / plain:.2f} | {cpu_s:.2f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--grid", default="256,256")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    cells = numpy.prod([int(side) for side in options.grid.split(",")])
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="turbidite-output-") as folder:
        scratch = Path(folder)
        settings = (f"TURBIDITE_INCLUDE={prefix() / 'include'}", f"TURBIDITE_LIB={prefix() / 'lib'}")
        programs = {name: build_example("pic", name, scratch, *settings) for name in ("pic_files", "pic_turbidite")}
        found = {way: [] for way in WAYS}
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            for way in WAYS:
                found[way].append(once(way, programs, options, scratch))
        dump_bytes = int(cells) * PER_CELL * RECORD_BYTES
        print(f"{options.ranks} ranks, {DUMPS} dumps of {dump_bytes / 1e6:.0f} MB; median of {options.rounds} rounds.\n")
        print("\n".join(table(found, dump_bytes)))


if __name__ == "__main__":
    main()
