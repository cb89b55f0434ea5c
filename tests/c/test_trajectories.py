"""Particles that a C program looks up and follows have the rows that NumPy finds in the records."""

import json
import subprocess
from pathlib import Path

import numpy
import pytest

from support import raw, vpic
from support.command import ROOT, turbidite
from support.libraries import compile_c, valgrind
from support.mpi import run

SOURCE = ROOT / "tests" / "c" / "trajectories.c"
DERIVE = [argument for text in vpic.DERIVATIONS[:2] for argument in ("--derive", text)]
VPIC_ROW = numpy.dtype([("id", "<i4"), ("epoch", "<u8"), ("energy", "<f4"), ("ux", "<f4"), ("w", "<f4")])
VALUES = "energy,ux,w"

KEYED = numpy.dtype([("uuid", "V16"), ("cpu", "<u4"), ("id", "<u8"), ("signed", "<i8"), ("small", "<i4"), ("value", "<f4")])
KEYS = ["uuid", "cpu,id", "id", "signed", "small", "small,uuid"]


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return compile_c(SOURCE, tmp_path_factory.mktemp("trajectories") / "trajectories")


@pytest.fixture(scope="module")
def by_energy(dumps, scratch) -> Path:
    """The dumps, clustered by energy in many row groups, with an index of the ids."""
    dataset = scratch / "by-energy"
    turbidite("ingest", dumps, "--out", dataset, "--key", "energy", *DERIVE, "--ranks", 8, "--memtable", "256KiB", "--index", "id")
    return dataset


@pytest.fixture(scope="module")
def keyed(scratch) -> tuple[Path, dict[int, numpy.ndarray]]:
    """Two epochs of records with many kinds of ids. Half of the second epoch's particles are new."""
    rng = numpy.random.default_rng(5)
    epochs = {}
    for epoch in (1, 2):
        number = rng.permutation(20_000).astype("u8") + numpy.uint64(10_000 * epoch)
        rows = numpy.zeros(len(number), KEYED)
        rows["cpu"], rows["id"] = number % 7, number // 7 + numpy.uint64(2**63)
        rows["uuid"] = numpy.stack([number * 0x9E3779B97F4A7C15, number], axis=1).astype("<u8").view("V16").reshape(-1)
        rows["signed"] = (number.astype("i8") - 20_000) * 2**40
        rows["small"] = number.astype("i4") - 20_000
        rows["value"] = rng.random(len(rows))
        # Ids that several records have.
        rows[:50] = rows[50:100]
        rows["value"][:50] += 1
        epochs[epoch] = rows
    raw.write_source(scratch / "keyed", {epoch: numpy.array_split(rows, 3) for epoch, rows in epochs.items()})
    return scratch / "keyed", epochs


def ask(program, dataset, *arguments, out: Path, like: numpy.dtype) -> tuple[numpy.ndarray, dict]:
    """The rows and metrics of a request."""
    names, metrics = run(program, dataset, *arguments, out).stdout.splitlines()
    assert names == ",".join(like.names)
    return numpy.fromfile(out, like), json.loads(metrics)


def expected_rows(epochs: dict[int, numpy.ndarray], ids: numpy.ndarray) -> numpy.ndarray:
    """The rows of particles, sorted by id and epoch."""
    each = []
    for epoch, rows in epochs.items():
        chosen = rows[numpy.isin(rows["id"], ids)]
        some = numpy.empty(len(chosen), VPIC_ROW)
        some["epoch"] = epoch
        for name in ("id", "energy", "ux", "w"):
            some[name] = chosen[name]
        each.append(some)
    together = numpy.concatenate(each)
    return together[numpy.lexsort((together["epoch"], together["id"]))]


@pytest.mark.parametrize("use", ["-", "scan", "id"])
@pytest.mark.parametrize("function", ["get", "tracks"])
def test_all_trajectories_are_those_of_numpy(program, by_energy, dumps, tmp_path, function, use):
    epochs = vpic.read_dumps(dumps)
    ids = numpy.unique(next(iter(epochs.values()))["id"])
    numpy.random.default_rng(1).permutation(ids).tofile(tmp_path / "ids")
    arguments = (function, "id", tmp_path / "ids", "<i4", VALUES, "-", use)
    rows, metrics = ask(program, by_energy, *arguments, out=tmp_path / "rows", like=VPIC_ROW)
    expected = expected_rows(epochs, ids)
    assert rows.tobytes() == expected.tobytes()
    assert metrics["ids"] == len(ids) and metrics["epochs"] == len(epochs) and metrics["rows"] == len(expected)
    assert metrics["absent_ids"] == metrics["incomplete_ids"] == metrics["missing"] == metrics["duplicates"] == 0


def test_trajectories_of_a_predicate(program, by_energy, dumps, tmp_path):
    epochs = vpic.read_dumps(dumps)
    labels = list(epochs)
    at = labels[2]
    least = numpy.float32(numpy.sort(epochs[at]["energy"])[-300])
    ids = epochs[at]["id"][epochs[at]["energy"] >= least]
    bytes_read = {}
    for use in ("-", "scan", "id"):
        arguments = ("of", "id", f"energy >= {least!s}", at, VALUES, f"{labels[1]}..{labels[4]}", use)
        rows, metrics = ask(program, by_energy, *arguments, out=tmp_path / "rows", like=VPIC_ROW)
        assert rows.tobytes() == expected_rows({label: epochs[label] for label in labels[1:5]}, ids).tobytes()
        assert metrics["ids"] == len(numpy.unique(ids)) and metrics["epochs"] == 4
        bytes_read[use] = metrics["bytes_read"]
    assert bytes_read["-"] <= bytes_read["scan"]


def test_one_id_in_one_epoch_reads_little_by_the_index(program, by_energy, dumps, tmp_path):
    epochs = vpic.read_dumps(dumps)
    at = max(epochs)
    chosen = epochs[at]["id"][1234:1235]
    chosen.tofile(tmp_path / "ids")
    bytes_read = {}
    for use in ("scan", "id"):
        arguments = ("get", "id", tmp_path / "ids", "<i4", VALUES, at, use)
        rows, metrics = ask(program, by_energy, *arguments, out=tmp_path / "rows", like=VPIC_ROW)
        assert rows.tobytes() == expected_rows({at: epochs[at]}, chosen).tobytes()
        bytes_read[use] = metrics["bytes_read"]
    # An epoch of the sample has few pages to save.
    factor = 4 if len(epochs[at]) > 100_000 else 3
    assert 0 < factor * bytes_read["id"] < bytes_read["scan"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("is_hashed", [True, False])
def test_ids_of_every_kind_are_found(program, keyed, tmp_path, key, is_hashed):
    source, epochs = keyed
    dataset, names = tmp_path / "dataset", key.split(",")
    clustering = f"hash:{key}" if is_hashed else "value"
    turbidite(*raw.ingest_arguments(source, dataset, clustering, "--ranks", 2, "--memtable", "64KiB"))
    kind = numpy.dtype([(name, KEYED[name]) for name in names])
    like = numpy.dtype([*kind.descr, ("epoch", "<u8"), ("value", "<f4")])
    # Every tenth particle of each epoch, repeated and in no order, and one that does not exist.
    chosen = numpy.concatenate([rows[::10][names].astype(kind) for rows in epochs.values()])
    absent = numpy.zeros(1, kind)
    absent[names[-1]] = numpy.zeros(1, "V16") if names[-1] == "uuid" else 1_000_003
    ids = numpy.concatenate([chosen, absent, chosen[:100]])
    ids.tofile(tmp_path / "ids")
    types = ",".join(kind[name].str for name in names)
    arguments = ("get", "-" if is_hashed else key, tmp_path / "ids", types, "value", "-", "-")
    rows, metrics = ask(program, dataset, *arguments, out=tmp_path / "rows", like=like)

    plain = lambda row: tuple(row[name].tobytes() if name == "uuid" else int(row[name]) for name in names)
    wanted = {plain(row) for row in chosen}
    of_epochs = [[(plain(row), epoch, float(row["value"])) for row in each if plain(row) in wanted] for epoch, each in epochs.items()]
    expected = sorted(row for each in of_epochs for row in each)
    found = [(plain(row), int(row["epoch"]), float(row["value"])) for row in rows]
    # Rows of one particle and epoch have no order.
    assert [row[:2] for row in found] == [row[:2] for row in expected] and sorted(found) == expected
    pairs = {row[:2] for row in expected}
    in_both = sum((ident, 1) in pairs and (ident, 2) in pairs for ident in wanted)
    assert 0 < in_both < len(wanted)
    assert metrics["ids"] == len(wanted) + 1 and metrics["absent_ids"] == 1 and metrics["rows"] == len(expected)
    assert metrics["incomplete_ids"] == len(wanted) - in_both + 1
    assert metrics["missing"] == 2 * (len(wanted) + 1) - len(pairs)
    assert metrics["duplicates"] == len(expected) - len(pairs) > 0


def test_rows_beyond_the_memory_lie_in_the_scratch_folder(program, scratch, tmp_path):
    """80 MB of rows, of which 64 MiB fit the memory for sorting."""
    rows = numpy.zeros(20_000, [("id", "<u4"), ("rest", "V4096")])
    rows["id"] = numpy.random.default_rng(3).permutation(len(rows))
    rest = numpy.zeros((len(rows), 1024), "u4")
    rest[:, 5] = rows["id"]
    rows["rest"] = rest.view("V4096")[:, 0]
    raw.write_source(scratch / "wide", {1: [rows]})
    turbidite(*raw.ingest_arguments(scratch / "wide", tmp_path / "dataset", "hash:id", "--ranks", 2))
    numpy.arange(len(rows), dtype="u4").tofile(tmp_path / "ids")
    like = numpy.dtype([("id", "<u4"), ("epoch", "<u8"), ("rest", "V4096")])
    for function in ("get", "tracks"):
        arguments = (tmp_path / "dataset", function, "-", tmp_path / "ids", "<u4", "-", "-", "-", tmp_path / "rows")
        run(program, *arguments, tmp_path)
        found = numpy.fromfile(tmp_path / "rows", like)
        expected = rows[numpy.argsort(rows["id"])]
        assert found["id"].tobytes() == expected["id"].tobytes() and found["rest"].tobytes() == expected["rest"].tobytes()
        nowhere = subprocess.run([program, *arguments, tmp_path / "nowhere"], capture_output=True, text=True)
        assert nowhere.returncode == 1 and str(tmp_path / "nowhere") in nowhere.stderr, nowhere.stderr


def test_wrong_requests_are_refused(program, by_energy):
    assert run(program, by_energy, "mistakes").stdout == "ok\n"


def test_memory_of_trajectories(program, by_energy, dumps, tmp_path):
    assert run(*valgrind(), program, by_energy, "mistakes").stdout == "ok\n"
    epochs = vpic.read_dumps(dumps)
    ids = epochs[max(epochs)]["id"][:500]
    ids.tofile(tmp_path / "ids")
    run(*valgrind(), program, by_energy, "get", "id", tmp_path / "ids", "<i4", VALUES, "-", "id", tmp_path / "rows")
    assert numpy.fromfile(tmp_path / "rows", VPIC_ROW).tobytes() == expected_rows(epochs, ids).tobytes()
