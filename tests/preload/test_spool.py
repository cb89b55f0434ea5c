"""Spools that fill, fail or hold what a killed run left: the program's bytes end up complete, in the dataset or in a file."""

import errno
import os
import re
import shlex
import shutil
import signal
import subprocess
from itertools import product
from pathlib import Path

import pytest

from support.command import AMPLE_S, answer, turbidite
from support.examples import mpi_tool
from support.mpi import run as run_tool
from support.preload import SMALL, check_rows, configure, libraries, written
from support.sweeps import taken, taken_by_turns

HERE = Path(__file__).parent
FILES = 4
# 3 MB a file, 12 MB an epoch: spools of 1 to 20 MB take some of the files, parts of them, or all.
RECORDS = 187_500
HABITS = (
    "fwrite", "fwrite-small", "fputc", "putc_unlocked", "fprintf", "fflush", "seek", "write", "writev", "pwrite", "append",
    "threads", "dup", "mmap", "fork", "two", "reopen",
)  # fmt: skip


@pytest.fixture(scope="session")
def spooler(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("spooler")
    strict = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror")
    run_tool("cc", *strict, "-pthread", HERE / "spooler.c", "-o", out / "spooler")
    run_tool("cc", *strict, "-shared", "-fPIC", HERE / "faults.c", "-o", out / "faults.so", "-ldl")
    return out / "spooler"


@pytest.fixture(scope="session")
def plain(spooler, tmp_path_factory):
    """What the program writes without a spool, by its arguments."""
    known: dict[tuple, dict[str, bytes]] = {}

    def files(*arguments) -> dict[str, bytes]:
        if arguments not in known:
            out = tmp_path_factory.mktemp("plain") / "out"
            subprocess.run([spooler, "write", out, *map(str, arguments)], check=True, timeout=AMPLE_S)
            known[arguments] = written(out)
        return known[arguments]

    return files


@pytest.fixture(scope="session")
def mounts() -> bool:
    """Whether small file systems can be mounted here."""
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", "mount -t tmpfs none /mnt"]
    return subprocess.run(command, capture_output=True).returncode == 0


def command_of(spooler: Path, config: Path, habit: str, out: Path, *arguments, **variables) -> list[str]:
    preload = variables.pop("preload", libraries(False))
    variables = {"TURBIDITE_CONFIG": config, "LD_PRELOAD": preload} | variables
    settings = [f"{name}={value}" for name, value in variables.items()]
    return [str(part) for part in ("env", *settings, spooler, habit, out, *arguments)]


def mounted(folder: Path, size: str, command: list[str], after: str = "true") -> list[str]:
    """A command that sees a small file system of memory at `folder`, and another after it that sees what it left."""
    folder.mkdir(exist_ok=True)
    script = f'mount -t tmpfs -o size={size} none "{folder}" && {{ "$@"; status=$?; {after}; exit $status; }}'
    return ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh", *command]


def setting(tmp_path: Path, spool: Path, **more) -> Path:
    options = {"mode": "replace", "spool": spool, "files_per_epoch": FILES} | more
    return configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", options))


def run(command: list[str], expect: int = 0, **options) -> subprocess.CompletedProcess:
    done = subprocess.run(command, capture_output=True, text=True, timeout=AMPLE_S, **options)
    assert done.returncode == expect, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def check_complete(tmp_path: Path, files: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """Every record is in the dataset, and whatever file there is holds what it should."""
    assert all(content == expected[path] for path, content in files.items()), list(files)
    check_rows(tmp_path / "ds", SMALL, expected)


@pytest.mark.parametrize("number, habit", list(enumerate(HABITS)))
def test_spools_of_every_size(spooler, plain, mounts, tmp_path, number, habit):
    """From 1 to 20 MB in steps that do not fall in with the sizes of files: each time another write is refused."""
    if not mounts:
        pytest.skip("file systems cannot be mounted here")
    expected = plain(FILES, RECORDS)
    stayed = set()
    # How much threads have reserved at a time depends on their order: the last one has room for all of it.
    sizes = taken(range(2, 21), 6) if habit in ("fwrite", "write") else taken_by_turns(range(5, 21, 4), number)
    for size in (1, *sizes, 48):
        for name in ("ds", "other", "out"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        config = setting(tmp_path, tmp_path / "mount")
        other = tmp_path / "other.toml"
        # The other process of "two" is a program of its own, and there is one for each file.
        options = {"mode": "replace", "spool": tmp_path / "mount", "if_exists": "replace"}
        configure(other, (SMALL, tmp_path / "other", options))
        command = command_of(spooler, config, habit, tmp_path / "out", FILES, RECORDS, OTHER_CONFIG=other)
        # Nothing may be left in the spool.
        done = run(mounted(tmp_path / "mount", f"{size}m", command, f'test -z "$(ls -A "{tmp_path / "mount"}")"'))
        files = written(tmp_path / "out")
        check_complete(tmp_path, files, expected)
        assert done.stderr.count("is full: ") == (1 if "is full: " in done.stderr else 0)
        assert done.stderr.count("\n") == done.stderr.count("is full: "), done.stderr
        stayed.add(len(files))
    # In small spools files stay, in large ones none but those that cannot be followed there.
    assert max(stayed) == FILES
    assert (min(stayed) == 0) == (habit not in ("dup", "mmap", "fork", "two")), stayed


CALLS = [("write", "reserve"), ("fwrite", "reserve"), ("write", "write"), ("writev", "write")]
ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
FAULTS = [
    (habit, call, error, stays)
    for number, (stays, (habit, call)) in enumerate(product((False, True), CALLS))
    for error in taken_by_turns(ERRORS, number)
]


@pytest.mark.parametrize("habit, call, error, stays", FAULTS)
def test_every_reservation_and_write_may_fail(spooler, plain, spool, tmp_path, habit, call, error, stays):
    records = 20_000
    expected = plain(FILES, records)
    seen = tmp_path / "seen"
    for number in range(1, 1000):
        for name in ("ds", "out"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        variables = {"FAULT_CALL": call, "FAULT_UNDER": spool, "FAULT_NUMBER": number, "FAULT_ERROR": error, "FAULT_SEEN": seen}
        variables |= {"FAULT_STAYS": 1} if stays else {}
        preload = f"{libraries(False)}:{spooler.parent / 'faults.so'}"
        config = setting(tmp_path, spool)
        run(command_of(spooler, config, habit, tmp_path / "out", FILES, records, preload=preload, **variables))
        check_complete(tmp_path, written(tmp_path / "out"), expected)
        if not seen.exists():
            assert number > FILES, "nothing has failed"
            return
        seen.unlink()
    raise AssertionError("the faults do not end")


@pytest.mark.parametrize("habit", ["write", "fwrite", "append"])
def test_a_target_that_is_full_too(spooler, plain, mounts, tmp_path, habit):
    """The program gets the target's error; what it was told of as written is complete where the message says."""
    if not mounts:
        pytest.skip("file systems cannot be mounted here")
    out, spool, saved = tmp_path / "out", tmp_path / "mount", tmp_path / "saved"
    out.mkdir()
    config = setting(tmp_path, spool)
    command = command_of(spooler, config, habit, out / "files", 1, RECORDS)
    inner = mounted(spool, "2m", command, f'mkdir "{saved}" && cp -r "{spool}/." "{saved}" && cp -r "{out}" "{saved}/own"')
    script = f'mount -t tmpfs -o size=1m none "{out}" && exec "$@"'
    done = run(["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh", *inner], expect=3)
    file, taken, name = done.stdout.split()
    assert (file, name) == ("0", "ENOSPC")
    expected = plain(1, RECORDS)["E.1/rows.0"]
    copies = [path for path in saved.rglob("rows.0") if path.is_file()]
    # In the dataset's folder nothing, in the spool the file as far as it was written.
    assert len(copies) == 1 and "/files/" in str(copies[0]), copies
    content = copies[0].read_bytes()
    assert expected.startswith(content) and len(content) >= int(taken) and len(content) > 1_000_000
    assert "cannot move" in done.stderr and str(copies[0].relative_to(saved)) in done.stderr
    assert not (tmp_path / "ds" / "data" / "epoch=1").exists()


def test_a_limit_on_memory_counts_as_the_size_of_the_spool(spooler, plain, tmp_path, spool):
    """A control group of 340 MB, of which an eighth stays free: the kernel would end the program at its limit. The program has
    160 MB in its memory and writes as much."""
    group = Path("/sys/fs/cgroup/memory") / f"turbidite-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(340_000_000))
    except OSError as error:
        pytest.skip(f"no control groups of memory can be made here: {error}")
    try:
        arguments = (16, 625_000)
        expected = plain(*arguments)
        config = setting(tmp_path, spool, files_per_epoch=16)
        command = command_of(spooler, config, "write", tmp_path / "out", *arguments)
        done = run(["sh", "-c", f'echo $$ > "{group / "tasks"}" && exec "$@"', "sh", *command])
        assert "the control group's memory limit" in done.stderr
        check_complete(tmp_path, written(tmp_path / "out"), expected)
    finally:
        for process in (group / "tasks").read_text().split():
            os.kill(int(process), signal.SIGKILL)
        group.rmdir()


def test_what_a_killed_run_left_is_told_kept_and_put_in_its_place(spooler, plain, tmp_path, spool):
    """A run that is killed leaves its files in the spool; the next one says so, and writes its own beside them."""
    config = setting(tmp_path, spool)
    command = command_of(spooler, config, "write", tmp_path / "out", FILES, 1000)
    # The program is stopped by the debugger's way: it traps itself before its end.
    killed = ["env", "SPOOLER_DIES=1", *command]
    done = subprocess.run(killed, capture_output=True, text=True, timeout=AMPLE_S)
    assert done.returncode == -signal.SIGKILL and written(tmp_path / "out") == {}
    left = answer("salvage", "--spool", spool)
    expected = plain(FILES, 1000)
    done = run(command)
    assert done.stderr.count("a killed run") == 1 and f"left {FILES} files" in done.stderr
    assert "turbidite salvage --spool" in done.stderr and f"/ds --epochs 1 --source-ranks {FILES} --if-exists skip\n" in done.stderr
    check_rows(tmp_path / "ds", SMALL, expected)
    assert answer("salvage", "--spool", spool) == left
    # The next run has indexed the epoch.
    assert "turbidite ingest" not in turbidite("salvage", "--spool", spool, "--put-in-place").stdout
    assert written(tmp_path / "out") == expected


def test_salvage_names_the_command_that_indexes_what_it_has_moved(spooler, plain, tmp_path, spool):
    command = command_of(spooler, setting(tmp_path, spool), "write", tmp_path / "out", FILES, 1000)
    run(["env", "SPOOLER_DIES=1", *command], expect=-signal.SIGKILL)
    [command] = re.findall("turbidite (ingest .*)", turbidite("salvage", "--spool", spool, "--put-in-place").stdout)
    turbidite(*shlex.split(command))
    check_rows(tmp_path / "ds", SMALL, plain(FILES, 1000))


def test_a_copy_in_the_spool_is_written_on_there(spooler, plain, mounts, tmp_path):
    """A file that is closed and opened again when the spool has little room is one file still."""
    if not mounts:
        pytest.skip("file systems cannot be mounted here")
    spool = tmp_path / "mount"
    config = setting(tmp_path, spool, files_per_epoch=1)
    command = command_of(spooler, config, "reopen", tmp_path / "out", 1, 50_000)
    for fill in (0, 2_900_000, 3_300_000, 3_700_000, 4_100_000):
        for name in ("ds", "out"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        filled = ["sh", "-c", f'head -c {fill} /dev/zero > "{spool}/fill"; "$@"; s=$?; rm "{spool}/fill"; exit $s', "sh", *command]
        run(mounted(spool, "4m", filled, f'test -z "$(ls -A "{spool}")"'))
        check_complete(tmp_path, written(tmp_path / "out"), plain(1, 50_000))


@pytest.mark.parametrize("mode", ["keep", "replace"])
def test_removed_files_are_not_indexed(tmp_path, spool, mode):
    """A program that removes what it has written, and writes some of it anew."""
    program = """
import os, struct, sys
def write(number):
    with open(f"{sys.argv[1]}/E.1/rows.{number}", "wb") as file:
        file.write(b"12345678" + struct.pack("<dQ", number, number) * 10)
os.makedirs(sys.argv[1] + "/E.1")
for number in range(4):
    write(number)
os.remove(f"{sys.argv[1]}/E.1/rows.0")
os.unlink(f"{sys.argv[1]}/E.1/rows.1")
write(1)
assert os.path.exists(f"{sys.argv[1]}/E.1/rows.0") is False
"""
    config = setting(tmp_path, spool, mode=mode, files_per_epoch=99)
    variables = {"TURBIDITE_CONFIG": str(config), "LD_PRELOAD": libraries(False)}
    done = run([shutil.which("python3"), "-c", program, str(tmp_path / "out")], env=os.environ | variables)
    assert done.stderr == ""
    run([shutil.which("python3"), "-c", program, str(tmp_path / "plain")])
    expected = written(tmp_path / "plain")
    assert len(expected) == 3
    assert written(tmp_path / "out") == (expected if mode == "keep" else {})
    check_rows(tmp_path / "ds", SMALL, expected)


def test_ranks_say_once_that_the_spool_is_full(programs, mounts, tmp_path):
    if not mounts:
        pytest.skip("file systems cannot be mounted here")
    spool = tmp_path / "mount"
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": "replace", "spool": spool}))
    command = ["env", f"TURBIDITE_CONFIG={config}", f"LD_PRELOAD={libraries()}", programs["mpi_writer"], "plain"]
    line = [str(part) for part in (mpi_tool("mpiexec"), "-n", 4, *command, tmp_path / "out")]
    done = run(mounted(spool, "100k", line))
    run_tool(mpi_tool("mpiexec"), "-n", 4, programs["mpi_writer"], "plain", tmp_path / "plain")
    assert done.stderr.count("is full: ") == 1 and done.stderr.count("\n") == 1, done.stderr
    check_complete(tmp_path, written(tmp_path / "out"), written(tmp_path / "plain"))
