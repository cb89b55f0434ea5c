"""Whatever goes wrong with the index: the program ends as it would, its files are complete in their places, and what
went wrong is said on standard error. And what comes after: restarts, kills, leftover locks."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support import vpic
from support.command import AMPLE_S, turbidite
from support.examples import mpi_tool
from support.preload import OTHER, SMALL, VPIC, check_rows, configure, libraries, run, start, stored, written
from support.small_disk import limit_file_size

STEPS = "500,1000,1500"
MODES = ["keep", "replace"]


def dump(programs, out, config, ranks: int | None = 3, steps: str = STEPS, **options) -> str:
    return run([programs["vpic_dump"], vpic.sample_dumps(), out, "--steps", steps], config, ranks=ranks, **options)


BROKEN = {
    "not TOML": "[[dataset",
    "an unknown option": '[[dataset]]\nfile = "x"',
    "no field": '[[dataset]]\nfiles = "E.{epoch}/x"\nout = "ds"\nkey = "a"\nfield = []',
    "a pattern without an epoch": SMALL.configuration("ds", {"files": "rows.{rank}"}),
    "a key that is no column": SMALL.configuration("ds", {"key": "energy"}),
    "bytes that are no text": b"\xff\xfe[[dataset]]",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_configuration(programs, plain, tmp_path, broken):
    config = tmp_path / "c.toml"
    content = BROKEN[broken]
    config.write_bytes(content if isinstance(content, bytes) else content.encode())
    said = dump(programs, tmp_path / "out", config)
    assert str(config) in said and "nothing is indexed" in said
    assert written(tmp_path / "out") == plain(3)
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize("name", ["missing.toml", "", "folder"])
def test_a_configuration_that_cannot_be_read(programs, plain, tmp_path, name):
    (tmp_path / "folder").mkdir()
    config = tmp_path / name if name else ""
    said = dump(programs, tmp_path / "out", config)
    assert str(config) in said and "nothing is indexed" in said
    assert written(tmp_path / "out") == plain(3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("out", ["/proc/turbidite", "file", "file/ds", "folder"])
def test_a_dataset_that_cannot_be_created(programs, plain, tmp_path, spool, out, mode):
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("not a dataset")
    out = tmp_path / out
    config = configure(tmp_path / "c.toml", (VPIC, out, {"mode": mode, "spool": spool}))
    said = dump(programs, tmp_path / "out", config)
    assert str(out) in said
    assert written(tmp_path / "out") == plain(3)
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["notes.txt"]


def of_epochs(files: dict[str, bytes], *epochs: int) -> dict[str, bytes]:
    return {path: content for path, content in files.items() if VPIC.epoch(path) in epochs}


@pytest.mark.parametrize("mode", MODES)
def test_an_epoch_that_exists(programs, plain, tmp_path, spool, mode):
    options = {"mode": mode, "spool": spool}
    config = configure(tmp_path / "c.toml", (VPIC, tmp_path / "ds", options))
    assert dump(programs, tmp_path / "first", config, steps="1000") == ""
    # A run that goes on from a checkpoint behind an epoch that it writes all the same.
    config = configure(tmp_path / "again.toml", (VPIC, tmp_path / "ds", options | {"truncate_after": 1000}))
    said = dump(programs, tmp_path / "out", config)
    assert "epoch 1000 already exists" in said and 'if_exists = "replace"' in said and 'if_exists = "skip"' in said
    assert written(tmp_path / "out") == (plain(3) if mode == "keep" else of_epochs(plain(3), 1000))
    check_rows(tmp_path / "ds", VPIC, plain(3))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("steps", ["500,1000", "500"])
def test_a_second_run_is_refused_from_its_first_epoch_on(programs, plain, tmp_path, spool, mode, steps):
    """Its later epochs were added: one dataset held two runs."""
    config = configure(tmp_path / "c.toml", (VPIC, tmp_path / "ds", {"mode": mode, "spool": spool}))
    assert dump(programs, tmp_path / "first", config, steps=steps) == ""
    said = dump(programs, tmp_path / "out", config)
    epochs = "2 epochs, 500 to 1000" if "," in steps else "epoch 500"
    words = f"{tmp_path / 'ds'} has epochs of an earlier run: {epochs}; "
    assert said.count(words) == 1, said
    for setting in ["truncate_after = EPOCH", 'if_exists = "skip"', 'if_exists = "replace"']:
        assert setting in said, said
    assert written(tmp_path / "out") == plain(3)
    check_rows(tmp_path / "ds", VPIC, of_epochs(plain(3), *map(int, steps.split(","))))
    # `ingest` of the files still adds epochs.
    ingest(tmp_path / "out", tmp_path / "ds", "--if-exists", "skip")
    check_rows(tmp_path / "ds", VPIC, plain(3))


@pytest.mark.parametrize("mode", MODES)
def test_another_pattern_is_refused(programs, tmp_path, spool, mode):
    """Electrons and ions in one dataset: columns are equal, patterns are not."""
    out, options = tmp_path / "ds", {"mode": mode, "spool": spool, "if_exists": "skip"}
    writes = [programs["writer"], "plain"]
    assert run([*writes, tmp_path / "first"], configure(tmp_path / "a.toml", (SMALL, out, options))) == ""
    before = stored(out, SMALL.record)
    other = dataclasses.replace(SMALL, pattern="out/" + SMALL.pattern)
    said = run([*writes, tmp_path / "out"], configure(tmp_path / "b.toml", (other, out, options)))
    for words in [str(out), f"'preload: {SMALL.pattern}'", f"'preload: {other.pattern}'", "any_source = true"]:
        assert words in said, said
    run([*writes, tmp_path / "plain"], None)
    assert written(tmp_path / "out") == written(tmp_path / "plain")
    assert stored(out, SMALL.record).keys() == before.keys()
    both = options | {"any_source": True, "if_exists": "replace"}
    assert run([*writes, tmp_path / "out"], configure(tmp_path / "c.toml", (other, out, both))) == ""
    check_rows(out, SMALL, written(tmp_path / "plain"))


def ingest(source: Path, out: Path, *more) -> None:
    """Indexes dumps after the program, as its configuration would have."""
    derive = [argument for text in VPIC.derive for argument in ("--derive", text)]
    turbidite("ingest", source / "particle", "--out", out, "--key", VPIC.key, *derive, *more)


def test_a_dataset_that_ingest_made_is_gone_on_with(programs, plain, tmp_path):
    config = configure(tmp_path / "c.toml", (VPIC, tmp_path / "ds", {"if_exists": "skip"}))
    assert dump(programs, tmp_path / "first", None, steps="500") == ""
    ingest(tmp_path / "first", tmp_path / "ds")
    assert dump(programs, tmp_path / "out", config) == ""
    check_rows(tmp_path / "ds", VPIC, plain(3))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ranks", [None, 4])
def test_a_truncated_file(programs, tmp_path, spool, ranks, mode):
    """Its epoch is left out on all ranks; those before and after are indexed."""
    program = programs["writer" if ranks is None else "mpi_writer"]
    run([program, "short", tmp_path / "plain"], None, ranks=ranks)
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": mode, "spool": spool}))
    said = run([program, "short", tmp_path / "out"], config, ranks=ranks)
    expected = written(tmp_path / "plain")
    assert f"E.2/rows.{(ranks or 1) - 1}" in said and "16005 bytes" in said
    stay = {path: content for path, content in expected.items() if mode == "keep" or SMALL.epoch(path) == 2}
    assert written(tmp_path / "out") == stay
    check_rows(tmp_path / "ds", SMALL, {path: expected[path] for path in expected if SMALL.epoch(path) != 2})
    # Files of the failed epoch are of no use beside the program's files.
    assert list((tmp_path / "ds" / "_turbidite" / "tmp").iterdir()) == []
    assert f"epoch 2 failed on rank {(ranks or 1) - 1}: /" in said, said


@pytest.mark.parametrize("break_lock", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_another_writer_has_the_dataset(programs, tmp_path, spool, mode, break_lock):
    """It runs, so that its lock is not broken, and nothing proposes to."""
    out = tmp_path / "ds"
    first = configure(tmp_path / "first.toml", (SMALL, out, {}))
    config = configure(tmp_path / "c.toml", (SMALL, out, {"mode": mode, "spool": spool, "break_lock": break_lock}))
    holder = start([programs["writer"], "hold", tmp_path / "held"], first, stdin=subprocess.PIPE)
    assert holder.stdout.readline() == "ready\n"
    try:
        said = run([programs["writer"], "plain", tmp_path / "out"], config)
    finally:
        complained = holder.communicate("\n", timeout=AMPLE_S)[1]
    assert holder.returncode == 0 and complained == ""
    assert f"{out}/_turbidite/lock is locked by a writer that is running: pid {holder.pid} on " in said, said
    assert "break_lock" not in said, said
    files = written(tmp_path / "out")
    assert files == written(tmp_path / "held") and len(files) == 3
    check_rows(out, SMALL, files)


@pytest.mark.parametrize("odd_rank", [0, 1])
@pytest.mark.parametrize("odd", ["other columns", "two datasets", "broken", "none"])
def test_ranks_with_different_configurations(programs, tmp_path, spool, odd, odd_rank):
    options = {"mode": "replace", "spool": spool}
    usual = configure(tmp_path / "usual.toml", (SMALL, tmp_path / "ds", options))
    other = tmp_path / "other.toml"
    sections = {
        "other columns": [(SMALL, tmp_path / "ds", options | {"key": "number"})],
        "two datasets": [(SMALL, tmp_path / "ds", options), (OTHER, tmp_path / "other", options)],
    }
    configure(other, *sections.get(odd, []))
    if odd == "broken":
        other.write_text("[[dataset")
    command = ["two", tmp_path / "out"]
    parts = []
    for rank in range(2):
        chosen = other if rank == odd_rank else usual
        variables = [f"LD_PRELOAD={libraries()}"]
        if odd != "none" or rank != odd_rank:
            variables.append(f"TURBIDITE_CONFIG={chosen}")
        parts += [":"] * rank + ["-n", 1, "env", *variables, programs["mpi_writer"], *command]
    said = run([mpi_tool("mpiexec"), *parts], None)
    assert "ranks have different configurations" in said
    run([programs["mpi_writer"], "two", tmp_path / "plain"], None, ranks=2)
    assert written(tmp_path / "out") == written(tmp_path / "plain")
    assert not (tmp_path / "ds").exists() and not (tmp_path / "other").exists()


@pytest.mark.parametrize("mode", MODES)
def test_a_program_of_mpi_without_its_preload_library(programs, plain, tmp_path, spool, mode):
    config = configure(tmp_path / "c.toml", (VPIC, tmp_path / "ds", {"mode": mode, "spool": spool}))
    said = dump(programs, tmp_path / "out", config, preload=libraries(False))
    assert "preload libturbidite_preload_mpi.so as well" in said
    assert written(tmp_path / "out") == plain(3)
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize("spool_path", ["missing", "/proc/self", "/proc/turbidite", "file"])
def test_a_spool_that_cannot_be_used(programs, plain, tmp_path, spool_path):
    """Files are written in their places, indexed, and stay."""
    (tmp_path / "file").write_text("not a folder")
    config = configure(tmp_path / "c.toml", (VPIC, tmp_path / "ds", {"mode": "replace", "spool": tmp_path / spool_path}))
    said = dump(programs, tmp_path / "out", config)
    assert said.count("cannot be used: ") == 1 and said.count("\n") == 1 and str(tmp_path / spool_path) in said
    assert written(tmp_path / "out") == plain(3)
    check_rows(tmp_path / "ds", VPIC, plain(3))


def test_a_full_spool(programs, tmp_path):
    """A small file system of memory, mounted for this program only; where that is not allowed, another way to have
    nothing free: a file system without room at all."""
    mount = tmp_path / "mount"
    mount.mkdir()
    script = f'mount -t tmpfs -o size=64k none "{mount}" && head -c 60000 /dev/zero > "{mount}/fill" && exec "$@"'
    alone = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh"]
    allowed = subprocess.run([*alone, "true"], capture_output=True).returncode == 0
    print("a full tmpfs" if allowed else "tmpfs cannot be mounted here: /sys stands in")
    config = configure(
        tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": "replace", "spool": mount if allowed else "/sys"})
    )
    prefix = alone if allowed else []
    program = ["env", f"TURBIDITE_CONFIG={config}", f"LD_PRELOAD={libraries(False)}", programs["writer"], "plain"]
    said = run([*prefix, *program, tmp_path / "out"], None)
    assert said.count("turbidite: the spool ") == 1 and said.count("\n") == 1
    run([programs["writer"], "plain", tmp_path / "plain"], None)
    files = written(tmp_path / "out")
    assert files == written(tmp_path / "plain")
    check_rows(tmp_path / "ds", SMALL, files)


def manifests(out) -> dict[int, str]:
    """The file that commits each epoch."""
    return {int(path.name.split(".")[0]): path.name for path in (out / "_turbidite" / "manifest").iterdir()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("if_exists", ["skip", "replace"])
def test_a_second_run_goes_on(programs, plain, tmp_path, spool, if_exists, mode):
    options = {"mode": mode, "spool": spool, "if_exists": if_exists}
    config = configure(tmp_path / "c.toml", (VPIC, tmp_path / "ds", options))
    assert dump(programs, tmp_path / "first", config, steps="500,1000") == ""
    before = manifests(tmp_path / "ds")
    assert dump(programs, tmp_path / "out", config, steps="1000,1500") == ""
    after = manifests(tmp_path / "ds")
    assert set(before) == {500, 1000} and set(after) == {500, 1000, 1500}
    assert before[500] == after[500] and (before[1000] == after[1000]) == (if_exists == "skip")
    # Files that were not indexed are not removed either.
    stays = {1000, 1500} if mode == "keep" else {1000} if if_exists == "skip" else set()
    assert written(tmp_path / "out") == {path: content for path, content in plain(3).items() if VPIC.epoch(path) in stays}
    check_rows(tmp_path / "ds", VPIC, plain(3))


def test_truncation_before_a_restart(programs, plain, tmp_path, spool):
    config = configure(tmp_path / "c.toml", (VPIC, tmp_path / "ds", {}))
    assert dump(programs, tmp_path / "first", config) == ""
    again = configure(tmp_path / "again.toml", (VPIC, tmp_path / "ds", {"truncate_after": 500}))
    assert dump(programs, tmp_path / "out", again, steps="1000") == ""
    expected = {path: content for path, content in plain(3).items() if VPIC.epoch(path) != 1500}
    check_rows(tmp_path / "ds", VPIC, expected)


@pytest.mark.parametrize("ranks", [None, 3])
def test_a_kill_and_the_run_after_it(programs, tmp_path, spool, ranks):
    """What was committed stays; the lock of the dead process is taken over; the next run goes on."""
    program = programs["writer" if ranks is None else "mpi_writer"]
    out = tmp_path / "ds"
    config = configure(tmp_path / "c.toml", (SMALL, out, {"if_exists": "skip"}))
    process = start([program, "kill", tmp_path / "out", 5], config, ranks=ranks)
    process.communicate(timeout=AMPLE_S)
    assert process.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL, signal.SIGKILL)
    run([program, "plain", tmp_path / "plain", 5], None, ranks=ranks)
    expected = written(tmp_path / "plain")
    committed = set(stored(out, SMALL.record))
    assert {1, 2, 3} <= committed <= {1, 2, 3, 4}
    check_rows(out, SMALL, {path: content for path, content in expected.items() if SMALL.epoch(path) in committed})
    assert run([program, "plain", tmp_path / "out", 5], config, ranks=ranks) == ""
    assert written(tmp_path / "out") == expected
    check_rows(out, SMALL, expected)


def test_a_user_without_rights(programs, tmp_path):
    """A folder that the program may not write to is one that the index may not either."""
    prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    # The folders of pytest, the build and the cache may be closed to others.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        program, library = (shutil.copy(path, folder) for path in (programs["writer"], libraries(False)))
        (folder / "closed").mkdir()
        (folder / "closed").chmod(0o555)
        (folder / "open").mkdir()
        (folder / "open").chmod(0o777)
        config = configure(folder / "c.toml", (SMALL, folder / "closed" / "ds", {}))
        preloaded = ["env", f"TURBIDITE_CONFIG={config}", f"LD_PRELOAD={library}", program, "plain"]
        said = run([*prefix, *preloaded, folder / "open" / "out"], None)
        assert str(folder / "closed" / "ds") in said and "denied" in said.lower()
        run([programs["writer"], "plain", tmp_path / "plain"], None)
        assert written(folder / "open" / "out") == written(tmp_path / "plain")


def test_what_is_indexed_is_what_query_finds(programs, plain, tmp_path, spool):
    """The command counts what NumPy counts."""
    config = configure(tmp_path / "c.toml", (VPIC, tmp_path / "ds", {}))
    assert dump(programs, tmp_path / "out", config) == ""
    rows = [VPIC.rows(path, content) for path, content in plain(3).items()]
    expected = sum(int((part["energy"] > 0.1).sum()) for part in rows)
    said = turbidite("query", tmp_path / "ds", "--where", "energy > 0.1", "--count").stdout
    assert str(expected) in said.split() and expected > 0


HDF5 = """
import os, sys
for epoch in (1, 2):
    os.makedirs(f"{sys.argv[1]}/E.{epoch}")
    with open(f"{sys.argv[1]}/E.{epoch}/rows.0", "wb") as file:
        file.write((b"\\x89HDF\\r\\n\\x1a\\n" if epoch == 1 else bytes(8)) + bytes(1600))
"""


@pytest.mark.parametrize("mode", ["keep", "replace"])
def test_files_of_another_format_are_refused_by_name(tmp_path, spool, mode):
    """The file is as long as a header with records."""
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": mode, "spool": spool}))
    said = run([sys.executable, "-c", HDF5, tmp_path / "out"], config)
    assert "E.1/rows.0: is HDF5, not records as " in said and "the files of epoch 1 stay as the program wrote them" in said
    assert len((tmp_path / "out/E.1/rows.0").read_bytes()) == 1608
    assert list(stored(tmp_path / "ds", SMALL.record)) == [2]


REWRITTEN = """
import os, struct, sys
def write(epoch, first):
    os.makedirs(f"{sys.argv[1]}/E.{epoch}", exist_ok=True)
    with open(f"{sys.argv[1]}/E.{epoch}/rows.0", "wb") as file:
        file.write(bytes(8) + b"".join(struct.pack("<dQ", 1.0, first + number) for number in range(100)))
write(1, 0)
write(2, 100)
os.unlink(f"{sys.argv[1]}/E.1/rows.0")
write(1, 200)
os._exit(0)
"""


def test_a_file_that_replaces_an_indexed_one_is_kept(tmp_path, spool):
    """Epoch 1 has been indexed when epoch 2 began. Its second version is not the indexed file, which stayed in the spool."""
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": "replace", "spool": spool}))
    run([sys.executable, "-c", REWRITTEN, tmp_path / "plain"], None)
    said = run([sys.executable, "-c", REWRITTEN, tmp_path / "out"], config)
    assert "the program ended by _exit: epochs 1 and 2 are not indexed" in said
    assert written(tmp_path / "out") == written(tmp_path / "plain")


# The library's own writes: into a spool that reserves space beyond the end of a file, and into a part that has the
# records of all files of an epoch.
LIMITED = """
import os, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
os.makedirs(f"{sys.argv[1]}/E.1", exist_ok=True)
for rank in range(8):
    with open(f"{sys.argv[1]}/E.1/rows.{rank}", "wb") as file:
        file.write(bytes(8) + os.urandom(1 << 20))
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_limit_on_the_size_of_files(tmp_path, spool, mode):
    """The program's files are within the limit, so it must not be met by SIGXFSZ. The epoch's part is not."""
    limit = 1_100_000
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": mode, "spool": spool}))
    said = run([sys.executable, "-c", LIMITED, tmp_path / "out"], config, preexec_fn=limit_file_size(limit))
    assert f"File too large: this process may write at most {limit} bytes to a file (RLIMIT_FSIZE)" in said, said
    assert len(written(tmp_path / "out")) == 8
    assert list((tmp_path / "ds" / "data").iterdir()) == []
    assert list((tmp_path / "ds" / "_turbidite" / "tmp").iterdir()) == []
