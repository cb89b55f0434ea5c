"""Writes rows as one rank of several, or as one process: rows.py PATH [alone]."""

import sys
from pathlib import Path

import numpy
import turbidite

TYPES = {"energy": "f4", "id": "uint64", "payload": "V5"}
EPOCHS = (100, 200)
SHARES = 12


def rows(epoch: int, share: int) -> dict[str, numpy.ndarray]:
    """Rows of one twelfth of the job. Ids say where they come from, and the last share is empty."""
    random = numpy.random.default_rng([epoch, share])
    count = 0 if share == SHARES - 1 else 7_000 + 531 * share
    return {
        "energy": random.lognormal(share / 4, 1, count).astype("f4"),
        "id": numpy.arange(count, dtype="u8") + (share << 32),
        "payload": numpy.frombuffer(random.bytes(5 * count), "V5"),
    }


def write(path: str, first: int, step: int, **options) -> list[dict]:
    """Writes the shares of one rank. Returns the statistics of the epochs."""
    found = []
    with turbidite.Writer(path, TYPES, key="energy", units={"energy": "MeV"}, indexes=["hash:id", "bitmap:id,energy"], **options) as writer:
        for epoch in EPOCHS:
            with writer.epoch(epoch) as begun:
                assert begun
                for share in range(first, SHARES, step):
                    part = rows(epoch, share)
                    assert writer.append(part) == len(part["id"])
            found.append(writer.last)
    return found


def libraries() -> list[str]:
    """The MPIs and the transports of this process, as the kernel has them mapped."""
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    return sorted(path for path in mapped if Path(path).name.startswith(("libmpi", "libturbidite_mpi")))


if __name__ == "__main__":
    if sys.argv[2:] == ["alone"]:
        write(sys.argv[1], 0, 1)
    else:
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        before = libraries()
        statistics = write(sys.argv[1], world.rank, world.size, comm=world)
        assert len(before) == 1 and len(libraries()) == 2, "no second MPI is loaded"
        everywhere = world.gather([one["rows"] for one in statistics])
        if world.rank == 0:
            expected = [sum(len(rows(epoch, share)["id"]) for share in range(SHARES)) for epoch in EPOCHS]
            assert everywhere == [expected] * world.size, everywhere
            print(world.size, "ranks", *libraries())
