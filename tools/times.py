"""Reports where the time of the tests goes: stages, compiling against running, and the slowest tests.

    times.py report -- COMMAND…           run the command, and print what it and its children recorded, also when it fails
    times.py stage KIND NAME -- COMMAND…  run the command, and record its time as a stage of this kind: compile, run or check
    times.py program PROGRAM ARGUMENT…    run a Rust test program, and record the time of each test; cargo calls this

Records are lines of JSON in the file that TURBIDITE_TIMES names. Without it, commands only run. A `report` inside another
one does the same, so that the outermost prints. Standard library only.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

TIMES = "TURBIDITE_TIMES"
SLOWEST = 20


def record(**fields) -> None:
    """Appends a record, if anyone asked for them."""
    if path := os.environ.get(TIMES):
        # One write of one line in append mode: processes do not mix their records.
        with open(path, "a") as file:
            file.write(json.dumps(fields) + "\n")


def run(command: list[str]) -> int:
    """Runs a command and returns its status as a shell does."""
    status = subprocess.run(command).returncode
    return 128 - status if status < 0 else status


def stage(kind: str, name: str, command: list[str]) -> int:
    """Runs a command, and records its wall and processor time."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    status = run(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    record(stage=name, kind=kind, seconds=time.monotonic() - began, cpu_seconds=cpu_seconds)
    return status


def program(command: list[str]) -> int:
    """Runs a test program of libtest. Its tests' times are an unstable option, which the variable allows."""
    path = Path(command[0])
    # Documentation tests come here, too; they are many small programs of another kind.
    if not os.environ.get(TIMES) or path.parent.name != "deps":
        os.execv(command[0], command)
    crate = re.sub(r"-[0-9a-f]{16}$", "", path.name)
    timed = [*command, "-Zunstable-options", "--report-time"]
    with subprocess.Popen(timed, env=os.environ | {"RUSTC_BOOTSTRAP": "1"}, stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            if found := re.match(r"test (\S+)(?: - should panic)? \.\.\. .*<([0-9.]+)s>$", line):
                record(test=f"{crate}: {found[1]}", seconds=float(found[2]))
    return 128 - running.returncode if running.returncode < 0 else running.returncode


def summary(records: list[dict]) -> str:
    """Returns the report of all records."""
    stages = [found for found in records if "stage" in found]
    tests = sorted((found for found in records if "test" in found), key=lambda found: -found["seconds"])
    lines = ["", "Stages", f"{'wall s':>9} {'CPU s':>8}"]
    by_kind = defaultdict(float)
    for found in stages:
        by_kind[found["kind"]] += found["seconds"]
        lines.append(f"{found['seconds']:9.1f} {found['cpu_seconds']:8.1f}  {found['kind']:8} {found['stage']}")
    lines.append("By kind: " + ", ".join(f"{kind} {seconds:.0f} s" for kind, seconds in sorted(by_kind.items())))
    if tests:
        lines += ["", f"The slowest of {len(tests)} tests, {sum(found['seconds'] for found in tests):.0f} s in all"]
        lines += [f"{found['seconds']:9.1f}  {found['test']}" for found in tests[:SLOWEST]]
    return "\n".join(lines)


def report(command: list[str]) -> int:
    """Runs a command, and prints what was recorded meanwhile."""
    if os.environ.get(TIMES):
        return run(command)
    with tempfile.NamedTemporaryFile("r", prefix="turbidite-times-") as file:
        os.environ[TIMES] = file.name
        began = time.monotonic()
        status = run(command)
        print(summary([json.loads(line) for line in file]))
        print(f"\n{time.monotonic() - began:.0f} s in all", flush=True)
    return status


def main() -> int:
    match sys.argv[1:]:
        case ["report", "--", *command] if command:
            return report(command)
        case ["stage", "compile" | "run" | "check" as kind, name, "--", *command] if command:
            return stage(kind, name, command)
        case ["program", *command] if command:
            return program(command)
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main())
