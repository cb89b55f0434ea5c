"""Bitmap indexes: the rows and counts of random predicates are those of NumPy, whatever the index stores."""

import json
import shutil
from pathlib import Path

import numpy
import pyarrow.parquet
import pytest

import turbidite as package
from support import sidecars, vpic
from support.command import CORRUPTION, FAILED, USAGE, answer, turbidite
from support.libraries import prefix
from support.mpi import Mpi, run
from support.predicates import Generator
from support.sweeps import IS_WHOLE, TURN, taken_by_turns

# Number of random predicates for each way to build an index.
PREDICATES = 30 if IS_WHOLE else 10
DERIVE = [argument for text in vpic.DERIVATIONS for argument in ("--derive", text)]
VELOCITIES = "bitmap:ux,uy,uz"
ALL = "bitmap:energy,ux,uy,uz,dx,i,slope"
KEYS = {
    "range": ["--key", "energy", "--ranks", 4],
    "hash": ["--key", "hash:id", "--ranks", 4],
    "space": ["--key", "space:ux,uy,uz", "--ranks", 4],
}


@pytest.fixture(scope="module")
def clustered(dumps, scratch) -> dict[str, Path]:
    """The dumps without an index, clustered by range and by hash."""
    for name, key in KEYS.items():
        turbidite("ingest", dumps, "--out", scratch / name, *key, *DERIVE)
    return {name: scratch / name for name in KEYS}


@pytest.fixture(scope="module")
def indexed(clustered, scratch) -> Path:
    """A copy, clustered by energy, with an index of the velocities."""
    dataset = scratch / "indexed"
    shutil.copytree(clustered["range"], dataset)
    turbidite("index", "add", dataset, VELOCITIES)
    return dataset


ENCODINGS = (None, "bytes", "slices", "runs")


@pytest.mark.parametrize("key, encoding", [(key, one) for number, one in enumerate(ENCODINGS) for key in taken_by_turns(list(KEYS), number)])
def test_random_predicates_are_those_of_numpy(dumps, clustered, tmp_path, key, encoding):
    definition = f"{ALL},encoding={encoding}" if encoding else ALL
    added, in_situ = tmp_path / "added", tmp_path / "in-situ"
    shutil.copytree(clustered[key], added)
    turbidite("index", "add", added, definition)
    turbidite("ingest", dumps, "--out", in_situ, *KEYS[key], *DERIVE, "--index", definition)
    epochs = vpic.read_dumps(dumps)
    generator = Generator(23 + TURN, epochs)
    used = sum(compare_with_numpy(path, generator, epochs) for path in (added, in_situ))
    # Few draws may leave it unused more often.
    assert used > (PREDICATES if IS_WHOLE else 2), used


def compare_with_numpy(path, generator, epochs) -> int:
    """Compares random predicates with NumPy. Returns how many of them used the index."""
    dataset, used = package.open(path), 0
    for _ in range(PREDICATES):
        predicate, epoch = generator.predicate(), int(generator.choice(list(epochs)))
        with numpy.errstate(over="ignore"):
            expected = numpy.sort(epochs[epoch]["id"][predicate.mask(epochs[epoch])])
        for use in (None, ALL):
            query = dataset.query(predicate.text, epochs=epoch, columns=["id"], use=use)
            assert numpy.array_equal(numpy.sort(query.to_numpy()["id"]), expected), (predicate.text, use)
            assert query.count() == len(expected), (predicate.text, use)
        plan = dataset.query(predicate.text, epochs=epoch, use=ALL).plan()["epochs"][0]
        used += any(path["is_used"] and path["path"] == ALL for path in plan.get("alternatives", []))
        least, most = bounds(path, predicate.text, epoch)
        assert least <= len(expected) <= most, predicate.text
    return used


def bounds(dataset: Path, where: str, epoch: int) -> tuple[int, int]:
    found = answer("query", dataset, "--epoch", epoch, "--where", where, "--count", "--bounds")
    return found["least"], found["most"]


def test_conditions_with_few_digits_read_no_record(dumps, scratch):
    """One rank has no strays, which would be in small row groups with few bins, and clustered by hash all row groups have
    the same values."""
    epochs, indexed = vpic.read_dumps(dumps), scratch / "even"
    turbidite("ingest", dumps, "--out", indexed, "--key", "hash:id", "--ranks", 1, *DERIVE)
    turbidite("index", "add", indexed, VELOCITIES)
    epoch, rows = max(epochs), epochs[max(epochs)]
    for where, mask in (
        ("ux > 0.5", rows["ux"] > numpy.float32(0.5)),
        ("ux > 0.5 AND abs(uy) < 1", (rows["ux"] > numpy.float32(0.5)) & (numpy.abs(rows["uy"]) < 1)),
        ("NOT (ux > 2 OR uy >= 0.5) AND uz <> 0", ~((rows["ux"] > 2) | (rows["uy"] >= numpy.float32(0.5))) & (rows["uz"] != 0)),
    ):
        found = answer("query", indexed, "--epoch", epoch, "--where", where, "--count")
        assert found["count"] == mask.sum(), where
        metrics = found["cost"]["metrics"]
        assert metrics["pages_read"] == metrics["runs_touched"] == 0 < metrics["bytes_read"], (where, metrics)
        assert bounds(indexed, where, epoch) == (mask.sum(), mask.sum())
        scanned = answer("query", indexed, "--epoch", epoch, "--where", where, "--count", "--use", "scan")
        assert scanned["count"] == found["count"] and metrics["bytes_read"] < scanned["cost"]["metrics"]["bytes_read"]
    least, most = bounds(indexed, "ux > 0.1234 AND energy > 0.01", epoch)
    exact = ((rows["ux"] > numpy.float32(0.1234)) & (rows["energy"] > numpy.float32(0.01))).sum()
    assert least <= exact <= most and least < most
    text = turbidite("query", indexed, "--epoch", epoch, "--where", "ux > 0.1234", "--count", "--bounds").stdout
    assert " to " in text, text


def test_plans_name_the_index_and_its_size_is_small(dumps, indexed):
    epochs = vpic.read_dumps(dumps)
    epoch = max(epochs)
    explained = turbidite("query", indexed, "--epoch", epoch, "--where", "ux > 0.5 AND uy < 0.5", "--columns", "id", "--explain", "--use", VELOCITIES).stdout
    assert f"access path {VELOCITIES}" in explained and "rows that may match; used" in explained, explained
    (index,) = answer("index", "list", indexed)["indexes"]
    records = sum(map(len, epochs.values()))
    assert index["definition"] == VELOCITIES and index["entries"] == records and index["missing"] == []
    # Records of 32 bytes with three derived columns. The sidecars take about 3.5 bytes for each.
    assert 1 < index["bytes"] / records < 5, index


def test_the_life_of_a_bitmap_index(dumps, clustered, tmp_path):
    dataset = tmp_path / "ds"
    shutil.copytree(clustered["range"], dataset)
    opened = package.open(dataset)
    assert opened.indexes.add(VELOCITIES).missing == ()
    assert "every epoch already" in turbidite("index", "add", dataset, VELOCITIES).stdout
    turbidite("truncate", dataset, "--after", 1500)
    turbidite("ingest", dumps, "--out", dataset, *KEYS["range"], *DERIVE, "--if-exists", "replace", "--epochs", "1000..1500")
    (index,) = answer("index", "list", dataset)["indexes"]
    assert (index["epochs"], index["missing"]) == (1, [1000, 1500]), index
    count = ["query", dataset, "--where", "ux > 0.5", "--count"]
    found = answer(*count)
    assert found["cost"]["metrics"]["corrupt_indexes"] == 0
    rows = vpic.read_dumps(dumps)
    assert found["count"] == sum((rows[epoch]["ux"] > numpy.float32(0.5)).sum() for epoch in (500, 1000, 1500))
    done = turbidite("verify", dataset)
    assert "the records were replaced" in done.stdout + done.stderr, done.stdout + done.stderr
    turbidite("index", "add", dataset, VELOCITIES)
    assert answer(*count)["count"] == found["count"]
    done = turbidite("verify", dataset)
    assert "replaced" not in done.stdout + done.stderr, done.stderr
    compacted = tmp_path / "compacted"
    turbidite("compact", dataset, "--out", compacted)
    (copied,) = answer("index", "list", compacted)["indexes"]
    assert (copied["definition"], copied["missing"], copied["problem"]) == (VELOCITIES, [], None)
    assert answer("query", compacted, "--where", "ux > 0.5", "--count")["count"] == found["count"]
    turbidite("verify", compacted)
    assert VELOCITIES in turbidite("inspect", dataset).stdout
    assert all(epoch["indexes"][0]["index"] == VELOCITIES for epoch in answer("stats", dataset))
    turbidite("report", dataset, "-o", tmp_path / "report.html")
    assert VELOCITIES in (tmp_path / "report.html").read_text()
    turbidite("index", "drop", dataset, VELOCITIES)
    assert not (dataset / "_turbidite" / "index" / VELOCITIES).exists()
    assert answer(*count)["count"] == found["count"]


def test_a_corrupt_sidecar_costs_time_and_no_row(dumps, indexed, tmp_path):
    dataset = tmp_path / "ds"
    shutil.copytree(indexed, dataset)
    epochs = vpic.read_dumps(dumps)
    epoch = max(epochs)
    (folder,) = (dataset / "_turbidite" / "index" / VELOCITIES).glob(f"{epoch}.*")
    corrupted = min(folder.iterdir())
    content = bytearray(corrupted.read_bytes())
    for place in range(100, len(content), 400):
        content[place] ^= 0x20
    corrupted.write_bytes(content)
    done = turbidite("verify", dataset, expect=CORRUPTION)
    assert corrupted.name in done.stdout + done.stderr, done.stdout + done.stderr
    where = "ux > 0.5 AND uy < 0.25"
    expected = (epochs[epoch]["ux"] > numpy.float32(0.5)) & (epochs[epoch]["uy"] < numpy.float32(0.25))
    for use in ([], ["--use", VELOCITIES]):
        done = turbidite("query", dataset, "--epoch", epoch, "--where", where, "--count", *use)
        assert int(done.stdout) == expected.sum() and "an index that cannot be read was ignored" in done.stderr, done.stderr
    corrupted.unlink()
    assert "it is missing" in turbidite("verify", dataset, expect=CORRUPTION).stderr
    assert answer("query", dataset, "--epoch", epoch, "--where", where, "--count")["count"] == expected.sum()
    description = dataset / "_turbidite" / "index" / VELOCITIES / "index.json"
    description.write_text(description.read_text().replace('"ux"', '"uz"'))
    done = turbidite("verify", dataset, expect=CORRUPTION)
    assert "index.json" in done.stdout + done.stderr
    assert answer("query", dataset, "--epoch", epoch, "--where", where, "--count")["count"] == expected.sum()
    (index,) = answer("index", "list", dataset)["indexes"]
    assert "index.json" in index["problem"], index
    turbidite("index", "drop", dataset, VELOCITIES)
    turbidite("index", "add", dataset, VELOCITIES)
    turbidite("verify", dataset)


def made_by(dataset: Path, name: str) -> dict[str, bytes]:
    """The sidecars of an index by their folders and names."""
    folder = dataset / "_turbidite" / "index" / name
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("[0-9]*/*")}


@pytest.mark.parametrize("way", ["ingest", "hash", "mpiexec ingest", "writer", "mpiexec add"])
def test_every_way_to_make_sidecars_writes_the_same_bytes(dumps, tmp_path, way):
    dataset, indexes = tmp_path / "ds", [VELOCITIES, "id", "bitmap:energy,i,precision=3"]
    epochs = vpic.read_dumps(dumps)
    if way == "writer":
        names = ["id", "energy", "ux", "uy", "uz", "i"]
        types = {name: str(next(iter(epochs.values()))[name].dtype) for name in names}
        with package.Writer(dataset, types, key="energy", indexes=indexes) as writer:
            for label, rows in epochs.items():
                with writer.epoch(label):
                    writer.append({name: rows[name].copy() for name in names})
    else:
        is_many = way.startswith("mpiexec")
        many = [Mpi.find(tmp_path).bin / "mpiexec", "-n", 4] if is_many else []
        key = ["--key", "hash:id" if way == "hash" else "energy", *([] if is_many else ["--ranks", 4])]
        command = prefix() / "bin" / "turbidite"
        options = [word for index in indexes for word in ("--index", index)] if way != "mpiexec add" else []
        run(*many, command, "ingest", dumps, "--out", dataset, *key, *DERIVE, *options)
        for index in indexes if way == "mpiexec add" else []:
            run(*many, command, "index", "add", dataset, index)
    assert answer("verify", dataset)["findings"] == []
    assert [index["missing"] for index in answer("index", "list", dataset)["indexes"]] == [[], [], []]
    parts = len(list((dataset / "data").rglob("*.parquet")))
    for definition in (VELOCITIES, "bitmap:energy,i,precision=3"):
        name = definition.removesuffix(",precision=3")
        found = made_by(dataset, name)
        assert len(found) == parts, definition
        turbidite("index", "drop", dataset, name)
        turbidite("index", "add", dataset, definition)
        assert found == made_by(dataset, name), definition
    rows = numpy.concatenate(list(epochs.values()))
    expected = int(((rows["ux"] > numpy.float32(0.1)) & (rows["i"] < 3000)).sum())
    for use in ("scan", VELOCITIES):
        assert answer("query", dataset, "--where", "ux > 0.1 AND i < 3000", "--count", "--use", use)["count"] == expected, use


def test_requests_that_make_no_sense_are_refused(dumps, indexed, tmp_path):
    for arguments, words, code in (
        (["index", "add", indexed, "bitmap:"], "cannot be a column", USAGE),
        (["index", "add", indexed, "bitmap:speed"], "no column 'speed'", USAGE),
        (["index", "add", indexed, "bitmap:ux,ux"], "listed twice", USAGE),
        (["index", "add", indexed, "bitmap:ux,precision=9"], "precision of 1 to 4", USAGE),
        (["index", "add", indexed, f"{VELOCITIES},precision=1"], "drop it first", USAGE),
        (["index", "add", indexed, "bitmap:ux,encoding=roaring"], "'roaring' is not an encoding: bytes, slices or runs", USAGE),
        (["index", "add", tmp_path / "nowhere", VELOCITIES], "nowhere", FAILED),
        (["index", "drop", indexed, "bitmap:ux"], f"no index 'bitmap:ux'; the dataset has '{VELOCITIES}'", USAGE),
        (["query", indexed, "--where", "ux > 4", "--use", "bitmap:uy"], "no index 'bitmap:uy'", USAGE),
        (["query", indexed, "--where", "ux > 4", "--bounds"], "--count", USAGE),
        (["ingest", dumps, "--out", tmp_path / "ds", "--key", "energy", *DERIVE, "--index", "bitmap:ux,speed"], "no column 'speed'", USAGE),
        (["ingest", dumps, "--out", indexed, "--key", "energy", *DERIVE, "--index", f"{VELOCITIES},precision=1"], "drop it first", USAGE),
    ):
        done = turbidite(*arguments, expect=code)
        assert words in done.stderr and "panic" not in done.stderr, (arguments, done.stderr)
    assert [index["name"] for index in json.loads(turbidite("index", "list", indexed, "--json").stdout)["indexes"]] == [VELOCITIES]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_sidecars_are_as_the_format_says(clustered, tmp_path, encoding):
    dataset = tmp_path / "ds"
    shutil.copytree(clustered["range"], dataset)
    columns = {"ux": "<f4", "i": "<i4", "slope": "<f8"}
    name = f"bitmap:{','.join(columns)}"
    turbidite("index", "add", dataset, f"{name},encoding={encoding}" if encoding else name)
    found, encodings = 0, set()
    for folder in (dataset / "_turbidite" / "index" / name).glob("[0-9]*"):
        epoch, commit = folder.name.split(".")
        for path in (dataset / "data" / f"epoch={epoch}").iterdir():
            sidecar = sidecars.read(folder / path.name.replace(".parquet", ".bitmap"), list(columns.values()))
            assert (sidecar.epoch, str(sidecar.commit)) == (int(epoch), commit)
            file = pyarrow.parquet.ParquetFile(path)
            assert len(sidecar.row_groups) == file.num_row_groups
            for number, sections in enumerate(sidecar.row_groups):
                rows = file.read_row_group(number, columns=list(columns))
                for column, section in zip(columns, sections, strict=True):
                    values = rows.column(column).to_numpy()
                    assert len(section.least) <= 256 and numpy.array_equal(numpy.bincount(section.numbers, minlength=len(section.rows)), section.rows)
                    least, greatest = section.least[section.numbers], section.greatest[section.numbers]
                    assert (((least <= values) & (values <= greatest)) | (numpy.isnan(values) & numpy.isnan(least) & numpy.isnan(greatest))).all()
                    numbers = ~numpy.isnan(section.least)
                    assert numbers[:-1].all() and (section.greatest[numbers][:-1] < section.least[numbers][1:]).all()
                    encodings.add(section.encoding)
                    found += 1
    assert found > 60 and (encoding is None or encodings <= {encoding, "bytes"}), (found, encodings)
