"""Shared by the parts of the benchmark: running processes, medians, paths."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MEASURE = ROOT / "tests" / "support" / "measure.py"
COMMAND = Path(os.environ["TURBIDITE"])
EXAMPLES = COMMAND.parent / "examples"
RANKS = 16
EPOCHS = 4

sys.path.insert(0, str(ROOT / "tests"))
from support import vpic  # noqa: E402

DUMPS = vpic.full_dumps() or vpic.sample_dumps()


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def median(values) -> float:
    return statistics.median(values)


def spread(values) -> str:
    """Median with the least and the most, as tables show it."""
    values = list(values)
    return f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


@dataclass(frozen=True)
class Cost:
    """Cost of a process; an error if it failed."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    failure: str | None = None


@dataclass(frozen=True)
class Line:
    """A goal, the figure, and what the figure is made of. `goal` and `form` have a place for the figure."""

    what: str
    goal: str
    form: str
    limit: float
    measured: float
    details: str
    at_most: bool = False

    def cells(self) -> str:
        met = self.measured <= self.limit if self.at_most else self.measured >= self.limit
        sign, limit = "≤" if self.at_most else "≥", f"{self.limit:g}"
        cells = self.what, f"{sign} {self.goal.format(limit)}", self.form.format(self.measured), "met" if met else "missed", self.details
        return f"| {' | '.join(cells)} |"


def run(command: list) -> str:
    """Runs a process that has to succeed and answers its output."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"exit {done.returncode}: {' '.join(map(str, command))}")
    return done.stdout


def measure(command: list, own_clock: bool = False, output: Path | None = None) -> Cost:
    """Runs a process to its end. What was written before is on disk beforehand, so that it does not count here.

    With `own_clock` the process prints its wall and processor seconds, since starting Python is no part of the matter. What
    it prints is kept in the file `output`. A process that fails, for want of memory mostly, is a result.
    """
    os.sync()
    with tempfile.NamedTemporaryFile("r") as result:
        measured = [sys.executable, "-S", MEASURE, result.name, *command]
        done = subprocess.run([str(word) for word in measured], stdout=subprocess.PIPE, text=True)
        figures = json.loads(result.read() or "{}")
    peak_mib = figures.get("peak_bytes", 0) / (1 << 20)
    if output:
        output.write_text(done.stdout)
    if done.returncode != 0:
        return Cost(float("nan"), float("nan"), peak_mib, f"ended with {done.returncode}")
    wall_s, cpu_s = map(float, done.stdout.split()) if own_clock else (figures["wall_s"], figures["cpu_s"])
    return Cost(wall_s, cpu_s, peak_mib)


def ingest_speed(scratch: Path, contestants: list[str], *options, prefix: list[str] = ()) -> list[dict]:
    """All measurements of one process of `examples/ingest_speed`, which holds the input in memory. `prefix` runs it."""
    command = [*prefix, EXAMPLES / "ingest_speed", "--dumps", DUMPS, "--scratch", scratch / "ingest", *options, *contestants]
    lines = []
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            figures = json.loads(line)
            figures["cpu_s"] = figures["user_s"] + figures["system_s"]
            say(f"{figures['contestant']}: {figures['wall_s']:.2f} s, {figures['cpu_s']:.2f} CPU s")
            lines.append(figures)
    if process.returncode != 0:
        sys.exit(f"ingest_speed ended with {process.returncode}")
    return lines
