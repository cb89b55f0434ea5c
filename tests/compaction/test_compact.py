"""`compact`: the copy is sorted as a whole, holds every record once, and answers as the original does."""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import duckdb
import numpy
import pytest
from pyarrow import parquet

from conftest import SMALL, ingest_arguments
from support import halt, raw, vpic
from support.command import CORRUPTION, FAILED, OK, ROOT, USAGE, answer, attempt, start, turbidite
from support.engines import ENGINES, Range
from support.rows import as_records, in_order, read_answer

# Slabs so small that each epoch of the sample takes several; pages and row groups so small that each has many.
PIECES = ["--memory", "256KiB", "--page-rows", 256, "--row-groups-per-run", 2, "--threads", 3]


@pytest.fixture(scope="module", params=["default", "pieces"])
def copy(indexed, scratch, request):
    """The copy's folder and what the command said of it."""
    path = scratch / f"sorted-{indexed.name}-{request.param}"
    report = answer("compact", indexed.path, "--out", path, *(PIECES if request.param == "pieces" else []))
    yield path, report
    shutil.rmtree(path)


def stored(folder: Path, like: numpy.dtype) -> numpy.ndarray:
    """The records of an epoch's folder as they lie there: files by name, row groups and rows in their order."""
    parts = []
    for file in sorted(folder.iterdir()):
        table = parquet.ParquetFile(file).read()
        rows = numpy.empty(table.num_rows, like)
        for name in like.names:
            rows[name] = table.column(name).to_numpy()
        parts.append(rows)
    return numpy.concatenate(parts)


def check_sorted(rows: numpy.ndarray, key: str) -> None:
    """Numbers ascend, NaN come after them."""
    numbers = rows[key][~numpy.isnan(rows[key])]
    assert not numpy.isnan(rows[key][: numbers.size]).any(), "NaN keys before others"
    assert (numbers[1:] >= numbers[:-1]).all()


def test_every_epoch_is_sorted_as_a_whole_and_has_every_record_once(indexed, copy):
    path, report = copy
    assert report["rows"] == sum(map(len, indexed.epochs.values()))
    print(f"{indexed.name}: read factor {report['read_factor']:.3f}, {report['mb_per_s']:.0f} MB/s")
    for epoch, records in indexed.epochs.items():
        rows = stored(path / "data" / f"epoch={epoch}", records.dtype)
        check_sorted(rows, "energy")
        assert numpy.sort(rows, order="id").tobytes() == numpy.sort(records, order="id").tobytes()


def test_the_copy_is_clean_and_its_row_groups_do_not_overlap(indexed, copy):
    path, _ = copy
    turbidite("verify", path, expect=OK)
    for epoch in answer("stats", path):
        metrics = epoch["metrics"]
        assert metrics["strays"] == metrics["spills"] == 0
        assert epoch["profile"]["read_amplification_p99"] <= 1.01
        touched = [point["runs"] for point in epoch["profile"]["points"]]
        # At a key where one ends and the next begins there are two.
        assert max(touched) <= 2, touched
    assert not list((path / "_turbidite" / "tmp").iterdir())


def test_same_answers_as_the_original(indexed, copy, scratch):
    path, _ = copy
    dtype = next(iter(indexed.epochs.values())).dtype
    for predicate in ["energy BETWEEN 1 AND 1.5", "ux > 2 AND energy < 20", "isnan(slope) AND id < 5000", "energy > 1e9"]:
        answers = []
        for dataset in (indexed.path, path):
            target = scratch / "compact-answer.arrow"
            target.unlink(missing_ok=True)
            turbidite("query", dataset, "--where", predicate, "-o", target)
            answers.append(in_order(as_records(read_answer(target), dtype)).tobytes())
        assert answers[0] == answers[1], predicate


@pytest.mark.parametrize("engine", ENGINES)
def test_other_engines_read_it(indexed, copy, engine):
    by_engine, row_groups = ENGINES[engine]
    values = numpy.sort(indexed.epochs[max(indexed.epochs)]["energy"])
    query = Range("energy", float(values[len(values) // 3]), float(values[len(values) // 3 + len(values) // 1000]), max(indexed.epochs))
    assert by_engine(copy[0] / "data", query) == query.ids(indexed.epochs)
    # A thousandth of a sorted epoch lies in one row group, or in two where it crosses a border.
    assert row_groups(copy[0] / "data", query)[0] <= 2


def test_a_key_with_infinities_and_nan(dumps, scratch):
    source, target = scratch / "compact-slope", scratch / "compact-slope-sorted"
    arguments = ingest_arguments(dumps, source, *SMALL, "--epochs", "4000")
    arguments[arguments.index("--key") + 1] = "slope"
    turbidite(*arguments)
    turbidite("compact", source, "--out", target, *PIECES)
    turbidite("verify", target)
    records = vpic.read_dumps(dumps)[4000]
    rows = stored(target / "data" / "epoch=4000", records.dtype)
    assert numpy.isnan(rows["slope"]).any() and numpy.isinf(rows["slope"]).any(), "the key must have both"
    check_sorted(rows, "slope")
    assert numpy.sort(rows, order="id").tobytes() == numpy.sort(records, order="id").tobytes()
    shutil.rmtree(source)
    shutil.rmtree(target)


@pytest.fixture
def sample(scratch):
    """A dataset of two epochs that a test may spoil, and what it was written from."""
    path = scratch / "compact-sample"
    turbidite(*ingest_arguments(vpic.sample_dumps(), path, "--epochs", "3500..4000"))
    yield path, {epoch: rows for epoch, rows in vpic.read_dumps(vpic.sample_dumps()).items() if epoch >= 3500}
    shutil.rmtree(path)


def check_duckdb(target: Path, epochs: dict[int, numpy.ndarray]) -> None:
    with duckdb.connect() as connection:
        query = f"SELECT epoch, count(*), sum(id), min(energy), max(energy) FROM read_parquet('{target}/data') GROUP BY epoch ORDER BY epoch"
        found = connection.execute(query).fetchall()
    expected = [(e, len(r), int(r["id"].sum(dtype="i8")), r["energy"].min(), r["energy"].max()) for e, r in sorted(epochs.items())]
    assert found == expected


def test_corruption_of_the_source_names_the_file_and_commits_nothing(sample, scratch):
    dataset, epochs = sample
    target = scratch / "compact-corrupt"
    part = sorted((dataset / "data" / "epoch=4000").iterdir())[-1]
    chunk = parquet.ParquetFile(part).metadata.row_group(0).column(3)
    place = chunk.data_page_offset + chunk.total_compressed_size // 2
    content = bytearray(part.read_bytes())
    content[place] ^= 0x10
    part.write_bytes(content)
    done = turbidite("compact", dataset, "--out", target, expect=CORRUPTION)
    assert str(part) in done.stderr
    assert [folder.name for folder in (target / "data").iterdir()] == ["epoch=3500"]
    assert not list((target / "_turbidite" / "tmp").iterdir())
    # Mended, the copy goes on where it was.
    content[place] ^= 0x10
    part.write_bytes(content)
    report = answer("compact", dataset, "--out", target, "--if-exists", "skip")
    assert [epoch["skipped"] for epoch in report["epochs"]] == [True, False]
    check_duckdb(target, epochs)
    shutil.rmtree(target)


def test_requests_that_are_wrong(sample, scratch):
    dataset, _ = sample
    target = scratch / "compact-refused"
    turbidite("compact", dataset, "--out", dataset, expect=USAGE)
    turbidite("compact", dataset, "--out", dataset / "data" / "copy", expect=USAGE)
    turbidite("compact", dataset, "--out", target, "--memory", "10B", expect=USAGE)
    turbidite("compact", dataset, "--out", target, "--page-rows", 0, expect=USAGE)
    turbidite("compact", dataset, "--out", target, "--epoch", 7, expect=FAILED)
    turbidite("compact", scratch / "nothing", "--out", target, expect=FAILED)
    assert not target.exists()
    turbidite("compact", dataset, "--out", target, "--epoch", 4000)
    turbidite("compact", dataset, "--out", target, expect=FAILED)
    turbidite("compact", dataset, "--out", target, "--if-exists", "replace")
    turbidite("verify", target)
    shutil.rmtree(target)


RECORD = numpy.dtype([("energy", "<f4"), ("id", "<u4"), ("payload", "V56")])
ROWS = 1_600_000


@pytest.fixture(scope="module")
def large(scratch) -> Path:
    """100 MB of spread keys in one epoch, 100 MB of one key in another; many runs overlap."""
    root, dataset = scratch / "compact-large-source", scratch / "compact-large"
    rng = numpy.random.default_rng(11)
    rows = numpy.zeros(ROWS, RECORD)
    rows["id"] = numpy.arange(ROWS)
    rows["energy"] = rng.lognormal(0, 2, ROWS)
    same = rows.copy()
    same["energy"] = 1.5
    raw.write_source(root, {0: numpy.array_split(rows, 2), 1: numpy.array_split(same, 2)})
    turbidite(*raw.ingest_arguments(root, dataset, "energy", "--ranks", 2, "--memtable", "4MiB"))
    shutil.rmtree(root)
    yield dataset
    shutil.rmtree(dataset)


# A row group is put together in memory, and with one to a run it is as large as the run.
@pytest.mark.serial
@pytest.mark.parametrize("threads, options", [(1, ()), (3, ()), (3, ("--row-groups-per-run", 1))])
def test_memory_stays_within_what_is_reported(large, scratch, threads, options):
    target, figures = scratch / "compact-limits", scratch / "compact-limits.json"
    measure = (sys.executable, "-S", ROOT / "tests" / "support" / "measure.py", figures)
    report = answer("compact", large, "--out", target, "--memory", "4MiB", "--threads", threads, *options, prefix=measure)
    peak, bound = json.loads(figures.read_text())["peak_bytes"], report["memory_bound_bytes"]
    print(f"{threads} threads: peak {peak / 2**20:.1f} MiB, bound {bound / 2**20:.1f} MiB, read factor {report['read_factor']:.2f}")
    assert peak <= bound < 0.65 * ROWS * RECORD.itemsize, "the bound must be well below an epoch"
    for epoch in (0, 1):
        rows = stored(target / "data" / f"epoch={epoch}", RECORD)
        check_sorted(rows, "energy")
        assert numpy.array_equal(numpy.sort(rows["id"]), numpy.arange(ROWS))
    shutil.rmtree(target)


@pytest.mark.serial
def test_killed_at_random_moments(large, scratch):
    """At moments that follow how fast the machine is, until one of them was in the middle of the work."""
    command = ["compact", large, "--out", scratch / "compact-killed", "--if-exists", "skip", "--memory", "4MiB"]
    target = command[3]
    began = time.monotonic()
    turbidite(*command)
    whole = time.monotonic() - began
    shutil.rmtree(target)
    rng, kills, left = random.Random(5), 0, 0
    while kills < 8 or left == 0:
        assert kills < 200, "no kill was in the middle of the work"
        process = start(*command)
        time.sleep(rng.uniform(0.1, 0.9) * whole)
        process.kill()
        process.communicate()
        kills += 1
        unfinished = any((target / "_turbidite" / "tmp").glob("*"))
        left += unfinished
        # Too late or too early.
        whole *= 0.9 if process.returncode == 0 else 1.0 if unfinished else 1.1
        if (target / "_turbidite" / "dataset.json").exists():
            turbidite("verify", target)
        if process.returncode == 0:
            shutil.rmtree(target)
    print(f"{left} of {kills} kills were in the middle of the work")
    turbidite(*command)
    turbidite("verify", target)
    assert not list((target / "_turbidite" / "tmp").iterdir()), "what kills left is cleared away"
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT epoch, count(*), sum(id) FROM read_parquet('{target}/data') GROUP BY epoch ORDER BY epoch").fetchall()
    assert found == [(epoch, ROWS, ROWS * (ROWS - 1) // 2) for epoch in (0, 1)]
    shutil.rmtree(target)


def test_readers_of_the_original_are_not_disturbed(large, scratch):
    """A query that runs beside a compaction gives the same; neither needs the other's lock."""
    target = scratch / "compact-beside"
    process = halt.start_until("/_turbidite/tmp/", "compact", large, "--out", target)
    count = f"{ROWS}"
    # In the middle of the compaction for certain, and at whatever moments come after.
    assert turbidite("query", large, "--epoch", 0, "--count").stdout.split()[0] == count
    process.send_signal(signal.SIGCONT)
    while process.poll() is None:
        assert turbidite("query", large, "--epoch", 0, "--count").stdout.split()[0] == count
    assert process.returncode == OK, process.communicate()[1]
    assert attempt("ingest", "--help").returncode == OK
    before = {path: os.stat(path).st_mtime_ns for path in large.rglob("*")}
    turbidite("compact", large, "--out", target, "--if-exists", "replace")
    assert before == {path: os.stat(path).st_mtime_ns for path in large.rglob("*")}, "the original is only read"
    shutil.rmtree(target)
