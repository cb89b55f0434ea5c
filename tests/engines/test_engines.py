"""DuckDB, Polars and pyarrow read `DS/data` as it is, answer the same, and skip row groups.

Skipping is shown twice. The engines' own counters must say that few row groups were read. And in a copy where every row
group that the query cannot need is overwritten with garbage, the answer must still be right, while the same garbage in
a row group that it does need must be noticed.
"""

import re
import shutil
from pathlib import Path

import duckdb
import numpy
import pytest
from pyarrow import parquet

from support.command import CORRUPTION, turbidite
from support.engines import ENGINES, Range


def float32_range(column: str, low: float, high: float, epoch: int | None = None) -> Range:
    """Bounds rounded to float32 as the column is, so that no engine's rounding of literals matters."""
    return Range(column, float(numpy.float32(low)), float(numpy.float32(high)), epoch)


def ranges(epochs: dict[int, numpy.ndarray]) -> list[Range]:
    """Ranges over the key and other columns; none over a column that holds NaN, where the engines differ by design."""
    random = numpy.random.default_rng(3)
    last = max(epochs)
    found = [Range("id", 100, 140), Range("id", 8192, 8192, last), float32_range("energy", 1e6, 2e6)]
    for exponent in (-5, -4, -3, -2, -1):
        values = numpy.sort(epochs[last]["energy"])
        count = max(1, int(len(values) * 10.0**exponent))
        begin = int(random.integers(0, len(values) - count))
        found.append(float32_range("energy", values[begin], values[begin + count - 1], last))
        found.append(float32_range("energy", values[begin], values[begin + count - 1]))
    return [*found, float32_range("ux", 5, 6), float32_range("energy", -1, 1e9, last)]


@pytest.mark.parametrize("engine", ENGINES)
def test_same_answers(indexed, engine):
    answer, _ = ENGINES[engine]
    for query in ranges(indexed.epochs):
        assert answer(indexed.path / "data", query) == query.ids(indexed.epochs), query


def narrow(epochs: dict[int, numpy.ndarray]) -> Range:
    """About one in a thousand of the last epoch, in the body of its distribution."""
    values = numpy.sort(epochs[max(epochs)]["energy"])
    begin = len(values) // 3
    return float32_range("energy", values[begin], values[begin + len(values) // 1000], max(epochs))


@pytest.mark.parametrize("engine", ENGINES)
def test_own_counters_say_that_row_groups_are_skipped(indexed, engine):
    _, row_groups = ENGINES[engine]
    query = narrow(indexed.epochs)
    needed, total = 0, 0
    for _, _, overlaps in all_row_groups(indexed.path / "data", query):
        needed += overlaps
        total += 1
    read, _ = row_groups(indexed.path / "data", query)
    print(f"{engine} on {indexed.name}: {read} row groups read, {needed} overlap the query, {total} there are")
    assert 0 < needed < total / 4, "the query must leave something to skip"
    assert read == needed


def all_row_groups(data: Path, query: Range):
    """Every row group as file, number and whether the query needs it, from the Parquet statistics."""
    for part in sorted(data.rglob("*.parquet")):
        epoch = int(part.parent.name.removeprefix("epoch="))
        metadata = parquet.ParquetFile(part).metadata
        column = [metadata.schema.column(c).name for c in range(metadata.num_columns)].index(query.column)
        for number in range(metadata.num_row_groups):
            statistics = metadata.row_group(number).column(column).statistics
            assert statistics is not None and statistics.has_min_max, f"{part} row group {number}: no statistics of the key"
            overlaps = statistics.min <= query.high and statistics.max >= query.low
            yield part, number, overlaps and query.epoch in (None, epoch)


def spoil(part: Path, number: int) -> None:
    """Overwrites all pages of a row group: no page header can be parsed, no value is what it was."""
    row_group = parquet.ParquetFile(part).metadata.row_group(number)
    with part.open("r+b") as file:
        for column in range(row_group.num_columns):
            chunk = row_group.column(column)
            file.seek(chunk.data_page_offset)
            file.write(b"\xa5" * chunk.total_compressed_size)


@pytest.fixture
def copy(indexed, scratch):
    path = scratch / "spoiled"
    shutil.copytree(indexed.path / "data", path)
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("engine", ENGINES)
def test_row_groups_that_cannot_match_are_not_touched(indexed, copy, engine):
    answer, _ = ENGINES[engine]
    query = narrow(indexed.epochs)
    expected = query.ids(indexed.epochs)
    assert expected
    groups = list(all_row_groups(copy, query))
    for part, number, overlaps in groups:
        if not overlaps:
            spoil(part, number)
    assert answer(copy, query) == expected

    # The counterpart: were one of them touched, it would show.
    part, number, _ = next(group for group in groups if group[2])
    spoil(part, number)
    try:
        noticed = answer(copy, query) != expected
    except BaseException:  # Polars' panics do not derive from Exception.
        noticed = True
    assert noticed, "garbage in a needed row group went unnoticed, so this test shows nothing"


def test_a_corrupt_page_is_named_by_the_numbers_that_engines_give_its_rows(indexed, scratch):
    path = scratch / f"corrupt-{indexed.name}.tbd"
    shutil.copytree(indexed.path, path)
    groups = {part: number for part, number, _ in all_row_groups(path / "data", narrow(indexed.epochs))}
    part, number = max(groups.items(), key=lambda found: found[1])
    assert number > 0, "the row group must not be the file's first"
    values = f"SELECT file_row_number, id FROM read_parquet('{part}', file_row_number = true) ORDER BY ALL"
    before = duckdb.sql(values).fetchall()
    metadata = parquet.ParquetFile(part).metadata
    column = [metadata.schema.column(c).name for c in range(metadata.num_columns)].index("id")
    chunk = metadata.row_group(number).column(column)
    with part.open("r+b") as file:
        file.seek(chunk.data_page_offset + chunk.total_compressed_size - 1)
        file.write(b"\xa5")
    changed = [row for row, (old, new) in enumerate(zip(before, duckdb.sql(values).fetchall(), strict=True)) if old != new]
    said = turbidite("query", path, "--columns", "id", "--format", "csv", expect=CORRUPTION).stderr
    first, last = map(int, re.search(r"\(rows (\d+) to (\d+) of the file\)", said).groups())
    assert changed and first <= changed[0] and changed[-1] <= last, (said, changed)
    before_group = sum(metadata.row_group(earlier).num_rows for earlier in range(number))
    assert before_group <= first and last == before_group + metadata.row_group(number).num_rows - 1
    shutil.rmtree(path)
