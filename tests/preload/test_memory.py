"""The preload library under Valgrind: it stands inside of programs that were never made for it."""

import pytest

from support.command import AMPLE_S
from support.libraries import valgrind
from support.preload import SMALL, check_rows, configure, start, written


@pytest.mark.parametrize("mode", ["keep", "replace"])
def test_memory_of_a_preloaded_program(programs, tmp_path, spool, mode):
    config = configure(tmp_path / "c.toml", (SMALL, tmp_path / "ds", {"mode": mode, "spool": spool}))
    for folder in ("plain", "out"):
        for epoch in (1, 2, 3):
            (tmp_path / folder / f"E.{epoch}").mkdir(parents=True)
    # Leaks are not counted: a program ends while the library's thread is alive.
    checker = [option for option in valgrind() if not option.startswith(("--leak", "--errors-for-leak"))]
    for folder, command, configuration in (("plain", [], None), ("out", checker, config)):
        process = start([*command, programs["writer"], "append", tmp_path / folder], configuration)
        said, complained = process.communicate(timeout=AMPLE_S)
        assert (process.returncode, complained) == (0, ""), said + complained
    check_rows(tmp_path / "ds", SMALL, written(tmp_path / "plain"))
