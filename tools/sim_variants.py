"""Proves that the simulation's checker sees what it must: breaks the product on purpose, and demands that it is caught.

Each file of crates/core/tests/sim/variants is one way to break it: a story, the number of seeds within which the
simulation must fail, and edits. An edit replaces the statements or the expression `find`, which stands once in its file
right after the text `after`, by `replace`. The product has no hooks for this: in a copy of the tree every edit is put
beside the original behind a switch, so that one build serves all variants; the environment names the one that is on.
With none on, all seeds must pass. An edit whose text is no longer found fails. Standard library only.

    sim_variants.py --check              only that every edit still applies
    sim_variants.py [NAME…]              build, and run these variants; without names all, and the unbroken tree
    sim_variants.py --turn K --within S  build, and begin as many variants as fit into S seconds, at least three; as K
                                         grows each has its turn
"""

import argparse
import os
import re
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VARIANTS = ROOT / "crates" / "core" / "tests" / "sim" / "variants"
LIBRARY = "crates/core/src/lib.rs"
SWITCH = """
/// Whether the product is to be broken in this way.
pub(crate) fn is_broken_by(name: &str) -> bool {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| std::env::var("SIM_VARIANT").unwrap_or_default()) == name
}
"""
# A simulation that takes longer is stuck itself.
LONGEST_S = 1200
# Number of variants that run whatever time they take. With 69 variants, each has its turn within 23 commits.
LEAST = 3


@dataclass
class Edit:
    """A place in a file, and what stands there instead."""

    file: str
    form: str
    find: str
    replace: str
    after: str = ""

    def place(self, text: str) -> tuple[int, int]:
        """Where the original begins and ends."""
        if (count := text.count(self.after + self.find)) != 1:
            raise ValueError(f"the text to replace occurs {count} times in {self.file}")
        begin = text.index(self.after + self.find) + len(self.after)
        return begin, begin + len(self.find)


@dataclass
class Variant:
    """A deliberately broken product."""

    name: str
    story: str
    seeds: int
    edits: list[Edit]


def read_variants() -> list[Variant]:
    found = []
    for path in sorted(VARIANTS.glob("*.toml")):
        fields = tomllib.loads(path.read_text())
        edits = [Edit(**edit) for edit in fields["edit"]]
        found.append(Variant(path.stem, fields["story"], fields["seeds"], edits))
    return found


def switched(edits: list[tuple[str, Edit]], original: str) -> str:
    """The original and what variants put in its place, each behind its switch."""
    branches = "".join(f'if crate::is_broken_by("{name}") {{ {edit.replace} }} else ' for name, edit in edits)
    text = f"{branches}{{ {original} }}"
    return f"({text})" if edits[0][1].form == "expression" else text


def apply(variants: list[Variant]) -> dict[str, str]:
    """The content of all files that variants edit, with all of them behind switches."""
    edits: dict[str, dict[tuple[int, int], list[tuple[str, Edit]]]] = defaultdict(lambda: defaultdict(list))
    wrong = []
    for variant in variants:
        for edit in variant.edits:
            try:
                if edit.form not in ("expression", "statement") or not edit.file.startswith("crates/core/src/"):
                    raise ValueError(f"an edit of {edit.file} is neither expression nor statement of the core")
                edits[edit.file][edit.place((ROOT / edit.file).read_text())].append((variant.name, edit))
            except (ValueError, OSError) as error:
                wrong.append(f"{variant.name}: {error}")
    files = {}
    for file, places in edits.items():
        text = (ROOT / file).read_text()
        ends = len(text)
        for (begin, end), ways in sorted(places.items(), reverse=True):
            if end > ends:
                wrong.append(f"{ways[0][0]}: its text overlaps with that of another variant")
            text = text[:begin] + switched(ways, text[begin:end]) + text[end:]
            ends = begin
        files[file] = text
    if wrong:
        sys.exit("\n".join(wrong))
    files[LIBRARY] = files.get(LIBRARY, (ROOT / LIBRARY).read_text()) + SWITCH
    return files


def copy_tree(copy: Path, files: dict[str, str]) -> None:
    """Brings the copy to the state of the tree with these files in place of its own; files that are equal keep their time."""
    wanted = [Path(name) for name in ("Cargo.toml", "Cargo.lock")]
    for folder in ("crates", "bench/studies"):
        wanted += [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in wanted:
        content = files[str(path)].encode() if str(path) in files else (ROOT / path).read_bytes()
        target = copy / path
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    for path in set(copy.rglob("*.rs")) - {copy / path for path in wanted}:
        path.unlink()


def build(copy: Path) -> Path:
    """Builds the simulation test and answers its program."""
    # Of the whole workspace, whose dependencies the tests have built already.
    command = ["cargo", "test", "--release", "--locked", "--workspace", "--test", "sim", "--no-run"]
    # Most of what a build takes is optimizing the core; dependencies stay as they are.
    command += ["--config", "profile.release.package.turbidite.opt-level=1"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    program = re.search(r"Executable .*\((.*)\)", done.stderr)
    if done.returncode != 0 or not program:
        sys.exit(f"the variants do not build:\n{done.stderr[-6000:]}")
    return Path(program.group(1))


def simulate(program: Path, variant: str, seeds: int) -> tuple[bool, str]:
    """Whether so many seeds pass, and what was said."""
    environment = os.environ | {"SIM_COUNT": str(seeds), "SIM_SEED": "0", "RUST_BACKTRACE": "0", "SIM_VARIANT": variant}
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
        sys.exit(f"{variant}: fails without a seed: {(done.stdout + done.stderr)[-600:]}")
    return False, "seed {}: {}".format(*min(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="variants to run; without any all, and the unbroken tree")
    parser.add_argument("--check", action="store_true", help="only look whether every edit still applies")
    parser.add_argument("--turn", type=int, default=0, help="with which variant to begin, in steps of three")
    parser.add_argument("--within", type=int, help="begin no variant after this many seconds, but run three")
    arguments = parser.parse_args()
    begun = time.monotonic()
    variants = read_variants()
    files = apply(variants)
    if arguments.check:
        print(f"{len(variants)} variants apply")
        return
    chosen = [variant for variant in variants if not arguments.names or variant.name in arguments.names]
    if unknown := set(arguments.names) - {variant.name for variant in chosen}:
        sys.exit("unknown: " + ", ".join(sorted(unknown)))
    first = LEAST * arguments.turn % len(chosen)
    chosen = chosen[first:] + chosen[:first]
    copy = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "sim-variants"
    copy_tree(copy, files)
    program = build(copy)
    failed, ran = [], 0
    for variant in chosen:
        began = time.monotonic()
        if arguments.within and ran >= LEAST and began - begun > arguments.within:
            break
        passed, what = simulate(program, variant.name, variant.seeds)
        ran += 1
        took = f"{time.monotonic() - began:4.0f} s"
        print(f"{variant.name:30} {took}  of {variant.seeds:4}  {'NOT CAUGHT: ' if passed else ''}{what}", flush=True)
        if passed:
            failed.append(variant.name)
    if not arguments.names and not arguments.within:
        passed, what = simulate(program, "", max(variant.seeds for variant in variants))
        print(f"{'unbroken':30} {what}", flush=True)
        if not passed:
            failed.append("the unbroken tree")
    if failed:
        sys.exit("not as it should be: " + ", ".join(failed))
    print(f"{ran} variants caught")


if __name__ == "__main__":
    main()
