"""Hostile keys under the preload library: each input of tests/hostile is an epoch between benign ones. Nothing is lost, and
no rank stores most of an epoch. How even the ranks' shares are depends on how they are scheduled, so the core's tests have
the narrow bound."""

import numpy
import pytest

from support.command import answer
from support.hostile import INPUTS
from support.preload import Form, check_rows, configure, run, written

RANKS = 6
# Of a million records of an input.
EVERY = 16
MOST_OVER_MEAN = 2.0


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


@pytest.mark.parametrize("kind", ["<f4", "<f8", "<i4", "<i8", "<u4", "<u8"])
def test_nothing_is_lost_between_benign_epochs(programs, tmp_path, spool, kind):
    record = numpy.dtype([("key", kind), ("number", "<u4")])
    form = Form("E.{epoch}/rows.{rank}", 0, record, "key")
    epochs = [("benign", benign(record["key"], 0))]
    for name, keys in hostile_epochs()[kind]:
        epochs += [(name, keys), (f"after {name}", benign(record["key"], len(epochs)))]
    for epoch, (_, parts) in enumerate(epochs, 1):
        (tmp_path / f"out/E.{epoch}").mkdir(parents=True)
        (tmp_path / f"source/E.{epoch}").mkdir(parents=True)
        first = 0
        for rank, keys in enumerate(parts):
            rows = numpy.empty(len(keys), record)
            rows["key"], rows["number"] = keys, numpy.arange(first, first + len(keys))
            first += len(keys)
            (tmp_path / f"source/E.{epoch}/rows.{rank}").write_bytes(rows.tobytes())
    options = {"mode": "keep", "spool": spool, "receivers": RANKS}
    config = configure(tmp_path / "c.toml", (form, tmp_path / "ds", options))
    run([programs["copier"], tmp_path / "source", tmp_path / "out", len(epochs)], config, ranks=RANKS)
    check_rows(tmp_path / "ds", form, written(tmp_path / "source"))
    stats = {epoch["epoch"]: epoch["figures"] for epoch in answer("stats", tmp_path / "ds")}
    for epoch, (name, parts) in enumerate(epochs, 1):
        loads = numpy.array(stats[epoch]["rows_per_receiver"], float)
        print(f"{kind} {name}: largest {loads.max() / max(loads.mean(), 1):.3f} x mean, {stats[epoch]['renegotiations']} tables")
        assert sum(map(len, parts)) < 1000 or loads.max() <= MOST_OVER_MEAN * loads.mean(), name
