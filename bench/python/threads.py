"""Measures how much more two threads query than one, each with `threads=1`, and two processes beside them.

Usage: threads.py DS --epoch E --ranges FILE.csv [--rounds N] [--queries N]

One thread, two threads and two processes take turns. Each worker runs the same queries, so that twice the work in the time
of one worker is a throughput of 2. Prints a line of JSON with the throughput of each round over that of one thread.
"""

import argparse
import json
import multiprocessing
import threading
import time
from pathlib import Path

import turbidite


def work(dataset: turbidite.Dataset, epoch: int, predicates: list[str], queries: int) -> None:
    for number in range(queries):
        dataset.query(predicates[number % len(predicates)], epochs=epoch, threads=1).to_arrow()


def serve(path: Path, epoch: int, predicates: list[str], queries: int, rounds: int, barrier) -> None:
    """A process that does the work of a thread, once per round."""
    dataset = turbidite.open(path)
    work(dataset, epoch, predicates, len(predicates))
    for _ in range(rounds):
        barrier.wait()
        work(dataset, epoch, predicates, queries)
        barrier.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--epoch", type=int, required=True)
    parser.add_argument("--ranges", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--queries", type=int, default=400)
    options = parser.parse_args()
    dataset = turbidite.open(options.dataset)
    key = dataset.schema.key
    ends = (line.split(",") for line in options.ranges.read_text().split())
    task = options.epoch, [f'"{key}" BETWEEN {begin} AND {end}' for begin, end in ends], options.queries
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(3)
    arguments = (options.dataset, *task, options.rounds, barrier)
    processes = [spawn.Process(target=serve, args=arguments, daemon=True) for _ in range(2)]
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
