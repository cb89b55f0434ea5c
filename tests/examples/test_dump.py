"""The programs that write real dumps anew write the same bytes with whatever calls, and lose no particle."""

import subprocess
from pathlib import Path

import pytest

from support import vpic
from support.command import AMPLE_S
from support.examples import build_example, run_ranks

HEADER_BYTES, RECORD_BYTES = 115, 32
STEPS = (500, 1000)


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> dict[str, Path]:
    target = tmp_path_factory.mktemp("dump")
    return {name: build_example("dump", name, target) for name in ("vpic_dump", "serial_dump", "particle_files")}


def source_records(step: int) -> bytes:
    """The records of a step's files, in the order of their ranks."""
    folder = vpic.sample_dumps() / f"T.{step}"
    files = sorted(folder.iterdir(), key=lambda path: int(path.suffix[1:]))
    return b"".join(path.read_bytes()[HEADER_BYTES:] for path in files)


def written(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def vpic_dump(programs, ranks: int, out: Path, *options) -> dict[str, bytes]:
    run_ranks(ranks, programs["vpic_dump"], vpic.sample_dumps(), out, "--steps", ",".join(map(str, STEPS)), *options)
    return written(out)


@pytest.fixture(scope="module")
def reference(programs, tmp_path_factory) -> dict[str, bytes]:
    return vpic_dump(programs, 3, tmp_path_factory.mktemp("reference"))


def test_all_particles_are_dealt_out_in_order(reference):
    assert set(reference) == {f"particle/T.{step}/eparticle.{step}.{rank}" for step in STEPS for rank in range(3)}
    for step in STEPS:
        files = [reference[f"particle/T.{step}/eparticle.{step}.{rank}"] for rank in range(3)]
        assert b"".join(content[HEADER_BYTES:] for content in files) == source_records(step)
        counts = []
        for rank, content in enumerate(files):
            fields = vpic.HEADER.unpack_from(content)
            assert fields[5:9] == (0xCAFE, 0xDEADBEEF, 1.0, 1.0)
            assert (fields[11], fields[25], fields[26], fields[29]) == (step, rank, 3, RECORD_BYTES)
            assert len(content) == HEADER_BYTES + RECORD_BYTES * fields[31]
            counts.append(fields[31])
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    "options",
    ["--fprintf-header", "--posix", "--writev", "--pwrite", "--turns", "--stagger 2", "--barrier", "--allreduce",
     "--leave-open", "--posix --leave-open", "--pwrite --turns --allreduce"],
)  # fmt: skip
def test_whatever_the_calls_the_bytes_are_the_same(programs, reference, tmp_path, options):
    assert vpic_dump(programs, 3, tmp_path, *options.split()) == reference


def test_a_rank_that_writes_nothing(programs, reference, tmp_path):
    late = vpic_dump(programs, 3, tmp_path, "--late-rank", 1, "--turns")
    assert late == {name: content for name, content in reference.items() if not name.endswith(".1")}
    assert len(late) == 4


@pytest.mark.parametrize("options", [[], ["--posix"], ["--writev"], ["--leave-open"]])
def test_without_mpi(programs, tmp_path, options):
    linked = subprocess.run(["ldd", programs["serial_dump"]], capture_output=True, text=True, check=True).stdout
    assert "libmpi" not in linked
    subprocess.run(
        [programs["serial_dump"], vpic.sample_dumps(), tmp_path, "--steps", "500", *options], check=True, timeout=AMPLE_S
    )
    (content,) = written(tmp_path).values()
    assert content[HEADER_BYTES:] == source_records(500)


def test_one_file_per_particle(programs, tmp_path):
    run_ranks(2, programs["particle_files"], vpic.sample_dumps(), tmp_path, "--steps", "500")
    expected = vpic.read_dumps(vpic.sample_dumps())[500]
    stored = source_records(500)
    files = {int(path.name): path.read_bytes() for path in (tmp_path / "T.500").iterdir()}
    assert files == {
        int(number): stored[at * RECORD_BYTES :][:RECORD_BYTES] for at, number in enumerate(expected["id"])
    }
