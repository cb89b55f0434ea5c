"""The habits of tests/preload/habits: how the files of each must end up under the preload library, and how that is judged.

`HABITS` is the table of verdicts. `python -m support.habits`, run in the folder tests, prints it.
"""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

import numpy

from support.command import binary
from support.examples import mpi_tool
from support.mpi import run as run_tool
from support.preload import SMALL, SMALL_RECORD, Form, libraries, stored

SOURCES = Path(__file__).parent.parent / "preload" / "habits"
SHARED = Form("E.{epoch}/rows", SMALL.header_bytes, SMALL_RECORD, "key")
EPOCHS = 4
TIMEOUT_S = 60
# The second epoch of a rank has 1 MB.
SMALL_SPOOL = "1m"
MISSED = 4


class Verdict(Enum):
    """Where all bytes of a habit's dumps must be at the end. Each verdict admits those before it."""

    INDEXED = "in the dataset"
    NAMED = "in place and named by a message, or in the spool and put in place by the command of a message"
    LEFT = "in place, or in the spool and put in place by the command of a message"
    WHOLE = "in place, or whole in the spool"


@dataclass(frozen=True)
class Habit:
    """What is expected of a habit's files: `verdict` with one process, and `of_ranks` with several, if it differs."""

    verdict: Verdict = Verdict.INDEXED
    of_ranks: Verdict | None = None
    ranks: tuple[int | None, ...] = (None, 3)
    files: int | None = None
    """The number of files that each rank closes in an epoch, if the configuration must state it."""
    is_shared: bool = False
    """Ranks write one file."""
    misses: bool = False
    """The program goes on with status 4 if it looks for a file that the index has replaced."""
    removes: bool = False
    """The program removes dumps that may have been indexed."""
    ends: bool = False
    """Processes end early: with several of them, their status may be that of one that was killed."""
    by_children: str = ""
    """An expression for the dumps that child processes write. They stay in place, and are named."""

    def verdict_of(self, ranks: int | None) -> Verdict:
        return self.of_ranks if ranks is not None and self.of_ranks is not None else self.verdict

    def form(self) -> Form:
        return SHARED if self.is_shared else SMALL


INDEXED, NAMED, LEFT, WHOLE = Verdict
SEEN = Habit()
REMOVES = Habit(removes=True)
MISSES = Habit(misses=True)
SHARES = Habit(is_shared=True)
CHILD = Habit(by_children=".*")
# Without its last epoch, since nothing that takes long may be done at such an end.
LEAVES = Habit(LEFT, ends=True)
ABORTS = Habit(NAMED, ranks=(3,), ends=True)

# A habit that is indexed may not become a lesser one.
HABITS: dict[str, Habit] = {
    # Streams.
    **dict.fromkeys(
        ("fwrite", "small_buffer", "big_buffer", "no_buffer", "line_buffer", "odd_pieces", "put_characters", "header_last",
         "header_reopened", "trailer", "reopened_pieces", "flushed_at_meetings", "flushed_all", "truncated_stream"),
        SEEN,
    ),
    "header_later": MISSES,
    **dict.fromkeys(
        ("freopen_chain", "freopen_first", "freopen_away", "freopen_mode", "fdopen", "closed_below", "stream_and_duplicate",
         "standard_output", "fcloseall", "never_closed", "open_for_epochs", "several_open"),
        SEEN,
    ),
    "four_files": Habit(files=4),
    # Descriptors.
    **dict.fromkeys(
        ("write", "creat", "pwrite_backwards", "writev", "pwritev2", "dup", "dup2_onto", "dup3_onto", "stranger_onto",
         "close_range", "closefrom", "every_number_closed", "sparse", "filled_backwards", "cut", "append_flag",
         "append_set_later", "direct", "raw_open", "raw_open2", "raw_write", "raw_close", "raw_calls", "two_descriptors",
         "reopened_by_number", "sent", "synced", "locked", "threads", "thread_beside"),
        SEEN,
    ),
    # Transfers in the kernel, allocations, mappings.
    **dict.fromkeys(
        ("sendfile", "splice", "copy_file_range", "fallocate", "posix_fallocate", "punched", "aio_write", "lio_listio",
         "mmap", "mmap_past_close", "mmap_for_epochs", "mremap", "mmap_pieces", "mmap_to_read"),
        SEEN,
    ),
    # Names.
    **dict.fromkeys(
        ("rename", "rename_later", "rename_open", "renameat", "renameat2", "raw_rename", "exchange", "rename_over",
         "rename_twice", "mkstemp", "link_unlink", "link_away", "tmpfile_linkat", "symlink_latest", "removed_and_again",
         "overwritten", "overwritten_later", "exclusive"),
        SEEN,
    ),
    **dict.fromkeys(("rename_away", "rolling_deletion", "unlinkat_remove", "given_up"), REMOVES),
    "empty_file": Habit(files=2),
    # Folders, inquiries, attributes.
    **dict.fromkeys(
        ("rename_folder", "folder_link", "dots", "chdir", "chdir_away", "openat", "fchdir",
         "stat_before_close", "stat_after_close", "raw_stat", "chmod_before_close", "chmod", "chown", "utimensat", "truncate",
         "setxattr", "statvfs", "umask", "fchmod", "read_back", "copy"),
        SEEN,
    ),
    # Another rank renames the folder of files that are known under their first names, before or after they are indexed.
    "rename_parent": Habit(INDEXED, NAMED),
    **dict.fromkeys(("read_other_rank", "read_earlier"), MISSES),
    # Children.
    **dict.fromkeys(
        ("child_writes", "child_writes_exit", "clone_writes", "shell_makes", "shell_renames", "popen_writes"), CHILD
    ),
    **dict.fromkeys(
        ("child_shares", "raw_clone", "clone_shares", "child_beside", "shell_copies_open", "gzip", "tar", "vfork_copies",
         "posix_spawn", "fork_exec", "fork_handlers", "flushed_beside", "forked_beside"),
        SEEN,
    ),
    "shell_copies": Habit(by_children="backup/.*"),
    **dict.fromkeys(("shell_moves_away", "shell_removes"), REMOVES),
    "shell_appends": Habit(NAMED),
    # Ends. With one process, exit handlers index the last epoch.
    "exit": Habit(INDEXED, NAMED, ends=True),
    **dict.fromkeys(("_exit", "raw_exit", "quick_exit", "abort", "exec", "sigterm", "sigint", "sigsegv"), LEAVES),
    # UCX handles the signal in ranks.
    "sighup": replace(LEAVES, ranks=(None,)),
    "sigkill": Habit(WHOLE, ends=True),
    **dict.fromkeys(("sigterm_handled", "sigterm_ignored"), SEEN),
    **dict.fromkeys(("atexit_writes", "past_finalize"), Habit(INDEXED, NAMED)),
    **dict.fromkeys(("mpi_abort_first", "mpi_abort_last", "mpi_abort_idle"), ABORTS),
    "no_finalize": ABORTS,
    # Ranks.
    **dict.fromkeys(
        ("shared_by_turns", "shared_at_once", "shared_by_more", "shared_by_node", "shared_appended", "shared_by_root"), SHARES
    ),
    "mpi_io": Habit(is_shared=True, ranks=(3,)),
    "mpi_io_own": Habit(ranks=(3,)),
    **dict.fromkeys(
        ("root_writes_all", "other_ranks_file", "some_ranks", "ranks_by_turns", "root_renames", "root_creates",
         "completed_by_other"),
        SEEN,
    ),
}  # fmt: skip

# Mode and spool.
PLACES = (("keep", "large"), ("replace", "large"), ("replace", "small"), ("replace", "none"))


def habit_of(name: str) -> Habit:
    return SEEN if name.startswith("random") else HABITS[name]


def compile_programs(out: Path) -> dict[bool, Path]:
    """The program without MPI and with it."""
    strict = ("-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")
    sources = sorted(SOURCES.glob("*.c"))
    run_tool("cc", *strict, *sources, "-o", out / "habits")
    run_tool(mpi_tool("mpicc"), "-DWITH_MPI", *strict, *sources, "-o", out / "habits_mpi")
    return {False: out / "habits", True: out / "habits_mpi"}


@dataclass(frozen=True)
class Kept:
    """The content, the permissions and, if the program has set it, the time of a file."""

    content: bytes
    mode: int
    time: int | None


def kept_files(folder: Path) -> dict[str, Kept]:
    found = {}
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names if not Path(parent, name).is_symlink()):
            about = path.stat()
            # Times that a program sets are of 1970.
            time = int(about.st_mtime) if about.st_mtime < 1e9 else None
            found[str(path.relative_to(folder))] = Kept(path.read_bytes(), about.st_mode & 0o7777, time)
    return found


@dataclass
class Spool:
    """A folder for the spool, as programs see it and as the tests see it, and the beginning of a command that sees it."""

    path: Path
    outside: Path
    enter: list[str] = field(default_factory=list)

    def files(self) -> list[Path]:
        return [path for path in self.outside.rglob("*") if not path.is_dir()] if self.outside.exists() else []


@contextmanager
def small_spool(folder: Path, size: str = SMALL_SPOOL) -> Iterator[Spool | None]:
    """A small file system in a namespace of its own, or nothing where none can be mounted."""
    script = f"mount -t tmpfs -o size={size} none {shlex.quote(str(folder))} && echo mounted && read end"
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        is_mounted = holder.stdout.readline() == b"mounted\n"
        spaces = f"/proc/{holder.pid}/ns"
        enter = ["nsenter", f"--user={spaces}/user", f"--mount={spaces}/mnt", "--preserve-credentials"]
        yield Spool(folder, Path(f"/proc/{holder.pid}/root{folder}"), enter) if is_mounted else None
        holder.stdin.close()


@dataclass
class Outcome:
    """How a run has ended: what it said, and the files that it has left."""

    status: int | None
    said: str
    files: dict[str, Kept]


def execute(
    command: list,
    ranks: int | None,
    scratch: Path,
    variables: dict,
    enter: list[str],
    meanwhile: Callable[[subprocess.Popen], None] = lambda process: None,
) -> tuple[int | None, str]:
    """Runs a program to its end. Each process says what it says in a file of its own, since mpiexec may lose the end. The
    file is named after the process. `meanwhile` gets the launcher."""
    said = scratch / "said"
    said.mkdir(parents=True)
    launcher = [mpi_tool("mpiexec"), "-n", ranks] if ranks is not None else []
    apart = ["sh", "-c", 'exec "$@" 2> "$0/$$"', said]
    settings = [f"{name}={value}" for name, value in variables.items()]
    # The working folder gets lost on the way into a namespace.
    here = ["sh", "-c", 'cd "$0" && exec "$@"', scratch]
    line = [str(part) for part in (*enter, *here, *launcher, *apart, "env", *settings, *command)]
    yielding = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "100"}
    # UCX would print the stack of a process that a signal ends, for seconds.
    quiet = {"UCX_HANDLE_ERRORS": "none"}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(line, env=os.environ | yielding | quiet, cwd=scratch, start_new_session=True, **pipes)
    meanwhile(process)
    try:
        status = process.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        status = None
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return status, "".join(path.read_text(errors="replace") for path in sorted(said.iterdir()))


def arguments_of(name: str, out: Path) -> list:
    return [*name.split(), out, EPOCHS]


def run_plain(program: Path, name: str, ranks: int | None, scratch: Path) -> Outcome:
    """The files of a habit without the library, whose records must be what the judge takes them for."""
    status, said = execute([program, *arguments_of(name, scratch / "out")], ranks, scratch, {}, [])
    assert status is not None, f"{name} is not over within {TIMEOUT_S} s\n{said}"
    files = kept_files(scratch / "out")
    habit = habit_of(name)
    for path in dumps_of(habit, files):
        rows = habit.form().rows(path, files[path].content)
        assert faults_of_rows(rows, habit.form().epoch(path)) == [], f"{name}: {path}"
    assert habit.ends or status == 0, f"{name}: exit {status}\n{said}"
    return Outcome(status, said, files)


def configuration(habit: Habit, ranks: int | None, mode: str, spool: Path, out: Path) -> str:
    options: dict = {"mode": mode, "spool": str(spool)}
    if habit.files is not None:
        options["files_per_epoch"] = habit.files * (ranks or 1)
    return habit.form().configuration(out, options)


def dumps_of(habit: Habit, files: dict[str, Kept]) -> list[str]:
    return [path for path in files if habit.form().epoch(path) is not None]


def faults_of_rows(rows: numpy.ndarray, epoch: int) -> list[str]:
    """How rows differ from what the programs write in an epoch."""
    numbers = rows["number"]
    keys = (numbers * numpy.uint64(2654435761) % numpy.uint64(1000003)).astype("<f8") / 1000
    faults = []
    if not numpy.array_equal(keys, rows["key"]):
        faults.append(f"epoch {epoch}: {int((keys != rows['key']).sum())} records are not the program's")
    if not (numbers % 10**12 // 10**6 // 64 == epoch).all():
        faults.append(f"epoch {epoch}: records of another epoch")
    if twice := int((numpy.diff(numpy.sort(numbers)) == 0).sum()):
        faults.append(f"epoch {epoch}: {twice} records twice")
    return faults


def contained(numbers: numpy.ndarray, among: numpy.ndarray) -> numpy.ndarray:
    """Which numbers are among others. NumPy's `isin` takes several times as long."""
    if len(among) == 0:
        return numpy.zeros(len(numbers), bool)
    ordered = numpy.sort(among)
    return ordered[numpy.minimum(numpy.searchsorted(ordered, numbers), len(ordered) - 1)] == numbers


def faults_of_dataset(habit: Habit, plain: dict[str, Kept], dataset: dict[int, numpy.ndarray]) -> list[str]:
    """Records that are not in the program's files, or are in the dataset more than once."""
    faults, form = [], habit.form()
    for epoch, rows in dataset.items():
        faults += faults_of_rows(rows, epoch)
        dumps = [path for path in dumps_of(habit, plain) if form.epoch(path) == epoch]
        known = [form.rows(path, plain[path].content)["number"] for path in dumps]
        strangers = ~contained(rows["number"], numpy.concatenate(known)) if known else numpy.ones(len(rows), bool)
        if strangers.any() and not habit.removes:
            faults.append(f"epoch {epoch}: {int(strangers.sum())} records of no file")
    return faults


SALVAGE = re.compile(r"turbidite salvage --spool (?:'[^']+'|[^\s;,']+) --put-in-place")
# A command that a person has to complete is not run.
INGEST = re.compile(r"turbidite ingest (?!FOLDER|.*LAYOUT\.toml)[^;&\n]+")
NAMES_FILES = re.compile(
    r"turbidite: (?!indexed ).*(not indexed|nothing (more )?is indexed|as the program wrote|no file matched|after MPI_Finalize)"
)
COUNT_OF_FILES = re.compile(r"([0-9,]+) files? (?:is|are) not indexed")


def messages(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("turbidite:")]


class Judge:
    """Judges a run under the library by the plain run."""

    def __init__(self, habit: Habit, ranks: int | None, mode: str, plain: Outcome, scratch: Path, spool: Spool):
        self.habit, self.ranks, self.mode, self.plain, self.scratch, self.spool = habit, ranks, mode, plain, scratch, spool
        self.verdict = habit.verdict_of(ranks)
        self.faults: list[str] = []

    def is_in_place(self, files: dict[str, Kept], path: str) -> bool:
        return path in files and files[path] == self.plain.files[path]

    def judge(self, status: int | None, said: str) -> list[str]:
        out = self.scratch / "out"
        self.judge_status(status, said)
        files = kept_files(out)
        dataset = self.dataset()
        self.faults += faults_of_dataset(self.habit, self.plain.files, dataset)
        unindexed = [path for path in dumps_of(self.habit, self.plain.files) if not self.is_indexed(path, dataset)]
        dumps = set(dumps_of(self.habit, self.plain.files))
        absent = [path for path in self.plain.files if not self.is_in_place(files, path)]
        if absent and self.spool.files():
            self.put_in_place(said)
            files = kept_files(out)
        for path in absent:
            if self.is_in_place(files, path):
                continue
            if self.mode == "keep" or path not in dumps or path in unindexed or self.is_by_child(path):
                self.faults.append(f"LOST: {self.difference(files, path)}")
        # A rank may be killed while it moves a file, which is then still in the spool.
        drafts = re.compile(r"(.*/)?\.[^/]+\.turbidite-\d+") if self.habit.ends and self.ranks is not None else re.compile("$^")
        self.faults += [f"there is a file {path}" for path in files if path not in self.plain.files and not drafts.fullmatch(path)]
        self.judge_verdict(unindexed, said)
        self.judge_spool()
        if unindexed and not self.faults:
            self.index_later(unindexed, said)
        if dataset:
            done = subprocess.run([binary(), "verify", self.scratch / "ds"], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                self.faults.append(f"turbidite verify: {done.stderr.strip()}")
        return self.faults

    def judge_status(self, status: int | None, said: str) -> None:
        if status is None:
            self.faults.append(f"HANGS: not over within {TIMEOUT_S} s")
        elif self.habit.misses and self.mode == "replace" and status == MISSED:
            if not any(re.search(r"[ /]ds\b.*\bepoch [0-9]|\bepoch [0-9].*[ /]ds\b", line) for line in messages(said)):
                self.faults.append("a file is missed, and no message names dataset and epoch")
        elif self.habit.ends and self.ranks is not None:
            # A rank that ends with 0 may be killed before it does so.
            # The launcher kills (9) the ranks that it finds still there.
            if status == 0 and self.plain.status not in (0, 9):
                self.faults.append(f"exit {status}, plain {self.plain.status}")
        elif status != self.plain.status:
            self.faults.append(f"exit {status}, plain {self.plain.status}")

    def is_indexed(self, path: str, dataset: dict[int, numpy.ndarray]) -> bool:
        form = self.habit.form()
        rows = form.rows(path, self.plain.files[path].content)
        found = dataset.get(form.epoch(path), numpy.empty(0, SMALL_RECORD))
        return bool(contained(rows["number"], found["number"]).all())

    def is_by_child(self, path: str) -> bool:
        return re.fullmatch(self.habit.by_children, path) is not None

    def put_in_place(self, said: str) -> None:
        """Runs the command of a message, or the same command where none is asked for."""
        found = SALVAGE.search(said)
        # Launchers may kill rank 0 while it handles the signal. MPI_Init has named the spool.
        is_named = self.verdict is LEFT and self.ranks is not None and f"files are spooled in {self.spool.path}" in said
        if found is None and self.verdict is not WHOLE and not is_named:
            self.faults.append("SILENT: files are in the spool, and no message has the command that moves them")
        command = found[0] if found else f"turbidite salvage --spool {self.spool.path} --put-in-place"
        line = [*self.spool.enter, binary(), *shlex.split(command)[1:]]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.faults.append(f"{command}: exit {done.returncode}: {done.stderr.strip()}")

    def index_later(self, unindexed: list[str], said: str) -> None:
        """Runs the commands of messages that index the other files."""
        # Each process that a shell starts may be a job of its own.
        commands = list(dict.fromkeys(INGEST.findall(said)))
        if not commands:
            return
        for command in commands:
            line = [binary(), *shlex.split(command)[1:]]
            done = subprocess.run(line, capture_output=True, text=True, cwd=self.scratch, check=False)
            if done.returncode != 0:
                self.faults.append(f"{command}: exit {done.returncode}: {done.stderr.strip()}")
                return
        dataset = self.dataset()
        faults = faults_of_dataset(self.habit, self.plain.files, dataset)
        faults += [f"{path} is not indexed" for path in unindexed if not self.is_indexed(path, dataset)]
        self.faults += [f"after {commands[0]}: {fault}" for fault in faults]

    def dataset(self) -> dict[int, numpy.ndarray]:
        out = self.scratch / "ds"
        return stored(out, SMALL_RECORD) if (out / "data").exists() else {}

    def difference(self, files: dict[str, Kept], path: str) -> str:
        wanted = self.plain.files[path]
        if path not in files:
            return f"{path} is nowhere"
        found = files[path]
        if found.content != wanted.content:
            return f"{path} has other bytes: {len(found.content)} of {len(wanted.content)}"
        return f"{path} has other attributes: {found.mode:o} of {found.time}, plain {wanted.mode:o} of {wanted.time}"

    def judge_verdict(self, unindexed: list[str], said: str) -> None:
        by_program = [path for path in unindexed if not self.is_by_child(path)]
        if self.verdict is INDEXED and by_program:
            self.faults.append(f"not indexed: {len(by_program)} files, {by_program[0]}, …")
        must_be_named = unindexed if self.verdict in (INDEXED, NAMED) else []
        about = [line for line in messages(said) if NAMES_FILES.match(line)]
        if must_be_named and not about:
            self.faults.append(f"SILENT: no message names {len(must_be_named)} files, {must_be_named[0]}, …")
        counts = [int(count.replace(",", "")) for line in about for count in COUNT_OF_FILES.findall(line)]
        if self.habit.by_children and counts and sum(counts) != len(self.children_files()):
            self.faults.append(f"messages count {sum(counts)} files of children, there are {len(self.children_files())}")

    def children_files(self) -> list[str]:
        return [path for path in dumps_of(self.habit, self.plain.files) if self.is_by_child(path)]

    def judge_spool(self) -> None:
        left = self.spool.files()
        if left:
            self.faults.append(f"{len(left)} files are left in the spool: {left[0].name}")
        elif not self.habit.ends and self.spool.outside.exists() and list(self.spool.outside.iterdir()):
            self.faults.append("empty folders are left in the spool")


def run_case(program: Path, name: str, ranks: int | None, mode: str, plain: Outcome, scratch: Path, spool: Spool) -> list[str]:
    """Runs a habit under the library. Returns its faults, with all messages behind them."""
    habit, config = habit_of(name), scratch / "c.toml"
    config.write_text(configuration(habit, ranks, mode, spool.path, scratch / "ds"))
    variables = {"TURBIDITE_CONFIG": config, "LD_PRELOAD": libraries(ranks is not None)}
    status, said = execute([program, *arguments_of(name, scratch / "out")], ranks, scratch, variables, spool.enter)
    faults = Judge(habit, ranks, mode, plain, scratch, spool).judge(status, said)
    return [*faults, *said.splitlines()] if faults else []


def table() -> str:
    lines = [f"{'habit':24}{'one process':14}{'ranks':14}notes"]
    for name, habit in HABITS.items():
        notes = [note for note in ("is_shared", "misses", "removes", "ends", "by_children") if getattr(habit, note)]
        alone = habit.verdict.name.lower() if None in habit.ranks else "-"
        lines.append(f"{name:24}{alone:14}{habit.verdict_of(3).name.lower():14}{' '.join(notes)}".rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
