"""A C program writes levels of detail in proportion to a column, and its cursor says what rows stand for."""

from support.command import ROOT, answer, turbidite
from support.libraries import compile_c
from support.mpi import run

ROWS = 20_000


def test_levels_are_in_proportion_to_a_column(tmp_path):
    program = compile_c(ROOT / "tests" / "c" / "weights.c", tmp_path / "weights")
    dataset = tmp_path / "weights.tbd"
    lines = [line.split() for line in run(program, dataset).stdout.splitlines()]
    counts = {int(level): int(count) for level, count, _ in lines}
    assert counts[0] == ROWS and abs(counts[1] - ROWS / 8) < 10 and abs(counts[2] - ROWS / 64) < 10, counts
    sums = {int(level): float(total) for level, _, total in lines}
    assert abs(sums[2] / ROWS - 1) < 0.5 and sums[0] == counts[0] - counts[1], sums
    assert answer("inspect", dataset)["level_weight"] == "w" and "no problems found" in turbidite("verify", dataset).stdout
