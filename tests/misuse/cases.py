"""The misuses of the library: for each language, what is said of one and which epochs are on disk afterwards, or why the
language has no such mistake. In texts, DS is the dataset, and `…` any text. Locks, folders and disks that cannot be written,
and ranks have tests of their own."""

from collections.abc import Callable
from dataclasses import dataclass

LANGUAGES = ("c", "cpp", "fortran", "python")


class No(str):
    """The reason why a mistake cannot be made in a language."""


@dataclass(frozen=True)
class Cell:
    """What is said of a mistake, and which epochs are on disk afterwards. Without a dataset, there is none on disk."""

    lines: tuple[str, ...]
    epochs: tuple[int, ...] | None


Row = dict[str, Cell | No]
Text = str | tuple[str, ...]


def row(
    library: Text,
    python: Text,
    epochs: tuple[int, ...] | None,
    of_python: tuple[int, ...] | None,
    said: Callable[[str], tuple[str, ...]],
    others: dict[str, str],
) -> Row:
    """A row whose cells are those of C, apart from the others."""

    def cell(language: str, text: Text) -> Cell | No:
        if isinstance(text, No):
            return text
        if language == "python":
            return Cell((text,) if isinstance(text, str) else text, of_python)
        return Cell(said(text) if isinstance(text, str) else text, epochs)

    texts: dict[str, Text] = dict.fromkeys(LANGUAGES, library) | {"python": python} | others
    return {language: cell(language, text) for language, text in texts.items()}


def view(library: str, python: str, **others: str) -> Row:
    """Records that do not fit: their epoch fails, and the next one is written."""

    def said(why: str) -> tuple[str, ...]:
        return f"turbidite_append: DS: epoch 2, rank 0: {why}", f"turbidite_end_epoch: DS: epoch 2 failed on rank 0: {why}"

    return row(library, python, (1, 3), (1, 3), said, others)


def order(
    library: Text, python: Text, epochs: tuple[int, ...] = (1, 2, 3), of_python: tuple[int, ...] = (1, 2, 3), **others: str
) -> Row:
    """Calls in an order that is not allowed."""
    return row(library, python, epochs, of_python, lambda line: (line,), others)


def opening(library: str, python: str, **others: str) -> Row:
    """A dataset that cannot be opened: all later calls are silent, and there is none on disk."""
    return row(library, python, None, None, lambda why: (f"turbidite_open: {why}",), others)


BY_NAME = No("columns have names")
ARRAYS = No("views have the addresses, strides and types of arrays")
LENGTHS = No("pointers have no lengths")
BLOCKS = No("a block begins and ends an epoch")
FREED = No("the handle is freed")
UNSIGNED = No("its integers fit unsigned columns of their size")
DERIVED = No("programs derive their columns themselves")
GAPS = "row_bytes is 24, but the columns of a record have 18; append structs with gaps by turbidite_append"
BEGIN = "none has begun; call turbidite_begin_epoch first"
KEPT = "it exists and is kept; append no records to it, and do not end it"
REFUSED = (
    "set if_exists of turbidite_options to TURBIDITE_IF_EXISTS_REPLACE to rewrite it, or to TURBIDITE_IF_EXISTS_SKIP to keep it "
    "(turbidite_begin_epoch then returns TURBIDITE_SKIPPED: append and end nothing); after a restart, turbidite_truncate_after removes "
    "the later epochs"
)

PYTHON_REFUSED = "if_exists='replace' rewrites it, if_exists='skip' keeps it"
OUTSIDE = (
    "UsageError: append is not allowed outside an epoch: append in a block, 'with writer.epoch(0) as begun:', if begun is True"
)

MISUSES: dict[str, Row] = {
    "doubles": view(
        "column 'energy': the values are f64, but the column is f32",
        "UsageError: column 'energy': an array of float64 is given, but the column is f32; convert it: array.astype('<f4')",
    ),
    "signed": view(
        "column 'id': the values are i64, but the column is u64",
        "UsageError: column 'id': an array of int64 is given, but the column is u64; convert it: array.astype('<u8')",
        fortran=UNSIGNED,
    ),
    "short": view(
        "column 'id': the values are i32, but the column is u64",
        "UsageError: column 'id': an array of int32 is given, but the column is u64; convert it: array.astype('<u8')",
    ),
    "swapped": view(
        "column 'energy': the values are u64, but the column is f32",
        BY_NAME,
        fortran="column 'energy': the values are i64, but the column is f32",
    ),
    "untyped": view(
        "column 'energy': the view has no type; create it with turbidite_values",
        "UsageError: column 'energy': an array of Python objects cannot be stored",
    ),
    "decayed": view(
        "column 'name': the values are i8, but the column is fixed_bytes(6); give the address of the array, as in &p[0].name",
        ARRAYS,
        fortran=ARRAYS,
    ),
    "wide": view(
        "column 'name': the values are fixed_bytes(5), but the column is fixed_bytes(6)",
        "UsageError: column 'name': an array of |V5 is given, but the column is fixed_bytes(6); convert it: array.astype('|V6')",
    ),
    "nowhere": view(
        "column 'id': the address of the values is NULL",
        "UsageError: column 'id': an array of Python objects cannot be stored",
        fortran=ARRAYS,
    ),
    "narrow": view("column 'id': the stride of 4 bytes is less than the 8 bytes of a value", ARRAYS, fortran=ARRAYS),
    "backwards": view(
        "column 'id': 500 rows exceed the address space",
        No("arrays are read backwards"),
        fortran="column 'id': the array lies backwards; copy it",
    ),
    "endless": view("column 'energy': 18446744073709551615 rows exceed the address space", ARRAYS, fortran=ARRAYS),
    "lengths": view(
        LENGTHS,
        "UsageError: columns differ in length: 'energy' has 500 values, 'id' 499",
        fortran="column 'id' has 499 values, but column 'energy' has 500",
    ),
    "scalars": view(
        No("the number of records is given"),
        "UsageError: column 'energy': an array of one dimension is needed, not of 0",
        fortran="each view is of one value, so that the number of records is unknown; give an array for one column",
    ),
    "fewer": view("2 views were given, but the schema has 3 columns", "UsageError: column 'name' is missing"),
    "more": view("4 views were given, but the schema has 3 columns", "UsageError: the dataset has no column 'charge'"),
    "packed": order(
        (
            f"turbidite_append_rows: DS: epoch 2, rank 0: {GAPS}",
            f"turbidite_end_epoch: DS: epoch 2 failed on rank 0: {GAPS}",
        ),
        No("fields have offsets"),
        (1, 3),
        fortran=No("there are no structs without types"),
    ),
    "again": view(
        "column 'energy': the values are f64, but the column is f32", No("an append that fails at once may be repeated")
    ),
    "before": order(
        (
            f"turbidite_append: DS: epoch: {BEGIN}",
            "turbidite_end_epoch: DS: epoch 1 failed on rank 0: records were appended before turbidite_begin_epoch",
        ),
        OUTSIDE,
        (2, 3),
    ),
    "after": order(
        (
            f"turbidite_append: DS: epoch: {BEGIN}",
            "turbidite_end_epoch: DS: epoch 3 failed on rank 0: records were appended before turbidite_begin_epoch",
        ),
        OUTSIDE,
        (1, 2),
    ),
    "late": order(
        (
            "turbidite_append: DS: epoch 2, rank 0: it is ending; call turbidite_end_epoch_wait first",
            "turbidite_end_epoch: DS: epoch 3 failed on rank 0: records were appended before turbidite_begin_epoch",
        ),
        BLOCKS,
        (1, 2),
    ),
    "ending": order("turbidite_end_epoch: DS: epoch 2, rank 0: it is ending; call turbidite_end_epoch_wait first", BLOCKS),
    "unstarted": order(
        "turbidite_end_epoch_wait: DS: epoch 2, rank 0: its end has not started; call turbidite_end_epoch_start first", BLOCKS
    ),
    "ended": order(f"turbidite_end_epoch: DS: epoch: {BEGIN}", BLOCKS),
    "inside": order(
        (
            "turbidite_begin_epoch: DS: epoch 2, rank 0: it has not ended, so that epoch 3 cannot begin; call turbidite_end_epoch first",
            "turbidite_end_epoch: DS: epoch 2 failed on rank 0: turbidite_begin_epoch was called for epoch 3 before it had ended",
        ),
        "UsageError: epoch 3 begins within the block of another one: end that block first",
        (1, 3),
    ),
    "truncates": order(
        "turbidite_truncate_after: DS: epoch 2, rank 0: it has not ended, so that no epoch can be removed; call turbidite_end_epoch first",
        No("there is no such call"),
    ),
    "open": order(
        "turbidite_close: DS: epoch 9, rank 0: it has not ended, and its records are discarded",
        "UsageError: close is not allowed inside an epoch",
    ),
    "closed": order(
        "turbidite_append: dataset: is NULL: it is closed, or was not opened",
        "UsageError: the writer is closed",
        c=FREED,
        cpp=FREED,
    ),
    "reopened": order(
        "turbidite_open: rank 0: DS/_turbidite/lock is locked by process …, of this job; if two datasets have the same folder, …",
        "OperationError: DS/_turbidite/lock is locked by process … of this job; if two datasets have the same folder, give each its own; …",
    ),
    "exists": order(
        tuple(f"turbidite_begin_epoch: rank 0: epoch {epoch} already exists in DS; {REFUSED}" for epoch in (1, 2, 3)),
        tuple(f"OperationError: epoch {epoch} already exists in DS; {PYTHON_REFUSED}" for epoch in (1, 2, 3)),
    ),
    "skipped": order(
        (
            f"turbidite_append: DS: epoch 1, rank 0: {KEPT}",
            *(f"turbidite_end_epoch: DS: epoch {epoch}, rank 0: {KEPT}" for epoch in (1, 2, 3)),
        ),
        (OUTSIDE,) * 3,
    ),
    "schema": order(
        "turbidite_open: rank 0: DS is a dataset with another schema: its column 'energy' is f32, but 'energy' of type f64 was requested",
        "OperationError: DS is a dataset with another schema: its column 'energy' is f32, but 'energy' of type f64 was requested",
    ),
    "overflow": order(
        DERIVED,
        "RuntimeWarning: column 'square': 981 values too large for f32 (stored as infinity); derive it as 'square:f64=…'",
        cpp=DERIVED,
        fortran=DERIVED,
    ),
    "key": opening("DS: the key 'enrgy' is not one of the columns", "UsageError: the key 'enrgy' is not one of the columns"),
    "type": opening(
        "DS: type: 99 of column 'id' is not one of TURBIDITE_F32 and the other types",
        "UsageError: column 'id': data type 'f3' not understood",
    ),
    "duplicate": opening("DS: two columns are called 'energy' (most engines ignore case)", BY_NAME),
    "nameless": opening(
        "DS: name: is NULL",
        "UsageError: '' is not a valid column name: 'epoch' is reserved, and names must not be empty or contain a dot",
        fortran="DS: '' is not a valid column name: 'epoch' is reserved, and names must not be empty or contain a dot",
    ),
    "pathless": opening("path: is NULL", No("an empty path is the working directory"), fortran="path: is empty"),
    "mode": opening(
        "DS: if_exists: 7 is not one of TURBIDITE_IF_EXISTS_...",
        "UsageError: if_exists is 'error', 'skip' or 'replace', not 'sometimes'",
    ),
    "options": opening(
        "DS: options: struct_size is 0, not 72; call turbidite_options_init first",
        "TypeError: Writer.__init__() got an unexpected keyword argument 'memtable'",
    ),
    "levels": opening(
        "DS: levels of detail: a dataset whose key is by space has 1 to 6 of them, 3 with the key 'energy' are not possible",
        "UsageError: levels of detail: a dataset whose key is by space has 1 to 6 of them, 3 with the key 'energy' are not possible",
    ),
    "parent": opening(
        "rank 0: DS cannot be created, since … is a file; use a new or empty folder",
        "OperationError: DS cannot be created, since … is a file; use a new or empty folder",
    ),
    "occupied": opening(
        "rank 0: DS has other files, such as notes, and is not a dataset; use a new or empty folder",
        "OperationError: DS has other files, such as notes, and is not a dataset; use a new or empty folder",
    ),
}
