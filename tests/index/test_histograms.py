"""Histograms by bitmap indexes: bounds hold NumPy's counts, and equal them on edges."""

import shutil
from pathlib import Path

import numpy
import pytest

import turbidite as package
from support import vpic
from support.command import USAGE, answer, turbidite

DERIVE = [argument for text in vpic.DERIVATIONS for argument in ("--derive", text)]
# The name and the condition, for records as NumPy has them.
CONDITIONS = {
    None: lambda rows: numpy.ones(len(rows), bool),
    "energy > 1": lambda rows: rows["energy"] > 1,
    "uz > 0.1 AND NOT (ux < -0.2)": lambda rows: (rows["uz"] > numpy.float32(0.1)) & ~(rows["ux"] < numpy.float32(-0.2)),
    "ux > uy AND uz < 0.12345": lambda rows: (rows["ux"] > rows["uy"]) & (rows["uz"] < numpy.float32(0.12345)),
}


@pytest.fixture(scope="module")
def indexed(dumps, scratch) -> Path:
    """The dumps with an index of the velocities. One rank has no strays, which would be in small row groups with few
    bins, and clustered by hash all row groups have the same values."""
    dataset = scratch / "histograms"
    turbidite("ingest", dumps, "--out", dataset, "--key", "hash:id", "--ranks", 1, *DERIVE)
    turbidite("index", "add", dataset, "bitmap:ux,uy,uz")
    return dataset


def counted(rows, x_edges, y_edges) -> numpy.ndarray:
    return numpy.histogram2d(rows["ux"].astype("f8"), rows["uy"].astype("f8"), bins=[x_edges, y_edges])[0]


@pytest.mark.parametrize("where", CONDITIONS)
@pytest.mark.parametrize("ends", [(-1.0, 1.0), (-1.2345, 0.777)])
def test_pairs_are_those_of_numpy(dumps, indexed, where, ends):
    epochs = vpic.read_dumps(dumps)
    dataset = package.open(indexed)
    for epoch in (None, max(epochs)):
        rows = numpy.concatenate([epochs[label] for label in (epochs if epoch is None else [epoch])])
        rows = rows[CONDITIONS[where](rows)]
        options = {"where": where, "epochs": epoch, "bins": (20, 10), "range": (ends, (-0.5, 0.5))}
        bounded = dataset.histogram("ux", "uy", source="bounds", **options)
        exact = dataset.histogram("ux", "uy", **options)
        drawn = dataset.phase_space("ux", "uy", **options)
        scanned = dataset.phase_space("ux", "uy", use="scan", **options)
        expected = counted(rows, exact.x.edges, exact.y.edges)
        for found in (exact, drawn, scanned):
            assert numpy.array_equal(found.counts, expected) and found.rows == len(rows)
            assert numpy.array_equal(found.least, expected) and numpy.array_equal(found.most, expected)
        assert numpy.array_equal(bounded.x.edges, exact.x.edges)
        assert (bounded.least <= expected).all() and (expected <= bounded.most).all()
        assert (bounded.least <= bounded.counts).all() and (bounded.counts <= bounded.most).all()
        for name in ("rows", "outside", "infinite", "nan"):
            least, most = bounded.bounds[name]
            assert least <= getattr(exact, name) <= most
        bounded.plot()
        one = dataset.histogram("ux", where=where, epochs=epoch, bins=20, range=ends, source="bounds")
        along = numpy.histogram(rows["ux"].astype("f8"), one.x.edges)[0]
        assert (one.least <= along).all() and (along <= one.most).all()
        assert one.bounds["rows"][0] <= len(rows) <= one.bounds["rows"][1] and one.bounds["nan"] == (0, 0)
        one = dataset.histogram("ux", where=where, epochs=epoch, bins=20, range=ends)
        assert numpy.array_equal(one.counts, along) and one.rows == len(rows) and one.bounds["rows"] == (len(rows),) * 2


def test_the_command_counts_pairs(dumps, indexed):
    epochs = vpic.read_dumps(dumps)
    rows = epochs[max(epochs)]
    rows = rows[rows["uz"] > -1]
    arguments = ["hist", indexed, "--epoch", max(epochs), "--column", "ux", "--by", "uy", "--bins", 4, "--range", "-2..2"]
    arguments += ["--by-bins", 2, "--by-range", "-1..1", "--where", "uz > -1"]
    bounds = ["--source", "bounds"]
    bounded, exact = answer(*arguments, *bounds), answer(*arguments)
    assert exact["edges"] == [[-2, -1, 0, 1, 2], [-1, 0, 1]] and exact["columns"] == ["ux", "uy"]
    expected = counted(rows, *exact["edges"]).tolist()
    # Whole numbers are edges of every index, so that nothing is in doubt.
    assert expected == exact["least"] == exact["most"] == bounded["least"] == bounded["most"] == bounded["estimate"]
    assert bounded["rows"] == exact["rows"] == {"least": len(rows), "estimate": len(rows), "most": len(rows)}
    assert bounded["cost"]["pages_read"] == exact["cost"]["pages_read"] == 0
    lines = turbidite(*arguments, *bounds).stdout.splitlines()
    assert lines[0].startswith(f"ux (mc) by uy (mc) of epoch {max(epochs)}: {len(rows):,} rows, estimated from")
    assert "0 of 8 bins in doubt" in lines[-1]
    assert any("@" in line for line in lines)
    wide = turbidite("hist", indexed, "--column", "ux", "--by", "uz", "--bins", 200).stdout
    assert "a character is 3 x 9 bins" in wide
    turbidite("hist", indexed, "--by-bins", 3, expect=USAGE)
    refused = turbidite("hist", indexed, "--column", "ux", "--by", "uy", "--bins", 5000, expect=USAGE).stderr
    assert "are more than" in refused
    refused = turbidite("hist", indexed, "--column", "ux", "--use", "nothing", expect=USAGE).stderr
    assert "there is no index 'nothing'" in refused


def test_a_predicate_is_bounded(dumps, indexed):
    epochs = vpic.read_dumps(dumps)
    rows = numpy.concatenate(list(epochs.values()))
    rows = rows[rows["uy"] > numpy.float32(0.05)]
    arguments = ["hist", indexed, "--column", "ux", "--bins", 8, "--range", "-0.77..0.77", "--where", "uy > 0.05", "--source", "bounds"]
    found = answer(*arguments)
    edges = [bin["from"] for bin in found["bins"]] + [found["bins"][-1]["to"]]
    for bin, count in zip(found["bins"], numpy.histogram(rows["ux"].astype("f8"), edges)[0], strict=True):
        assert bin["least"] <= count <= bin["most"]
    assert found["rows"]["least"] <= len(rows) <= found["rows"]["most"]
    assert "least" in turbidite(*arguments).stdout


def test_a_corrupt_sidecar_is_ignored_with_a_warning(dumps, indexed, tmp_path):
    epochs = vpic.read_dumps(dumps)
    path = tmp_path / "ds"
    shutil.copytree(indexed, path)
    for sidecar in (path / "_turbidite" / "index").glob("bitmap*/*/part-*"):
        content = bytearray(sidecar.read_bytes())
        content[len(content) // 3] ^= 4
        content[-9] ^= 4
        sidecar.write_bytes(content)
    rows = numpy.concatenate(list(epochs.values()))
    found = answer("hist", path, "--column", "ux", "--by", "uy", "--bins", 3)
    assert found["least"] == counted(rows, *found["edges"]).tolist() and found["cost"]["corrupt_indexes"] > 0
    assert "ignored" in turbidite("hist", path, "--column", "ux", "--by", "uy").stderr
