"""The memory that is promised: the table in ARCHITECTURE.md."""

from support.command import ROOT


def budget_bytes(**counts: int) -> float:
    """The sum of the table's rows, each as often as `counts` says of its last column; what is not named is not there."""
    _, found, rest = (ROOT / "ARCHITECTURE.md").read_text().partition("<!-- memory -->")
    assert found
    total = 0.0
    for line in rest.lstrip().splitlines()[2:]:
        if not line.startswith("|"):
            break
        _, size, unit = (cell.strip() for cell in line.strip("|").split("|"))
        assert unit in ("rank", "receiver", "thread", "dataset", "index", "indexed rank", "bitmap index", "command"), unit
        total += float(size) * counts.get(unit.replace(" ", "_"), 0) * (1 << 20)
    return total
