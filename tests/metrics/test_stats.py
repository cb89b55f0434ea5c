"""Compares the output of `stats` and `query --batch` with the data itself."""

import csv

import numpy
from pyarrow import parquet

from support.command import USAGE, answer, turbidite


def test_stats_agree_with_the_files(indexed):
    stats = {epoch["epoch"]: epoch for epoch in answer("stats", indexed.path)}
    assert sorted(stats) == sorted(indexed.epochs)
    row_bytes = next(iter(indexed.epochs.values())).dtype.itemsize
    for epoch, records in indexed.epochs.items():
        reported = stats[epoch]
        parts = sorted((indexed.path / "data" / f"epoch={epoch}").iterdir())
        metadata = [parquet.ParquetFile(part).metadata for part in parts]
        assert reported["rows"] == len(records) == sum(one.num_rows for one in metadata)
        assert reported["parts"] == len(parts)
        assert reported["row_groups"] == sum(one.num_row_groups for one in metadata)
        loads = numpy.array(reported["metrics"]["rows_per_receiver"], float)
        assert loads.sum() + reported["metrics"]["spills"] == len(records)
        assert numpy.isclose(reported["load_imbalance"], loads.std() / loads.mean())
        assert numpy.isclose(reported["largest_load"], loads.max() / loads.mean())
        # The manifest is written too, so the files of the data alone are a little less.
        written = reported["write_amplification"] * row_bytes * len(records)
        on_disk = sum(part.stat().st_size for part in parts)
        assert on_disk <= written <= 1.3 * on_disk
        if indexed.name == "default":
            # One receiver's rows, all of them regular: the load is what its files hold.
            assert reported["metrics"]["spills"] == 0
            held = sorted(one.num_rows for one in metadata)
            assert held == sorted(int(load) for load in loads if load)


def test_read_amplification_is_the_share_of_rows_in_overlapping_row_groups(indexed):
    """CARP's definition at the percentiles listed, from the Parquet statistics."""
    for reported in answer("stats", indexed.path):
        ranges = []
        for part in sorted((indexed.path / "data" / f"epoch={reported['epoch']}").iterdir()):
            metadata = parquet.ParquetFile(part).metadata
            key = [metadata.schema.column(c).name for c in range(metadata.num_columns)].index("energy")
            for number in range(metadata.num_row_groups):
                row_group = metadata.row_group(number)
                statistics = row_group.column(key).statistics
                ranges.append((statistics.min, statistics.max, row_group.num_rows))
        low, high, rows = (numpy.array(column) for column in zip(*ranges))
        for point in reported["profile"]["points"]:
            touched = (low <= point["key"]) & (high >= point["key"])
            assert int(touched.sum()) == point["runs"], point
            assert numpy.isclose(rows[touched].sum() / reported["rows"], point["share"]), point


def test_a_batch_of_ranges(indexed, scratch):
    rng = numpy.random.default_rng(13)
    lines, expected = ["epoch,begin,end"], []
    for _ in range(60):
        epoch = int(rng.choice(sorted(indexed.epochs)))
        energies = numpy.sort(indexed.epochs[epoch]["energy"])
        begin = int(rng.integers(0, len(energies) - 1))
        end = min(len(energies) - 1, begin + int(len(energies) * 10.0 ** rng.uniform(-5, 0)))
        low, high = energies[begin], energies[end]
        lines.append(f"{epoch},{float(low)!r},{float(high)!r}")
        expected.append((epoch, int(((energies >= low) & (energies <= high)).sum())))
    queries, log = scratch / "queries.csv", scratch / "querylog.csv"
    queries.write_text("\n".join(lines) + "\n")
    summary = answer("query", indexed.path, "--batch", queries, "--log", log)
    with log.open() as file:
        logged = list(csv.DictReader(file))
    assert [(int(line["epoch"]), int(line["matches"])) for line in logged] == expected
    for line in logged:
        assert int(line["bytes_read"]) > 0 and float(line["total_s"]) > 0 and int(line["runs"]) > 0
    assert summary["queries"] == 60 and summary["matches"] == sum(matches for _, matches in expected)
    assert summary["bytes_read"] == sum(int(line["bytes_read"]) for line in logged)


def test_a_batch_with_a_wrong_line(default_dataset, scratch):
    queries = scratch / "wrong.csv"
    queries.write_text("500,1,2\n500,one,2\n")
    done = turbidite("query", default_dataset.path, "--batch", queries, expect=USAGE)
    assert "wrong.csv" in done.stderr and "line 2" in done.stderr


def test_counts_of_whole_runs_need_no_reading(default_dataset):
    """The manifest answers where a predicate covers all of a run."""
    epoch = max(default_dataset.epochs)
    counted = answer("query", default_dataset.path, "--epoch", epoch, "--where", "energy >= -1", "--count")
    assert counted["count"] == len(default_dataset.epochs[epoch]) and counted["cost"]["metrics"]["bytes_read"] == 0
    median = float(numpy.median(default_dataset.epochs[epoch]["energy"]))
    counted = answer("query", default_dataset.path, "--epoch", epoch, "--where", f"energy >= {median!r}", "--count")
    assert counted["count"] == int((default_dataset.epochs[epoch]["energy"] >= numpy.float32(median)).sum())
    assert 0 < counted["cost"]["metrics"]["bytes_read"] < counted["cost"]["bytes_of_epochs"] / 50
