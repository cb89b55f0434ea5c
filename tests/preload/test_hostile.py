"""Hostile keys under the preload library: each input of tests/hostile is an epoch between benign ones. Nothing is lost, and
no rank stores most of an epoch. How even the ranks' shares are depends on how they are scheduled, so the core's tests have
the narrow bound. Some of the inputs are also written before and after a kill, a truncation and a replacement."""

from pathlib import Path

import numpy
import pytest

from support.command import AMPLE_S, answer
from support.hostile import INPUTS
from support.preload import Form, check_rows, configure, run, start, written

RANKS = 6
# Of a million records of an input.
EVERY = 16
MAX_OVER_MEAN = 2.0


def hostile_epochs() -> dict[str, list[tuple[str, list[numpy.ndarray]]]]:
    """The names and the keys of all inputs that have records, by type."""
    found: dict[str, list] = {}
    for name, make in INPUTS.items():
        for keys in make(RANKS).values():
            parts = [part[::EVERY] for part in keys]
            if any(map(len, parts)):
                found.setdefault(parts[0].dtype.str, []).append((name, parts))
    return found


def benign(dtype: numpy.dtype, seed: int) -> list[numpy.ndarray]:
    keys = numpy.random.default_rng(seed).lognormal(0, 1, 60_000)
    return numpy.array_split((keys * (1 if dtype.kind == "f" else 1e6)).astype(dtype), RANKS)


def prepare(source: Path, out: Path, record: numpy.dtype, epochs: list[list[numpy.ndarray]]) -> None:
    """The files that the program copies, and the folders that it copies them to."""
    for epoch, parts in enumerate(epochs, 1):
        (out / f"E.{epoch}").mkdir(parents=True, exist_ok=True)
        (source / f"E.{epoch}").mkdir(parents=True)
        first = 0
        for rank, keys in enumerate(parts):
            rows = numpy.empty(len(keys), record)
            rows["key"], rows["number"] = keys, numpy.arange(first, first + len(keys))
            first += len(keys)
            (source / f"E.{epoch}/rows.{rank}").write_bytes(rows.tobytes())


@pytest.mark.parametrize("kind", ["<f4", "<f8", "<i4", "<i8", "<u4", "<u8"])
def test_nothing_is_lost_between_benign_epochs(programs, tmp_path, spool, kind):
    record = numpy.dtype([("key", kind), ("number", "<u4")])
    form = Form("E.{epoch}/rows.{rank}", 0, record, "key")
    epochs = [("benign", benign(record["key"], 0))]
    for name, keys in hostile_epochs()[kind]:
        epochs += [(name, keys), (f"after {name}", benign(record["key"], len(epochs)))]
    prepare(tmp_path / "source", tmp_path / "out", record, [parts for _, parts in epochs])
    options = {"mode": "keep", "spool": spool, "receivers": RANKS}
    config = configure(tmp_path / "c.toml", (form, tmp_path / "ds", options))
    run([programs["copier"], tmp_path / "source", tmp_path / "out", len(epochs)], config, ranks=RANKS)
    check_rows(tmp_path / "ds", form, written(tmp_path / "source"))
    stats = {epoch["epoch"]: epoch["metrics"] for epoch in answer("stats", tmp_path / "ds")}
    for epoch, (name, parts) in enumerate(epochs, 1):
        loads = numpy.array(stats[epoch]["rows_per_receiver"], float)
        print(f"{kind} {name}: largest {loads.max() / max(loads.mean(), 1):.3f} x mean, {stats[epoch]['renegotiations']} tables")
        assert sum(map(len, parts)) < 1000 or loads.max() <= MAX_OVER_MEAN * loads.mean(), name


# The situation, what the second run is told, and whether the receivers follow from the volume.
SITUATIONS = [("kill", {"if_exists": "skip"}, False), ("truncate", {"truncate_after": 2}, True), ("replace", {"if_exists": "replace"}, True)]


@pytest.mark.parametrize(("turn", "situation", "again", "by_volume"), [(turn, *of) for turn, of in enumerate(SITUATIONS)])
def test_nothing_is_lost_by_the_run_after_it(programs, tmp_path, spool, turn, situation, again, by_volume):
    """Two runs, of which the second has hostile epochs where the first had benign ones and the reverse: each situation
    with two other inputs of one type."""
    record = numpy.dtype([("key", "<f4"), ("number", "<u4")])
    form = Form("E.{epoch}/rows.{rank}", 0, record, "key")
    hostile = [keys for _, keys in hostile_epochs()["<f4"]][turn :: len(SITUATIONS)][:2]
    assert len(hostile) == 2
    epochs = [parts for number, keys in enumerate(hostile) for parts in (benign(record["key"], number), keys)]
    last, out = len(epochs), tmp_path / "out"
    prepare(tmp_path / "source", out, record, epochs)
    prepare(tmp_path / "other", out, record, epochs[::-1])
    base = {"mode": "keep", "spool": spool} | ({} if by_volume else {"receivers": RANKS})
    config = configure(tmp_path / "c.toml", (form, tmp_path / "ds", base))
    second = configure(tmp_path / "again.toml", (form, tmp_path / "ds", base | again))
    copier = programs["copier"]
    if situation == "kill":
        process = start([copier, tmp_path / "source", out, last, 1, "kill"], config, ranks=RANKS)
        process.communicate(timeout=AMPLE_S)
        assert process.returncode != 0
        assert {path.name for path in (tmp_path / "ds/data").iterdir()} <= {f"epoch={epoch}" for epoch in range(1, last)}
        run([copier, tmp_path / "source", out, last], second, ranks=RANKS)
        expected = written(tmp_path / "source")
    else:
        run([copier, tmp_path / "source", out, last], config, ranks=RANKS)
        first = 3 if situation == "truncate" else 1
        run([copier, tmp_path / "other", out, last, first], second, ranks=RANKS)
        files, others = written(tmp_path / "source"), written(tmp_path / "other")
        expected = {path: others[path] if form.epoch(path) >= first else content for path, content in files.items()}
    check_rows(tmp_path / "ds", form, expected)
