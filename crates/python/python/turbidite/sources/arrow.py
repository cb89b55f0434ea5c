"""Arrow by pyarrow: IPC files, which Feather is, and IPC streams. Values are read from a map of the file."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import numpy

from turbidite.sources import scratch
from turbidite.sources.errors import SourceError, corrupt, failed, missing, usage
from turbidite.sources.inventory import Array, Epoch, Inventory, Options
from turbidite.sources.patterns import File
from turbidite.sources.signatures import ARROW, ARROW_FILE_MAGIC
from turbidite.sources.tables import Found, Member, TableSource

_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class Arrow(TableSource):
    """A series of Arrow files."""

    name = "Arrow"
    suffixes = ARROW
    strict = True
    nulls = "nan"

    def __init__(self, inventory: Inventory) -> None:
        super().__init__(inventory)
        self._files: dict[str, _Batches] = {}

    @classmethod
    def tables(cls, file: File, options: Options, notes: list[str], surveyed: Any) -> Iterator[Found]:
        yield Found(file, *cls._members(file.path, options))

    @classmethod
    def _members(cls, path: str, options: Options) -> tuple[list[Member], Any]:
        if options.species is not None:
            raise usage("--species: an Arrow file has no species; omit the option", path)
        with _errors(path):
            if _is_file(path):
                batches = _Batches(path, [])
                lengths, schema = batches.lengths, batches.schema
            else:
                reader = _stream(path, [])
                lengths, schema = [batch.num_rows for batch in reader], _stream(path, None).schema
        repeated = {name for name in schema.names if schema.names.count(name) > 1}
        if repeated:
            raise failed(f"the file has several columns called '{min(repeated)}'; rename them", path)
        # All batches but the last have the same length, or the blocks need not follow them.
        chunk = lengths[0] if len(set(lengths[:-1])) == 1 else 0
        records = sum(lengths)
        return [_member(field, records, chunk) for field in schema], [path, options.nulls == "nan"]

    @classmethod
    def check_whole(cls, path: str) -> None:
        # A file has its footer at the end.
        with open(path, "rb") as file:
            is_file = file.read(len(ARROW_FILE_MAGIC)) == ARROW_FILE_MAGIC
            file.seek(max(0, os.fstat(file.fileno()).st_size - len(_END_OF_STREAM)))
            if not is_file and file.read() != _END_OF_STREAM:
                raise failed("the stream does not end; is another process still writing it?", path)

    @classmethod
    def prepare(cls, path: str, place: Any, members: Sequence[str]) -> Any:
        """Copies a stream into a file, of which batches can be read in any order."""
        if _is_file(path):
            return place
        import pyarrow

        with _errors(path):
            target = os.path.join(scratch.folder(os.path.getsize(path)), "stream.arrow")
            reader = _stream(path, members)
            with pyarrow.OSFile(target, "wb") as sink, pyarrow.ipc.new_file(sink, reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
        return [target, place[1]]

    def rows(self, epoch: Epoch, place: Any, member: str, first: int, rows: int) -> Array:
        with _errors(epoch.path):
            file, nulls_as_nan = place
            if file not in self._files:
                self._files = {file: _Batches(file, [column.name for column in self.inventory.columns])}
            batches = self._files[file]
            if batches.begins[-1] != epoch.records:
                raise failed("the file has changed since the source was opened; run again", epoch.path)
            parts = [
                _values(part, member, begin, epoch.path, nulls_as_nan) for begin, part in batches.slices(member, first, rows)
            ]
            return parts[0] if len(parts) == 1 else numpy.concatenate(parts)


class _Batches:
    """The record batches of an IPC file, with some of the columns."""

    def __init__(self, path: str, names: Sequence[str]) -> None:
        import pyarrow

        source = pyarrow.memory_map(path)
        self.schema = pyarrow.ipc.open_file(source).schema
        empty = pyarrow.ipc.open_file(source, options=pyarrow.ipc.IpcReadOptions(included_fields=[]))
        self.lengths = [_length(empty, number) for number in range(empty.num_record_batches)]
        self.begins = [0, *accumulate(self.lengths)]
        places = sorted(self.schema.get_field_index(name) for name in names)
        self._file = pyarrow.ipc.open_file(source, options=pyarrow.ipc.IpcReadOptions(included_fields=places))
        self._latest: tuple[int, Any] = (-1, None)

    def slices(self, name: str, first: int, rows: int) -> Iterator[tuple[int, Any]]:
        """Yields the pieces of a column's rows, each with the number of its first row in the file."""
        end, number = first + rows, bisect_right(self.begins, first) - 1
        while first < end:
            begin = self.begins[number]
            count = min(end, self.begins[number + 1]) - first
            if count > 0:
                yield first, self._batch(number).column(name).slice(first - begin, count)
            first, number = first + count, number + 1

    def _batch(self, number: int) -> Any:
        if self._latest[0] != number:
            self._latest = number, self._file.get_batch(number)
        return self._latest[1]


def _length(reader: Any, number: int) -> int:
    return int(reader.get_batch(number).num_rows)


def _is_file(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(ARROW_FILE_MAGIC)) == ARROW_FILE_MAGIC


def _stream(path: str, names: Sequence[str] | None) -> Any:
    """Opens a stream with some of its columns, or with all."""
    import pyarrow

    if names is None:
        return pyarrow.ipc.open_stream(pyarrow.memory_map(path))
    schema = _stream(path, None).schema
    places = sorted(schema.get_field_index(name) for name in names)
    options = pyarrow.ipc.IpcReadOptions(included_fields=places)
    return pyarrow.ipc.open_stream(pyarrow.memory_map(path), options=options)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Turns errors of the library into errors of the file."""
    try:
        import pyarrow
    except ImportError:
        raise missing("an Arrow file", "pyarrow", "arrow") from None
    try:
        yield
    except SourceError:
        raise
    except (pyarrow.ArrowInvalid, pyarrow.ArrowSerializationError, pyarrow.ArrowNotImplementedError, OSError) as error:
        message = " ".join(str(error).split())
        raise corrupt(f"is not a complete Arrow file or stream: {message}; write it again", path) from None


def _member(field: Any, records: int, chunk: int) -> Member:
    dtype = _dtype(field.type)
    unit = (field.metadata or {}).get(b"unit")
    problem = None if dtype is not None else f"has the unsupported type {field.type}"
    stored = numpy.dtype("u1") if dtype is None else dtype
    return Member(field.name, stored, (records,), unit.decode(errors="replace") if unit else None, chunk, True, problem)


def _dtype(kind: Any) -> numpy.dtype[Any] | None:
    """Returns NumPy's type of the values, or `None` if they cannot be stored."""
    from pyarrow import types

    if types.is_integer(kind) or types.is_floating(kind):
        stored: numpy.dtype[Any] = numpy.dtype(kind.to_pandas_dtype())
        return stored
    if types.is_boolean(kind):
        return numpy.dtype(bool)
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        return numpy.dtype(f"V{kind.byte_width}")
    return None


def _values(column: Any, name: str, first: int, path: str, nulls_as_nan: bool) -> Array:
    """Returns the values of a piece of a column, without a copy where Arrow has them packed."""
    from pyarrow import types

    is_float = types.is_floating(column.type)
    if column.null_count and not (is_float and nulls_as_nan):
        row = first + int(numpy.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        cause = "pandas stores NaN as null: --nulls nan reads nulls as NaN" if is_float else "fill them"
        raise failed(f"column '{name}' has nulls (row {row}), which cannot be stored; {cause}, or omit the column", path)
    if types.is_fixed_size_binary(column.type):
        width = column.type.byte_width
        values = numpy.frombuffer(column.buffers()[1], numpy.uint8, len(column) * width, column.offset * width)
        return values.view(f"V{width}")
    # Nulls of floats become NaN.
    copies = types.is_boolean(column.type) or column.null_count > 0
    found: Array = column.to_numpy(zero_copy_only=not copies)
    return found
