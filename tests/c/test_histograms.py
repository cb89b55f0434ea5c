"""Histograms that a C program requests count the rows that NumPy counts."""

from pathlib import Path

import numpy
import pytest

from support import vpic
from support.command import ROOT, turbidite
from support.libraries import compile_c, valgrind
from support.mpi import run

SOURCE = ROOT / "tests" / "c" / "histograms.c"
X, Y = ("ux", 32, -3.2, 3.2), ("uy", 20, -1.0, 1.0)


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return compile_c(SOURCE, tmp_path_factory.mktemp("histograms") / "histograms")


@pytest.fixture(scope="module")
def indexed(dumps, scratch) -> Path:
    dataset = scratch / "indexed"
    derive = [argument for text in vpic.DERIVATIONS[:2] for argument in ("--derive", text)]
    turbidite("ingest", dumps, "--out", dataset, "--key", "energy", *derive, "--ranks", 4, "--index", "bitmap:ux,uy")
    return dataset


def ask(program: Path, dataset: Path, precision: str, where: str, epoch: int, *axes: tuple) -> tuple[dict, list, numpy.ndarray]:
    """The metrics, the edges of each axis, and the counts."""
    lines = run(program, dataset, precision, where, epoch, *(value for axis in axes for value in axis)).stdout.splitlines()
    metrics = {name: [int(count) for count in counts] for name, *counts in (line.split() for line in lines[:6])}
    edges = [numpy.array(line.split(), float) for line in lines[6:8]]
    counts = numpy.array([line.split() for line in lines[8:]], "u8")
    return metrics, edges, counts.reshape(*(bins for bins in metrics["bins"] if bins), 2)


@pytest.mark.parametrize("where", ["-", "energy > 5 AND uz < 0.25"])
@pytest.mark.parametrize("axes", [(X,), (X, Y)])
def test_counts_are_those_of_numpy(dumps, program, indexed, where, axes):
    for epoch, rows in vpic.read_dumps(dumps).items():
        chosen = rows if where == "-" else rows[(rows["energy"] > 5) & (rows["uz"] < 0.25)]
        metrics, edges, counts = ask(program, indexed, "exact", where, epoch, *axes)
        assert metrics["epochs"] == [1] and metrics["rows"] == [len(chosen)] * 2
        columns = [chosen[axis[0]].astype("f4") for axis in axes]
        limits = [edge.astype("f4") for edge in edges[: len(axes)]]
        expected, _ = numpy.histogramdd(columns, limits)
        assert numpy.array_equal(counts[..., 0], expected) and numpy.array_equal(counts[..., 1], expected)
        assert metrics["outside"] == [len(chosen) - int(expected.sum())] * 2
        bounds, same_edges, bounded = ask(program, indexed, "bounds", where, epoch, *axes)
        assert all(numpy.array_equal(one, other) for one, other in zip(edges, same_edges, strict=True))
        assert (bounded[..., 0] <= expected).all() and (expected <= bounded[..., 1]).all()
        assert bounds["rows"][0] <= len(chosen) <= bounds["rows"][1]


def test_estimates_have_errors(dumps, program, scratch):
    dataset = scratch / "levels"
    turbidite("ingest", dumps, "--out", dataset, "--key", "space:dx,dy,dz", "--ranks", 4, "--levels", 2)
    for epoch, rows in vpic.read_dumps(dumps).items():
        for level in (0, 1, 2):
            lines = run(program, dataset, level, "-", epoch, *X).stdout.splitlines()
            edges = numpy.array(lines[6].split(), float).astype("f4")
            estimates, errors = numpy.array([line.split() for line in lines[8:]], float).T
            expected, _ = numpy.histogram(rows["ux"].astype("f4"), edges)
            if level == 0:
                assert numpy.array_equal(estimates, expected) and not errors.any()
            else:
                deviations = abs(estimates - expected) / errors
                assert deviations.max() < 6 and numpy.mean(deviations**2) < 3 and (errors > 8**level).all()
                spreads = abs(estimates - expected) / numpy.sqrt((8**level - 1) * numpy.maximum(expected, 1))
                assert spreads.max() < 6 and numpy.mean(spreads**2) < 4


def test_mistakes_are_named(program, indexed):
    run(program, indexed, "mistakes")


def test_no_memory_is_lost(program, indexed):
    run(*valgrind(), program, indexed, "bounds", "energy > 5", "-", *X, *Y)
