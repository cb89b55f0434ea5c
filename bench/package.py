"""The Python package: each line of its goals, next to the library, C, h5py or openPMD-viewer.

The programs that are measured are in `bench/python`. All take turns; a line's figure is the median over the rounds.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import data
import numpy
from common import COMMAND, EXAMPLES, HERE, RANKS, Line, measure, median, run, say, spread
from query_peer import drop_cached
from support.libraries import compile_c

PROGRAMS = HERE / "python"
# The interpreter that has openPMD-viewer: it is in an environment of its own.
VIEWER = os.environ.get("TURBIDITE_VIEWER", "")
QUERY_BYTES, APPEND_BYTES = 0.18, 0.18
APPEND_ROWS, APPEND_EPOCHS = 65_536, 3
IMPORTS = 21
# How a query is read, and the form of `queries.py` for it.
WAYS = {"Rust": None, "to Arrow": "arrow", "read by pyarrow": "stream", "to NumPy": "numpy"}


def program(name: str, *arguments) -> dict | list:
    """Runs a program of `bench/python` and returns what it prints."""
    return json.loads(run([sys.executable, PROGRAMS / name, *arguments]))


class Package:
    """The measurements, and what they share: a folder for files, the size, the rounds."""

    def __init__(self, scratch: Path, total_bytes: int, large_bytes: int, rounds: int):
        self.scratch, self.total_bytes, self.large_bytes, self.rounds = scratch, total_bytes, large_bytes, rounds
        self.figures: dict[str, object] = {}
        if not VIEWER:
            sys.exit("TURBIDITE_VIEWER names no Python that has openPMD-viewer: measure with make bench ARGS='--parts python'")

    def table(self) -> list[str]:
        lines = [*self.queries(), self.imports(), self.append(), self.batches(), *self.openpmd()]
        return ["| | goal | measured | | |", "| --- | --- | ---: | --- | --- |", *(line.cells() for line in lines)]

    def queries(self) -> list[Line]:
        """Queries of 10 % and 0.01 %, and throughput of threads at 1 %."""
        data.generate(self.scratch, "36", int(self.total_bytes * QUERY_BYTES), 1, RANKS)
        [unsorted] = self.scratch.glob("unsorted-*.parquet")
        epoch = unsorted.stem.removeprefix("unsorted-")
        source, dataset, ranges = self.scratch / "source", self.scratch / "dataset", self.scratch / "ranges"
        run([COMMAND, "ingest", source, "--layout", source / "layout.toml", "--out", dataset, "--key", "energy", "--ranks", RANKS])
        run([sys.executable, HERE / "query_ranges.py", unsorted, ranges, "--batch-count", 1])
        asked = [dataset, "--epoch", epoch, "--ranges"]
        took = {share: self.against_library([*asked, ranges / f"share-{share}.csv"]) for share in ("10", "0.01")}
        throughput = program("threads.py", *asked, ranges / "share-1.csv", "--rounds", 2 * self.rounds + 1)
        self.figures |= {"queries": took, "threads": throughput}
        say(f"threads: {throughput}")
        large, small = took["10"], took["0.01"]
        ratio = median(large["to Arrow"]) / median(large["Rust"])
        more_us = median(small["to Arrow"]) - median(small["Rust"])
        two = median(throughput["two threads"])
        return [
            Line(
                f"{large['rows']:,} rows to Arrow, all columns",
                "{} x Rust",
                "{:.2f} x",
                1.05,
                ratio,
                ", ".join(f"{way} {median(large[way]) / 1e3:.2f} ms" for way in WAYS),
                at_most=True,
            ),
            Line(
                f"query of 0.01 % ({small['rows']:,} rows)",
                "Rust + {} µs",
                "+ {:.0f} µs",
                40,
                more_us,
                ", ".join(f"{way} {median(small[way]):.0f} µs" for way in WAYS),
                at_most=True,
            ),
            Line(
                "two threads, `threads=1` each, queries of 1 %",
                "{} x one",
                "{:.2f} x",
                1.7,
                two,
                f"{spread(throughput['two threads'])}; two processes {spread(throughput['two processes'])}",
            ),
        ]

    def against_library(self, asked: list) -> dict:
        """Medians in microseconds of each round, and the rows of a query."""
        took: dict = {way: [] for way in WAYS}
        for _ in range(self.rounds):
            own = json.loads(run([EXAMPLES / "query_speed", *asked, "--modes", "unordered-all", "--collect", "--json"]))
            mode = own["modes"]["unordered-all"]
            took["Rust"].append(mode["median_us"])
            for way, form in WAYS.items():
                if form is None:
                    continue
                found = program("queries.py", *asked, "--form", form)
                took[way].append(found["median_us"])
                if found["rows"] != mode["rows"]:
                    sys.exit(f"the package returns {found['rows']} rows, the library {mode['rows']}")
            took["rows"] = mode["rows"] // own["ranges"]
        say(f"{asked[-1].stem}: {took}")
        return took

    def imports(self) -> Line:
        """Starts of an interpreter that imports NumPy, and of one that imports the package, too."""
        took: dict[str, list[float]] = {"numpy": [], "numpy, turbidite": []}
        for _ in range(IMPORTS):
            for modules, times_ms in took.items():
                began = time.perf_counter()
                subprocess.run([sys.executable, "-c", f"import {modules}"], check=True)
                times_ms.append((time.perf_counter() - began) * 1e3)
        self.figures["imports"] = took
        alone_ms, ours_ms = (median(took[modules]) for modules in took)
        more_ms = ours_ms - alone_ms
        details = f"{ours_ms:.0f} ms, NumPy {alone_ms:.0f} ms"
        return Line("`import turbidite`", "NumPy + {} ms", "+ {:.0f} ms", 60, more_ms, details, at_most=True)

    def append(self) -> Line:
        """Epochs of arrays appended through the package and through the C interface. The first of a process warms it up.

        The package's Writer has several ranks of one process, and the C interface one of a parallel program, alone here.
        """
        compiled = compile_c(PROGRAMS / "append.c", self.scratch / "append")
        rows = int(self.total_bytes * APPEND_BYTES) // data.VPIC_RECORD.itemsize
        columns, target = self.scratch / "columns", self.scratch / "appended"
        with columns.open("wb") as file:
            particles = numpy.fromfile(next(self.scratch.glob("source/E.*/records.0")), data.VPIC_RECORD)
            for name in data.VPIC_RECORD.names:
                numpy.resize(particles[name], rows).tofile(file)
        ways = {"c": [compiled], "package": [sys.executable, PROGRAMS / "append.py"]}
        took: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(self.rounds):
            for way, command in ways.items():
                shutil.rmtree(target, ignore_errors=True)
                os.sync()
                took[way] += json.loads(run([*command, target, columns, APPEND_EPOCHS, APPEND_ROWS]))["epoch_s"][1:]
        shutil.rmtree(target)
        self.figures["appends"] = took
        megabytes = rows * data.VPIC_RECORD.itemsize / 1e6
        c_s, package_s = median(took["c"]), median(took["package"])
        return Line(
            f"append of arrays, {APPEND_ROWS:,} rows at a time",
            "{} x C",
            "{:.2f} x",
            0.97,
            c_s / package_s,
            f"{megabytes / package_s:.0f} MB/s, C {megabytes / c_s:.0f} MB/s",
        )

    def batches(self) -> Line:
        """Memory of a process that iterates over more rows than it could hold."""
        target = self.scratch / "large"
        run([sys.executable, PROGRAMS / "batches.py", "write", target, self.large_bytes])
        cost = measure([sys.executable, PROGRAMS / "batches.py", "read", target])
        shutil.rmtree(target)
        if cost.failure:
            sys.exit(f"batches.py {cost.failure}")
        self.figures["batches"] = {"peak_mib": cost.peak_mib, "wall_s": cost.wall_s}
        return Line(
            f"{self.large_bytes / 1e9:g} GB through batches",
            "{} MiB resident",
            "{:.0f} MiB",
            512,
            cost.peak_mib,
            f"{self.large_bytes / 1e6 / cost.wall_s:.0f} MB/s",
            at_most=True,
        )

    def openpmd(self) -> list[Line]:
        """Ingest of openPMD files beside reading them, and trajectories."""
        folder, target = self.scratch / "series", self.scratch / "from-series"
        made = program("series.py", folder, self.total_bytes)
        files = sorted(folder.iterdir())
        environment = {"TURBIDITE_PYTHON": sys.executable, **os.environ}
        ways = {
            "ingest": [COMMAND, "ingest", folder, "--out", target, "--key", "momentum_z"],
            "h5py": [sys.executable, PROGRAMS / "read_h5py.py", *files],
        }
        took: dict[str, list[float]] = {f"{way}, {cache}": [] for cache in ("cold", "warm") for way in ways}
        for _ in range(self.rounds):
            for key, seconds in took.items():
                way, cache = key.split(", ")
                if way == "ingest":
                    shutil.rmtree(target, ignore_errors=True)
                    os.sync()
                if cache == "cold":
                    drop_cached([str(path) for path in files])
                began = time.perf_counter()
                subprocess.run([str(word) for word in ways[way]], check=True, stdout=subprocess.DEVNULL, env=environment)
                seconds.append(time.perf_counter() - began)
            say(", ".join(f"{key} {seconds[-1]:.2f} s" for key, seconds in took.items()))
        self.figures["openpmd"] = took
        times = {key: median(seconds) for key, seconds in took.items()}
        cold, warm = (times[f"h5py, {cache}"] / times[f"ingest, {cache}"] for cache in ("cold", "warm"))
        megabytes = made["bytes"] / 1e6
        ingest = Line(
            f"openPMD ingest of {made['bytes'] / 1e9:g} GB, cold, over reading by h5py",
            "{} x",
            "{:.2f} x",
            0.6,
            cold,
            f"{megabytes / times['ingest, cold']:.0f} MB/s, h5py {megabytes / times['h5py, cold']:.0f} MB/s; warm {warm:.2f} x, "
            f"{megabytes / times['ingest, warm']:.0f} and {megabytes / times['h5py, warm']:.0f} MB/s",
        )
        return [ingest, self.tracks(folder, target, made)]

    def tracks(self, folder: Path, target: Path, made: dict) -> Line:
        """Trajectories of the fastest particles, through the dataset and by openPMD-viewer."""
        asked = [repr(made["threshold"]), made["iterations"][-1], 3]
        ours, theirs = self.scratch / "tracks.npz", self.scratch / "tracks-viewer.npz"
        took: dict[str, list[float]] = {"package": [], "viewer": []}
        for _ in range(self.rounds):
            took["package"] += program("tracks.py", target, *asked, ours)
            took["viewer"] += json.loads(run([VIEWER, PROGRAMS / "tracks_viewer.py", folder, *asked, theirs]))
        self.figures["tracks"] = took
        particles = compare(ours, theirs)
        package_s, viewer_s = median(took["package"]), median(took["viewer"])
        return Line(
            f"{particles:,} trajectories, over openPMD-viewer",
            "{} x by scan",
            "{:.1f} x",
            2,
            viewer_s / package_s,
            f"{package_s * 1e3:.0f} ms, viewer {viewer_s * 1e3:.0f} ms; {len(made['iterations'])} iterations",
        )


def compare(ours: Path, theirs: Path) -> int:
    """Ends the benchmark unless both found the same rows. Returns the number of particles."""
    found, expected = (dict(numpy.load(path)) for path in (ours, theirs))
    order = {id(one): numpy.lexsort((one["epoch"], one["id"])) for one in (found, expected)}
    for own, other in (("id", "id"), ("epoch", "epoch"), ("position_x", "x"), ("position_z", "z")):
        if not numpy.array_equal(found[own][order[id(found)]], expected[other][order[id(expected)]]):
            sys.exit(f"the trajectories of the package and of openPMD-viewer differ in {own}")
    return len(numpy.unique(found["id"]))
