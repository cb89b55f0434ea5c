"""Counts the words of the Markdown documents, by folder, and fails if the design notes have more than their limit.

Tables and bullets count as `wc -w` counts them. Standard library only.
"""

import sys
from collections import Counter

from check_words import ROOT, tracked

DESIGN = "docs/design"
DESIGN_LIMIT = 10_000


def main() -> int:
    """Prints the number of words of each folder, and returns the exit status."""
    words: Counter[str] = Counter()
    for path in tracked(["**/*.md"]):
        words[str(path.parent.relative_to(ROOT))] += len(path.read_text().split())
    for folder, number in sorted(words.items()):
        print(f"{number:7,} {folder}")
    print(f"{words.total():7,} all")
    if words[DESIGN] > DESIGN_LIMIT:
        print(f"{DESIGN} has more than {DESIGN_LIMIT:,} words", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
