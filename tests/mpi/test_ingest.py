"""`mpiexec -n N turbidite ingest`: ranks of MPI store what ranks within one process store."""

import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from support.command import AMPLE_S, ROOT, answer, turbidite

DUMPS = ROOT / "testdata" / "vpic"
ARGUMENTS = ("--key", "energy", "--derive", "energy=sqrt(1+ux*ux+uy*uy+uz*uz)-1")


def under_mpiexec(ranks: int, *arguments, expected: int = 0, **environment: str) -> subprocess.CompletedProcess:
    folder = Path(os.environ.get("TURBIDITE_MPI_BIN") or Path(sys.executable).parent)
    prefix = Path(os.environ["TURBIDITE_PREFIX"])
    command = [folder / "mpiexec", "-n", str(ranks), prefix / "bin" / "turbidite", *arguments]
    settings = {"env": os.environ | environment, "timeout": AMPLE_S, "stdin": subprocess.DEVNULL}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **settings)
    assert (done.returncode == 0) == (expected == 0), f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def rows(dataset: Path) -> list[tuple]:
    return duckdb.sql(f"SELECT * FROM read_parquet('{dataset}/data/*/*.parquet', hive_partitioning=true) ORDER BY ALL").fetchall()


@pytest.fixture(scope="module")
def in_process(scratch) -> list[tuple]:
    dataset = scratch / "in-process"
    turbidite("ingest", DUMPS, "--out", dataset, *ARGUMENTS, "--ranks", 16)
    return rows(dataset)


# An epoch has 1 MB.
@pytest.mark.parametrize(
    ("ranks", "part_bytes", "receivers"), [(2, 0, 2), (3, 0, 3), (8, 0, 8), (16, 0, 16), (16, "300kB", 4), (8, "28MiB", 1)]
)
def test_the_same_rows_as_within_one_process(scratch, in_process, ranks, part_bytes, receivers):
    dataset = scratch / f"mpi-{ranks}-{receivers}"
    done = under_mpiexec(ranks, "ingest", DUMPS, "--out", dataset, *ARGUMENTS, "--part-bytes", part_bytes)
    assert f"{ranks} ranks to {receivers} receiver" in done.stdout and done.stdout.count("indexed") == 1, done.stdout
    if receivers == 4:
        # Each epoch is expected to be as large as it is in the files. The receivers rotate.
        names = [sorted(path.name for path in folder.iterdir()) for folder in sorted((dataset / "data").iterdir())]
        assert all(len(parts) == 4 for parts in names) and len({tuple(parts) for parts in names}) == 4, names
    assert rows(dataset) == in_process
    turbidite("verify", dataset)


def test_derived_values_out_of_range_are_counted_over_all_ranks(scratch):
    """The column is too small for f32 in every record, on whichever rank it is."""
    dataset = scratch / "mpi-range"
    arguments = ["--key", "ux", "--derive", "tiny=w*0+1e-44"]
    report = json.loads(under_mpiexec(3, "ingest", DUMPS, "--out", dataset, *arguments, "--json").stdout)
    assert report["out_of_range"] == [{"column": "tiny", "overflows": 0, "underflows": report["rows"]}] and report["rows"] > 0


def test_ranks_agree_on_levels(scratch, in_process):
    dataset = scratch / "mpi-levels"
    arguments = ["--key", "space:ux,uy,uz", *ARGUMENTS[2:], "--part-bytes", 0]
    under_mpiexec(4, "ingest", DUMPS, "--out", dataset, *arguments, "--levels", 2)
    # Ranks that state no levels go on with those of the dataset.
    under_mpiexec(3, "ingest", DUMPS, "--out", dataset, *arguments, "--if-exists", "replace")
    scan = f"read_parquet('{dataset}/data/**/*.parquet', hive_partitioning=true)"
    assert duckdb.sql(f"SELECT * EXCLUDE level FROM {scan} ORDER BY ALL").fetchall() == in_process
    counts = duckdb.sql(f"SELECT epoch, count(*), count(*) FILTER (level > 0), max(level) FROM {scan} GROUP BY epoch").fetchall()
    for _, all_rows, above, top in counts:
        assert top == 2 and abs(all_rows / 8 - above) < 100, counts
    turbidite("verify", dataset)


@pytest.mark.parametrize("ranks", [3, 8])
def test_ranks_agree_on_a_frame(scratch, in_process, ranks):
    """Clustered by space, ranks exchange a frame before any record."""
    dataset = scratch / f"mpi-space-{ranks}"
    arguments = ["--key", "space:ux,uy,uz", *ARGUMENTS[2:]]
    done = under_mpiexec(ranks, "ingest", DUMPS, "--out", dataset, *arguments, "--part-bytes", 0)
    assert f"{ranks} ranks to {ranks} receivers" in done.stdout, done.stdout
    assert rows(dataset) == in_process
    turbidite("verify", dataset)


def test_what_cannot_be_done_is_said_and_harms_nothing(scratch, in_process):
    dataset = scratch / "mpi-refused"
    under_mpiexec(3, "ingest", DUMPS, "--out", dataset, *ARGUMENTS)
    again = under_mpiexec(3, "ingest", DUMPS, "--out", dataset, *ARGUMENTS, expected=1)
    assert "epoch 500 already exists" in again.stderr
    other = under_mpiexec(3, "ingest", DUMPS, "--out", dataset, *ARGUMENTS, "--ranks", 5, expected=2)
    assert "mpiexec started 3 ranks" in other.stderr
    assert rows(dataset) == in_process
    under_mpiexec(2, "ingest", DUMPS, "--out", dataset, *ARGUMENTS, "--if-exists", "replace")
    assert rows(dataset) == in_process


@pytest.mark.parametrize("option", ["--complete-only", "--follow"])
def test_options_of_a_running_simulation_work_without_mpiexec(scratch, in_process, option):
    """As the message advises. `--follow` is not ended here: it is refused before it reads anything."""
    arguments = ["ingest", DUMPS, "--out", scratch / "mpi-running", *ARGUMENTS, option]
    refused = under_mpiexec(2, *arguments, expected=2)
    assert f"{option}: the ranks of mpiexec may see different files; omit mpiexec" in refused.stderr
    if option == "--complete-only":
        turbidite(*arguments)
        assert rows(scratch / "mpi-running") == in_process


def test_records_travel_through_one_rank_of_each_node_unless_they_are_sent_directly(scratch, in_process):
    forwarded = []
    for name, options in (("hops", ()), ("direct", ("--direct",))):
        dataset = scratch / f"mpi-{name}"
        under_mpiexec(6, "ingest", DUMPS, "--out", dataset, *ARGUMENTS, *options, TURBIDITE_RANKS_PER_NODE="2")
        assert rows(dataset) == in_process
        forwarded.append(sum(epoch["metrics"]["forwarded"] for epoch in answer("stats", dataset)))
    assert forwarded[0] > 0 and forwarded[1] == 0, forwarded
