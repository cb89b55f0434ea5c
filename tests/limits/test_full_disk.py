"""A full disk and a limit on the size of files: an epoch fails, and leaves the room that it took to the next one."""

import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from support.command import AMPLE_S, FAILED, turbidite
from support.raw import ingest_arguments, write_source
from support.small_disk import can_mount, in_namespace, limit_file_size

# Epoch 1 takes 3.2 MB, epoch 2 would take 64 MB in several runs, and epoch 3 takes 0.3 MB.
WRITER = """
import glob, os, signal, sys
import numpy, turbidite
# As in a C program: Python itself ignores the signal.
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
path = sys.argv[1]
rows = numpy.zeros(250_000, [("key", "f4"), ("rest", "V252")])
rows["key"] = numpy.random.default_rng(3).random(len(rows))
with turbidite.Writer(path, rows.dtype, key="key") as writer:
    for epoch, count in [(1, 12_500), (2, 250_000), (3, 1_000)]:
        try:
            with writer.epoch(epoch):
                writer.append(rows[:count])
        except turbidite.OperationError as error:
            print(f"epoch {epoch}: {error}")
        control = f"{path}/_turbidite"
        left = glob.glob(f"{control}/tmp/*/*")
        ends = {open(path, "rb").read()[-8:] for path in left}
        print(f"after {epoch}:", len(left), ends or "", len(os.listdir(f"{control}/manifest")), "manifests")
print("signals:", signal.getsignal(signal.SIGXFSZ) == signal.SIG_DFL, signal.sigpending(), signal.pthread_sigmask(0, []))
for epoch in turbidite.open(path).epochs:
    print("rows:", epoch, turbidite.open(path).query(epochs=epoch).count())
"""
MOUNTED = 'mount -t tmpfs -o size=20m none "$1"; shift; exec "$@"'
LIMIT = 8 << 20


@pytest.mark.parametrize("how", ["disk", "limit"])
def test_the_next_epoch_fits(scratch, how):
    """A file system of 20 MB. Where mounting is not allowed, the limit on the size of files stands in."""
    folder = scratch / f"room-{how}"
    folder.mkdir()
    command = [sys.executable, "-c", WRITER, folder / "ds"]
    on_disk = how == "disk" and can_mount(scratch)
    if on_disk:
        done = in_namespace(MOUNTED, folder, *command)
        cause = "No space left on device"
    else:
        options = {"capture_output": True, "text": True, "timeout": AMPLE_S}
        done = subprocess.run(list(map(str, command)), preexec_fn=limit_file_size(LIMIT), **options)
        cause = f"File too large: this process may write at most {LIMIT} bytes to a file (RLIMIT_FSIZE); raise the limit"
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    said = done.stdout.splitlines()
    assert said[0] == "after 1: 0  1 manifests", said
    assert said[1].startswith(f"epoch 2: epoch 2 failed on rank 0: cannot write {folder}/ds/_turbidite/tmp/2."), said
    assert ".parquet: " in said[1] and cause in said[1], said
    # The part ends with the seal of its last complete run, which can be salvaged.
    assert said[2:4] == ["after 2: 1 {b'TBDTSEAL'} 1 manifests", "after 3: 1 {b'TBDTSEAL'} 2 manifests"], said
    assert said[4:] == ["signals: True set() set()", "rows: 1 12500", "rows: 3 1000"], said
    if not on_disk:
        turbidite("verify", folder / "ds")


def test_the_command_states_the_limit(scratch):
    """The command ends with an error, also where it writes its output, and not by SIGXFSZ."""
    root, target = scratch / "limited-source", scratch / "limited"
    rows = numpy.zeros(40_000, numpy.dtype([("energy", "<f4"), ("rest", "V60")]))
    write_source(root, {1: [rows[:1000]], 2: [rows]})
    ingest = ingest_arguments(root, target, "energy", "--ranks", 1)
    done = turbidite(*ingest, expect=FAILED, preexec_fn=limit_file_size(1 << 20))
    part = Path(str(done.stderr).split("cannot write ")[1].split(": ")[0])
    assert part.is_relative_to(target / "_turbidite" / "tmp") and part.suffix == ".parquet", done.stderr
    words = "at most 1048576 bytes to a file (RLIMIT_FSIZE); raise the limit with 'ulimit -f unlimited'"
    assert words in done.stderr, done.stderr
    assert list((target / "_turbidite" / "tmp").iterdir()) == []
    assert not (target / "_turbidite" / "lock").exists()
    turbidite(*ingest, "--if-exists", "skip")
    turbidite("verify", target)
    for suffix in ["arrow", "parquet", "csv", "jsonl"]:
        out = scratch / f"limited.{suffix}"
        done = turbidite("query", target, "--columns", "rest,energy", "-o", out, expect=FAILED, preexec_fn=limit_file_size(4096))
        assert "File too large" in done.stderr and str(out) in done.stderr, done.stderr
        assert not out.exists(), suffix
