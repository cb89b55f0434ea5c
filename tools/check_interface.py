"""Lists the public interface of the crate `turbidite`, and compares the listing with crates/core/interface.txt.

Reviews show what a change does to the interface, since the listing changes with it. It is made from the pages that
`make documentation` wrote, which leave hidden modules out: no toolchain but the stable one is needed. `--write` updates the
file. Standard library only, so that `make check` needs no installation.
"""

import argparse
import difflib
import os
import re
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path

from check_layers import ROOT, without_comments_and_strings

CRATE = "turbidite"
COMMITTED = ROOT / "crates" / "core" / "interface.txt"
HEADING = "# The public interface of the crate turbidite, as its documentation shows it. Written by `make interface`."
# Elements that have no end tag.
VOID = {"br", "hr", "img", "input", "link", "meta", "source", "wbr"}
# Implementations that no one wrote.
UNWRITTEN = ("synthetic-", "blanket-", "deref-methods")
# Precedes names that link to a page, until the names without one are known.
LINKED = "\x01"
LIFETIMES = r"(?:<'\w+(?:, '\w+)*>)?"


class Page(HTMLParser):
    """Collects the pieces of code of a page, with what each is: declaration, implementation, method, re-export."""

    def __init__(self, file: Path, listed: set[str] = frozenset()):
        super().__init__()
        self.listed = listed
        self.links: list[tuple[str, list[str]]] = []
        self.pieces: list[tuple[str, str]] = []
        self.stack: list[tuple[str, str, list[str]]] = []
        self.begin: int | None = None
        self.text: list[str] = []
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            return
        known = {name: value or "" for name, value in attributes}
        classes = known.get("class", "").split()
        self.stack.append((tag, known.get("id", ""), classes))
        if "where" in classes:
            self.text.append(" ")
        if tag == "a":
            self.links.append((known.get("href", ""), classes))
            # A type of the standard library that shares its name with one of ours keeps its module, as io::Error.
            path = known.get("title", "").split(" ")[-1].split("::")
            shared = path[-1] in self.listed and path[0] in ("alloc", "core", "std")
            self.text.append("" if "tooltip" in classes else f"{LINKED}{path[1]}::" if shared else LINKED)
        reexport = tag == "dt" and "reexports" in self.stack[-2][2]
        if self.begin is None and (reexport or "code-header" in classes or "item-decl" in classes):
            self.begin, self.text = len(self.stack), []

    def handle_endtag(self, tag: str) -> None:
        while self.stack:
            name, _, classes = self.stack.pop()
            if "code-attribute" in classes or "where" in classes:
                self.text.append(" ")
            if self.begin is not None and len(self.stack) < self.begin:
                self.begin = None
                self.keep(name)
            if name == tag:
                return

    def keep(self, tag: str) -> None:
        """Stores the captured code under what the enclosing section says it is."""
        if any(identity.startswith(UNWRITTEN) for _, identity, _ in self.stack):
            return
        identity, classes = [(identity, classes) for name, identity, classes in self.stack if name == "section"][-1]
        kind = {"pre": "declaration", "dt": "reexport"}.get(tag) or identity.replace("impl-", "impl.")
        self.pieces.append((f"{kind} of a trait" if "trait-impl" in classes else kind, tidy("".join(self.text))))

    def handle_data(self, data: str) -> None:
        if self.begin is not None and not any(tag == "summary" or "tooltip" in classes for tag, _, classes in self.stack[self.begin :]):
            self.text.append(data)


def tidy(code: str) -> str:
    """Puts code on one line, without comments; `..` stands for what the page does not show."""
    code = re.sub(r"/\* private fields \*/|// some (?:fields|variants|methods) omitted", "..", code.replace("\xa0", " "))
    code = re.sub(r"(?:^|(?<=\s))//.*$", "", code, flags=re.MULTILINE)
    code = re.sub(r"([(\[]) |,?\s+(?=[)\]])", r"\1", re.sub(r"\s+", " ", code))
    return re.sub(r",(?= [{}])|[,;]$", "", code.strip())


def members(body: str) -> list[str]:
    """Splits fields or variants at the commas that are in no brackets."""
    found, depth = [""], 0
    for position, character in enumerate(body):
        depth += (character in "([{<") - (character in ")]}" or character == ">" and body[position - 1] != "-")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [member.strip() for member in found if member.strip()]


def declaration(code: str) -> list[str]:
    """Lists the head of an item, and its fields or variants in their order."""
    if not re.match(r"(?:#\[.*\] )*pub (?:\w+ )*(?:struct|enum|union|trait) [^({]*{", code):
        return [code]
    head, _, body = code.partition(" {")
    if re.search(r"\btrait ", head):
        return [head]
    inner = members(body.rpartition("}")[0])
    return [f"{head} {{ .. }}"] if inner == [".."] else [head] + [f"    {member}" for member in inner]


def implementations(name: str, pieces: list[tuple[str, str]], listed: set[str]) -> list[str]:
    """Lists what the written implementations of an item contain; traits without parameters share a line."""
    parts, simple, others = [], [], []
    header, bare = "", f"{name}{LIFETIMES}"
    for kind, code in pieces:
        if kind.startswith("impl."):
            header, implementor = code, re.search(r"(?<=[\w>]) for (\w*)", code.replace(LINKED, ""))
            # With a trait, or with what is converted, only if it does not stand with another type.
            if implementor and implementor.group(1) not in listed - {name}:
                others.append(code)
        elif kind.endswith("of a trait"):
            if kind.startswith("associated") and others and others[-1].startswith(header):
                others[-1] += f" {{ {code} }}"
        elif kind.startswith(("associated", "method.", "tymethod.")):
            if header and not re.fullmatch(f"impl{LIFETIMES} {bare}", header.replace(LINKED, "")):
                code = f"{header} {{ {code} }}"
            parts.append((kind, code + " { .. }" * (kind.startswith("method.") and not header)))  # provided by the trait
    for code in others[:]:
        if match := re.fullmatch(rf"impl{LIFETIMES} ([\w:]+) for {bare}", code.replace(LINKED, "")):
            others.remove(code)
            simple.append(match.group(1))
    simple = sorted(set(simple) - {"StructuralPartialEq"})  # which is the compiler's
    return [code for _, code in sorted(parts)] + [f"impl {', '.join(simple)}"] * bool(simple) + sorted(others)


def hidden_names(lines: list[str], listed: set[str], defined: set[str], is_enum: bool) -> set[str]:
    """Finds types of the crate that the lines name, although they have no page."""
    texts = [re.sub(r"^    (?:#\[.*?\] )*\w+", "", line) if is_enum else line for line in lines]
    return {name for text in texts for name in re.findall(rf"(?<![\w{LINKED}])[A-Z]\w*", text)} & defined - listed


def listing(folder: Path) -> str:
    """Lists all items in the order of their paths, then hidden types that they name, and how many items there are."""
    links = [href for href, _ in Page(folder / "all.html").links]
    items = [match for href in links if (match := re.fullmatch(r"((?:\w+/)*)(\w+)\.(\w+)\.html", href))]
    listed = {item.group(3) for item in items}
    sources = [without_comments_and_strings(file.read_text()) for file in sorted((ROOT / "crates/core/src").rglob("*.rs"))]
    defined = {name for text in sources for name in re.findall(r"\bpub (?:struct|enum|union|trait|type) (\w+)", text)}
    entries: list[tuple[str, list[str]]] = []
    hidden: dict[str, set[str]] = defaultdict(set)
    for item in items:
        pieces, (modules, kind, name) = Page(folder / item.group(), listed).pieces, item.groups()
        path, lines = f"{CRATE}/{modules}{name}".replace("/", "::"), declaration(pieces[0][1])
        lines += implementations(name, pieces[1:], listed) if kind != "type" else []
        for found in hidden_names(lines, listed, defined, kind == "enum"):
            hidden[found].add(path)
        entries.append((path, lines))
    pages = [Path()]
    for module in pages:
        page, path = Page(folder / module / "index.html", listed), "::".join((CRATE, *module.parts))
        pages += [module / Path(href).parent for href, classes in page.links if classes == ["mod"]]
        entries += [(path, [f"pub mod {module.name}"])] * bool(module.parts)
        exports = [code.replace(LINKED, "") for kind, code in page.pieces if kind == "reexport"]
        entries += [(f"{path}::{re.split('::| ', code)[-1]}", [code]) for code in exports]
    entries.sort()
    if hidden:
        names = [f"{name}: {', '.join(sorted(paths))}" for name, paths in sorted(hidden.items())]
        entries.append(("hidden types that the above names", names))
    blocks = ["\n".join([path, *(f"    {line}" for line in lines)]) for path, lines in entries]
    return "\n\n".join([HEADING, *blocks, f"{len(items)} named items"]).replace(LINKED, "") + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="the crate's pages; else those below $CARGO_TARGET_DIR")
    parser.add_argument("--write", action="store_true", help="update crates/core/interface.txt")
    given = parser.parse_args()
    folder = given.folder or Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "doc" / CRATE
    # The command has the name of the library, and its pages the same place.
    if not (folder / "all.html").is_file() or "/lib.rs.html" not in (folder / "index.html").read_text():
        sys.exit(f"{folder} does not hold the pages of the library: run 'make documentation'")
    now, shown = listing(folder), str(COMMITTED.relative_to(ROOT))
    if given.write:
        COMMITTED.write_text(now)
    before = COMMITTED.read_text() if COMMITTED.is_file() else ""
    if now != before:
        change = difflib.unified_diff(before.splitlines(True), now.splitlines(True), shown, "the documentation")
        sys.exit(f"{''.join(change)}{shown} lists another interface; if the change is intended, run 'make interface' and commit it")
    print(f"interface: {now.splitlines()[-1]}, as {shown} lists them")


if __name__ == "__main__":
    main()
