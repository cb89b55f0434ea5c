"""Commands that stop by themselves at a place of their work, so that no test has to catch them there."""

import os
import subprocess
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from support.command import AMPLE_S, ROOT, start
from support.mpi import STRICT, run

BUILT: list[TemporaryDirectory] = []


@cache
def library() -> Path:
    """What is to be preloaded; compiled once per run of the tests."""
    BUILT.append(TemporaryDirectory(prefix="halt-"))
    path = Path(BUILT[0].name) / "libhalt.so"
    run("cc", *STRICT, "-shared", "-fPIC", "-o", path, ROOT / "tests" / "support" / "halt.c", "-ldl")
    return path


def variables(at: str, after: int = 0) -> dict[str, str]:
    """The environment of a process that stops when it is about to open a file whose path contains `at`, after as many
    earlier openings."""
    return {"LD_PRELOAD": str(library()), "HALT_AT": at, "HALT_AFTER": str(after)}


def start_until(at: str, *arguments) -> subprocess.Popen:
    """Starts the command and answers when it has stopped there. SIGCONT lets it go on."""
    process = start(*arguments, env=os.environ | variables(at))
    end = time.monotonic() + AMPLE_S
    while (found := os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
        assert time.monotonic() < end, f"the command has not opened {at} within {AMPLE_S} s"
        time.sleep(0.001)
    assert found.si_code == os.CLD_STOPPED, f"the command has not opened {at}: {process.communicate()}"
    return process
