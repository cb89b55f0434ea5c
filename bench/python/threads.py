"""Measures how much more two threads query than one, each with `threads=1`, and two processes beside them.

Usage: threads.py DS --epoch E --ranges FILE.csv [--rounds N] [--queries N]

One thread, two threads and two processes take turns. Each worker runs the same queries, so that twice the work in the time
of one worker is a throughput of 2. Prints a line of JSON with the throughput of each round over that of one thread.
"""

import json
import multiprocessing
import threading
import time
from pathlib import Path

import turbidite
from ranges import parser, predicates

# A worker that has ended breaks the barrier for the others.
PATIENCE_S = 600


def work(dataset: turbidite.Dataset, epoch: int, asked: list[str], queries: int) -> None:
    for number in range(queries):
        dataset.query(asked[number % len(asked)], epochs=epoch, threads=1).to_arrow()


def serve(path: Path, epoch: int, asked: list[str], queries: int, rounds: int, barrier) -> None:
    """A process that does the work of a thread, once per round."""
    dataset = turbidite.open(path)
    work(dataset, epoch, asked, len(asked))
    for _ in range(rounds):
        barrier.wait()
        work(dataset, epoch, asked, queries)
        barrier.wait()


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=11)
    arguments.add_argument("--queries", type=int, default=400)
    options = arguments.parse_args()
    dataset = turbidite.open(options.dataset)
    task = options.epoch, predicates(dataset, options.ranges), options.queries
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(3, timeout=PATIENCE_S)
    processes = [spawn.Process(target=serve, args=(options.dataset, *task, options.rounds, barrier), daemon=True) for _ in range(2)]
    for process in processes:
        process.start()
    work(dataset, *task)
    took: dict[str, list[float]] = {"one thread": [], "two threads": [], "two processes": []}
    for _ in range(options.rounds):
        for count, name in ((1, "one thread"), (2, "two threads")):
            threads = [threading.Thread(target=work, args=(dataset, *task)) for _ in range(count)]
            began = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            took[name].append(time.perf_counter() - began)
        barrier.wait()
        began = time.perf_counter()
        barrier.wait()
        took["two processes"].append(time.perf_counter() - began)
    ratios = {name: [2 * one / two for one, two in zip(took["one thread"], took[name])] for name in ("two threads", "two processes")}
    print(json.dumps(ratios))


if __name__ == "__main__":
    main()
