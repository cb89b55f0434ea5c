"""16 ranks on four hosts store what 16 ranks in one process store, with few connections and buffers for each rank."""

from pathlib import Path

import duckdb
import numpy
import pytest

from support.command import AMPLE_S, ROOT, answer, turbidite
from support.host_job import LAZY, RECORD, HostJob, stored
from support.libraries import prefix
from support.raw import ingest_arguments, write_layout

HOSTS, PER_HOST = 4, 4
RANKS = HOSTS * PER_HOST
BATCH_BYTES = 32 << 10
# MPI believes what hydra says of hosts; this makes the library believe that they are one, and send straight.
DIRECT = {"TURBIDITE_RANKS_PER_NODE": str(RANKS)}


@pytest.fixture
def job(hosts, mpi, program, tmp_path):
    job = HostJob(hosts, mpi, program, tmp_path)
    yield job
    job.stop()


@pytest.mark.parametrize("network", [{}, LAZY], ids=["ucx", "ofi"])
def test_the_rows_are_those_of_one_process(job, network):
    """Against a full scan of what every rank kept, and against ranks in one process."""
    job.run(1, 2, 20_000, 120, **network)
    job.check([1, 2])
    assert len(job.kept(1)) == 20_000 * RANKS
    kept = job.kept(2)
    low, high = (numpy.float32(edge) for edge in numpy.quantile(kept["energy"], [0.7, 0.72]))
    where = f"energy >= {float(low)!r} AND energy < {float(high)!r}"
    found = answer("query", job.dataset, "--where", where, "--epoch", 2, "--count")
    expected = int(((kept["energy"] >= low) & (kept["energy"] < high)).sum())
    assert found["count"] == expected > 0

    write_layout(job.folder / "records" / "layout.toml", RECORD, "E.{epoch}/records.{rank}")
    ingested = job.folder / "ingested"
    turbidite(*ingest_arguments(job.folder / "records", ingested, "energy", "--ranks", RANKS))
    for epoch in (1, 2):
        assert numpy.array_equal(stored(job.dataset, epoch), stored(ingested, epoch))


def neighbours(rank: int) -> set[int]:
    """By DESIGN: the ranks of the own host, and those with which this one represents its host towards another. Host m's
    records enter and leave host n by its rank m modulo its ranks."""
    host, place = divmod(rank, PER_HOST)
    own = {other for other in range(RANKS) if other // PER_HOST == host and other != rank}
    others = (other for other in range(HOSTS) if other != host and other % PER_HOST == place)
    return own | {other * PER_HOST + host % PER_HOST for other in others}


def pairs(ranks_of) -> set[tuple[int, int]]:
    """Of ranks on different hosts."""
    both = {tuple(sorted((rank, other))) for rank in range(RANKS) for other in ranks_of(rank)}
    return {(one, other) for one, other in both if one // PER_HOST != other // PER_HOST}


def control_tree(rank: int) -> set[int]:
    """The parent in the tree of control messages, whose fan-out is the cube root of the ranks."""
    return {(rank - 1) // 3} if rank > 0 else set()


def per_rank(found: set[tuple[int, int]]) -> str:
    counts = [sum(rank in pair for pair in found) for rank in range(RANKS)]
    return f"{min(counts)} to {max(counts)}, {sum(counts) / RANKS:.1f} on average"


def traffic(job: HostJob) -> list[list[int]]:
    """What each rank says of itself: recipients, senders, records passed on, memory of open batches and of all."""
    said = [next(line for line in job.said(rank) if line.startswith("traffic")) for rank in range(RANKS)]
    return [[int(number) for number in line.split()[1:]] for line in said]


def measure(job: HostJob, pause: int, rows: int, **environment) -> set[tuple[int, int]]:
    """Runs the job and answers which ranks on different hosts have a connection in the middle of it."""
    job.start(1, 1, rows, 120, pause, **LAZY, **environment)
    job.await_half()
    found = job.hosts.connections()
    job.go_on()
    status, output = job.finish()
    assert status == 0, output
    return found


def test_peers_connections_and_buffers(hosts, mpi, program, tmp_path):
    """The library's own figures, and the connections that the kernel has, beside those of direct routing."""
    jobs = {}
    for name in ("idle", "routed", "direct"):
        (tmp_path / name).mkdir()
        jobs[name] = HostJob(hosts, mpi, program, tmp_path / name)
    try:
        idle = measure(jobs["idle"], 0, 1)
        routed = measure(jobs["routed"], 1, 700_000)
        direct = measure(jobs["direct"], 1, 700_000, **DIRECT)
    finally:
        for job in jobs.values():
            job.stop()

    # Peers: exactly those of DESIGN, where direct routing has everybody.
    by_hops, straight = traffic(jobs["routed"]), traffic(jobs["direct"])
    wanted = [len(neighbours(rank)) for rank in range(RANKS)]
    assert [figures[0] for figures in by_hops] == wanted and [figures[1] for figures in by_hops] == wanted
    assert max(wanted) == PER_HOST - 1 + HOSTS // PER_HOST
    assert all(figures[:3] == [RANKS - 1, RANKS - 1, 0] for figures in straight)
    # Three quarters of the records go to another host. A sender that represents its host saves the first hop, one in
    # four; a receiver that does saves the last.
    rows = RANKS * 700_000
    assert sum(figures[2] for figures in by_hops) == pytest.approx(rows * 3 / 4 * 3 / 2, rel=0.1)

    # Buffers: (ranks on the host + hosts / ranks on the host) times 32 KiB.
    bound = (PER_HOST + HOSTS / PER_HOST) * BATCH_BYTES
    open_bytes, direct_bytes = [figures[3] for figures in by_hops], [figures[3] for figures in straight]
    assert max(open_bytes) <= bound, open_bytes
    assert min(direct_bytes) > 2 * bound, direct_bytes
    assert max(figures[4] for figures in by_hops) <= 1.1 * (1 << 20)
    [stats] = answer("stats", jobs["routed"].dataset)
    metrics = stats["metrics"]
    assert metrics["nodes"] == HOSTS
    assert metrics["most_recipients"] == metrics["most_senders"] == max(wanted)
    assert metrics["forwarded"] == sum(figures[2] for figures in by_hops)
    assert metrics["most_batch_bytes"] == max(figures[4] for figures in by_hops)

    # Connections: those to neighbours and in the tree of control messages, and what MPI needs to start.
    assert direct == pairs(lambda _: range(RANKS))
    assert pairs(neighbours) <= routed
    known = pairs(neighbours) | pairs(control_tree) | idle
    assert routed <= known, routed - known

    print(f"\nother ranks that a rank exchanges records with: {max(wanted)} at most, direct {RANKS - 1}")
    print(f"memory of a rank's open batches: {max(open_bytes)} at most, direct {max(direct_bytes)}; bound {bound:.0f}")
    print(f"memory of all of its batches: {max(f[4] for f in by_hops)}; direct {max(f[4] for f in straight)}")
    print("connections of a rank to ranks on other hosts, as the kernel has them:")
    print(f"  MPI_Init and turbidite_mpi_open alone: {per_rank(idle)}; {len(idle)} pairs")
    print(f"  by representatives: {per_rank(routed)}; {len(routed)} pairs, {len(routed - idle)} beyond the former")
    print(f"  direct: {per_rank(direct)}; {len(direct)} pairs")
    print(f"  pairs of representatives: {len(pairs(neighbours))}")


def test_ingest(hosts, mpi, scratch):
    """`mpiexec turbidite ingest`, from files that every host sees."""
    dumps = ROOT / "testdata" / "vpic"
    arguments = ("ingest", dumps, "--key", "energy", "--derive", "energy=sqrt(1+ux*ux+uy*uy+uz*uz)-1")
    dataset = scratch / "hosts"
    program = prefix() / "bin" / "turbidite"
    started = hosts.start(mpi.bin / "mpiexec", [program, *arguments, "--out", dataset, "--json"], {})
    output, _ = started.communicate(timeout=AMPLE_S)
    assert started.returncode == 0, output
    turbidite("verify", dataset)
    one_process = scratch / "one-process"
    turbidite(*arguments, "--out", one_process, "--ranks", RANKS)
    assert rows(dataset) == rows(one_process)
    for written, nodes in ((dataset, HOSTS), (one_process, 1)):
        found = [(epoch["metrics"]["ranks"], epoch["metrics"]["nodes"]) for epoch in answer("stats", written)]
        assert set(found) == {(RANKS, nodes)}


def rows(dataset: Path) -> list[tuple]:
    files = f"read_parquet('{dataset}/data/*/*.parquet', hive_partitioning=true)"
    return duckdb.sql(f"SELECT * FROM {files} ORDER BY ALL").fetchall()
