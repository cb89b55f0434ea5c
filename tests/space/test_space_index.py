"""Spatial indexes: boxes and cursors of the dumps clustered by energy are answered by a copy, and the life of a copy."""

import os
import shutil
import signal
from pathlib import Path

import duckdb
import numpy
import pytest
import turbidite

from support import halt, vpic
from support.command import CORRUPTION, FAILED, USAGE, answer
from support.command import turbidite as command
from support.libraries import prefix
from support.mpi import Mpi, run

AXES, NAME = ("x", "uy", "uz"), "space:x,uy,uz"
DERIVE = [argument for text in vpic.DERIVATIONS[:3] for argument in ("--derive", text)]
COLUMNS = ["id", "energy", "x", "uy", "uz"]


@pytest.fixture(scope="module")
def epochs(dumps) -> dict[int, numpy.ndarray]:
    return vpic.read_dumps(dumps)


@pytest.fixture(scope="module")
def by_energy(dumps, scratch) -> Path:
    path = scratch / "by-energy"
    command("ingest", dumps, "--out", path, "--key", "energy", *DERIVE)
    return path


@pytest.fixture(scope="module")
def indexed(by_energy, scratch) -> Path:
    path = scratch / "indexed"
    shutil.copytree(by_energy, path)
    command("index", "add", path, NAME)
    return path


def boxes(rows: numpy.ndarray, share: float, count: int) -> list[dict[str, tuple[float, float]]]:
    """Boxes between quantiles of each coordinate."""
    random = numpy.random.default_rng(int(1 / share))
    found = []
    for _ in range(count):
        begins = random.random(3) * (1 - share)
        sides = {axis: numpy.quantile(rows[axis], (begin, begin + share)) for axis, begin in zip(AXES, begins, strict=True)}
        found.append({axis: (float(numpy.float32(low)), float(numpy.float32(high))) for axis, (low, high) in sides.items()})
    return found


def inside(rows: numpy.ndarray, box: dict[str, tuple[float, float]]) -> numpy.ndarray:
    return numpy.all([(rows[axis] >= numpy.float32(low)) & (rows[axis] < numpy.float32(high)) for axis, (low, high) in box.items()], axis=0)


def same_rows(found: dict[str, numpy.ndarray], expected: numpy.ndarray) -> bool:
    order, other = numpy.argsort(found["id"]), numpy.argsort(expected["id"])
    return all(numpy.array_equal(found[name][order], expected[name][other]) for name in COLUMNS)


def test_boxes_and_cursors_return_the_rows_of_numpy(epochs, indexed):
    dataset, random = turbidite.open(indexed), numpy.random.default_rng(1)
    epoch = int(random.choice(list(epochs)))
    rows = epochs[epoch]
    for share in (0.05, 0.2, 0.6):
        for box in boxes(rows, share, 4):
            chosen = rows[inside(rows, box) & (rows["energy"] > numpy.float32(0.01))]
            for use in (None, "scan", NAME):
                query = dataset.query("energy > 0.01", box=box, epochs=epoch, columns=COLUMNS, use=use)
                assert same_rows(query.to_numpy(), chosen) and query.count() == len(chosen), (box, use)
            for near in (None, [float(rows[axis][7]) for axis in AXES]):
                cursor = dataset.cursor(epoch, "energy > 0.01", box=box, columns=COLUMNS, near=near)
                steps = []
                while cursor.rows_most:
                    steps.append(cursor.advance(rows=int(random.integers(1, 20_000))).to_numpy())
                found = {name: numpy.concatenate([step[name] for step in steps]) if steps else rows[name][:0] for name in COLUMNS}
                assert same_rows(found, chosen), (box, near)


def test_levels_are_samples_of_an_eighth(epochs, indexed):
    epoch = max(epochs)
    steps = list(turbidite.open(indexed).cursor(epoch, columns=["id", "x"]))
    sizes = [len(step) for step in steps]
    assert len(steps) == 4 and sum(sizes) == len(epochs[epoch])
    assert numpy.allclose([step.stands_for for step in steps], [512, 64, 8, 1], rtol=0.2)
    assert [set(step.level()) for step in steps] == [{3}, {2}, {1}, {0}]
    share = sum(sizes[:3]) / sum(sizes)
    assert abs(share * 8 - 1) < 0.1, sizes
    data = indexed / "_turbidite" / "index" / NAME / "data" / f"epoch={epoch}"
    counted = duckdb.sql(f"SELECT level, count(*) FROM read_parquet('{data}/**/*.parquet', hive_partitioning = true) GROUP BY level ORDER BY level DESC")
    assert [count for _, count in counted.fetchall()] == sizes


def test_estimates_read_the_copy(epochs, by_energy, indexed):
    epoch = min(epochs)
    rows = epochs[epoch]
    for box in boxes(rows, 0.6, 2):
        chosen = rows[inside(rows, box)]
        sides = ",".join(f"{axis}={low!r}:{high!r}" for axis, (low, high) in box.items())
        for level in (0, 1):
            found = answer("query", indexed, "--epoch", epoch, "--box", sides, "--count", "--level", level)
            assert abs(found["estimate"] - len(chosen)) <= 5 * found["error"] and found["sample"]["level"] == level
            histogram = answer(
                "hist", indexed, "--epoch", epoch, "--box", sides, "--column", "x", "--bins", 3, "--level", level, "--weights", "energy"
            )
            total = histogram["sums"]["rows"]
            true = chosen["energy"].astype("f8").sum()
            assert abs(total["sum"] - true) <= 6 * total["error"] + 1e-9 * true and total["sampled"] == found["sample"]["matched"]
    assert turbidite.open(indexed).query("energy > 0.01", epochs=epoch).estimate(level=2).level == 2
    refused = command("hist", by_energy, "--column", "x", "--level", 1, expect=USAGE).stderr
    assert "turbidite index add DS space:X,Y,Z" in refused and "--levels" in refused


def test_the_command_reads_the_copy(epochs, by_energy, indexed, tmp_path):
    epoch = max(epochs)
    rows = epochs[epoch]
    (box,) = boxes(rows, 0.1, 1)
    place = ",".join(f"{axis}={low!r}:{high!r}" for axis, (low, high) in box.items())
    out = tmp_path / "rows.arrow"
    query = ["query", indexed, "--epoch", epoch, "--box", place]
    read = [answer(*query, "--use", use, "-o", out.with_suffix(f".{use[:4]}.arrow"))["metrics"]["bytes_read"] for use in ("scan", NAME)]
    assert read[1] < read[0], read
    explained = command(*query, "--explain", "--use", NAME).stdout
    assert f"access path {NAME}: at most" in explained and "no records are read" in explained, explained
    # Sides without names are those of the coordinates of the copy.
    bare = ",".join(f"{low!r}:{high!r}" for low, high in box.values())
    sample = answer("query", indexed, "--epoch", epoch, "--box", bare, "--quality", 1, "-o", tmp_path / "all.parquet")
    found = duckdb.sql(f"SELECT * FROM '{tmp_path}/all.parquet'").fetchnumpy()
    assert sample["rows"] == int(inside(rows, box).sum()) and same_rows(found, rows[inside(rows, box)])
    done = command("query", by_energy, "--epoch", epoch, "--quality", 0.1, "-o", out, expect=USAGE)
    assert "index add DS space:X,Y,Z" in done.stderr, done.stderr


def test_processes_make_the_copy_together(epochs, by_energy, indexed, tmp_path):
    path = tmp_path / "ds"
    shutil.copytree(by_energy, path)
    mpiexec = Mpi.find(tmp_path).bin / "mpiexec"
    run(mpiexec, "-n", 3, prefix() / "bin" / "turbidite", "index", "add", path, NAME)
    command("verify", path)
    (made,), (alone,) = (answer("index", "list", place)["indexes"] for place in (path, indexed))
    assert made == alone and made["definition"] == f"{NAME},levels=3" and made["missing"] == []
    epoch = max(epochs)
    ids = [turbidite.open(place).cursor(epoch, columns=["id"]).advance(quality=1 / 8).to_numpy()["id"] for place in (path, indexed)]
    assert numpy.array_equal(*ids)


def test_the_life_of_a_copy(epochs, dumps, by_energy, tmp_path):
    path, labels = tmp_path / "ds", sorted(epochs)
    shutil.copytree(by_energy, path)
    dataset = turbidite.open(path)
    made = dataset.indexes.add(f"{NAME},levels=2")
    assert (made.name, made.definition, made.missing) == (NAME, f"{NAME},levels=2", ())
    assert made.entries == sum(map(len, epochs.values()))
    assert f"{NAME},levels=2: " in command("inspect", path).stdout
    command("stats", path)
    command("report", path, "-o", tmp_path / "report.html")
    command("ingest", dumps, "--out", path, "--key", "energy", *DERIVE, "--if-exists", "replace", "--epochs", labels[0])
    dataset = turbidite.open(path)
    assert dataset.indexes[NAME].missing == (labels[0],)
    with pytest.raises(turbidite.UsageError, match=f"index add DS {NAME}"):
        dataset.cursor(labels[0])
    assert dataset.query("uy > 0.1", epochs=labels[0], use=NAME).count() == int((epochs[labels[0]]["uy"] > numpy.float32(0.1)).sum())
    command("verify", path)
    # A killed command leaves nothing that is used.
    process = halt.start_until(f"/{NAME}/_turbidite/manifest/", "index", "add", path, NAME)
    process.kill()
    process.communicate()
    assert answer("index", "list", path)["indexes"][0]["missing"] == [labels[0]]
    command("index", "add", path, NAME)
    assert answer("index", "list", path)["indexes"][0]["missing"] == []
    command("verify", path)
    command("compact", path, "--out", tmp_path / "compacted")
    assert answer("index", "list", tmp_path / "compacted")["indexes"][0]["definition"] == f"{NAME},levels=2"
    command("truncate", path, "--after", labels[-2])
    copied = path / "_turbidite" / "index" / NAME / "data"
    assert sorted(int(folder.name[6:]) for folder in copied.iterdir()) == labels[:-1]
    command("index", "drop", path, NAME)
    assert not (path / "_turbidite" / "index" / NAME).exists()


def test_records_answer_for_a_corrupt_copy(epochs, indexed, tmp_path):
    path, epoch = tmp_path / "ds", max(epochs)
    shutil.copytree(indexed, path)
    for part in (path / "_turbidite" / "index" / NAME / "data" / f"epoch={epoch}").rglob("*.parquet"):
        content = bytearray(part.read_bytes())
        for place in range(2000, len(content), 500):
            content[place] ^= 0x10
        part.write_bytes(content)
    done = command("verify", path, expect=CORRUPTION)
    assert f"index/{NAME}/" in done.stdout + done.stderr, done.stdout + done.stderr
    rows = epochs[epoch]
    done = command("query", path, "--epoch", epoch, "--where", "uy > 0.1", "--use", NAME, "--count")
    assert int(done.stdout) == int((rows["uy"] > numpy.float32(0.1)).sum())
    assert "an index that cannot be read was ignored" in done.stderr, done.stderr
    done = command("query", path, "--epoch", epoch, "--quality", 1, "-o", tmp_path / "rows.arrow", expect=CORRUPTION)
    assert f"index/{NAME}/" in done.stderr, done.stderr


def test_requests_that_make_no_sense_are_refused(by_energy, indexed, dumps, tmp_path):
    for arguments, words, code in (
        (["index", "add", by_energy, "space:x"], "two or three columns", USAGE),
        (["index", "add", by_energy, "space:x,speed"], "no column 'speed'", USAGE),
        (["index", "add", by_energy, "space:x,x"], "listed twice", USAGE),
        (["index", "add", by_energy, NAME, "--levels", 9], "1 to 6 levels", USAGE),
        (["index", "add", by_energy, "id", "--levels", 2], "--levels", USAGE),
        (["index", "add", indexed, NAME, "--levels", 2], f"exists as '{NAME},levels=3'", USAGE),
        (["index", "drop", indexed, "space:x,uy"], f"no index 'space:x,uy'; the dataset has '{NAME}'", USAGE),
        (["query", indexed, "--where", "x > 1", "--use", "space:x,uy"], "no index 'space:x,uy'", USAGE),
        (["ingest", dumps, "--out", tmp_path / "new", "--key", "energy", *DERIVE, "--index", NAME], "index add", USAGE),
        (["simulate", "--index", NAME], "index add", USAGE),
    ):
        done = command(*arguments, expect=code)
        assert words in done.stderr and "panic" not in done.stderr, done.stderr
    assert not (by_energy / "_turbidite" / "index").exists()
