"""Asks Turbidite and DuckDB the same questions about one dataset and compares every value of the answers.

Usage: demo_compare.py TURBIDITE DATASET OUTPUT (see demo.sh)
"""

import json
import subprocess
import sys
from pathlib import Path

try:
    import duckdb
except ImportError:
    sys.exit("this Python has no duckdb; 'make demo' installs one")

QUESTIONS = [
    ("a range of energies at step 4000", 4000, "energy >= 1.2 AND energy < 3"),
    ("the most energetic at step 4000", 4000, "energy > 150"),
    ("several columns, steps 2000 to 4000", (2000, 4000), "ux > 20 AND abs(uy) < 2 AND energy > 40"),
    ("one electron through all steps", None, "id = 221640"),
]
COLUMNS = "epoch, id, energy, ux, uy, uz, dx, dy, dz, i, w"


def main() -> None:
    turbidite, dataset, output = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    everything = f"read_parquet('{dataset}/data/*/*.parquet', hive_partitioning = true)"
    connection = duckdb.connect()
    read = stored = 0
    for number, (words, epochs, where) in enumerate(QUESTIONS, 1):
        answer = output / f"answer-{number}.parquet"
        first, last = epochs if isinstance(epochs, tuple) else (epochs, epochs)
        chosen = [] if epochs is None else ["--epoch", f"{first}..{last}"]
        command = [turbidite, "query", dataset, *chosen, "--where", where, "-o", str(answer), "--json"]
        cost = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        read, stored = read + cost["metrics"]["bytes_read"], stored + cost["bytes_of_epochs"]
        within = "" if epochs is None else f" AND epoch BETWEEN {first} AND {last}"
        ours = f"SELECT {COLUMNS} FROM '{answer}'"
        theirs = f"SELECT {COLUMNS} FROM {everything} WHERE {where}{within}"
        rows = connection.execute(f"SELECT count(*) FROM ({theirs})").fetchone()[0]
        differences = connection.execute(
            f"SELECT count(*) FROM (({ours} EXCEPT ALL {theirs}) UNION ALL ({theirs} EXCEPT ALL {ours}))"
        ).fetchone()[0]
        if differences or rows != cost["rows"]:
            sys.exit(f"  {words}: Turbidite has {cost['rows']} rows, DuckDB {rows}; {differences} rows differ")
        print(f"  {words}: {rows:,} rows from both, every value the same")
    print(f"  For these answers Turbidite read {read / 1e6:.2f} MB of {stored / 1e6:.1f} MB ({100 * read / stored:.0f} %).")
    print("  The range and the most energetic ones are found through the order by energy; ids are not ordered, so the last")
    print("  question reads the id of every electron, and nothing else of those that do not match.")


if __name__ == "__main__":
    main()
