"""Flipped bytes and truncated or missing files: an error that names the file, exit code 3, and never a wrong row."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy
import pytest
from pyarrow import parquet

from conftest import SMALL, ingest_arguments
from support import vpic
from support.command import CORRUPTION, FAILED, OK, attempt, turbidite
from support.rows import as_records, in_order, read_answer

EPOCHS = (500, 4000)


@dataclass(frozen=True)
class Place:
    """One byte of one file, and what lies there."""

    path: Path
    offset: int
    region: str

    def __str__(self) -> str:
        return f"{self.path.name} offset {self.offset} ({self.region})"


@pytest.fixture(scope="module")
def source(scratch) -> Path:
    """Two steps of the sample."""
    root = scratch / "corruption-source"
    for epoch in EPOCHS:
        shutil.copytree(vpic.sample_dumps() / f"T.{epoch}", root / f"T.{epoch}")
    return root


@pytest.fixture(scope="module", params=["default", "small", "hash", "space"])
def dataset(request, source, scratch) -> Path:
    path = scratch / f"corruption-{request.param}"
    few = ["--receivers", 3, "--memtable", "256KiB"]
    more = {"default": ["--receivers", 3], "small": SMALL, "hash": few, "space": few}[request.param]
    arguments = ingest_arguments(source, path, *more)
    keys = {"hash": "hash:id", "space": "space:ux,uy,uz"}
    if request.param in keys:
        arguments[arguments.index("--key") + 1] = keys[request.param]
    turbidite(*arguments)
    return path


@pytest.fixture(scope="module")
def everything(source) -> bytes:
    """All rows as the dumps have them."""
    parts = []
    for epoch, rows in vpic.read_dumps(source).items():
        out = numpy.empty(len(rows), numpy.dtype(rows.dtype.descr + [("epoch", "<u8")]))
        for name in rows.dtype.names:
            out[name] = rows[name]
        out["epoch"] = epoch
        parts.append(out)
    return in_order(numpy.concatenate(parts)).tobytes()


def query_everything(dataset: Path, everything: bytes, scratch: Path, source: Path, must_fail: bool) -> None:
    """The rows are right, or exit code 3 and nothing else."""
    target = scratch / "corrupt-answer.arrow"
    target.unlink(missing_ok=True)
    done = attempt("query", dataset, "--epoch", "0..9999", "-o", target)
    if must_fail or done.returncode != OK:
        assert done.returncode == CORRUPTION, f"exit {done.returncode}: {done.stderr}"
        return
    rows = as_records(read_answer(target), next(iter(vpic.read_dumps(source).values())).dtype)
    assert in_order(rows).tobytes() == everything, "a wrong answer"


def filter_ranges(part: Path) -> list[tuple[int, int]]:
    """Begin and length of each Bloom filter, as DuckDB reads them in the footer."""
    with duckdb.connect() as connection:
        query = f"SELECT bloom_filter_offset, bloom_filter_length FROM parquet_metadata('{part}')"
        return [row for row in connection.execute(query).fetchall() if row[0] is not None]


def part_places(part: Path) -> Iterator[Place]:
    """Bytes in each region of a part: magics, page headers, values, gaps, page indexes, footer."""
    metadata = parquet.ParquetFile(part).metadata
    size = part.stat().st_size
    footer_bytes = int.from_bytes(part.read_bytes()[-8:-4], "little")
    yield Place(part, 1, "first magic")
    end_of_pages = 4
    for number in {0, metadata.num_row_groups - 1}:
        row_group = metadata.row_group(number)
        for column in (0, row_group.num_columns - 1):
            chunk = row_group.column(column)
            begin, bytes_ = chunk.data_page_offset, chunk.total_compressed_size
            yield Place(part, begin, "page header")
            yield Place(part, begin + 5, "page header")
            # Of the last value: the middle of two equal pages is a header, and a page may have a single row.
            yield Place(part, begin + bytes_ - 4, "values")
            yield Place(part, begin + bytes_ - 1, "values")
            end_of_pages = max(end_of_pages, begin + bytes_)
    yield Place(part, end_of_pages + 16, "gap")
    filters = filter_ranges(part)
    for begin, bytes_ in (filters[0], filters[-1]) if filters else ():
        # Length and algorithm, the hash, the compression, and the first and last blocks.
        for distance in (0, 2, 6, 11, 14, 20, bytes_ // 2, bytes_ - 1):
            yield Place(part, begin + distance, "filter")
    footer = size - 8 - footer_bytes
    for distance in (3, 40):
        yield Place(part, footer - distance, "page index")
    for share in (0.0, 0.3, 0.6, 0.9):
        yield Place(part, footer + int(share * footer_bytes), "footer")
    yield Place(part, size - 6, "footer length")
    yield Place(part, size - 2, "last magic")


def whole_file_places(path: Path, region: str, count: int) -> Iterator[Place]:
    size = path.stat().st_size
    for offset in sorted({0, size - 1, size - 9, *(int(share * size) for share in numpy.linspace(0.01, 0.99, count))}):
        yield Place(path, offset, region)


def flipped(place: Place, bit: int) -> None:
    with place.path.open("r+b") as file:
        file.seek(place.offset)
        byte = file.read(1)[0]
        file.seek(place.offset)
        file.write(bytes([byte ^ (1 << bit)]))


def look_up_everything(part: Path, dataset: Path, verified: str) -> None:
    """Every record of a part with a corrupt filter is found by its id, with a warning; `verify` has named the filter."""
    assert "filter" in verified, verified
    ids = parquet.ParquetFile(part).read(columns=["id"])["id"].to_pylist()
    for some in (ids[:2000], ids[-2000:]):
        where = f"id IN ({', '.join(map(str, some))})"
        done = turbidite("query", dataset, "--epoch", EPOCHS[1], "--count", "--where", where)
        assert done.stdout.split()[0] == str(len(set(some))) and "corrupt filters" in done.stderr, done.stdout + done.stderr


def test_a_flipped_bit_anywhere_is_found_and_never_answered(dataset, source, everything, scratch):
    data, own = dataset / "data", dataset / "_turbidite"
    parts = sorted((data / f"epoch={EPOCHS[1]}").iterdir())
    manifests = sorted((own / "manifest").glob(f"{EPOCHS[1]}.*"))
    assert len(manifests) == 1 and parts
    places = [place for part in (parts[0], parts[-1]) for place in part_places(part)]
    places += whole_file_places(manifests[0], "manifest", 25)
    places += whole_file_places(own / "dataset.json", "dataset.json", 15)
    seen = {}
    for number, place in enumerate(places):
        flipped(place, number % 8)
        try:
            # The space between the row groups holds nothing that a query or another program reads.
            expect = None if place.region == "gap" else CORRUPTION
            done = attempt("verify", dataset)
            assert expect is None or done.returncode == expect, f"{place}: verify exits {done.returncode}: {done.stdout} {done.stderr}"
            if done.returncode != OK:
                assert place.path.name in done.stdout + done.stderr, f"{place}: the message does not name the file: {done.stderr}"
            # Where values lie is told by the manifest, so that not every bit of a page header matters to a query, and none of
            # a footer. Other readers and `verify` need them.
            must_fail = place.region in ("values", "manifest", "dataset.json")
            if place.region == "filter":
                look_up_everything(place.path, dataset, done.stdout + done.stderr)
            try:
                query_everything(dataset, everything, scratch, source, must_fail)
            except AssertionError as error:
                raise AssertionError(f"{place}: {error}") from error
        finally:
            flipped(place, number % 8)
        seen[place.region] = seen.get(place.region, 0) + 1
    turbidite("verify", dataset)
    print(f"flipped bits found by region: {seen}")


@pytest.fixture
def copy(dataset, scratch):
    path = scratch / "corrupt-copy"
    shutil.copytree(dataset, path)
    yield path
    shutil.rmtree(path)


def first_part(dataset: Path) -> Path:
    return sorted((dataset / "data" / f"epoch={EPOCHS[0]}").iterdir())[0]


def manifest(dataset: Path) -> Path:
    return next((dataset / "_turbidite" / "manifest").glob(f"{EPOCHS[0]}.*"))


def descriptor(dataset: Path) -> Path:
    return dataset / "_turbidite" / "dataset.json"


@pytest.mark.parametrize("file", [first_part, manifest, descriptor], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kept", [0, 1, 0.5, -1])
def test_a_truncated_file_is_corruption(copy, file, kept):
    path = file(copy)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: {0: 0, 1: 1, 0.5: size // 2, -1: size - 1}[kept]])
    for command in (["verify", copy], ["query", copy, "--epoch", "0..9999", "--where", "energy > 0.1"]):
        done = turbidite(*command, expect=CORRUPTION)
        assert path.name in done.stdout + done.stderr
    # The other epoch is not concerned, unless the dataset's own description is gone.
    if path != descriptor(copy):
        turbidite("query", copy, "--epoch", EPOCHS[1], "--where", "energy > 0.1", "--count")


@pytest.mark.parametrize("file", [first_part, manifest, descriptor], ids=lambda f: f.__name__)
def test_a_missing_file_is_named(copy, file):
    path = file(copy)
    path.unlink()
    for command in (["verify", copy], ["query", copy, "--where", "energy > 0.1"]):
        done = turbidite(*command, expect=CORRUPTION)
        # A manifest's name holds the identity of its commit; without it, the epoch is what can be named.
        named = str(EPOCHS[0]) if file is manifest else path.name
        assert named in done.stdout + done.stderr, done.stderr


def test_a_manifest_without_data_is_ignored(copy):
    shutil.rmtree(copy / "data" / f"epoch={EPOCHS[0]}")
    turbidite("verify", copy, expect=OK)
    turbidite("query", copy, "--epoch", EPOCHS[1], "--count")
    done = turbidite("query", copy, "--epoch", EPOCHS[0], "--count", expect=FAILED)
    assert str(EPOCHS[0]) in done.stderr
