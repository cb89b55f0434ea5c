"""Checks that no files of a crate, nor of mpi, depend on each other in a cycle, and that `mod.rs` and `lib.rs` only declare
and re-export.

A file uses another when it names something that is defined there: by `use`, or by a path in the code. A re-export counts as
the file that defines it, so that a facade is no detour; what a file declares (`mod name;`) or re-exports is no use. Code under
`#[cfg(test)]` is left out. A C file uses another when it names a function that is defined there. Standard library only.
"""

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

from check_layers import ROOT, leaves, test_files, without_comments_and_strings, without_tests

# All crates of the workspace.
CRATES = ("core", "capi", "cli", "forecast", "preload", "source", "python")
REEXPORT = re.compile(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]+);")
USE = re.compile(r"\buse\s+([^;]+);")
ITEM = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:unsafe |const )?(?:fn|struct|enum|impl|trait|static|type|const|macro_rules!)\b", re.MULTILINE)
PATH = re.compile(r"(?<![\w:])(\w+(?:\s*::\s*\w+)+)")
C_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
C_FUNCTION = re.compile(r"^(?!static\b)\w[\w *]*?(\w+)\([^;{]*\)\n\{", re.MULTILINE)

Module = tuple[str, ...]


class Crate:
    """The files of a crate, as modules, and what each of them names."""

    def __init__(self, source: Path):
        self.source = source
        self.code: dict[Module, str] = {}
        self.tests: set[Module] = set()
        for file in sorted(source.rglob("*.rs")):
            text, module = without_comments_and_strings(file.read_text()), self.module(file)
            self.tests |= {(*module, name) for name in test_files(text)}
            self.code[module] = without_tests(text)
        self.exports: dict[Module, dict[str, Module]] = defaultdict(dict)
        for module, text in self.code.items():
            for match in REEXPORT.finditer(text):
                for path in leaves(match.group(1)):
                    if (absolute := self.absolute(path, module)) is not None:
                        self.exports[module][path[-1]] = absolute

    def module(self, file: Path) -> Module:
        parts = file.relative_to(self.source).with_suffix("").parts
        return parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts

    def absolute(self, path: Module, here: Module) -> Module | None:
        """A path from the crate's root; None when it leads out of the crate."""
        if path[0] == "crate":
            return path[1:]
        if path[0] == "self":
            return here + path[1:]
        if path[0] == "super":
            climbs = next((place for place, part in enumerate(path) if part != "super"), len(path))
            return here[: max(len(here) - climbs, 0)] + path[climbs:]
        return here + path if (*here, path[0]) in self.code else None

    def home(self, path: Module, detours: int = 20) -> Module:
        """The file that defines what an absolute path names."""
        known = max((place for place in range(len(path) + 1) if path[:place] in self.code), default=0)
        exported = self.exports[path[:known]].get(path[known]) if known < len(path) else None
        if exported is None or detours == 0:
            return path[:known]
        return self.home(exported + path[known + 1 :], detours - 1)

    def is_test(self, module: Module) -> bool:
        return any(module[: len(test)] == test for test in self.tests)

    def uses(self, module: Module) -> set[Module]:
        text = REEXPORT.sub("", self.code[module])
        paths = [path for match in USE.finditer(text) for path in leaves(match.group(1))]
        plain = USE.sub("", text)
        paths += [tuple(part.strip() for part in match.group(1).split("::")) for match in PATH.finditer(plain)]
        absolute = [found for path in paths if (found := self.absolute(path, module)) is not None]
        homes = {self.home(path) for path in absolute}
        return {home for home in homes if home != module and home in self.code and not self.is_test(home)}

    def with_items(self) -> list[Module]:
        """Folders whose mod.rs, or lib.rs, defines something."""
        folders = [module for module in self.code if (self.source.joinpath(*module, "mod.rs" if module else "lib.rs")).is_file()]
        return [module for module in folders if not self.is_test(module) and ITEM.search(self.code[module])]

    def edges(self) -> dict[Module, set[Module]]:
        return {module: self.uses(module) for module in self.code if not self.is_test(module)}


def c_edges(folder: Path) -> dict[Module, set[Module]]:
    """Which C files of a folder name functions that others define."""
    code = {(file.name,): C_COMMENT.sub("", file.read_text()) for file in sorted(folder.glob("*.c"))}
    defined = {name: file for file, text in code.items() for name in C_FUNCTION.findall(text)}
    named = {file: {defined[word] for word in re.findall(r"\w+", text) if word in defined} for file, text in code.items()}
    return {file: used - {file} for file, used in named.items()}


def cycles(edges: dict[Module, set[Module]]) -> list[list[Module]]:
    """Modules that reach each other, by Tarjan's algorithm."""
    order: dict[Module, int] = {}
    lowest: dict[Module, int] = {}
    stack: list[Module] = []
    found = []

    def visit(module: Module) -> None:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for used in edges[module]:
            if used not in order:
                visit(used)
                lowest[module] = min(lowest[module], lowest[used])
            elif used in stack:
                lowest[module] = min(lowest[module], order[used])
        if lowest[module] == order[module]:
            place = stack.index(module)
            component = stack[place:]
            del stack[place:]
            if len(component) > 1:
                found.append(sorted(component))

    for module in edges:
        if module not in order:
            visit(module)
    return found


def imports(package: Path) -> dict[Module, set[Module]]:
    """The files of a Python package, as modules, and the files of it that each imports: also for type checkers, or in a function."""
    files = {}
    for file in sorted([*package.rglob("*.py"), *package.rglob("*.pyi")]):
        parts = file.relative_to(package).with_suffix("").parts
        files[parts[:-1] if parts[-1] == "__init__" else parts] = file
    edges: dict[Module, set[Module]] = {}
    for module, file in files.items():
        paths = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                paths |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                paths |= {f"{node.module}.{name.name}" for name in node.names}
        uses = [tuple(path.split("."))[1:] for path in paths if path.split(".")[0] == package.name]
        # The last part of a path may be a name that the file defines.
        edges[module] = {use if use in files else use[:-1] for use in uses} - {module}
    return edges


def main() -> None:
    sys.setrecursionlimit(10_000)
    files, problems = 0, []
    for name in CRATES:
        crate = Crate(ROOT / "crates" / name / "src")
        files += len(crate.code)
        for module in crate.with_items():
            problems.append(f"crates/{name}/{'/'.join(('src', *module))}: mod.rs and lib.rs only declare and re-export; give the code a file")
        for cycle in cycles(crate.edges()):
            modules = ", ".join("::".join(module) or "lib.rs" for module in cycle)
            problems.append(f"crates/{name}: these files depend on each other in a cycle: {modules}")
    in_c = c_edges(ROOT / "mpi")
    for cycle in cycles(in_c):
        problems.append(f"mpi: these files depend on each other in a cycle: {', '.join(name for (name,) in cycle)}")
    package = imports(ROOT / "crates" / "python" / "python" / "turbidite")
    for cycle in cycles(package):
        problems.append(f"turbidite: these files import each other in a cycle: {', '.join('.'.join(module) for module in cycle)}")
    if problems:
        sys.exit("\n".join(problems))
    print(f"cycles: none among {files + len(in_c)} files of {', '.join(CRATES)}, mpi")
    print(f"cycles: none among {len(package)} files of the Python package")


if __name__ == "__main__":
    main()
