"""Runs a command and writes what it took as JSON: `measure.py RESULT COMMAND [ARGUMENT ...]`.

A small process of its own stands between the caller and the command, since the system counts a child's peak memory from
that of the process it was forked from.
"""

import json
import os
import subprocess
import sys
import time


def main() -> int:
    result, command = sys.argv[1], sys.argv[2:]
    began = time.perf_counter()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    figures = {
        "wall_s": wall_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
        "written_bytes": usage.ru_oublock * 512,
    }
    with open(result, "w") as file:
        json.dump(figures, file)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
