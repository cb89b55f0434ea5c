"""The package as it is installed: types, style, the wheel in an environment of its own, and the guide's examples."""

import doctest
import inspect
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest
import turbidite

from support.command import AMPLE_S, ROOT

SOURCES = ROOT / "crates" / "python" / "python" / "turbidite"


def run(*command, **options) -> subprocess.CompletedProcess:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=AMPLE_S, **options)
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
    return done


def test_types_are_strict(tmp_path):
    run(sys.executable, "-m", "mypy", "--strict", "--config-file", ROOT / "pyproject.toml", "--cache-dir", tmp_path, SOURCES)


def test_stubs_describe_the_extension_module(tmp_path):
    stubtest = (sys.executable, "-m", "mypy.stubtest", "turbidite._core", "--mypy-config-file", ROOT / "pyproject.toml")
    run(*stubtest, "--ignore-missing-stub", cwd=tmp_path)


def test_style(tmp_path):
    for check in (("check",), ("format", "--check")):
        run(Path(sys.executable).parent / "ruff", *check, "--config", ROOT / "pyproject.toml", "--cache-dir", tmp_path, SOURCES)


def test_the_wheel_keeps_to_the_stable_abi(tmp_path):
    [wheel] = Path(os.environ["TURBIDITE_WHEELS"]).glob("*.whl")
    report = tmp_path / "report.json"
    run(Path(sys.executable).parent / "abi3audit", "--strict", "--report", "--output", report, wheel)
    [found] = json.loads(report.read_text())["specs"].values()
    [core] = [one["result"] for one in found["wheel"] if one["name"].startswith("_core.")]
    assert core["is_abi3"] and core["baseline"] == "3.11" and core["computed"] == "3.11", core


def test_the_wheel_has_no_symbols(tmp_path):
    [wheel] = Path(os.environ["TURBIDITE_WHEELS"]).glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        programs = [name for name in files.namelist() if name.endswith(("/_core.abi3.so", "/scripts/turbidite"))]
        assert len(programs) == 2 and not any(b"\0.symtab\0" in files.read(name) for name in programs)


@pytest.mark.serial
def test_pip_compiles_nothing_after_make_build(tmp_path):
    """As `pip install .` does, but for the environment in which pip installs maturin."""
    compilers, wrapper = tmp_path / "compilers", tmp_path / "rustc"
    # Cargo asks for the compiler's version, too.
    wrapper.write_text(f'#!/bin/sh\ncase "$*" in *--crate-name\\ _*|*-vV*) ;; *) echo "$*" >> {compilers} ;; esac\nexec "$@"\n')
    wrapper.chmod(0o755)
    told = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "PYTHONPATH")
    clean = {name: value for name, value in os.environ.items() if name not in told}
    clean |= {"RUSTC_WRAPPER": str(wrapper), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", tmp_path, ROOT, env=clean)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        assert any(name.endswith("/scripts/turbidite") for name in files.namelist())
    assert not compilers.exists(), compilers.read_text()


def test_the_wheel_works_in_an_environment_of_its_own(tmp_path):
    [wheel] = Path(os.environ["TURBIDITE_WHEELS"]).glob("*.whl")
    assert "-abi3-" in wheel.name
    # Its own pip would take longer to install than the wheel.
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TURBIDITE")}
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", wheel, env=clean)
    program = f"""
import numpy, turbidite
report = turbidite.ingest({str(ROOT / "testdata" / "vpic")!r}, "ds", key="ux")
dataset = turbidite.open("ds")
assert dataset.query().count() == report["rows"] > 0
assert len(dataset.query(epochs=dataset.epochs[0], columns=["ux"]).to_numpy()["ux"]) > 0
print(turbidite.__version__, turbidite.__file__)
"""
    said = run(python, "-c", program, cwd=tmp_path, env=clean).stdout
    assert said.startswith(turbidite.__version__) and str(tmp_path) in said
    assert "index" in run(tmp_path / "venv" / "bin" / "turbidite", "--help", env=clean).stdout.lower()


def public_functions():
    """Yields the names and the objects of the functions and methods that users call."""
    for name in turbidite.__all__:
        found = getattr(turbidite, name)
        if inspect.isfunction(found):
            yield name, found
        elif not issubclass(found, turbidite.TurbiditeError):
            methods = inspect.getmembers(found, inspect.isroutine)
            yield from ((f"{name}.{method}", one) for method, one in methods if not method.startswith("_"))


def test_every_public_function_has_an_example_that_runs(tmp_path):
    names = [name for name, function in public_functions() if ">>> " not in (function.__doc__ or "")]
    assert names == []
    # The examples go on from the package's own, whose dataset they use.
    finder, runner, names = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        matplotlib.use("Agg")
        for name, one in [("turbidite", turbidite), *public_functions()]:
            [example] = finder.find(one, name, globs={})
            example.globs = names
            runner.run(example, clear_globs=False)
    assert runner.failures == 0 and runner.tries > 50
    plt.close("all")


@pytest.mark.parametrize(
    ("document", "least", "words"), [("docs/python.md", 5, ["records", "epoch 4000"]), ("README.md", 1, [])], ids=["guide", "README"]
)
def test_the_examples_of_documents_run(tmp_path, document, least, words):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert len(blocks) >= least
    program = "\n".join(blocks).replace('"testdata/vpic"', repr(str(ROOT / "testdata" / "vpic")))
    said = run(sys.executable, "-c", program, cwd=tmp_path, env=os.environ | {"MPLBACKEND": "agg"}).stdout
    assert all(word in said for word in words)
    assert (tmp_path / "tracks.png").stat().st_size > 1000


@pytest.mark.parametrize(
    "program",
    [
        "stream = iter(turbidite.open(PATH).query()); next(stream)",
        "import pyarrow; reader = pyarrow.RecordBatchReader.from_stream(turbidite.open(PATH).query()); reader.read_next_batch()",
        "writer = turbidite.Writer('left', {'k': 'f4'}, key='k'); writer._core.begin_epoch(1)",
        "import os; d = turbidite.open(PATH); n = d.query().count(); p = os.fork(); assert d.query().count() == n; p and os.waitpid(p, 0)",
    ],
    ids=["open stream", "open Arrow stream", "open epoch", "fork"],
)
def test_the_interpreter_ends_whatever_is_open(default_dataset, tmp_path, program):
    run(sys.executable, "-c", f"import turbidite; PATH = {str(default_dataset.path)!r}; {program}", cwd=tmp_path)
