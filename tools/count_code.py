"""Counts lines of code: Rust, C and Python, without blank lines, comments, docstrings and tests.

Prints the read side, crates/core and the whole repository of the working tree beside those of another commit, with the
average length of a line, and with `--folders` each folder. The read side is what crates/core/src/query had at that
commit, in whichever folders it lies now. Tests are folders and files called `tests`, items under `#[cfg(test)]`, and
what is fuzzed. Standard library only, so that it needs no installation.
"""

import argparse
import io
import re
import subprocess
import tarfile
import tokenize
from collections import Counter
from pathlib import PurePosixPath

from check_layers import COMMENT_OR_LITERAL, ROOT, test_files, without_tests

# The commit from which the issues of the code's size count.
BASE = "c7de2d58"
CORE = "crates/core"
READ_SIDE = [f"{CORE}/src/{name}" for name in ("query", "catalog", "rows", "scan", "plan", "execute", "cursor", "aggregate")]
C_SUFFIXES = (".c", ".h", ".cpp", ".hpp")
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


def sources(commit: str | None) -> dict[str, str]:
    """Returns the source files of a commit, or of the working tree, by path."""
    def is_source(name: str) -> bool:
        path = PurePosixPath(name)
        is_test = "tests" in path.parts or path.stem == "tests" or path.parts[0] == "fuzz"
        return path.suffix in (".rs", ".py", *C_SUFFIXES) and not is_test

    if commit is None:
        listing = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        names = [name for name in listing.stdout.splitlines() if is_source(name) and (ROOT / name).is_file()]
        return {name: (ROOT / name).read_text() for name in names}
    archive = subprocess.run(["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        members = [member for member in files if member.isfile() and is_source(member.name)]
        return {member.name: files.extractfile(member).read().decode() for member in members}


def without_comments(text: str) -> str:
    """Returns code with comments blanked, and with literals filled so that they have no braces."""
    def replaced(match: re.Match[str]) -> str:
        filling = " " if match.group().startswith("/") else "x"
        return re.sub(r"[^\n]", filling, match.group())

    return COMMENT_OR_LITERAL.sub(replaced, text)


def python_lines(text: str) -> list[str]:
    """Returns the lines of a Python file that have more than comments and docstrings."""
    numbers: set[int] = set()
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            statement.append(token)
        elif token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
            if any(part.type != tokenize.STRING for part in statement):
                numbers |= {line for part in statement for line in range(part.start[0], part.end[0] + 1)}
            statement = []
    lines = text.splitlines()
    return [lines[number - 1] for number in sorted(numbers)]


def code_lines(files: dict[str, str]) -> dict[str, list[str]]:
    """Returns the lines of code of each file."""
    found, tests_only = {}, set()
    for name, text in files.items():
        path = PurePosixPath(name)
        if path.suffix == ".py":
            found[name] = python_lines(text)
            continue
        code = without_comments(text)
        if path.suffix == ".rs":
            folder = path.parent if path.stem in ("mod", "lib", "main") else path.with_suffix("")
            tests_only |= {str(folder / module) for module in test_files(code)}
            code = without_tests(code)
        found[name] = [line for line in code.splitlines() if line.strip()]

    def is_test(path: PurePosixPath) -> bool:
        return any(str(part.with_suffix("")) in tests_only for part in (path, *path.parents[:-1]))

    return {name: lines for name, lines in found.items() if not is_test(PurePosixPath(name))}


def folder_of(name: str) -> str:
    """Returns the folder under which a file is listed: a module of the core, a crate, or a folder of the repository."""
    parts = PurePosixPath(name).parts
    return "/".join(parts[: 4 if name.startswith(f"{CORE}/src/") and len(parts) > 4 else 2 if parts[0] == "crates" else 1])


def is_below(name: str, folders: list[str]) -> bool:
    return any(name.startswith(f"{folder}/") or name == f"{folder}.rs" for folder in folders)


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts lines of code, without blank lines, comments and tests.")
    parser.add_argument("--base", default=BASE, help=f"commit to compare with (default: {BASE})")
    parser.add_argument("--folders", action="store_true", help="list each folder, too")
    arguments = parser.parse_args()
    before, after = code_lines(sources(arguments.base)), code_lines(sources(None))

    print(f"{'lines of code':<28} {arguments.base[:10]:>10} {'now':>10} {'change':>8} {'':>8} {'characters a line':>18}")
    for area, folders in (("read side", READ_SIDE), (CORE, [CORE]), ("whole repository", None)):
        old, new = ([line.strip() for name in files if folders is None or is_below(name, folders) for line in files[name]]
                    for files in (before, after))
        change = len(new) - len(old)
        lengths = " -> ".join(f"{sum(map(len, lines)) / max(len(lines), 1):.1f}" for lines in (old, new))
        print(f"{area:<28} {len(old):>10,} {len(new):>10,} {change:>+8,} {change / max(len(old), 1):>+8.1%} {lengths:>18}")
    if arguments.folders:
        old, new = Counter(), Counter()
        for files, counts in ((before, old), (after, new)):
            for name, lines in files.items():
                counts[folder_of(name)] += len(lines)
        for folder in sorted(old | new):
            print(f"  {folder:<26} {old[folder]:>10,} {new[folder]:>10,} {new[folder] - old[folder]:>+8,}")


if __name__ == "__main__":
    main()
