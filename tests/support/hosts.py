"""Several hosts on one machine, for programs under mpiexec: each has a network, host name, processes, shared memory and
System V objects of its own; they share the file system, as nodes of a cluster do.

A host is a network namespace joined by a pair of veth devices to a bridge, and a process that keeps its other namespaces and
is their first one: when it ends, everything on the host is killed. The bridge lies in one more network namespace, the
switch, in which mpiexec runs; nothing is added to the machine's own network. Names say which process made them, so that
what an interrupted run has left is removed by the next one.

    python hosts.py     says why hosts cannot be had here, or nothing
"""

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

PREFIX = "turbidite"
NAME = re.compile(rf"^({PREFIX}-(\d+)-(\d+)-[\w-]+)")
NUMBERS = itertools.count()
TOOLS = ("ip", "ss", "nsenter", "unshare", "setpriv")
# First process of a host: ignored children leave no zombies behind.
KEEPER = "hostname {name} && mount -t tmpfs tmpfs /dev/shm && trap '' CHLD && echo ready && exec sleep infinity"
# Stands in for ssh: options, a host, a command. Hosts have a folder for temporary files of their own: process numbers, by
# which MPIs name theirs, are the same on all.
LAUNCHER = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
read -r keeper < "{folder}/$1" || exit 255
shift
exec nsenter -t "$keeper" --uts --mount --ipc --net --pid -- env TMPDIR=/dev/shm sh -c "$*"
"""
# Connects to ports nobody listens on, until every address given has refused: so long the way there is not open.
REACH = """
import errno, socket, sys, time
end = time.monotonic() + 120
for address in sys.argv[1:]:
    while socket.socket().connect_ex((address, 9)) != errno.ECONNREFUSED:
        assert time.monotonic() < end, address
        time.sleep(0.01)
"""
RANK_NAMES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")


def command(*parts, check: bool = True) -> str:
    """What a short command says."""
    line = [str(part) for part in parts]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, parts))}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def started(process: int) -> str | None:
    """When a process started, in ticks; None when there is no such process."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def obstacle() -> str | None:
    """Why there can be no hosts here."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        return f"these commands are missing: {', '.join(missing)} (Debian: iproute2, util-linux)"
    try:
        with Hosts(1, 1):
            return None
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        return str(error)


def remove_leftovers() -> None:
    """Removes the namespaces of runs whose process is gone."""
    for line in command("ip", "netns", "list").splitlines():
        found = NAME.match(line)
        if found and started(int(found[2])) != found[3]:
            remove(found[1])


def remove(name: str) -> None:
    for process in command("ip", "netns", "pids", name, check=False).split():
        try:
            os.kill(int(process), signal.SIGKILL)
        except ProcessLookupError:
            pass
    command("ip", "netns", "delete", name, check=False)


class Hosts:
    """A number of hosts with as many ranks on each."""

    def __init__(self, hosts: int, ranks_per_host: int, folder: Path | None = None):
        self.count, self.ranks_per_host = hosts, ranks_per_host
        self.ranks = hosts * ranks_per_host
        self.folder = folder
        self.run = f"{PREFIX}-{os.getpid()}-{started(os.getpid())}-{next(NUMBERS)}"
        self.switch = f"{self.run}-switch"
        self.keepers: list[subprocess.Popen] = []

    def __enter__(self) -> "Hosts":
        remove_leftovers()
        try:
            self.build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def name(self, host: int) -> str:
        return f"{self.run}-{host}"

    def address(self, host: int) -> str:
        return f"10.83.0.{host + 1}"

    def build(self) -> None:
        command("ip", "netns", "add", self.switch)
        command("ip", "-n", self.switch, "link", "set", "lo", "up")
        command("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        command("ip", "-n", self.switch, "address", "add", "10.83.0.254/24", "dev", "bridge")
        command("ip", "-n", self.switch, "link", "set", "bridge", "up")
        for host in range(self.count):
            self.build_host(host)
        self.await_links({self.switch: range(self.count)} | {self.name(host): range(host) for host in range(1, self.count)})
        if self.folder is not None:
            launcher = self.folder / "launcher"
            launcher.write_text(LAUNCHER.format(folder=self.folder))
            launcher.chmod(0o755)

    def build_host(self, host: int) -> None:
        name, port = self.name(host), f"port{host}"
        command("ip", "netns", "add", name)
        command("ip", "-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        command("ip", "-n", self.switch, "link", "set", port, "master", "bridge", "up")
        command("ip", "-n", name, "link", "set", "lo", "up")
        command("ip", "-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        command("ip", "-n", name, "link", "set", "eth0", "up")
        unshare = ("unshare", "--uts", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")
        # Without this process there is nobody to take the host down.
        keeper = ("setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", name, *unshare, "sh", "-c")
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        keeping = subprocess.Popen([*keeper, KEEPER.format(name=f"node{host}")], text=True, **pipes)
        self.keepers.append(keeping)
        if keeping.stdout.readline() != "ready\n":
            raise RuntimeError(f"cannot make a host: {keeping.communicate(timeout=60)[1].strip()}")
        if self.folder is not None:
            (self.folder / self.address(host)).write_text(f"{self.first_process(host)}\n")

    def first_process(self, host: int) -> int:
        keeper = self.keepers[host].pid
        return int(Path(f"/proc/{keeper}/task/{keeper}/children").read_text())

    def close(self) -> None:
        for keeper in self.keepers:
            keeper.kill()
            keeper.communicate(timeout=120)
        for name in [self.switch, *map(self.name, range(self.count))]:
            remove(name)

    def start(self, mpiexec: Path, arguments: list, environment: dict, hosts: list[int] | None = None) -> subprocess.Popen:
        """Starts a program on all hosts, in this order of theirs, under MPICH's mpiexec, which sees only addresses and a
        stand-in for ssh."""
        addresses = ",".join(self.address(host) for host in hosts or range(self.count))
        launch = ("-launcher", "ssh", "-launcher-exec", self.folder / "launcher", "-localhost", "10.83.0.254")
        place = ("-hosts", addresses, "-ppn", self.ranks_per_host, "-n", self.ranks)
        line = ["ip", "netns", "exec", self.switch, mpiexec, *launch, *place, *arguments]
        return subprocess.Popen(
            [str(part) for part in line],
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def cut_off(self, host: int) -> None:
        """Takes the host's cable out: what is sent to it vanishes."""
        command("ip", "-n", self.switch, "link", "set", f"port{host}", "down")

    def join_again(self, host: int) -> None:
        """Puts the cable in again, and waits until the host and all others reach each other."""
        command("ip", "-n", self.switch, "link", "set", f"port{host}", "up")
        others = [other for other in range(self.count) if other != host]
        self.await_links({self.name(host): others} | {self.name(other): [host] for other in others})

    def await_links(self, links: dict) -> None:
        """Waits until these namespaces reach these hosts. The kernel takes up to a second to use a link, and a connection that is
        asked for meanwhile can fail: the search for the other host's hardware address, begun when there was no cable, is
        given up."""
        for source, targets in links.items():
            command("ip", "netns", "exec", source, sys.executable, "-c", REACH, *map(self.address, targets))

    def kill_processes(self, host: int) -> None:
        """Kills all that runs on a host, at once."""
        command("nsenter", "-t", self.first_process(host), "--pid", "--mount", "kill", "-9", "-1", check=False)

    def processes(self) -> dict[int, int]:
        """The rank of each process of a job on the hosts."""
        found = {}
        for host in range(self.count):
            for process in command("ip", "netns", "pids", self.name(host)).split():
                try:
                    variables = Path(f"/proc/{process}/environ").read_bytes().decode().split("\0")
                except OSError:
                    continue
                named = dict(variable.split("=", 1) for variable in variables if "=" in variable)
                rank = next((named[name] for name in RANK_NAMES if name in named), None)
                if rank is not None:
                    found[int(process)] = int(rank)
        return found

    def connections(self) -> set[tuple[int, int]]:
        """The pairs of ranks, lower one first, between which the kernel has an established TCP connection."""
        ranks, ends = self.processes(), {}
        for host in range(self.count):
            said = command("ip", "netns", "exec", self.name(host), "ss", "-tnHp", "state", "established")
            for line in said.splitlines():
                owner = re.search(r"pid=(\d+)", line)
                if owner and int(owner[1]) in ranks:
                    local, peer = line.split()[2:4]
                    ends[local, peer] = ranks[int(owner[1])]
        both = ((rank, ends[peer, local]) for (local, peer), rank in ends.items() if (peer, local) in ends)
        host = self.ranks_per_host
        return {(min(pair), max(pair)) for pair in both if pair[0] // host != pair[1] // host}


if __name__ == "__main__":
    why = obstacle()
    if why is not None:
        print(why)
        sys.exit(1)
