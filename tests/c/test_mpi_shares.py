"""A C program restarts on some ranks: each reads its share of a query as an Arrow stream, and together they have every
record that NumPy finds in the dumps once, read little more than one process reads, and exchange no message for it."""

import json
from pathlib import Path

import numpy
import pytest

from conftest import SMALL, ingest_arguments
from support import vpic
from support.command import ROOT, turbidite
from support.libraries import linked, prefix

RANKS = [1, 3, 8]


@pytest.fixture(scope="module")
def program(mpi) -> Path:
    source = ROOT / "tests" / "c" / "mpi_shares.c"
    return mpi.compile("mpi_shares", "-O1", f"-I{prefix() / 'include'}", source, *linked("turbidite"))


@pytest.fixture(scope="module", params=["default", "small"])
def dataset(request, scratch) -> Path:
    """The sample with the default sizes, and with small ones, strays and spills."""
    path = scratch / request.param
    turbidite(*ingest_arguments(vpic.sample_dumps(), path, *(["--threads", 1] if request.param == "default" else SMALL)))
    return path


@pytest.fixture(scope="module")
def records() -> numpy.ndarray:
    """All records of the dumps, as the program writes rows."""
    epochs = vpic.read_dumps(vpic.sample_dumps())
    first = next(iter(epochs.values()))
    rows = numpy.empty(sum(map(len, epochs.values())), numpy.dtype([*first.dtype.descr, ("epoch", "<i8")]))
    begin = 0
    for epoch, some in epochs.items():
        of_epoch = rows[begin : begin + len(some)]
        for name in some.dtype.names:
            of_epoch[name] = some[name]
        of_epoch["epoch"] = epoch
        begin += len(some)
    return rows


def in_order(rows: numpy.ndarray) -> bytes:
    """The rows as bytes, by epoch and id. NaNs have one representation: those of NumPy's divisions have any sign."""
    assert len(numpy.unique(rows[["epoch", "id"]])) == len(rows)
    rows = rows[numpy.lexsort((rows["id"], rows["epoch"]))]
    rows["slope"][numpy.isnan(rows["slope"])] = numpy.nan
    return rows.tobytes()


def restart(mpi, program, ranks: int, dataset: Path, folder: Path, epochs="-", where="-", box="-", period="-", ordered=0):
    """The rows of each share, those of the whole query, and what the program counted."""
    done = mpi.start(ranks, program, dataset, folder, epochs, where, box, period, ordered)
    return [folder / f"rows.{rank}" for rank in range(ranks)], folder / "rows.whole", json.loads(done.stdout)


@pytest.mark.parametrize("epochs", [(500, 4000), (500, 3500), (4000, 4000)])
@pytest.mark.parametrize("ranks", RANKS)
def test_shares_are_every_record_once(mpi, program, dataset, records, ranks, epochs, tmp_path):
    """Of eight epochs, which eight ranks divide without cutting one; of seven, which they cut; and of one."""
    chosen = records[(records["epoch"] >= epochs[0]) & (records["epoch"] <= epochs[1])]
    files, whole, counted = restart(mpi, program, ranks, dataset, tmp_path, epochs="{}..{}".format(*epochs))
    shares = [numpy.fromfile(file, records.dtype) for file in files]
    assert in_order(numpy.concatenate(shares)) == in_order(chosen)
    assert b"".join(file.read_bytes() for file in files) == whole.read_bytes(), "shares are contiguous"
    assert counted["rows"] == [len(share) for share in shares]
    assert max(counted["rows"]) - min(counted["rows"]) <= 1
    read, alone = sum(counted["bytes"]), counted["whole_bytes"]
    print(f"{ranks} ranks: {read:,} bytes, {read / alone:.3f} times those of one process")
    assert chosen.nbytes / 2 < alone <= read
    # An epoch of the sample has few pages, and those where shares meet are read twice.
    assert read <= 1.15 * alone or epochs[0] == epochs[1]


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("ranks", RANKS)
def test_shares_of_a_box_and_a_predicate(mpi, program, dataset, records, ranks, ordered, tmp_path):
    """A box across the periodic boundary of x, in half of the epochs."""
    request = {"epochs": "1500..3000", "where": "energy > 0.05", "box": "x=120:138,ux=:0.5", "period": "128,"}
    files, _, counted = restart(mpi, program, ranks, dataset, tmp_path, **request, ordered=ordered)
    shares = [numpy.fromfile(file, records.dtype) for file in files]
    x = records["x"]
    mask = (records["epoch"] >= 1500) & (records["epoch"] <= 3000) & (records["energy"] > numpy.float32(0.05))
    mask &= ((x >= 120) | (x < 10)) & (records["ux"] < numpy.float32(0.5))
    assert x.min() >= 0 and x.max() < 128 and 100 < mask.sum() < len(records) / 10
    assert in_order(numpy.concatenate(shares)) == in_order(records[mask])
    assert counted["rows"] == [len(share) for share in shares]
    for share in shares:
        assert (numpy.diff(share["epoch"].astype("i8")) >= 0).all()
        of_epochs = [share["energy"][share["epoch"] == epoch] for epoch in numpy.unique(share["epoch"])]
        assert not ordered or all((numpy.diff(energies) >= 0).all() for energies in of_epochs)


@pytest.mark.parametrize("ranks", RANKS)
def test_shares_of_nothing(mpi, program, dataset, ranks, tmp_path):
    """No row group can match, so there are no pieces; the streams have their columns and end."""
    _, whole, counted = restart(mpi, program, ranks, dataset, tmp_path, where="energy > 1e9")
    assert counted == {"rows": [0] * ranks, "bytes": [0] * ranks, "whole_bytes": 0} and whole.read_bytes() == b""
