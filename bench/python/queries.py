"""Times range queries through the package, as `examples/query_speed` does through the library.

Usage: queries.py DS --epoch E --ranges FILE.csv [--rounds N] [--form arrow|stream|numpy]

Every range is asked once to warm up, then `--rounds` times; a range's time is the median of its rounds. `arrow` is
`to_arrow`, which works on a thread of its own, so that Ctrl-C ends it; `stream` is read by pyarrow on this thread.
"""

import json
import statistics
import time

import pyarrow
import turbidite
from ranges import parser, predicates

FORMS = {
    "arrow": turbidite.Query.to_arrow,
    "stream": lambda query: pyarrow.RecordBatchReader.from_stream(query).read_all(),
    "numpy": turbidite.Query.to_numpy,
}


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--form", choices=FORMS, default="arrow")
    options = arguments.parse_args()
    dataset, form = turbidite.open(options.dataset), FORMS[options.form]
    medians_us, rows, found = [], 0, {}
    for where in predicates(dataset, options.ranges):
        times_us = []
        for _ in range(options.rounds + 1):
            found = {}
            began = time.perf_counter()
            found = form(dataset.query(where, epochs=options.epoch))
            times_us.append((time.perf_counter() - began) * 1e6)
        rows += len(found[dataset.schema.key])
        medians_us.append(statistics.median(times_us[1:]))
    print(json.dumps({"median_us": statistics.median(medians_us), "rows": rows}))


if __name__ == "__main__":
    main()
