"""LAMMPS text dumps: several steps in a file, or a file for each step, plain or compressed with gzip, bzip2 or Zstandard.

Rows differ in length, so that the scan notes the offset of each block. Integers stay exact: values are parsed as
doubles, and a column with integers beyond 2^53 is parsed again as integers.
"""

from __future__ import annotations

import os
import shutil
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy

from turbidite.schema import Column
from turbidite.sources import scratch
from turbidite.sources.attributes import attribute
from turbidite.sources.compressed import decompressed
from turbidite.sources.epochs import Epochs
from turbidite.sources.errors import SourceError, corrupt, failed, usage
from turbidite.sources.inventory import (
    Array,
    Epoch,
    Inventory,
    Options,
    Source,
    block_rows,
    choose,
    packed,
)
from turbidite.sources.lammps_box import box_periods
from turbidite.sources.patterns import File, files_of
from turbidite.sources.signatures import COMPRESSED, GZIP_MAGIC, LAMMPS

_I64 = ("id", "mol")
_I32 = ("type", "proc", "procp1", "ix", "iy", "iz")
_I32_PREFIXES = ("i_", "i2_")
_TEXT = ("element", "typelabel")
_TIME_UNITS = {"real": "fs", "metal": "ps", "si": "s", "cgs": "s", "electron": "fs", "micro": "us", "nano": "ns"}
_OTHER_STYLES = "index a 'dump custom' or 'dump atom', or convert the rows to .npz or Parquet files"
"""Advice for dumps of other styles."""
_CHUNK_BYTES = 8 << 20
_MIN_BYTES = 4096
_LEEWAY = 1.125
_LONGEST_LINE_BYTES = 1 << 20
_EXACT = 2.0**53
_SPACES = numpy.zeros(256, bool)
_SPACES[list(b" \t\r\n\v\f")] = True


class Lammps(Source):
    """A series of LAMMPS text dumps."""

    name = "LAMMPS"

    @classmethod
    def scan(cls, options: Options) -> Inventory:
        if options.species is not None:
            raise usage("--species: a LAMMPS dump has no species; its column 'type' tells them apart", options.path)
        if options.epoch is not None:
            raise usage("--epoch: the epochs of LAMMPS dumps are the time steps in the files; omit the option", options.path)
        notes: list[str] = []
        files = files_of(options.path, LAMMPS, notes)
        epochs = Epochs(files, options, notes, files_have_steps=True)
        places: dict[str, Any] = {}
        for file in files:
            scan = _Scan(file, options, epochs)
            for section in scan.sections():
                epochs.add(file, section.epoch, section.columns)
                notes += [f"'{name}' is text; it is left out" for name in section.left_out] + section.notes
            places |= scan.place()
        ordered, columns = epochs.finish()
        details = {"resume": places}
        return Inventory(cls.name, columns, ordered, list(dict.fromkeys(notes)), details, epochs.labels, epochs.left_out)

    def read(self, epoch: Epoch, first: int, rows: int) -> Sequence[Array]:
        details = epoch.details
        block = first // epoch.block_rows
        begin, end = details["offsets"][block : block + 2]
        with open(details["file"], "rb") as file:
            file.seek(begin)
            text = file.read(end - begin)
            if first + rows == epoch.records and not text.endswith(b"\n"):
                text += b"\n"
        rows_of_text = _Rows(text, rows, details["width"], details["line"] + first, epoch)
        return rows_of_text.values(
            self.inventory.columns, [details["fields"][column.name] for column in self.inventory.columns]
        )


@dataclass(frozen=True)
class _Section:
    """A time step of a file."""

    epoch: Epoch
    columns: list[Column]
    left_out: list[str]
    notes: list[str]


class _Scan:
    """Finds the time steps of a file."""

    def __init__(self, file: File, options: Options, epochs: Epochs) -> None:
        self._path, self._options, self._epochs = file.path, options, epochs
        self._stated = file.stated_epoch
        self._line = 0
        self._of_text = ""
        self._units = ""
        self._time: float | None = None
        """The time of the next step, if the file states it."""
        self._row_bytes = 0.0
        self._step: int | None = None
        """The step that is being read, as soon as its number is known."""
        self._last: int | None = None
        self._passed: list[int] = []
        """The steps up to the first that cannot be read."""
        self._latest = 0, 0
        """The offset of the last of them, and the lines before it."""

    def sections(self) -> Iterator[_Section]:
        """Yields the steps that are read. After a step that is broken and not read, goes on with the next one."""
        source = None
        with self._epochs.judged(self._stated, self._path):
            source = _plain(self._path)
        if source is None:
            return
        self._of_text = " of the decompressed text" if source != self._path else ""
        with open(source, "rb") as file:
            self._resume(file)
            is_sound = True
            place = 0, 0
            while True:
                try:
                    self._step = None
                    begin = file.tell(), self._line
                    if not self._begins(file):
                        break
                    place = file.tell(), self._line
                    section = self._section(file, source)
                except SourceError:
                    with self._epochs.judged(self._broken(), self._path):
                        raise
                    is_sound = False
                    self._seek_next(file, *place)
                    continue
                self._last = self._step
                if is_sound and self._step is not None:
                    self._passed.append(self._step)
                    self._latest = begin
                if section is not None:
                    yield section

    def place(self) -> dict[str, Any]:
        """Returns the last place before which nothing is to be read again, once all steps up to it have been read."""
        return {self._path: [*self._latest, self._passed, self._units]} if self._passed and self._of_text == "" else {}

    def _resume(self, file: Any) -> None:
        """Goes to the place of an earlier scan, if all steps before it have been read and the last one is still there."""
        offset, line, steps, units = self._options.resume.get(self._path, (0, 0, [], ""))
        if not steps or self._of_text or any(self._options.selects(step) for step in steps):
            return
        file.seek(offset)
        with suppress(SourceError):
            if self._begins(file) and self._number(file, "time step") == steps[-1]:
                file.seek(offset)
                self._line, self._passed, self._units = line, steps[:-1], units
                for step in steps:
                    self._epochs.selects(step)
                return
        file.seek(0)
        self._line = 0

    def _broken(self) -> int | None:
        """Returns the number of a step that cannot be read, or `None` if it is not known."""
        if self._step is not None or self._last is None:
            return self._stated if self._step is None else self._step
        # Steps ascend, so that the next one is not read if the last one is the last that is.
        is_last = self._options.epochs is not None and self._last >= max(last for _, last, _ in self._options.epochs)
        return self._last + 1 if is_last else None

    def _begins(self, file: Any) -> bool:
        """Reads up to the number of the next step. Returns `False` at the end of the file."""
        begin, is_cut = file.tell(), False
        while line := self._next(file):
            if line.strip() == b"" and not file.peek(1) and begin > 0:
                return False
            if line.strip() == b"---":
                raise usage(f"this is a 'dump yaml' of LAMMPS; {_OTHER_STYLES}", self._path)
            if line.strip() != b"ITEM: TIMESTEP" and self._note(line, file):
                is_cut = True
                continue
            if line.strip() != b"ITEM: TIMESTEP":
                raise self._unexpected(line, "ITEM: TIMESTEP")
            return True
        if is_cut:
            raise self._unexpected(b"", "ITEM: TIMESTEP")
        if begin == 0:
            raise failed("the file is empty", self._path)
        return False

    def _note(self, line: bytes, file: Any) -> bool:
        """Notes the units, which LAMMPS writes once, or the time, which precedes each step. Returns whether a line is either."""
        if line.startswith(b"ITEM: UNITS"):
            self._units = self._next(file).decode(errors="replace").strip()
        elif line.startswith(b"ITEM: TIME"):
            with suppress(ValueError):
                self._time = float(self._next(file))
        else:
            return False
        return True

    def _seek_next(self, file: BinaryIO, offset: int, line: int) -> None:
        """Goes to the first step after an offset, or to the end of the file."""
        file.seek(offset)
        self._line, self._time = line, None
        while text := file.readline(_LONGEST_LINE_BYTES):
            if text.strip() == b"ITEM: TIMESTEP" and text.endswith(b"\n"):
                file.seek(-len(text), os.SEEK_CUR)
                return
            self._line += 1

    def _section(self, file: Any, source: str) -> _Section | None:
        """Returns a step, or `None` if it is not read."""
        wanted = self._options.columns
        step = self._step = self._number(file, "time step")
        is_read = self._epochs.selects(step)
        records, box = -1, None
        while True:
            line = self._next(file)
            if line.startswith(b"ITEM: NUMBER OF ATOMS"):
                records = self._number(file, "number of atoms")
            elif line.startswith(b"ITEM: BOX BOUNDS"):
                box = line, [self._next(file) for _ in range(3)]
            elif self._note(line, file):
                pass
            elif line.startswith((b"ITEM: NUMBER OF ENTRIES", b"ITEM: DIMENSION", b"ITEM: GRID")):
                style = "local" if b"ENTRIES" in line else "grid"
                raise usage(
                    f"line {self._line}{self._of_text}: this is a 'dump {style}' of LAMMPS, whose rows are no atoms; {_OTHER_STYLES}",
                    self._path,
                )
            elif line.startswith(b"ITEM: ATOMS"):
                break
            else:
                raise self._unexpected(line, "ITEM: ATOMS")
        names = line.decode(errors="replace").split()[2:]
        time, self._time = self._time, None
        if records < 0:
            raise corrupt(f"line {self._line}{self._of_text}: step {step} does not state its number of atoms", self._path)
        if not is_read:
            self._skip(file, records, records or 1, step)
            return None
        if not names or len(set(names)) != len(names):
            what = "names no columns" if not names else "names a column twice"
            raise failed(
                f"line {self._line}{self._of_text}: step {step} {what}; use 'dump custom' with distinct columns", self._path
            )
        texts = {name: "is text, which cannot be stored" for name in names if name in _TEXT}
        chosen = choose([name for name in names if name not in texts], wanted, texts, self._path)
        columns = [Column(name, _type(name)) for name in chosen]
        rows = block_rows(sum(int(column.type[1:]) // 8 for column in columns))
        first = self._line + 1
        offsets, has_end = self._skip(file, records, rows, step)
        fields = {name: names.index(name) for name in chosen}
        details = {"file": source, "offsets": offsets, "width": len(names), "line": first, "fields": fields}
        left_out = list(texts) if wanted is None else []
        note = f"{self._path}: the last line has no line end; its last value may be cut"
        if self._options.complete_only and not has_end:
            raise failed(f"the last line of step {step} has no line end", self._path)
        periods = {} if box is None else box_periods(*box, chosen)
        stated = {} if time is None else attribute("time", time, _TIME_UNITS.get(self._units))
        epoch = Epoch(step, self._path, records, rows, details, periods=periods, attributes=stated)
        return _Section(epoch, columns, left_out, [] if has_end else [note])

    def _skip(self, file: BinaryIO, records: int, block: int, step: int) -> tuple[list[int], bool]:
        """Skips the rows of a step. Returns the offset of each block, and the end; and whether the last line has its end."""
        begin = file.tell()
        offsets, seen, position, has_end = [begin], 0, begin, True
        while seen < records:
            # A file may have many small steps, so little is read beyond the end of one.
            expected = int((records - seen) * self._row_bytes * _LEEWAY) + _MIN_BYTES
            asked = min(_CHUNK_BYTES, expected) if self._row_bytes else _CHUNK_BYTES
            chunk = file.read(asked)
            ends = numpy.flatnonzero(numpy.frombuffer(chunk, numpy.uint8) == ord("\n"))
            rest = chunk[int(ends[-1]) + 1 if len(ends) else 0 :]
            if rest.strip() and seen + len(ends) + 1 == records and len(chunk) < asked:
                # The end of the file stands for that of the line.
                ends, has_end = numpy.append(ends, len(chunk)), False
            if not chunk or (len(chunk) < asked and not chunk.endswith(b"\n") and seen + len(ends) < records):
                raise corrupt(
                    f"line {self._line + seen + len(ends) + 1}{self._of_text}: the file ends in step {step}, after {seen + len(ends)} of "
                    f"{records} atoms; is LAMMPS still writing it? --complete-only reads the steps that are whole",
                    self._path,
                )
            used = min(len(ends), records - seen)
            following = numpy.arange((seen // block + 1) * block, seen + used + 1, block)
            offsets += (position + ends[following - seen - 1] + 1).tolist()
            if seen + used == records:
                end = position + int(ends[used - 1]) + (1 if has_end else 0)
                if records % block:
                    offsets.append(end)
                file.seek(end)
                self._row_bytes = (end - begin) / records
            seen, position = seen + used, position + len(chunk)
        self._line += records
        self._check_end(file, records, step)
        return offsets, has_end

    def _check_end(self, file: Any, records: int, step: int) -> None:
        """Raises an error if a step is followed by other than the next one, or the end of the file."""
        if (following := file.peek(1)[:1]) not in (b"I", b""):
            line = self._next(file)
            if line.strip() or following != b"\n" or file.peek(1):
                after = f" after the {records} atoms of step {step}"
                raise self._unexpected(line, "ITEM: TIMESTEP", after)

    def _next(self, file: Any) -> bytes:
        line: bytes = file.readline(_LONGEST_LINE_BYTES)
        self._line += 1
        return line

    def _number(self, file: Any, what: str) -> int:
        line = self._next(file)
        try:
            number = int(line)
        except ValueError:
            number = -1
        if number >= 0 and not line.endswith(b"\n"):
            raise corrupt(f"line {self._line}{self._of_text}: the file ends in the {what}", self._path)
        if number < 0:
            raise corrupt(f"line {self._line}{self._of_text}: the {what} is '{_shown(line)}', not a number", self._path)
        return number

    def _unexpected(self, line: bytes, expected: str, after: str = "") -> SourceError:
        if not line:
            return corrupt(
                f"line {self._line}{self._of_text}: the file ends before '{expected}'; is LAMMPS still writing it?", self._path
            )
        return corrupt(f"line {self._line}{self._of_text} is '{_shown(line)}', expected '{expected}'{after}", self._path)


class _Rows:
    """The text of a block."""

    def __init__(self, text: bytes, rows: int, width: int, line: int, epoch: Epoch) -> None:
        self._text, self._rows, self._width, self._line, self._epoch = text, rows, width, line, epoch
        self._tokens: list[bytes] | None = None
        self._check()

    def values(self, columns: list[Column], fields: list[int]) -> list[Array]:
        """Returns the values of columns, of which `fields` has the places in a row."""
        table = self._table() if 2 * len(fields) > self._width else None
        values = []
        for column, field in zip(columns, fields, strict=True):
            numbers = self._column(column, field) if table is None else table[:, field]
            values.append(numbers.astype("f8") if column.type == "f64" else self._integers(column, field, numbers))
        return [packed(one) for one in values]

    def _check(self) -> None:
        """Raises an error unless each line has one word for each column."""
        content = numpy.frombuffer(self._text, numpy.uint8)
        spaces = _SPACES[content]
        ends = numpy.flatnonzero(content == ord("\n"))
        if len(ends) != self._rows or not self._text.endswith(b"\n"):
            raise failed("the file has changed since the source was opened; run again", self._epoch.path)
        # The position after each word.
        words = numpy.flatnonzero(spaces[1:] & ~spaces[:-1]) + 1
        counts = numpy.diff(numpy.searchsorted(words, ends, "right"), prepend=0)
        wrong = numpy.flatnonzero(counts != self._width)
        if len(wrong):
            row = int(wrong[0])
            line = self._text[ends[row - 1] + 1 if row else 0 : ends[row]]
            raise corrupt(
                f"line {self._line + row}: step {self._epoch.epoch} has {self._width} columns, and '{_shown(line)}' has "
                f"{int(counts[row])} values",
                self._epoch.path,
            )

    def _table(self) -> Array | None:
        """Returns all values, or `None` if a word is not a number."""
        numbers = _parsed(self._text)
        return numbers.reshape(self._rows, self._width) if len(numbers) == self._rows * self._width else None

    def _words(self, field: int) -> list[bytes]:
        if self._tokens is None:
            self._tokens = self._text.split()
        return self._tokens[field :: self._width]

    def _column(self, column: Column, field: int) -> Array:
        words = self._words(field)
        numbers = _parsed(b" ".join(words))
        if len(numbers) != self._rows:
            raise self._malformed(column, words, float)
        return numbers

    def _integers(self, column: Column, field: int, numbers: Array) -> Array:
        words: list[bytes] = []
        try:
            with numpy.errstate(invalid="ignore"):
                if (numpy.abs(numbers) < _EXACT).all() and (numbers == numpy.floor(numbers)).all():
                    integers = numbers.astype("i8")
                else:
                    words = self._words(field)
                    integers = numpy.array([_integer(word) for word in words], "i8")
            bounds = numpy.iinfo(numpy.dtype(f"i{int(column.type[1:]) // 8}"))
            if (integers < bounds.min).any() or (integers > bounds.max).any():
                raise OverflowError
        except (ValueError, OverflowError):
            limit = 1 << (int(column.type[1:]) - 1)

            def integer(word: bytes) -> None:
                if not -limit <= _integer(word) < limit:
                    raise ValueError

            raise self._malformed(column, words or self._words(field), integer) from None
        return integers.astype(f"i{int(column.type[1:]) // 8}")

    def _malformed(self, column: Column, words: list[bytes], parse: Any) -> SourceError:
        for row, word in enumerate(words):
            try:
                parse(word)
            except ValueError:
                kind = "a number" if column.type == "f64" else f"an integer of type {column.type}"
                message = f"line {self._line + row}: column '{column.name}' has '{_shown(word)}', which is not {kind}"
                return corrupt(f"{message}; omit the column with --columns, or repair the line", self._epoch.path)
        return corrupt(f"column '{column.name}' of step {self._epoch.epoch} cannot be parsed", self._epoch.path)


def _parsed(text: bytes) -> Array:
    """Returns the numbers of a text, or none if a word is not a number."""
    with warnings.catch_warnings():
        # NumPy returns the numbers before a word that is none, with a warning.
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return numpy.fromstring(text, numpy.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            return numpy.empty(0)


def _type(name: str) -> str:
    if name in _I64:
        return "i64"
    return "i32" if name in _I32 or name.startswith(_I32_PREFIXES) else "f64"


def _integer(word: bytes) -> int:
    if b"_" in word:
        raise ValueError
    return int(word)


def _shown(line: bytes) -> str:
    text = line.decode(errors="replace").strip()
    return text if len(text) <= 60 else text[:60] + "…"


def _plain(path: str) -> str:
    """Returns the path of the text: the file's own, or of a decompressed copy."""
    with open(path, "rb") as file:
        start = file.read(4)
        file.seek(0, os.SEEK_END)
        # Of the text, gzip alone states the size.
        size = 4 * file.tell()
        if start.startswith(GZIP_MAGIC):
            file.seek(-4, os.SEEK_END)
            size = int.from_bytes(file.read(4), "little")
    if not start.startswith(COMPRESSED):
        return path
    target = os.path.join(scratch.folder(size), "dump")
    try:
        with decompressed(path, start) as source, open(target, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise corrupt(f"cannot be decompressed: {error}; copy the file again", path) from None
    return target
