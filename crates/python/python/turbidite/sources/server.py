"""The protocol between the command and a reader: lines of JSON, and blocks of packed values.

The reader begins with its release. A request `open` is answered with an inventory. A request `read` is answered with one
line and then the values of the block, column after column. An error takes the place of an answer. The reader ends when its
standard input does.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import traceback
from typing import Any

import numpy

from turbidite._core import version
from turbidite.sources import scratch
from turbidite.sources.detect import source_class
from turbidite.sources.errors import Absent, SourceError, corrupt, failed, usage
from turbidite.sources.inventory import Array, Epoch, Inventory, LeftOut, Options, Source
from turbidite.sources.read_ahead import ReadAhead

VERSION = 2
_PIPE_BYTES = 1 << 20


def main() -> None:
    """Serves requests until the end of standard input, then ends the process."""
    answers = os.dup(1)
    # Output that libraries print must not mix with the answers.
    os.dup2(2, 1)
    # Fewer changes between the reader and the command. A user's limit, or what is not a pipe, is left as it is.
    with contextlib.suppress(OSError):
        fcntl.fcntl(answers, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    server = _Server(answers)
    status = 0
    try:
        server.greet()
        for line in sys.stdin.buffer:
            server.serve(line)
    except (BrokenPipeError, KeyboardInterrupt):
        status = 1
    finally:
        scratch.remove()
    sys.stderr.flush()
    # Without destructors: ADIOS2's end the process with an abort after a read error.
    os._exit(status)


class _Server:
    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._source: Source | None = None
        self._epochs: dict[tuple[int, int], Epoch] = {}
        self._read_ahead = ReadAhead([])

    def greet(self) -> None:
        """States the release, before any answer."""
        self._write(json.dumps({"release": version()}).encode() + b"\n")

    def serve(self, line: bytes) -> None:
        blocks: list[Array] = []
        try:
            answer, blocks = self._answer(line)
        except SourceError as error:
            answer = _error(error)
        except OSError as error:
            path = error.filename if isinstance(error.filename, str) else None
            answer = _error(failed(f"cannot be read: {error.strerror or error}", path))
        except MemoryError:
            answer = _error(failed("there is not enough memory; use fewer threads"))
        except Exception as error:  # noqa: BLE001 - the command reports it and ends
            traceback.print_exc()
            answer = _error(failed(f"the reader failed with {type(error).__name__}: {error}"))
        self._write(json.dumps(answer).encode() + b"\n")
        for block in blocks:
            self._write(block.view(numpy.uint8).data if block.size else b"")

    def _answer(self, line: bytes) -> tuple[dict[str, Any], list[Array]]:
        kind, arguments = _parsed(line)
        if kind == "open":
            return self._open(arguments), []
        return self._read(**arguments)

    def _open(self, given: dict[str, Any]) -> dict[str, Any]:
        spoken = given.pop("version", None)
        if spoken != VERSION:
            raise usage(
                f"the command speaks version {spoken} of the protocol of readers, and the package turbidite version "
                f"{VERSION}: they are of different releases; install both from the same one"
            )
        index = given.pop("index", None)
        stated = given.pop("format", None)
        try:
            resume = json.loads(given.get("resume") or "{}")
            options = Options(**{**given, "done": frozenset(given.get("done", ())), "resume": resume})
        except TypeError as error:
            raise usage(f"the request is not one of protocol version {VERSION}: {error}") from None
        if index is None:
            try:
                kind = source_class(stated, options)
                if options.nulls not in (None, kind.nulls):
                    raise usage(
                        "--nulls nan is for Parquet and Arrow files, --nulls fill for HDF5 files; omit the option", options.path
                    )
                inventory = kind.scan(options)
            except Absent as error:
                if not options.complete_only:
                    raise
                # A running simulation may be about to write the first file.
                return Inventory("", [], [], left_out=[LeftOut(None, error.path or options.path, str(error))]).answer()
        else:
            inventory = Inventory.of_index(index)
            kind = source_class(inventory.format, options)
        self._source = kind(inventory)
        self._epochs = {(epoch.epoch, epoch.rank): epoch for epoch in inventory.epochs}
        self._read_ahead = ReadAhead(inventory.epochs)
        return inventory.answer()

    def _read(self, epoch: int, rank: int, first: int, rows: int) -> tuple[dict[str, Any], list[Array]]:
        found = self._epochs.get((epoch, rank))
        if self._source is None or found is None:
            raise usage(f"part {rank} of epoch {epoch} is not one of an open source")
        expected = max(0, min(found.block_rows, found.records - first))
        if first < 0 or first % found.block_rows or rows != expected:
            raise usage(f"rows {first} to {first + rows} are not a block of epoch {epoch}")
        if rows == 0:
            return {"rows": 0}, []
        self._read_ahead.follow(found.path)
        arrays = list(self._source.read(found, first, rows))
        for column, array in zip(self._source.inventory.columns, arrays, strict=True):
            if array.shape != (rows,):
                raise corrupt(f"column '{column.name}' has {len(array)} values in a block of {rows}", found.path)
        return {"rows": rows}, arrays

    def _write(self, content: bytes | memoryview) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(self._answers, rest) :]


def _parsed(line: bytes) -> tuple[str, dict[str, Any]]:
    """Returns the kind of a request and its arguments."""
    try:
        [(kind, arguments)] = json.loads(line).items()
        if kind == "open" or (kind == "read" and {*arguments} == {"epoch", "rank", "first", "rows"}):
            return kind, dict(arguments)
    except (AttributeError, TypeError, ValueError):
        pass
    raise usage(f"the request is not one of protocol version {VERSION}: {line[:80].decode(errors='replace').strip()}")


def _error(error: SourceError) -> dict[str, Any]:
    return {"error": {"class": error.kind, "path": error.path, "message": str(error)}}
