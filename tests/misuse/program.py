"""misuse.c in Python: writes three epochs and makes a mistake. Exceptions are caught where a program could go on."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy
import turbidite

COUNT, HALF, WRONG_EPOCH = 1000, 500, 2
SCHEMA = {"energy": "f4", "id": "uint64", "name": "V6"}
ROWS = {
    "energy": numpy.arange(COUNT, dtype="f4"),
    "id": numpy.arange(COUNT, dtype="u8"),
    "name": numpy.full(COUNT, b"abcdef", "S6").view("V6"),
}
WRITERS = {
    "key": {"key": "enrgy"},
    "type": {"schema": SCHEMA | {"id": "f3"}},
    "schema": {"schema": SCHEMA | {"energy": "f8"}},
    "nameless": {"schema": {"": "f4"} | SCHEMA},
    "mode": {"if_exists": "sometimes"},
    "options": {"memtable": 1},
    "levels": {"levels": 3},
    "replaces": {"if_exists": "replace"},
    "skipped": {"if_exists": "skip"},
    "overflow": {"derive": "square = energy*energy*1e36"},
}
WRONG_COLUMNS = {
    "doubles": {"energy": numpy.zeros(HALF)},
    "signed": {"id": numpy.zeros(HALF, "i8")},
    "short": {"id": numpy.zeros(HALF, "i4")},
    "untyped": {"energy": numpy.zeros(HALF, object)},
    "wide": {"name": numpy.zeros(HALF, "V5")},
    "nowhere": {"id": None},
    "lengths": {"id": numpy.zeros(HALF - 1, "u8")},
    "scalars": {"energy": numpy.float32(1), "id": numpy.uint64(1), "name": numpy.void(b"abcdef")},
    "more": {"charge": numpy.zeros(HALF, "f4")},
}


def half(first: int, mistake: str = "") -> dict:
    rows = {name: values[first : first + HALF] for name, values in ROWS.items()}
    rows |= WRONG_COLUMNS.get(mistake, {})
    if mistake == "fewer":
        del rows["name"]
    if mistake == "constant":
        rows["energy"] = numpy.broadcast_to(ROWS["energy"][:1], HALF)
    return rows


def misuse(mistake: str, path: Path) -> list[str]:
    """Writes the epochs, and returns the exceptions as text."""
    said: list[str] = []

    @contextmanager
    def attempt() -> Iterator[None]:
        try:
            yield
        except (turbidite.TurbiditeError, TypeError) as error:
            said.append(f"{type(error).__name__}: {error}")

    options = {"schema": SCHEMA, "key": "energy"} | WRITERS.get(mistake, {})
    schema = options.pop("schema")
    with (
        attempt(),
        warnings.catch_warnings(action="always", record=True) as warned,
        turbidite.Writer(path, schema, **options) as writer,
    ):
        if mistake == "reopened":
            with attempt():
                turbidite.Writer(path, SCHEMA, key="energy")
        if mistake == "before":
            with attempt():
                writer.append(half(0))
        for epoch in (1, 2, 3):
            is_wrong = epoch == WRONG_EPOCH
            with attempt(), writer.epoch(epoch):
                writer.append(half(0, mistake if mistake == "constant" else ""))
                if is_wrong and mistake == "inside":
                    with attempt(), writer.epoch(3):
                        pass
                if mistake != "replaces":
                    writer.append(half(HALF, mistake if is_wrong or mistake == "constant" else ""))
            if is_wrong and mistake == "after":
                with attempt():
                    writer.append(half(0))
        if mistake == "open":
            with attempt():
                block = writer.epoch(9)
                block.__enter__()
                writer.close()
        if mistake == "closed":
            writer.close()
            writer.append(half(0))
    return said + [f"{warning.category.__name__}: {warning.message}" for warning in warned]
