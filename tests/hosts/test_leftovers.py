"""A run that was killed leaves names of namespaces behind, no processes; the next run removes them."""

import os
import subprocess
import sys
from pathlib import Path

from support.command import ROOT
from support.host_job import until
from support.hosts import Hosts, command

RUN = """
import sys, time
sys.path.insert(0, sys.argv[1])
from support.hosts import Hosts
with Hosts(2, 1) as hosts:
    print(hosts.run, *[hosts.first_process(host) for host in range(2)], flush=True)
    time.sleep(600)
"""


def names(run: str) -> list[str]:
    return [line for line in command("ip", "netns", "list").splitlines() if line.startswith(run)]


def test_an_interrupted_run_leaves_nothing():
    killed = subprocess.Popen([sys.executable, "-c", RUN, ROOT / "tests"], stdout=subprocess.PIPE, text=True)
    run, *processes = killed.stdout.readline().split()
    assert len(names(run)) == 3
    killed.kill()
    killed.wait()
    until("the hosts' processes end", lambda: not any(Path(f"/proc/{process}").exists() for process in processes))
    assert len(names(run)) == 3
    with Hosts(1, 1) as hosts:
        assert names(run) == []
        assert len(names(hosts.run)) == 2 and str(os.getpid()) in hosts.run
    assert names(hosts.run) == []
