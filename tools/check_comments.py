"""Checks that comments are wrapped at one width, and rewraps them.

The width is 120 columns, as for code (rustfmt.toml). No line of a comment is longer, and none is broken where the first
word of the next line would still have fitted. This holds for the `//`, `///` and `//!` comments of Rust, and for the
`/* … */` comments of C, that have lines of their own. Left as they are: what Markdown does not wrap (code, tables,
headings, definitions of links, quotations, HTML), paragraphs with columns or drawings, and comments that follow code on
a line. Headings, paragraphs and comments behind code must not be too long either, but a person has to shorten them.

    check_comments.py           only checks
    check_comments.py --fix     rewraps, which changes line breaks and blanks and nothing else

Standard library only, so that `make check` needs no installation.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from check_layers import COMMENT_OR_LITERAL, ROOT

WIDTH = 120
PATTERNS = ("crates/**/*.rs", "fuzz/**/*.rs", "crates/capi/include/*.h", "mpi/**/*.h", "mpi/**/*.c")

FENCE = re.compile(r"`{3,}|~{3,}")
# What begins an item of a list, and what begins a paragraph even right below another one.
MARKER = re.compile(r"(?:[-+*]|\d{1,9}[.)])(?:\s+|$)")
TAG = re.compile(r"(?:SAFETY|TODO|FIXME|NOTE):")
# Lines that are never joined with others: some may be of any length, the others are text.
UNBREAKABLE = re.compile(r"\||\[[^\]]+\]:\s|</?[a-zA-Z!]")
UNJOINED = re.compile(r"#{1,6}\s|>|(?:-{3,}|={3,}|\*{3,}|_{3,})\s|Copyright\b|SPDX-")
# Columns, or a drawing.
ALIGNED = re.compile(r"\S\s{2,}\S|[\u2500-\u257f]")
SPAN = re.compile(r"(?<!`)(`+)(?!`)(?:.*?[^`])\1(?!`)")
RUST_COMMENT = re.compile(r"(\s*)(///|//!|//)(?: (.*))?")


class Refusal(Exception):
    """Says that rewrapping would change more than line breaks."""


@dataclass
class Block:
    """Holds the lines of a paragraph or of a list item, without indentation, or a line that stays as it is."""

    first: str
    """Precedes the first line: its indentation, and the marker of an item."""
    hanging: str
    """Precedes the other lines."""
    lines: list[str]
    fixed: bool = False
    any_length: bool = False

    def is_fixed(self) -> bool:
        return self.fixed or any(ALIGNED.search(line) for line in self.lines)

    def shown(self) -> list[str]:
        return [(self.hanging if place else self.first) + line for place, line in enumerate(self.lines)]

    def words(self) -> list[str]:
        return " ".join(self.lines).split()

    def wrapped(self, room: int, closing: str) -> "Block":
        """Fills the lines; `closing` shares a line with the last word."""
        if self.is_fixed():
            return self
        lines: list[list[str]] = [[]]
        tokens = unbroken(" ".join(self.lines), room - len(self.hanging))
        tokens[-1] += closing
        for token in tokens:
            before = self.first if len(lines) == 1 else self.hanging
            if not lines[-1] or len(before + " ".join([*lines[-1], token])) <= room:
                lines[-1].append(token)
                continue
            # A line must not look like the beginning of a list, or of something else.
            moved = [token]
            while begins_block(moved[0]) and len(lines[-1]) > 1:
                moved.insert(0, lines[-1].pop())
            lines.append(moved)
        lines[-1][-1] = lines[-1][-1].removesuffix(closing)
        return Block(self.first, self.hanging, [" ".join(line) for line in lines])


@dataclass
class Comment:
    """Holds consecutive lines of a file that are one comment."""

    begin: int
    opening: str
    """Precedes the first line, and is as long as `prefix`."""
    prefix: str
    """Precedes the other lines."""
    closing: str
    """Follows the last word, on its line."""
    bodies: list[str]
    is_text: bool = True
    """Is false for a comment that stays as it is, such as one behind code."""

    def end(self) -> int:
        return self.begin + len(self.bodies)

    def rewrapped(self) -> "Comment":
        found = blocks(self.bodies)
        room = WIDTH - len(self.prefix)
        closings = [""] * (len(found) - 1) + [self.closing]
        bodies = [body for block, closing in zip(found, closings) for body in block.wrapped(room, closing).shown()]
        return Comment(self.begin, self.opening, self.prefix, self.closing, bodies)

    def written(self) -> list[str]:
        bodies = [*self.bodies[:-1], self.bodies[-1] + self.closing]
        return [((self.prefix if place else self.opening) + body).rstrip() for place, body in enumerate(bodies)]

    def too_long(self) -> list[int]:
        """Returns the lines that are too long although somebody could break them."""
        found, line = [], self.begin
        for block in blocks(self.bodies) if self.is_text else [Block("", "", [body], fixed=True) for body in self.bodies]:
            for place, shown in enumerate(block.shown()):
                end = self.closing if line == self.end() - 1 else ""
                if len(self.prefix + shown + end) > WIDTH and not block.any_length and len(block.lines[place].split()) > 1:
                    found.append(line)
                line += 1
        return found


def begins_block(token: str) -> bool:
    """Returns whether a line that begins with this word would be no part of the paragraph above it."""
    return any(pattern.match(token + " ") for pattern in (FENCE, MARKER, TAG, UNBREAKABLE, UNJOINED))


def unbroken(text: str, room: int) -> list[str]:
    """Splits a text where lines may be broken: not within a span of code that fits on a line."""
    glued = SPAN.sub(lambda match: re.sub(r"\s+", "\0", match.group()), text)
    tokens = []
    for token in glued.split():
        tokens += [token.replace("\0", " ")] if len(token) <= room else token.split("\0")
    return tokens


def blocks(bodies: list[str]) -> list[Block]:
    """Splits a comment into paragraphs, items of lists, and lines that stay."""
    found: list[Block] = []
    paragraph: Block | None = None
    fence = ""
    items: list[str] = []  # the indentations of the texts of the list items that this line may belong to
    for body in bodies:
        text = body.strip()
        indent = body[: len(body) - len(body.lstrip())] if text else ""
        marker = MARKER.match(text)
        inside = text[marker.end() :] if marker else text
        if fence or FENCE.match(inside):
            paragraph = None
            found.append(Block(indent, "", [text], fixed=True, any_length=True))
            if not fence:
                fence = FENCE.match(inside).group()
            elif text.startswith(fence) and not text.strip(fence[0]):
                fence = ""
            continue
        unjoined = not text or UNBREAKABLE.match(text + " ") or UNJOINED.match(text + " ")
        if not unjoined and marker and (items or len(indent) < 4):
            items = [item for item in items if item <= indent] + [indent + " " * len(marker.group())]
            paragraph = Block(indent + marker.group(), items[-1], [inside])
            found.append(paragraph)
        elif not unjoined and paragraph and not TAG.match(text) and continues(paragraph, indent):
            paragraph.hanging = indent
            paragraph.lines.append(text)
        elif not unjoined and (not indent or (indent in items and not paragraph)):
            items = [item for item in items if item <= indent]
            paragraph = Block(indent, indent, [text])
            found.append(paragraph)
        else:
            paragraph = None
            any_length = bool(UNBREAKABLE.match(text + " ")) or len(indent) >= 4
            found.append(Block(indent, "", [text], fixed=True, any_length=any_length))
        if text.endswith("\\"):  # Markdown breaks the line here
            paragraph = None
    return found


def continues(paragraph: Block, indent: str) -> bool:
    """Returns whether a line of this indentation goes on with the paragraph."""
    is_item = paragraph.first != paragraph.hanging
    if is_item and len(paragraph.lines) == 1:
        own = len(paragraph.first) - len(paragraph.first.lstrip())
        return own < len(indent) < len(paragraph.hanging) + 4
    return indent == paragraph.hanging


def line_comments(text: str) -> Iterator[Comment]:
    """Finds the `//` comments of Rust; consecutive ones of a column and a kind are one."""
    lines = text.split("\n")
    columns: dict[int, int] = {}
    number, counted = 0, 0
    for match in COMMENT_OR_LITERAL.finditer(text):
        if match.group().startswith("//"):
            number, counted = number + text.count("\n", counted, match.start()), match.start()
            columns[number] = match.start() - (text.rfind("\n", 0, match.start()) + 1)
    comment, after_code = None, None
    for number, column in columns.items():
        before, whole = lines[number][:column], lines[number]
        parts = RUST_COMMENT.fullmatch(whole)
        adjacent = number - 1 in columns
        if before.strip() or parts is None or (adjacent and after_code == column):
            # Lines below a comment that follows code go on with it when they lie below its column.
            after_code = column if before.strip() or (adjacent and after_code == column) else None
            if comment:
                yield comment
                comment = None
            yield Comment(number, before + "//", before + "//", "", [whole[column + 2 :]], is_text=False)
            continue
        after_code = None
        prefix = f"{parts[1]}{parts[2]} "
        if comment and comment.end() == number and comment.prefix == prefix:
            comment.bodies.append(parts[3] or "")
            continue
        if comment:
            yield comment
        comment = Comment(number, prefix, prefix, "", [parts[3] or ""])
    if comment:
        yield comment


def block_comments(text: str) -> Iterator[Comment]:
    """Finds the `/* … */` comments of C that no code follows; text are those with an asterisk before each line."""
    lines = text.split("\n")
    for match in COMMENT_OR_LITERAL.finditer(text):
        if not match.group().startswith("/*"):
            continue
        begin = text.count("\n", 0, match.start())
        whole = lines[begin : begin + match.group().count("\n") + 1]
        indent, _, after = "\n".join(whole).partition(match.group())
        prefix = f"{indent} * "
        if after:
            continue
        if indent.strip() or not all(line == prefix.rstrip() or line.startswith((prefix, f"{indent} */")) for line in whole[1:]):
            yield Comment(begin, "", "", "", whole, is_text=False)
            continue
        opening, closing = f"{indent}/* ", ""
        if whole[0].strip() == "/*":
            begin, opening, whole = begin + 1, prefix, whole[1:]
        if whole and whole[-1].strip() == "*/":
            whole = whole[:-1]
        elif whole:
            closing = " */"
            whole[-1] = whole[-1].removesuffix("*/").rstrip()
        if whole and whole[0].startswith(opening.rstrip()):
            yield Comment(begin, opening, prefix, closing, [line[len(prefix) :] for line in whole])


def comments(text: str, file: Path) -> list[Comment]:
    """Finds the comments of a file, from top to bottom."""
    lines = text.split("\n")
    found = list(line_comments(text) if file.suffix == ".rs" else block_comments(text))
    for comment in found:
        # One of another style, such as `/** … */`, stays as it is.
        comment.is_text &= comment.written() == lines[comment.begin : comment.end()]
    return found


def rewrapped(text: str, file: Path) -> str:
    """Rewraps the comments of a file.

    Raises a refusal if anything but line breaks and blanks would differ, or if the result would be read as other paragraphs.
    """
    lines, out, place = text.split("\n"), [], 0
    for comment in comments(text, file):
        if comment.is_text:
            out += lines[place : comment.begin] + comment.rewrapped().written()
            place = comment.end()
    after = "\n".join(out + lines[place:])
    if after != text and essence(after, file) != essence(text, file):
        raise Refusal
    return after


def essence(text: str, file: Path) -> list:
    """Returns what rewrapping must not change: the code, and the words of each block of each comment."""
    lines, kept, place = text.split("\n"), [], 0
    for comment in comments(text, file):
        if comment.is_text:
            kept += lines[place : comment.begin]
            kept.append((comment.opening, comment.prefix, comment.closing))
            kept += [(block.first, block.is_fixed(), block.words()) for block in blocks(comment.bodies)]
            place = comment.end()
    return kept + lines[place:]


def problems(text: str, file: Path) -> Iterator[str]:
    """Says where the comments of a file are not wrapped."""
    shown = file.relative_to(ROOT)
    for comment in comments(text, file):
        too_long = comment.too_long()
        for line in too_long:
            yield f"{shown}:{line + 1}: a comment's line is longer than {WIDTH} columns"
        if not comment.is_text or too_long:
            continue
        now, right = comment.written(), comment.rewrapped().written()
        place = next((place for place, (one, other) in enumerate(zip(now, right)) if one != other), None)
        if place is not None:
            yield f"{shown}:{comment.begin + place + 1}: a comment's line is not filled up to {WIDTH} columns"


def main() -> None:
    parser = argparse.ArgumentParser(description="Checks that comments are wrapped at one width.")
    parser.add_argument("--fix", action="store_true", help="rewrap them")
    fix = parser.parse_args().fix

    files = sorted(file for pattern in PATTERNS for file in ROOT.glob(pattern) if "target" not in file.relative_to(ROOT).parts)
    changed, found = 0, []
    for file in files:
        text = file.read_text()
        if fix:
            try:
                after = rewrapped(text, file)
            except Refusal:
                found.append(f"{file.relative_to(ROOT)}: left alone, since rewrapping would change more than line breaks")
                continue
            if after != text:
                file.write_text(after)
                changed += 1
                text = after
        found += problems(text, file)
    if found:
        sys.exit("\n".join(found if fix else [*found, "`make fmt` rewraps comments"]))
    print(f"comments: {len(files)} files are wrapped at {WIDTH} columns" + (f", {changed} of them newly" if fix else ""))


if __name__ == "__main__":
    main()
