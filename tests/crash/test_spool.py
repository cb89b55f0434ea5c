"""`salvage --spool`: what killed runs left in the preload library's spool is listed and moved, and nothing else is."""

import fcntl
import json
import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from support.command import FAILED, USAGE, turbidite

FOLDER = f"turbidite-{os.geteuid()}"


@pytest.fixture(params=["same", "other"])
def spool(request, tmp_path):
    """A spool on the file system of the files' places, or on another one."""
    if request.param == "same":
        yield tmp_path / "spool"
        return
    if not os.access("/dev/shm", os.W_OK) or os.stat("/dev/shm").st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    with tempfile.TemporaryDirectory(prefix="spool-", dir="/dev/shm") as name:
        yield Path(name)


def leave(spool: Path, files: dict[Path, bytes], process: int = 4711, host: str | None = None, out="/work/ds") -> Path:
    """What the library leaves; answers its folder."""
    host = host or socket.gethostname()
    folder = spool / FOLDER / f"{host}-{process}-99"
    (folder / "files").mkdir(parents=True)
    datasets = [{"files": "T.{epoch}/e.{epoch}.{rank}", "out": str(out)}]
    owner = {"version": 1, "host": host, "process": process, "started": 99, "config": "/work/c.toml", "datasets": datasets}
    (folder / ".owner").write_text(json.dumps(owner))
    for path, content in files.items():
        place = folder / "files" / path.relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return folder


def test_files_of_a_killed_run_are_listed_and_put_in_their_places(tmp_path, spool):
    home = tmp_path / "home"
    (home / "T.5").mkdir(parents=True)
    # The folder of the second file is gone; the third file has no bytes.
    files = {home / "T.5/e.5.0": b"zero" * 999, home / "T.6/e.6.0": b"six", home / "T.5/e.5.1": b""}
    leave(spool, files)
    (home / "T.5/e.5.7").write_bytes(b"another")
    said = turbidite("salvage", "--spool", spool).stdout
    for word in ["process 4711", socket.gethostname(), "3 files", "/work/c.toml", "/work/ds", *map(str, files)]:
        assert word in said, said
    assert "--put-in-place" in said and not any(path.exists() for path in files)
    found = json.loads(turbidite("salvage", "--spool", spool, "--json").stdout)["runs"]
    assert [(entry["path"], entry["bytes"]) for entry in found[0]["files"]] == sorted(
        (str(path), len(content)) for path, content in files.items()
    )
    said = turbidite("salvage", "--spool", spool, "--put-in-place").stdout
    assert said.count("(moved)") == 3, said
    assert {path: path.read_bytes() for path in files} == files
    assert sorted(path.name for path in (home / "T.5").iterdir()) == ["e.5.0", "e.5.1", "e.5.7"]
    assert not (spool / FOLDER).exists()
    assert "no files of ended processes" in turbidite("salvage", "--spool", spool).stdout


def test_a_file_that_exists_is_not_written_over(tmp_path, spool):
    home = tmp_path / "home"
    home.mkdir()
    taken, free = home / "taken", home / "free"
    taken.write_bytes(b"mine")
    folder = leave(spool, {taken: b"spooled", free: b"free"})
    assert "exists, and will not be overwritten" in turbidite("salvage", "--spool", spool).stdout
    for _ in range(2):
        done = turbidite("salvage", "--spool", spool, "--put-in-place", expect=FAILED)
        spooled = folder / "files" / taken.relative_to("/")
        assert f"cannot move {spooled} to {taken}: " in done.stderr, done.stderr
        assert taken.read_bytes() == b"mine" and spooled.read_bytes() == b"spooled"
        assert free.read_bytes() == b"free" and sorted(home.iterdir()) == [free, taken]
    taken.unlink()
    turbidite("salvage", "--spool", spool, "--put-in-place")
    assert taken.read_bytes() == b"spooled" and not (spool / FOLDER).exists()


def test_files_of_others_are_left_alone(tmp_path, spool):
    """Of a process that lives, of another host, without an owner, of another user, behind a link."""
    path = tmp_path / "home" / "file"
    folders = [
        leave(spool, {path: b"living"}, process=1),
        leave(spool, {path: b"elsewhere"}, process=2, host="elsewhere"),
        leave(spool, {path: b"unowned"}, process=3),
        leave(spool, {path: b"torn"}, process=4),
    ]
    (folders[2] / ".owner").unlink()
    (folders[3] / ".owner").write_text('{"version": 1, "ho')
    other = shutil.copytree(spool / FOLDER, spool / "turbidite-123456789")
    (spool / FOLDER / "link").symlink_to(folders[0])
    before = {path: path.read_bytes() for path in spool.rglob("*") if path.is_file()}
    with open(folders[0] / ".owner") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        said = turbidite("salvage", "--spool", spool, "--put-in-place").stdout
        assert "no files of ended processes" in said and "1 running process" in said, said
        for folder in folders[1:]:
            assert str(folder) in said, said
        assert str(other) not in said
    assert {path: path.read_bytes() for path in spool.rglob("*") if path.is_file()} == before
    assert not path.exists()


def test_wrong_requests(tmp_path):
    turbidite("salvage", expect=USAGE)
    turbidite("salvage", tmp_path, "--spool", tmp_path, expect=USAGE)
    turbidite("salvage", tmp_path, "--put-in-place", expect=USAGE)
    done = turbidite("salvage", "--spool", tmp_path / "missing", expect=FAILED)
    assert str(tmp_path / "missing") in done.stderr
    (tmp_path / FOLDER).symlink_to("/")
    done = turbidite("salvage", "--spool", tmp_path, expect=FAILED)
    assert FOLDER in done.stderr
