"""An unmodified VPIC under the preload library: every byte that it writes is in its dumps, in the datasets, or in the spool that
messages name, also if it is killed at a random moment."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy
import pytest
from numpy.lib.recfunctions import repack_fields
from support import vpic
from support.command import ROOT, binary, turbidite
from support.habits import INGEST, SALVAGE, TIMEOUT_S, Spool, execute, messages, small_spool
from support.mpi import run as run_tool
from support.preload import in_order, libraries, stored, written

HERE = Path(__file__).parent
EXAMPLE = (ROOT / "examples" / "vpic" / "turbidite.toml").read_text()
RANKS = 3
STEPS = range(0, 60, 10)
SPECIES = ("eparticle", "Hparticle")
RECORD = numpy.dtype(vpic.PARTICLE.descr + [("energy", "<f4"), ("x", "<f4")])
PLACES = (("keep", "large"), ("replace", "large"), ("replace", "small"))
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
KILLS = 30
# Full in each step, which has 7.7 MB.
SMALL_SPOOL = "6m"
DUMPS = RANKS * len(STEPS) * len(SPECIES)
DUMP = re.compile(r"particle/T\.([0-9]+)/([a-zA-Z]+)\.\1\.[0-9]+")
# A rank may be killed while it moves a file, which is then still in the spool.
DRAFT = re.compile(r"particle/T\.[0-9]+/\.[^/]+\.turbidite-[0-9]+")


@pytest.fixture(scope="module")
def program(scratch) -> Path:
    folder = Path(os.environ["TURBIDITE_VPIC"])
    compilers = [*folder.glob("bin/vpic"), *folder.glob("*/bin/vpic")]
    assert compilers, f"{folder} has no bin/vpic: build VPIC there"
    run_tool(compilers[0], HERE / "plasma.cxx", cwd=scratch)
    return scratch / "plasma.Linux"


def files_of_program(folder: Path) -> dict[str, bytes]:
    return {path: content for path, content in written(folder).items() if re.match("particle/|energies$|log[.]", path)}


@pytest.fixture(scope="module")
def plain(program, scratch) -> dict[str, bytes]:
    """The files of VPIC without the library. VPIC computes the same bytes each time."""
    found = []
    for name in ("plain", "again"):
        assert execute([program], RANKS, scratch / name, {}, [])[0] == 0
        found.append(files_of_program(scratch / name))
    assert found[0] == found[1]
    assert len([path for path in found[0] if DUMP.fullmatch(path)]) == DUMPS
    return found[0]


@pytest.fixture(scope="module")
def rows(plain) -> dict[tuple[str, int], numpy.ndarray]:
    """The records of each species and step, in an order of their own."""
    found: dict[tuple[str, int], list] = {}
    for path, content in plain.items():
        if dump := DUMP.fullmatch(path):
            read = repack_fields(vpic.read_dump_content(path, content)[list(RECORD.names)])
            found.setdefault((dump[2], int(dump[1])), []).append(read)
    return {key: in_order(numpy.concatenate(pieces)) for key, pieces in found.items()}


@pytest.fixture(scope="module")
def mounted_spool(tmp_path_factory):
    with small_spool(tmp_path_factory.mktemp("mount"), SMALL_SPOOL) as found:
        yield found


@pytest.fixture
def spool_of(mounted_spool):
    with tempfile.TemporaryDirectory(prefix="spool-", dir="/dev/shm") as name:

        def spool(size: str) -> Spool:
            if size == "large":
                return Spool(Path(name), Path(name))
            if mounted_spool is None:
                pytest.skip("file systems cannot be mounted here")
            for path in mounted_spool.outside.iterdir():
                shutil.rmtree(path)
            return mounted_spool

        yield spool


class Run:
    """A run of VPIC in a folder of its own, under the library."""

    def __init__(self, program: Path, scratch: Path, mode: str, spool: Spool):
        self.program, self.scratch, self.mode, self.spool = program, scratch, mode, spool
        self.is_named_by_next = False

    def execute(self, meanwhile: Callable = lambda process: None, arguments: tuple = ()) -> int | None:
        text = EXAMPLE.replace('mode = "keep"', f'mode = "{self.mode}"').replace('"/dev/shm"', f'"{self.spool.path}"')
        (self.scratch / "c.toml").write_text(text)
        shutil.rmtree(self.scratch / "said", ignore_errors=True)
        variables = {"TURBIDITE_CONFIG": self.scratch / "c.toml", "LD_PRELOAD": libraries()}
        command = [self.program, *arguments]
        status, said = execute(command, RANKS, self.scratch, variables, self.spool.enter, meanwhile)
        self.said = "\n".join(messages(said))
        self.await_end()
        return status

    def processes(self) -> list[int]:
        return sorted(int(path.name) for path in (self.scratch / "said").iterdir())

    def await_end(self) -> None:
        """Waits for ranks that have outlived their launcher. A process that has ended has no command line."""
        end = time.monotonic() + TIMEOUT_S
        for process in self.processes():
            with suppress(FileNotFoundError, ProcessLookupError):
                while Path(f"/proc/{process}/cmdline").read_bytes():
                    assert time.monotonic() < end, f"rank {process} does not end"
                    time.sleep(0.001)

    def logged(self, what: str) -> set[str]:
        logs = [path.read_text() for path in self.scratch.glob("log.*")]
        return set(re.findall(rf"^{what} (.*)\n", "".join(logs), re.MULTILINE))

    def kill(self, random: Random, number: signal.Signals) -> Callable[[subprocess.Popen], None]:
        """Returns a function that kills a rank, or tells the launcher to end, somewhere between the first dump and the end."""
        lines, rank = random.randint(1, 2 * DUMPS), random.randrange(RANKS)
        # From within a dump, which takes a few milliseconds, to within the commit of its epoch.
        delay_s = 10 ** random.uniform(-4, -1)

        def at_random_moment(launcher: subprocess.Popen) -> None:
            while len(self.logged("begins")) + len(self.logged("closed")) < lines and launcher.poll() is None:
                time.sleep(0.0001)
            time.sleep(delay_s)
            with suppress(ProcessLookupError):
                if number == signal.SIGKILL:
                    os.kill(self.processes()[rank], number)
                else:
                    launcher.send_signal(number)

        return at_random_moment

    def turbidite(self, command: str) -> subprocess.CompletedProcess:
        line = [*self.spool.enter, "sh", "-c", 'cd "$0" && exec "$@"', self.scratch, binary(), *shlex.split(command)[1:]]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    def salvage(self) -> int:
        """Runs the command of a message of this run or, where it had no time to print one, of the next run. Returns the number of
        files that were in the spool."""
        count = len([path for path in self.spool.files() if not path.name.startswith(".")])
        if count and not SALVAGE.search(self.said):
            assert f"files are spooled in {self.spool.path} until" in self.said, self.said
            assert self.execute(arguments=("idle",)) == 0
            self.is_named_by_next = True
        if count:
            done = self.turbidite(SALVAGE.search(self.said)[0])
            assert done.returncode == 0, done.stderr
            self.said += f"\n{done.stdout}"
        assert self.spool.files() == []
        return count

    def epochs(self, what: str) -> Counter[tuple[str, int]]:
        """The epochs of logged dumps, with the number of dumps."""
        return Counter((dump[2], int(dump[1])) for path in self.logged(what) if (dump := DUMP.fullmatch(path)))

    def complete(self) -> set[tuple[str, int]]:
        return {epoch for epoch, count in self.epochs("closed").items() if count == RANKS}

    def index_later(self, rows: dict) -> set[tuple[str, int]]:
        """Runs the commands of messages, which must index what they name unless an epoch is not complete. Returns the epochs that
        they name."""
        complete, named = self.complete(), set()
        for command in dict.fromkeys(INGEST.findall(self.said)):
            assert "--epochs" in command, self.said
            out, first, _, last = re.search(r"(\w+)\.tbd --epochs ([0-9]+)(\.\.([0-9]+))?", command).groups()
            steps = range(int(first), int(last or first) + 1)
            about = {(name, step) for name, step in self.epochs("begins") if name == out and step in steps}
            done = self.turbidite(command)
            if about <= complete:
                assert done.returncode == 0, f"{command}: {done.stderr}"
                assert about <= self.indexed(rows), command
            named |= about
        return named

    def indexed(self, rows: dict) -> set[tuple[str, int]]:
        """The epochs in the datasets, which have each record of the plain run once."""
        found = set()
        for species in SPECIES:
            out = self.scratch / f"{species}.tbd"
            if not (out / "data").exists():
                continue
            turbidite("verify", out)
            for epoch, of_epoch in stored(out, RECORD).items():
                assert numpy.array_equal(in_order(of_epoch), rows[species, epoch]), f"{species} {epoch}: {len(of_epoch)} rows"
                found.add((species, epoch))
        return found

    def check_files(self, plain: dict[str, bytes], indexed: set) -> int:
        """All files are complete, missing where they are indexed, or begin as the plain ones where they were not closed. Returns
        the number of complete dumps that are in place."""
        files = files_of_program(self.scratch)
        closed, begun = self.logged("closed"), self.logged("begins")
        assert closed <= begun <= set(plain)
        in_place = 0
        for path in {**plain, **files}:
            if DRAFT.fullmatch(path):
                continue
            content = files.get(path)
            assert plain[path].startswith(content or b""), f"{path} has other bytes"
            if not (dump := DUMP.fullmatch(path)):
                continue
            is_indexed = (dump[2], int(dump[1])) in indexed
            assert path in closed or not is_indexed, f"{path} is indexed, but not closed"
            assert path in begun or content is None, f"{path} exists too early"
            if path in closed and not (content is None and is_indexed and self.mode == "replace"):
                assert content == plain[path], f"{path} is lost: {len(content or b'')} of {len(plain[path])} bytes"
                in_place += 1
        return in_place


@pytest.fixture
def start(program, spool_of, tmp_path):
    yield lambda mode, size: Run(program, tmp_path, mode, spool_of(size))
    # All runs together write gigabytes.
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("mode, size", PLACES)
def test_whole_run(start, plain, rows, mode, size):
    run = start(mode, size)
    assert run.execute() == 0
    indexed = run.indexed(rows)
    assert indexed == {(species, step) for species in SPECIES for step in STEPS}, run.said
    assert run.spool.files() == []
    in_place = run.check_files(plain, indexed)
    assert ("is full" in run.said) == (size == "small"), run.said
    if mode == "keep":
        assert in_place == DUMPS
    else:
        assert 0 < in_place < DUMPS if size == "small" else in_place == 0


@pytest.mark.parametrize("seed", range(KILLS))
def test_killed(start, plain, rows, seed):
    (mode, size), number = PLACES[seed % len(PLACES)], SIGNALS[seed // len(PLACES) % len(SIGNALS)]
    run = start(mode, size)
    run.execute(run.kill(Random(seed), number))
    begun, closed = (len(run.logged(what)) for what in ("begins", "closed"))
    indexed = run.indexed(rows)
    spooled = run.salvage()
    in_place = run.check_files(plain, indexed)
    named = run.index_later(rows)
    complete = run.complete()
    if run.is_named_by_next and size == "large":
        assert complete - indexed <= named, run.said
    for species, step in complete - run.indexed(rows):
        turbidite("ingest", run.scratch, "--layout", run.scratch / "c.toml", "--out", run.scratch / f"{species}.tbd",
                  "--epochs", step, "--if-exists", "skip")  # fmt: skip
    assert run.indexed(rows) == complete
    print(f"\n{seed}: {mode}, {size} spool, {number.name}: {begun} dumps begun, {closed} closed; {len(indexed)} of {len(complete)} "
          f"complete epochs indexed; {spooled} files in the spool; {in_place} dumps in place; {len(named)} epochs named")  # fmt: skip
