"""A file system that is small, in a mount namespace of its own, and a limit on the size of files."""

import os
import resource
import subprocess
from pathlib import Path

from support.command import AMPLE_S


def in_namespace(script: str, *arguments) -> subprocess.CompletedProcess:
    """Runs a shell script that may mount, in a mount namespace of its own; nothing outside sees its mounts."""
    own_user = [] if os.getuid() == 0 else ["--map-root-user"]
    command = ["unshare", "--mount", *own_user, "sh", "-euc", script, "sh", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=AMPLE_S)


def can_mount(scratch: Path) -> bool:
    return in_namespace('mount -t tmpfs -o size=1m none "$1"', scratch).returncode == 0


def limit_file_size(size: int):
    """What a child process calls before it begins. SIGXFSZ has its default disposition there, which is death."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
