"""Checks that code and prose use the field's words, by the glossary that the documents follow.

`IDENTIFIERS` are names that Rust code must not declare or use, each with the name that replaced it: one thing has one
name. `PHRASES` must not occur in comments, messages and documents. `ALLOWED` lists exceptions: names in stored
metadata, in the C interface and of flags stay, since files and callers hold them. An exception that no longer occurs
is an error. Standard library only, so that `make check` needs no installation.
"""

import re
import subprocess
import sys
from pathlib import Path

from check_layers import COMMENT_OR_LITERAL

ROOT = Path(__file__).resolve().parent.parent

IDENTIFIERS = {
    "figures": "statistics or metrics",
    "EpochFigures": "EpochStatistics",
    "EngineFigures": "EngineStatistics",
    "QueryFigures": "QueryMetrics",
    "RunEntry": "RowGroupEntry",
    "ColumnSummary": "ColumnStatistics",
    "Spread": "RangeCount",
    "spreads": "range_counts",
    "Commons": "ProcessResources",
    "commons": "resources",
    "PostOffice": "Mailboxes",
    "Patience": "Timeouts",
    "patience": "timeouts or credit_timeout",
    "Damage": "Corruption",
    "TableShelf": "TableCache",
    "shelf": "cache",
    "Truth": "TruthValue",
    "Want": "ColumnRequest",
    "Landing": "PageRead",
    "Crew": "WorkerPool",
    "crew": "workers",
    "Station": "Endpoint",
    "Lie": "RowDistribution",
    "Sieve": "CellSelection",
    "Gather": "RowGroupBuilder",
    "told": "stated or found",
    "foretell": "forecast",
    "mend": "fix",
    "unwilling": "unresponsive",
}

PHRASES = [
    r"all is well",
    r"everything that thinks",
    r"for want of",
    r"foret(?:ell|old)\w*",
    r"lies about",
    r"mend(?:s|ed|ing)?",
    r"put aside",
    r"sees? to it",
    r"summar(?:y|ies) that prunes?",
    r"told apart",
    r"what (?:was|has been) put",
    r"whoever",
    r"willing(?:ness)?",
]

# File pattern, then the word or phrase as it occurs.
ALLOWED = {
    ("crates/cli/src/commands/ingest.rs", "patience"): "the flag --patience",
}

DOCUMENTS = ["*.md", "docs/**/*.md", "examples/**/*.md", "bench/*.md"]
CODE = ["crates/**/*.rs", "fuzz/**/*.rs"]


def tracked(patterns: list[str]) -> list[Path]:
    """Lists the files of the checkout that match one of the patterns."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *(f":(glob){pattern}" for pattern in patterns)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )
    return [ROOT / name for name in sorted(set(listing.stdout.splitlines())) if (ROOT / name).is_file()]


def parts(text: str) -> tuple[str, str]:
    """Returns the code and the prose of a Rust file, each with everything else blanked; line breaks stay."""

    def blank(piece: str) -> str:
        return re.sub(r"[^\n]", " ", piece)

    code = COMMENT_OR_LITERAL.sub(lambda match: blank(match.group()), text)
    prose = "".join(
        blank(letter) if code[place] == letter else letter for place, letter in enumerate(text)
    )
    return code, prose


def without_spans(prose: str) -> str:
    """Blanks code spans: names of flags and of fields on disk may be quoted."""
    return re.sub(r"`[^`\n]*`", lambda span: " " * len(span.group()), prose)


def main() -> int:
    """Prints every word that is not the field's, and returns the exit status."""
    names = re.compile(r"\b(?:" + "|".join(IDENTIFIERS) + r")\b")
    phrases = re.compile(r"\b(?:" + "|".join(PHRASES) + r")\b", re.IGNORECASE)
    found: list[str] = []
    used: set[tuple[str, str]] = set()
    files = tracked(CODE)
    documents = tracked(DOCUMENTS)

    def judge(path: Path, text: str, pattern: re.Pattern[str], advice) -> None:
        name = str(path.relative_to(ROOT))
        for match in pattern.finditer(text):
            word = match.group()
            if (name, word) in ALLOWED:
                used.add((name, word))
                continue
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{name}:{line}: '{word}'{advice(word)}")

    for path in files:
        code, prose = parts(path.read_text())
        judge(path, code, names, lambda word: f": the name is {IDENTIFIERS[word]}")
        judge(path, without_spans(prose), phrases, lambda word: " is not one of the field's words")
    for path in documents:
        judge(path, without_spans(path.read_text()), phrases, lambda word: " is not one of the field's words")
    found += [f"tools/check_words.py: {name} no longer has '{word}'" for name, word in ALLOWED if (name, word) not in used]
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    if found:
        return 1
    print(f"words: {len(files)} files of code and {len(documents)} documents use the field's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
