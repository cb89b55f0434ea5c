"""Proves that the simulation's checker sees what it must: breaks the product on purpose, and demands that it is caught.

Each file of crates/core/tests/sim/variants says what to break (exact text and its replacement), why that would be a
bug, and within how many seeds the simulation must fail. A copy of the tree is broken, the simulation test alone is
built, and run; the unbroken copy must pass. The product has no hooks for this, and an edit whose text is no longer found
fails. Standard library only.

    sim_variants.py --check           only that every edit still applies
    sim_variants.py [NAME…]           build and run these variants, or all and the unbroken tree
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VARIANTS = ROOT / "crates" / "core" / "tests" / "sim" / "variants"
# A run of the simulation that neither ends nor fails is stuck itself.
LONGEST_S = 900


@dataclass
class Edit:
    """A replacement of text that occurs once."""

    file: str
    find: str
    replace: str

    def apply(self, root: Path) -> str | None:
        """Writes the edited file; what is wrong if it does not apply."""
        path = root / self.file
        if not path.is_file():
            return f"{self.file} is not there"
        text = path.read_text()
        if (count := text.count(self.find)) != 1:
            return f"the text to replace occurs {count} times in {self.file}"
        if self.find == self.replace:
            return f"the edit of {self.file} changes nothing"
        path.write_text(text.replace(self.find, self.replace))
        return None


@dataclass
class Variant:
    """A deliberately broken product."""

    name: str
    story: str
    seeds: int
    edits: list[Edit]


def variants() -> list[Variant]:
    found = []
    for path in sorted(VARIANTS.glob("*.toml")):
        fields = tomllib.loads(path.read_text())
        edits = [Edit(**edit) for edit in fields["edit"]]
        found.append(Variant(path.stem, fields["story"], fields["seeds"], edits))
    return found


def sync(copy: Path) -> None:
    """Brings the copy to the state of the tree; files that are equal keep their time, so that little is built again."""
    wanted = set()
    for folder in ["crates", "testdata"]:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file():
                wanted.add(path.relative_to(ROOT))
    wanted |= {Path(name) for name in ["Cargo.toml", "Cargo.lock", "rustfmt.toml", "clippy.toml"]}
    for path in wanted:
        source, target = ROOT / path, copy / path
        if not target.is_file() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    for path in copy.rglob("*"):
        if path.is_file() and path.relative_to(copy) not in wanted:
            path.unlink()


def check(every: list[Variant], copy: Path) -> list[str]:
    """The edits that do not apply."""
    wrong = []
    for variant in every:
        for edit in variant.edits:
            target = copy / edit.file
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / edit.file).is_file():
                shutil.copyfile(ROOT / edit.file, target)
        for edit in variant.edits:
            if problem := edit.apply(copy):
                wrong.append(f"{variant.name}: {problem}")
    return wrong


def build(copy: Path) -> Path:
    """Builds the simulation test and answers its program."""
    command = ["cargo", "test", "--release", "--locked", "--package", "turbidite", "--test", "sim", "--no-run"]
    # Little changes from variant to variant, and most of what a build takes is optimizing. Dependencies stay as they are.
    command += ["--config", "profile.release.package.turbidite.opt-level=1"]
    command += ["--config", "profile.release.package.turbidite.debug=false"]
    done = subprocess.run(command, cwd=copy, env=os.environ | {"CARGO_INCREMENTAL": "1"}, capture_output=True, text=True)
    program = re.search(r"Executable .*\((.*)\)", done.stderr)
    if done.returncode != 0 or not program:
        sys.exit(f"the variant does not build:\n{done.stderr[-4000:]}")
    return Path(program.group(1))


def simulate(program: Path, seeds: int) -> tuple[bool, str]:
    """Whether so many seeds pass, and what was said."""
    environment = os.environ | {"SIM_COUNT": str(seeds), "SIM_SEED": "0", "RUST_BACKTRACE": "0"}
    environment.pop("SIM_SECONDS", None)
    try:
        command = [str(program), "no_history_breaks_a_promise", "--nocapture"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        return False, "the simulation itself hangs"
    found = [(int(seed), what) for seed, what in re.findall(r"^seed (\d+): (.*)$", done.stdout, re.MULTILINE)]
    if done.returncode == 0:
        return True, f"{seeds} seeds pass"
    if not found:
        return False, f"fails without a seed: {(done.stdout + done.stderr)[-300:]}"
    return False, "seed {}: {}".format(*min(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="variants to run; all, and the unbroken tree, unless some are named")
    parser.add_argument("--check", action="store_true", help="only look whether every edit still applies")
    parser.add_argument("--copy", type=Path, help="folder for the copy of the tree")
    arguments = parser.parse_args()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    copy = arguments.copy or target / "sim-variants"
    every = variants()
    if arguments.check:
        edits = target / "sim-variants-edits"
        wrong = check(every, edits)
        shutil.rmtree(edits, ignore_errors=True)
        if wrong:
            sys.exit("\n".join(wrong))
        print(f"{len(every)} variants apply")
        return
    chosen = [variant for variant in every if not arguments.names or variant.name in arguments.names]
    if arguments.names and len(chosen) != len(arguments.names):
        sys.exit("unknown: " + ", ".join(set(arguments.names) - {variant.name for variant in chosen}))
    failed = []
    if not arguments.names:
        most = max(variant.seeds for variant in every)
        sync(copy)
        passed, what = simulate(build(copy), most)
        print(f"{'unbroken':36}  {'':5}  {what}", flush=True)
        if not passed:
            failed.append("the unbroken tree")
    for variant in chosen:
        begun = time.monotonic()
        sync(copy)
        for edit in variant.edits:
            if problem := edit.apply(copy):
                sys.exit(f"{variant.name}: {problem}")
        passed, what = simulate(build(copy), variant.seeds)
        print(f"{variant.name:36}  {time.monotonic() - begun:4.0f}s  {'NOT CAUGHT: ' if passed else ''}{what}", flush=True)
        if passed:
            failed.append(variant.name)
    if failed:
        sys.exit("not as it should be: " + ", ".join(failed))
    print(f"{len(chosen)} variants caught")


if __name__ == "__main__":
    main()
