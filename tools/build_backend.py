"""The build backend of the Python package: maturin, after `make wheel-contents`, in the target folder of make.

`pip install .` therefore compiles command and module once, and nothing after `make build`.
"""

import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

# maturin wants it for metadata, too. The frontend has changed to the folder of pyproject.toml.
Path("crates", "python", "data").mkdir(exist_ok=True)


def build_wheel(*arguments, **options) -> str:
    prepare()
    return maturin.build_wheel(*arguments, **options)


def build_editable(*arguments, **options) -> str:
    prepare()
    return maturin.build_editable(*arguments, **options)


def prepare() -> None:
    """Compiles, and names the target folder to maturin."""
    if Path("PKG-INFO").exists():
        # pip unpacks a source distribution in a temporary folder: its build products must not stay in the cache.
        os.environ.setdefault("CARGO_TARGET_DIR", str(Path("target").resolve()))
    for tool, source in (("make", "the system's package of this name"), ("cargo", "Rust, from https://rustup.rs")):
        if shutil.which(tool) is None:
            raise SystemExit(f"turbidite is compiled here, and '{tool}' is not found: install {source}")
    made = subprocess.run(["make", "--no-print-directory", "wheel-contents"], stdout=subprocess.PIPE, text=True)
    if made.returncode:
        raise SystemExit("turbidite could not be compiled: the cause is above (with pip: `pip install -v`)")
    os.environ["CARGO_TARGET_DIR"] = made.stdout.splitlines()[-1]
