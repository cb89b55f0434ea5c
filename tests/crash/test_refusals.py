"""A full disk, a folder that cannot be written, a second writer, wrong requests: the exit code and the words."""

import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy
import pytest

from conftest import ingest_arguments
from support import raw, vpic
from support.command import FAILED, OK, USAGE, attempt, binary, start, turbidite


@pytest.fixture(scope="module")
def sample(scratch) -> Path:
    """A dataset of the sample's first four steps; tests work on copies."""
    path = scratch / "refusals"
    turbidite(*ingest_arguments(vpic.sample_dumps(), path))
    turbidite("truncate", path, "--after", 2000)
    return path


def in_namespace(script: str, *arguments) -> subprocess.CompletedProcess:
    """Runs a shell script that may mount, in a mount namespace of its own; nothing outside sees its mounts."""
    own_user = [] if os.getuid() == 0 else ["--map-root-user"]
    command = ["unshare", "--mount", *own_user, "sh", "-euc", script, "sh", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def can_mount(scratch: Path) -> bool:
    return in_namespace('mount -t tmpfs -o size=1m none "$1"', scratch).returncode == 0


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
        """
        done = in_namespace(script, target, binary(), target / "ds", *ingest)
        assert done.returncode == 0, done.stderr
        assert f"exit {FAILED}" in done.stdout, done.stdout + done.stderr
        assert "No space left on device" in done.stderr and str(target) in done.stderr, done.stderr
        assert 1 <= done.stdout.count("epoch=") <= 7, done.stdout
    else:
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))

        done = turbidite(*ingest, expect=FAILED, preexec_fn=limit)
        assert "File too large" in done.stderr and str(target) in done.stderr, done.stderr
        turbidite("verify", target / "ds", expect=OK)


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


def wait_for(path: Path, process: subprocess.Popen) -> None:
    """Waits until a file is there; the process that should make it must still run."""
    deadline = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.0005)


def test_a_second_writer_is_refused_and_the_lock_can_be_broken(scratch):
    root, target = scratch / "two-writers-source", scratch / "two-writers"
    rows = numpy.zeros(400_000, numpy.dtype([("energy", "<f4"), ("id", "<u4"), ("rest", "V56")]))
    rows["energy"] = numpy.random.default_rng(1).random(len(rows))
    raw.write_source(root, {1: [rows], 2: [rows]})
    ingest = raw.ingest_arguments(root, target, "energy", "--ranks", 2)
    first = start(*ingest)
    try:
        wait_for(target / "_turbidite" / "lock", first)
        first.send_signal(signal.SIGSTOP)
        done = turbidite(*ingest, "--if-exists", "skip", expect=FAILED)
        assert "lock" in done.stderr and str(first.pid) in done.stderr, done.stderr
        turbidite(*ingest, "--if-exists", "skip", "--break-lock", expect=OK)
    finally:
        first.kill()
        first.communicate()
    turbidite("verify", target)
    assert turbidite("query", target, "--epoch", "1..2", "--count").stdout.split()[0] == "800000"
    # The loser's lock was of a process that is gone: nobody has to break anything.
    turbidite(*ingest, "--if-exists", "replace")


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
