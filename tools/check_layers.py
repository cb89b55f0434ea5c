"""Checks crates/core/src against the tables of allowed dependencies in ARCHITECTURE.md.

A module is a top-level folder or file of crates/core/src. It may name only the modules its row of the table lists:
`crate::other::…`, `super::…` that climbs out of the module, and names that lib.rs re-exports (`crate::Schema` counts
as its home module). A second table does the same for the folders and files of crates/core/src/query, and says of which
folders only types may be named. Code under `#[cfg(test)]` is left out: tests may reach anywhere. A third table lists
the files of all crates that may contain `unsafe`. Standard library only, so that `make check` needs no installation.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "crates" / "core" / "src"
# A line comment, a block comment, or a literal of text or of one character.
COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|b?r(?P<hashes>#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\'\\])\'', re.DOTALL
)


def table(document: str, marker: str) -> list[list[str]]:
    """The rows of the Markdown table that follows `<!-- marker -->`, header and rule left out."""
    _, found, rest = document.partition(f"<!-- {marker} -->")
    if not found:
        sys.exit(f"ARCHITECTURE.md has no table marked <!-- {marker} -->")
    rows = []
    for line in rest.lstrip().splitlines():
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return rows[2:]


def names(cell: str) -> set[str]:
    """The names in backticks of a table cell."""
    return set(re.findall(r"`([^`]+)`", cell))


def without_comments_and_strings(text: str) -> str:
    """The code with comments and literals blanked; line breaks stay, so that line numbers do."""
    return COMMENT_OR_LITERAL.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def without_tests(text: str) -> str:
    """The code with every item under `#[cfg(test)]` blanked."""
    out = text
    for match in re.finditer(r"#\[cfg\(test\)\]", text):
        end = match.end()
        depth = 0
        for end in range(match.end(), len(text)):
            character = text[end]
            depth += (character == "{") - (character == "}")
            if depth == 0 and character in ";}":
                break
        blank = re.sub(r"[^\n]", " ", text[match.start() : end + 1])
        out = out[: match.start()] + blank + out[end + 1 :]
    return out


def test_files(text: str) -> set[str]:
    """Names of the child modules that exist only under `#[cfg(test)]`."""
    return set(re.findall(r"#\[cfg\(test\)\]\s*(?:pub(?:\([a-z ]+\))?\s+)?mod\s+(\w+)\s*;", text))


def leaves(tree: str, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """All paths of a use-tree such as `crate::{a::B, c}`."""
    tree = tree.strip()
    head, brace, rest = tree.partition("{")
    path = prefix + tuple(part.strip() for part in re.sub(r"\s+as\s+\w+", "", head).split("::") if part.strip())
    if not brace:
        return [path] if path else []
    inner = rest[: rest.rindex("}")]
    found, depth, begin = [], 0, 0
    for position, character in enumerate(inner + ","):
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            found += leaves(inner[begin:position], path)
            begin = position + 1
    return found


def module_path(file: Path) -> tuple[str, ...]:
    """The module a source file defines, as a path from the crate's root."""
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib") else parts


def target(path: tuple[str, ...], here: tuple[str, ...], exports: dict[str, str], tree: tuple[str, ...]) -> str | None:
    """The module of a tree that a path names, None when it lies outside of the tree."""
    if path[0] == "crate":
        absolute = path[1:]
    elif path[0] == "super":
        climbs = next((i for i, part in enumerate(path) if part != "super"), len(path))
        absolute = here[: max(len(here) - climbs, 0)] + path[climbs:]
    else:
        return None
    if absolute[: len(tree)] != tree or len(absolute) == len(tree):
        return None
    name = absolute[len(tree)]
    return exports.get(name, name)


def uses(text: str, here: tuple[str, ...], exports: dict[str, str], tree: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """Line, module and last name of everything of a tree that the code names."""
    found = []
    for match in re.finditer(r"\buse\s+([^;]+);", text):
        line = text.count("\n", 0, match.start()) + 1
        for path in leaves(match.group(1)):
            if module := target(path, here, exports, tree):
                found.append((line, module, path[-1]))
    plain = re.sub(r"\buse\s+[^;]+;", lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    for match in re.finditer(r"(?<![\w:])((?:crate|super)(?:\s*::\s*\w+)+)", plain):
        line = plain.count("\n", 0, match.start()) + 1
        path = tuple(part.strip() for part in match.group(1).split("::"))
        if module := target(path, here, exports, tree):
            found.append((line, module, path[-1]))
    return found


def reexports(facade: str) -> dict[str, str]:
    """The home module of each name that a facade re-exports."""
    found = {}
    for match in re.finditer(r"pub(?:\(crate\))?\s+use\s+([^;]+);", without_comments_and_strings(facade)):
        paths = [path[1:] if path[0] == "self" else path for path in leaves(match.group(1))]
        found |= {path[-1]: path[0] for path in paths}
    return found


def check_tree(
    codes: dict[Path, str], tree: tuple[str, ...], rows: list[list[str]], marker: str
) -> tuple[list[str], list[str]]:
    """Problems of the files of a tree, and its modules from the lowest layer to the highest. `codes` are without tests."""
    allowed = {next(iter(names(row[0]))): names(row[1]) for row in rows}
    only_types = {next(iter(names(row[0]))): names(row[2]) if len(row) > 2 else set() for row in rows}
    facade = SOURCE.joinpath(*tree, "mod.rs" if tree else "lib.rs")
    exports = reexports(facade.read_text())
    problems, modules = [], set()
    for file, code in codes.items():
        here = module_path(file)
        if here[: len(tree)] != tree or len(here) == len(tree):
            continue
        own = here[len(tree)]
        modules.add(own)
        for line, module, name in uses(code, here, exports, tree):
            place = f"{file.relative_to(ROOT)}:{line}"
            if module != own and module not in allowed.get(own, set()):
                problems.append(f"{place}: '{own}' may not use '{module}'")
            elif module in only_types.get(own, set()) and not name[0].isupper():
                problems.append(f"{place}: '{own}' may use only types of '{module}', not '{name}'")
    folder = "/".join(("crates/core/src", *tree))
    problems += [f"{folder}/{module}: has no row in the table of {marker}" for module in sorted(modules - set(allowed))]
    problems += [f"ARCHITECTURE.md: lists '{module}', which does not exist" for module in sorted(set(allowed) - modules)]
    # The table itself must be free of cycles, or it would say nothing. `error` wraps the errors of modules above it.
    order = [module for module in allowed if module == "error"]
    left = {module: needs - {"error"} for module, needs in allowed.items() if module != "error"}
    while left:
        free = [module for module, needs in left.items() if not (needs & set(left)) - {module}]
        if not free:
            problems.append(f"ARCHITECTURE.md: the table of {marker} has a cycle among {', '.join(sorted(left))}")
            break
        order += free
        left = {module: needs for module, needs in left.items() if module not in free}
    return problems, order


def main() -> None:
    document = (ROOT / "ARCHITECTURE.md").read_text()
    unsafe_files = {name for row in table(document, "unsafe") for name in names(row[0])}
    tests_only = set()
    files = sorted(SOURCE.rglob("*.rs"))
    codes = {}
    for file in files:
        code = without_comments_and_strings(file.read_text())
        tests_only |= {module_path(file) + (name,) for name in test_files(code)}
        codes[file] = without_tests(code)
    tests = {file for file in files if any(module_path(file)[: len(test)] == test for test in tests_only)}
    codes = {file: code for file, code in codes.items() if file not in tests}

    problems, orders = [], []
    for tree, marker in (((), "layers"), (("query",), "layers of query")):
        found, order = check_tree(codes, tree, table(document, marker), marker)
        problems += found
        orders.append(" -> ".join(order))
    for file, code in codes.items():
        shown = file.relative_to(ROOT)
        if module_path(file) and re.search(r"\bunsafe\b", code) and str(shown) not in unsafe_files:
            problems.append(f"{shown}: 'unsafe' in a file that ARCHITECTURE.md does not list for it")
    for file in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        shown = str(file.relative_to(ROOT))
        code = without_tests(without_comments_and_strings(file.read_text()))
        if not shown.startswith("crates/core/") and re.search(r"\bunsafe\b", code) and shown not in unsafe_files:
            problems.append(f"{shown}: 'unsafe' in a file that ARCHITECTURE.md does not list for it")
    problems += [f"ARCHITECTURE.md: lists {name}, which does not exist" for name in sorted(unsafe_files) if not (ROOT / name).exists()]

    if problems:
        sys.exit("\n".join(problems))
    print(f"layers: {len(files)} files keep to the tables in ARCHITECTURE.md ({'; '.join(orders)})")


if __name__ == "__main__":
    main()
