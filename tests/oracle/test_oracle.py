"""Random predicates against a full scan of the dumps in NumPy, and the whole content against the dumps."""

from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from pyarrow import parquet

from support.command import turbidite
from support.predicates import Generator
from support.rows import as_records, in_order, read_answer
from support.sweeps import IS_WHOLE, taken

QUERIES = 1000


def expected_rows(epochs: dict[int, numpy.ndarray], labels: list[int], mask) -> numpy.ndarray:
    parts = []
    for label in labels:
        rows = epochs[label]
        chosen = rows[mask(rows)]
        out = numpy.empty(len(chosen), numpy.dtype(rows.dtype.descr + [("epoch", "<u8")]))
        for name in rows.dtype.names:
            out[name] = chosen[name]
        out["epoch"] = label
        parts.append(out)
    return numpy.concatenate(parts)


def check_query(indexed, scratch, number: int, predicate, epoch_text: str, labels: list[int]) -> tuple[int, int]:
    """One query in full; returns rows expected and rows looked at."""
    expected = in_order(expected_rows(indexed.epochs, labels, predicate.mask))
    target = scratch / f"answer-{indexed.name}-{number}.arrow"
    options = ["--where", predicate.text, "--epoch", epoch_text]
    if number % 3 == 0:
        options.append("--order")
    turbidite("query", indexed.path, *options, "-o", target)
    table = read_answer(target)
    target.unlink()
    label = f"query {number}: --epoch {epoch_text} --where {predicate.text!r}"
    rows = as_records(table, indexed.epochs[labels[0]].dtype)
    assert len(rows) == len(expected), f"{label}: {len(rows)} rows, NumPy finds {len(expected)}"
    assert in_order(rows).tobytes() == expected.tobytes(), f"{label}: the rows differ"
    if "--order" in options:
        within = rows["epoch"][1:] == rows["epoch"][:-1]
        assert not numpy.any(numpy.diff(rows["energy"])[within] < 0), f"{label}: not in key order"
        assert numpy.all(rows["epoch"][1:] >= rows["epoch"][:-1]), f"{label}: epochs are mixed"
    if number % 10 == 0:
        counted = turbidite("query", indexed.path, *options[:4], "--count").stdout.split()
        assert str(len(expected)) in counted, f"{label}: --count says {counted}, NumPy {len(expected)}"
    return len(expected), sum(len(indexed.epochs[label]) for label in labels)


def test_random_predicates_match_a_full_scan(indexed, scratch, record_property):
    generator = Generator(seed=20261120, epochs=indexed.epochs)
    jobs = [(number, generator.predicate(), *generator.epoch_range()) for number in range(QUERIES)]
    jobs = taken(jobs, 20)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda job: check_query(indexed, scratch, *job), jobs))
    shares = numpy.array([matched / total for matched, total in results])
    powers = numpy.ceil(numpy.log10(shares[shares > 0])).astype(int)
    by_selectivity = {f"<= 1e{power}": int(numpy.sum(powers == power)) for power in sorted(set(powers.tolist()))}
    print(f"{indexed.name}: {len(jobs)} predicates, {int(numpy.sum(shares == 0))} match nothing, the others by selectivity {by_selectivity}")
    # The draw must cover what it claims to; a part of it may not.
    assert not IS_WHOLE or numpy.sum(shares == 0) > QUERIES / 100 and numpy.sum(shares > 0.5) > QUERIES / 100
    assert not IS_WHOLE or numpy.sum((shares > 0) & (shares < 1e-4)) > QUERIES / 50


def test_an_expression_may_begin_with_a_hyphen(indexed):
    said = [turbidite("query", indexed.path, "--where", where, "--count").stdout for where in ("-0.5 < energy", "energy > -0.5")]
    assert said[0] == said[1]


def test_every_record_is_in_exactly_one_run(indexed):
    for epoch, records in indexed.epochs.items():
        found = []
        for part in sorted((indexed.path / "data" / f"epoch={epoch}").iterdir()):
            file = parquet.ParquetFile(part)
            found += [file.read_row_group(number, columns=["id"]).column("id").to_numpy() for number in range(file.num_row_groups)]
        assert numpy.array_equal(numpy.sort(numpy.concatenate(found)), numpy.sort(records["id"])), f"epoch {epoch}"


def test_projection_and_limit(indexed, scratch):
    epoch = max(indexed.epochs)
    target = scratch / "projected.arrow"
    turbidite("query", indexed.path, "--epoch", epoch, "--where", "energy > 1", "--columns", "id,ux", "--limit", 17, "-o", target)
    table = read_answer(target)
    assert table.column_names == ["id", "ux"] and table.num_rows == 17
    records = indexed.epochs[epoch]
    by_id = {int(row["id"]): row for row in records[records["energy"] > 1]}
    for identity, ux in zip(table.column("id").to_pylist(), table.column("ux").to_numpy()):
        assert by_id[identity]["ux"] == ux


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_other_output_formats_hold_the_same_rows(default_dataset, scratch, kind):
    from pyarrow import csv, json

    epoch = min(default_dataset.epochs)
    where = "energy BETWEEN 0.5 AND 0.6"
    target = scratch / f"answer.{kind}"
    turbidite("query", default_dataset.path, "--epoch", epoch, "--where", where, "--columns", "id,energy", "-o", target)
    table = {"parquet": parquet.read_table, "csv": csv.read_csv, "jsonl": json.read_json}[kind](target)
    records = default_dataset.epochs[epoch]
    chosen = records[(records["energy"] >= numpy.float32(0.5)) & (records["energy"] <= numpy.float32(0.6))]
    assert len(chosen) > 0
    found = dict(zip(table.column("id").to_pylist(), table.column("energy").to_pylist()))
    assert found.keys() == set(chosen["id"].tolist())
    assert all(numpy.float32(found[int(row["id"])]) == row["energy"] for row in chosen)
