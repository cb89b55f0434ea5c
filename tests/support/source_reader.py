"""A client of the package's readers, which speaks their protocol as the command does."""

import json
import subprocess
import sys

import numpy
import turbidite

from support.command import AMPLE_S


def dtype_of(name: str) -> numpy.dtype:
    return numpy.dtype(f"V{name[12:-1]}" if name.startswith("fixed_bytes(") else f"<{name[0]}{int(name[1:]) // 8}")


class Refused(Exception):
    """An error in place of an answer."""

    def __init__(self, error: dict):
        super().__init__(f"{error['path']}: {error['message']}")
        self.kind, self.path, self.message = error["class"], error["path"], error["message"]


class Reader:
    """A running reader. Leaving the block checks that it ends quietly."""

    def __init__(self, quiet: bool = True, **options):
        self.quiet = quiet
        command = [sys.executable, "-m", "turbidite.sources"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
        )
        assert json.loads(self.process.stdout.readline()) == {"release": turbidite.__version__}

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        rest, said = self.process.communicate(timeout=AMPLE_S)
        if kind is None:
            assert (self.process.returncode, rest, said if self.quiet else b"") == (0, b"", b""), said.decode()

    def ask(self, request: dict) -> dict:
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the reader has ended"
        answer = json.loads(line)
        if "error" in answer:
            assert sorted(answer) == ["error"] and sorted(answer["error"]) == ["class", "message", "path"]
            raise Refused(answer["error"])
        return answer

    def open(self, path, **options) -> dict:
        stated = dict.fromkeys(("format", "species", "columns", "epoch", "index"))
        self.inventory = self.ask({"open": {"version": 2, "path": str(path), **stated, **options}})
        assert sorted(self.inventory) == ["columns", "epochs", "format", "index", "labels", "left_out", "notes"]
        parts = [(epoch["epoch"], epoch["rank"]) for epoch in self.inventory["epochs"]]
        assert parts == sorted(set(parts))
        return self.inventory

    def block(self, epoch: int, first: int, rows: int, rank: int = 0) -> dict[str, numpy.ndarray]:
        assert self.ask({"read": {"epoch": epoch, "rank": rank, "first": first, "rows": rows}}) == {"rows": rows}
        found = {}
        for column in self.inventory["columns"]:
            dtype = dtype_of(column["type"])
            found[column["name"]] = numpy.frombuffer(self.process.stdout.read(rows * dtype.itemsize), dtype)
        return found

    def epoch(self, label: int) -> dict[str, numpy.ndarray]:
        """The rows of an epoch, of which the blocks are read in a scattered order, and the parts follow each other."""
        names = [(column["name"], dtype_of(column["type"])) for column in self.inventory["columns"]]
        rows = [{name: numpy.empty(0, dtype) for name, dtype in names}]
        for part in (epoch for epoch in self.inventory["epochs"] if epoch["epoch"] == label):
            begins = list(range(0, part["records"], part["block_rows"]))
            scattered = numpy.random.default_rng(label).permutation(begins).tolist()
            counts = {begin: min(part["block_rows"], part["records"] - begin) for begin in begins}
            blocks = {begin: self.block(label, begin, counts[begin], part["rank"]) for begin in scattered}
            rows += [blocks[begin] for begin in begins]
        return {name: numpy.concatenate([block[name] for block in rows]) for name, _ in names}


def read(path, **options) -> tuple[dict, dict[int, dict[str, numpy.ndarray]]]:
    """The inventory and all rows of a source, of which every second epoch is read by a reader that has the index."""
    with Reader() as first, Reader() as second:
        inventory = first.open(path, **options)
        assert second.open(path, **options, index=inventory["index"]) == inventory
        readers = first, second
        labels = [epoch["epoch"] for epoch in inventory["epochs"]]
        return inventory, {label: readers[place % 2].epoch(label) for place, label in enumerate(labels)}


def refusal(path, **options) -> Refused:
    """The error that opening a source, or reading its rows, ends with."""
    with Reader() as reader:
        try:
            for epoch in reader.open(path, **options)["epochs"]:
                reader.epoch(epoch["epoch"])
        except Refused as error:
            return error
    raise AssertionError(f"{path} was read")
