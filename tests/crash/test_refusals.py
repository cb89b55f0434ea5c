"""A full disk, a folder that cannot be written, a second writer, wrong requests: the exit code and the words."""

import json
import os
import shutil
import signal
import socket
import subprocess
import uuid
from pathlib import Path

import numpy
import pyarrow
import pytest
from pyarrow import parquet

from conftest import ingest_arguments
from support import halt, raw, vpic
from support.command import AMPLE_S, FAILED, OK, USAGE, answer, attempt, binary, turbidite
from support.small_disk import can_mount, in_namespace, limit_file_size


@pytest.fixture(scope="module")
def sample(scratch) -> Path:
    """A dataset of the sample's first four steps; tests work on copies."""
    path = scratch / "refusals"
    turbidite(*ingest_arguments(vpic.sample_dumps(), path))
    turbidite("truncate", path, "--after", 2000)
    return path


def test_a_full_disk_fails_the_epoch_and_keeps_the_others(scratch):
    """On a file system too small for all epochs; where mounting is not allowed, with a limit on the size of files."""
    target = scratch / "full"
    target.mkdir()
    ingest = ingest_arguments(vpic.sample_dumps(), target / "ds")
    if can_mount(scratch):
        script = """
            mount -t tmpfs -o size=6m none "$1"; shift; binary=$1; dataset=$2; shift 2
            code=0; "$binary" "$@" || code=$?
            echo "exit $code"
            "$binary" verify "$dataset"
            ls "$dataset/data"
            echo "left: $(ls "$dataset/_turbidite/tmp")"
        """
        done = in_namespace(script, target, binary(), target / "ds", *ingest)
        assert done.returncode == 0, done.stderr
        assert f"exit {FAILED}" in done.stdout, done.stdout + done.stderr
        assert "No space left on device" in done.stderr and str(target) in done.stderr, done.stderr
        assert 1 <= done.stdout.count("epoch=") <= 7, done.stdout
        # Files of the failed epoch would fill the disk to no use.
        assert done.stdout.endswith("left: \n"), done.stdout
    else:
        done = turbidite(*ingest, expect=FAILED, preexec_fn=limit_file_size(64 << 10))
        assert "File too large" in done.stderr and str(target) in done.stderr, done.stderr
        turbidite("verify", target / "ds", expect=OK)
        assert list((target / "ds" / "_turbidite" / "tmp").iterdir()) == []


def test_a_source_that_is_cut_while_it_is_read_leaves_nothing(scratch):
    """A null in a Parquet file without statistics is met when its records are read: the first epoch stays, nothing of the
    second one."""
    root, target = scratch / "cut-source", scratch / "cut"
    root.mkdir()
    for epoch, values in [(1, [1.0, 2.0]), (2, [1.0, None])]:
        table = pyarrow.table({"energy": pyarrow.array(values, pyarrow.float32())})
        parquet.write_table(table, root / f"{epoch}.parquet", write_statistics=False)
    layout = scratch / "cut.toml"
    layout.write_text('format = "parquet"\npath = "{epoch}.parquet"\n')
    turbidite("ingest", root, "--layout", layout, "--out", target, "--key", "energy", expect=FAILED)
    assert [path.name for path in (target / "data").iterdir()] == ["epoch=1"]
    assert list((target / "_turbidite" / "tmp").iterdir()) == []
    turbidite("ingest", root, "--layout", layout, "--out", target, "--key", "energy", "--if-exists", "skip", expect=FAILED)
    assert list((target / "_turbidite" / "tmp").iterdir()) == []


def write_lock(dataset: Path, process: int, job: str | None = None) -> None:
    """A lock of a process of this host, as a writer places it."""
    started = None
    if Path(f"/proc/{process}/stat").exists():
        started = int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[19])
    holder = {
        "token": f"{process:032x}",
        "host": socket.gethostname(),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "namespace": os.readlink("/proc/self/ns/pid"),
        "process": process,
        "started": started,
        "job": job,
    }
    (dataset / "_turbidite" / "lock").write_text(json.dumps(holder))


def test_the_lock_of_the_same_job_is_not_broken(scratch, sample):
    target = scratch / "own-job"
    shutil.copytree(sample, target)
    write_lock(target, os.getpid(), "SLURM_JOB_ID 77")
    ingest = ingest_arguments(vpic.sample_dumps(), target, "--if-exists", "skip")
    for more in [(), ("--break-lock",)]:
        done = turbidite(*ingest, *more, expect=FAILED, env=os.environ | {"SLURM_JOB_ID": "77"})
        assert f"locked by process {os.getpid()}" in done.stderr and "of this job;" in done.stderr, done.stderr
        assert "--break-lock" not in done.stderr, done.stderr
    before = (target / "_turbidite" / "lock").read_bytes()
    for more in [(), ("--break-lock",)]:
        done = turbidite(*ingest, *more, expect=FAILED, env=os.environ | {"SLURM_JOB_ID": "78"})
        assert "of this job;" not in done.stderr and f"is running: pid {os.getpid()} on" in done.stderr, done.stderr
        assert "break" not in done.stderr, done.stderr
    assert (target / "_turbidite" / "lock").read_bytes() == before


def test_a_lock_that_cannot_be_checked_is_broken_on_request(scratch, sample):
    """That of another host, and that of another PID namespace, where this process number is somebody else's."""
    elsewhere = [({"host": "elsewhere"}, "it is on another host"), ({"namespace": "pid:[1]"}, "it is in another PID namespace")]
    for number, (change, reason) in enumerate(elsewhere):
        target = scratch / f"unchecked-{number}"
        shutil.copytree(sample, target)
        write_lock(target, os.getpid())
        lock = target / "_turbidite" / "lock"
        lock.write_text(json.dumps(json.loads(lock.read_text()) | change))
        ingest = ingest_arguments(vpic.sample_dumps(), target, "--if-exists", "skip")
        done = turbidite(*ingest, expect=FAILED)
        assert f"which cannot be checked from here: {reason}" in done.stderr, done.stderr
        assert "if its holder is certainly gone, --break-lock takes over the lock" in done.stderr, done.stderr
        assert "broke the lock" in turbidite(*ingest, "--break-lock").stderr
        assert not lock.exists()


def test_salvage_ignores_the_lock_of_a_dead_writer(scratch, sample):
    target = scratch / "dead-writer"
    shutil.copytree(sample, target)
    ended = subprocess.Popen(["true"])
    ended.wait()
    write_lock(target, ended.pid)
    done = turbidite("salvage", target)
    assert "locked" not in done.stdout and str(ended.pid) not in done.stdout, done.stdout
    assert answer("salvage", target)["writer"] is None
    turbidite("salvage", target, "--discard")
    assert not (target / "_turbidite" / "lock").exists()
    write_lock(target, os.getpid())
    assert f"process {os.getpid()}" in turbidite("salvage", target).stdout
    assert f"is running: pid {os.getpid()}" in turbidite("salvage", target, "--discard", expect=FAILED).stderr


def test_verify_says_that_there_is_nothing_to_check(scratch, sample):
    target = scratch / "nothing"
    shutil.copytree(sample, target)
    unfinished = target / "_turbidite" / "tmp"
    for epoch in [500, 1000]:
        (target / "data" / f"epoch={epoch}").rename(unfinished / f"{epoch}.{uuid.uuid4()}")
    said = turbidite("verify", target).stdout
    assert "no problems found" in said and "2 unfinished attempts" in said and f"turbidite salvage {target}" in said, said
    turbidite("truncate", target, "--after", 0)
    for folder in unfinished.iterdir():
        shutil.rmtree(folder)
    said = turbidite("verify", target).stdout
    assert "no problems found" not in said and said.startswith(f"no epoch in {target}: nothing was checked\n"), said
    (unfinished / f"500.{uuid.uuid4()}").mkdir()
    said = turbidite("verify", target).stdout
    assert "no problems found" not in said and "no epoch" in said and "1 unfinished attempt at" in said, said
    found = answer("verify", target)
    assert (found["epochs"], found["unfinished"], found["clean"]) == (0, 1, True)


def test_a_dataset_is_not_made_among_other_files(scratch, sample):
    target = scratch / "foreign"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    for command in [ingest_arguments(vpic.sample_dumps(), target), ["compact", sample, "--out", target]]:
        done = turbidite(*command, expect=FAILED)
        words = f"{target} has other files, such as notes.txt, and is not a dataset; use a new or empty folder"
        assert words in done.stderr, done.stderr
        assert [path.name for path in target.iterdir()] == ["notes.txt"]
        done = turbidite(*[target / "notes.txt" if part == target else part for part in command], expect=FAILED)
        assert f"{target / 'notes.txt'} is a file, but a dataset is a folder" in done.stderr, done.stderr
    (target / "notes.txt").unlink()
    turbidite("compact", sample, "--out", target)


def test_a_folder_that_cannot_be_written(scratch, sample):
    target = scratch / "unwritable"
    shutil.copytree(sample, target)
    ingest = ingest_arguments(vpic.sample_dumps(), target, "--if-exists", "skip")
    if os.getuid() == 0:
        # Permissions do not stop root, a read-only mount does.
        script = 'mount --bind "$1" "$1"; mount -o remount,ro,bind "$1"; shift; exec "$@"'
        done = in_namespace(script, target, binary(), *ingest)
        reason = "Read-only file system"
    else:
        for folder in [target, *target.rglob("*")]:
            if folder.is_dir():
                folder.chmod(0o555)
        done = attempt(*ingest)
        reason = "Permission denied"
        for folder in [target, *target.rglob("*")]:
            if folder.is_dir():
                folder.chmod(0o755)
    assert done.returncode == FAILED, done.stderr
    assert reason in done.stderr and str(target) in done.stderr, done.stderr
    turbidite("verify", target)


def test_a_second_writer_is_refused_and_the_lock_cannot_be_broken(scratch):
    """Its epochs would be lost. The first writer is halted within its first epoch, and then ends both."""
    root, target = scratch / "two-writers-source", scratch / "two-writers"
    rows = numpy.zeros(40_000, numpy.dtype([("energy", "<f4"), ("id", "<u4"), ("rest", "V56")]))
    rows["energy"] = numpy.random.default_rng(1).random(len(rows))
    raw.write_source(root, {1: [rows], 2: [rows]})
    ingest = raw.ingest_arguments(root, target, "energy", "--ranks", 2)
    first = halt.start_until("/_turbidite/tmp/1.", *ingest)
    try:
        assert (target / "_turbidite" / "lock").exists()
        begun = sorted((target / "_turbidite").rglob("*"))
        for command in [(*ingest, "--if-exists", "skip"), ("truncate", target, "--after", 0)]:
            for more in [(), ("--break-lock",)]:
                done = turbidite(*command, *more, expect=FAILED)
                assert f"is running: pid {first.pid} on {socket.gethostname()}, since 20" in done.stderr, done.stderr
                assert "; wait until it ends, or end it" in done.stderr and "break" not in done.stderr, done.stderr
        assert sorted((target / "_turbidite").rglob("*")) == begun
        first.send_signal(signal.SIGCONT)
        _, said = first.communicate(timeout=AMPLE_S)
        assert first.returncode == OK, said
    finally:
        first.kill()
        first.communicate()
    turbidite("verify", target)
    assert turbidite("query", target, "--epoch", "1..2", "--count").stdout.split()[0] == "80000"


def test_the_lock_of_a_killed_writer_is_not_in_the_way(scratch):
    """Nobody has to break anything."""
    root, target = scratch / "killed-source", scratch / "killed-writer"
    rows = numpy.zeros(40_000, numpy.dtype([("energy", "<f4"), ("rest", "V60")]))
    raw.write_source(root, {1: [rows], 2: [rows]})
    ingest = raw.ingest_arguments(root, target, "energy", "--ranks", 2)
    first = halt.start_until("/_turbidite/tmp/1.", *ingest)
    first.kill()
    first.communicate()
    assert f"took over the lock of process {first.pid} on" in turbidite(*ingest).stderr
    assert turbidite("query", target, "--epoch", "1..2", "--count").stdout.split()[0] == "80000"


def test_an_epoch_that_exists(scratch, sample):
    target = scratch / "exists"
    shutil.copytree(sample, target)
    done = turbidite(*ingest_arguments(vpic.sample_dumps(), target), expect=FAILED)
    assert "500" in done.stderr and "replace" in done.stderr and "skip" in done.stderr, done.stderr
    turbidite(*ingest_arguments(vpic.sample_dumps(), target, "--if-exists", "skip"))
    rows = len(vpic.read_dumps(vpic.sample_dumps())[500])
    assert turbidite("query", target, "--epoch", "0..9999", "--count").stdout.split()[0] == str(8 * rows)
    turbidite(*ingest_arguments(vpic.sample_dumps(), target, "--if-exists", "replace"))
    assert turbidite("query", target, "--epoch", "0..9999", "--count").stdout.split()[0] == str(8 * rows)
    turbidite("verify", target)
    # Nothing of the replaced epochs stays behind.
    assert len(list((target / "_turbidite" / "manifest").iterdir())) == 8


def test_truncate_removes_later_epochs(scratch, sample):
    target = scratch / "truncated"
    shutil.copytree(sample, target)
    turbidite("truncate", target, "--after", 1000)
    assert sorted(path.name for path in (target / "data").iterdir()) == ["epoch=1000", "epoch=500"]
    turbidite("verify", target)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--where", "energy >"], "character 9"),
        (["--where", "enrgy > 1"], "enrgy"),
        (["--columns", "id,nope"], "nope"),
        (["--epoch", "9..x"], "9..x"),
        (["--no-such-option"], "--no-such-option"),
        (["--where", "energy > 1", "-o", "answer.xyz"], "answer.xyz"),
    ],
)
def test_wrong_requests(sample, arguments, words):
    epoch = [] if "--epoch" in arguments else ["--epoch", 500]
    done = turbidite("query", sample, *epoch, *arguments, expect=USAGE)
    assert words in done.stderr, done.stderr


def test_what_is_not_there(sample, scratch):
    done = turbidite("query", sample, "--epoch", 123, expect=FAILED)
    assert "123" in done.stderr
    done = turbidite("query", scratch / "nowhere", "--epoch", 1, expect=FAILED)
    assert "nowhere" in done.stderr
    done = turbidite("ingest", scratch / "nowhere", "--out", scratch / "never", "--key", "energy", expect=FAILED)
    assert "nowhere" in done.stderr


def test_another_shape_is_refused(scratch, sample):
    target = scratch / "shape"
    shutil.copytree(sample, target)
    done = turbidite("ingest", vpic.sample_dumps(), "--out", target, "--key", "ux", expect=FAILED)
    assert str(target) in done.stderr
    turbidite("verify", target)
