"""Integer expressions against Python's integers, which have no limit: ids that simulations pack, from files to answers."""

import ast
import operator
import random
import re
import shlex

import numpy
import pytest
import turbidite
from support.command import USAGE
from support.command import turbidite as command

IDS = [2**53 + 1, 2**60 + 1, 2**62 + 3]
ROWS = 60
LIMITS = {"i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1), "u64": (0, 2**64 - 1)}


class NoResult(Exception):
    """An operation has no result in 128 bits."""


def truncated(left: int, right: int) -> int:
    if right == 0:
        raise NoResult("divides by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def shifted(left: int, right: int, by) -> int:
    if not 0 <= right < 128:
        raise NoResult("shifts by a distance")
    return by(left, right)


OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: truncated,
    ast.Mod: lambda left, right: left - right * truncated(left, right),
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.LShift: lambda left, right: shifted(left, right, operator.lshift),
    ast.RShift: lambda left, right: shifted(left, right, operator.rshift),
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}


def evaluated(node: ast.expr, row: dict[str, int]) -> int:
    """Evaluates an expression as Python parses it."""
    match node:
        case ast.Name(name):
            return row[name]
        case ast.Constant(value):
            return value
        case ast.UnaryOp(op, operand):
            result = OPERATORS[type(op)](evaluated(operand, row))
        case ast.BinOp(left, op, right):
            result = OPERATORS[type(op)](evaluated(left, row), evaluated(right, row))
    if not -(2**127) <= result < 2**127:
        raise NoResult("exceeds 128 bits")
    return result


def results(text: str, rows: list[dict[str, int]]) -> list[int | NoResult]:
    """Returns the result for each row, or the reason why there is none."""
    tree = ast.parse(text, mode="eval").body

    def result(row):
        try:
            return evaluated(tree, row)
        except NoResult as reason:
            return reason

    return [result(row) for row in rows]


def expression(draw: random.Random, depth: int = 2) -> str:
    """Composes operands and operators, of which few are in parentheses."""

    def operand() -> str:
        prefix = draw.choice(["", "", "", "", "~ ", "- "])
        if depth and draw.random() < 0.3:
            return f"{prefix}({expression(draw, depth - 1)})"
        literals = [0, 1, 2, 3, 7, 20, 63, 1023, 2**20, 2**53 + 1, 2**64 - 1, 2**90 + 1]
        return prefix + draw.choice(["small", "int", "long", "big", "long", "big", *map(str, literals)])

    parts = [operand()]
    for _ in range(draw.randint(1, 3)):
        parts += [draw.choice(["+", "-", "*", "//", "%", "&", "|", "<<", ">>", "%", "&", ">>"]), operand()]
    return " ".join(parts)


def packed(seed: int) -> tuple[random.Random, dict[str, numpy.ndarray], list[dict[str, int]]]:
    """Returns rows with values of all magnitudes, as columns and as dictionaries."""
    draw = random.Random(seed)

    def values(low: int, high: int) -> list[int]:
        near = [low, high, 0, 1, high - 1, low + 1]
        powers = [2 ** draw.randint(0, 63) + draw.randint(-2, 2) for _ in range(ROWS)]
        signed = [-one if low < 0 and draw.random() < 0.5 else one for one in powers]
        return [min(max(one, low), high) for one in (near + signed)[:ROWS]]

    columns = {
        "small": numpy.array(values(0, 255), "u1"),
        "int": numpy.array(values(*LIMITS["i32"]), "i4"),
        "long": numpy.array(values(*LIMITS["i64"]), "i8"),
        "big": numpy.array(values(*LIMITS["u64"]), "u8"),
    }
    for column in columns.values():
        order = list(range(ROWS))
        draw.shuffle(order)
        column[:] = column[order]
    return draw, columns, [{name: int(column[row]) for name, column in columns.items()} for row in range(ROWS)]


def of_type(found: list[int | NoResult]) -> str | None:
    """Returns an integer type that has all results."""
    if any(isinstance(one, NoResult) for one in found):
        return None
    return next((name for name, (low, high) in LIMITS.items() if all(low <= one <= high for one in found)), None)


def test_ids_beyond_53_bits_are_unpacked(tmp_path):
    """WarpX, Smilei and GADGET pack cells and ranks into ids of 64 bits."""
    numpy.savez(tmp_path / "a_1.npz", id=numpy.array(IDS, "u8"), e=numpy.arange(3.0))
    derive = ["pid:u64=id", "low:u64=id%1048576", "high:u32=(id >> 20) & 1023", "half:u64=id // 2"]
    turbidite.ingest(tmp_path / "a_%T.npz", tmp_path / "d", key="e", derive=derive)
    dataset = turbidite.open(tmp_path / "d")
    rows = dataset.query(order="e").to_numpy()
    assert rows["pid"].tolist() == IDS
    assert rows["low"].tolist() == [one % 2**20 for one in IDS]
    assert rows["high"].tolist() == [(one >> 20) % 1024 for one in IDS]
    assert rows["half"].tolist() == [one // 2 for one in IDS]
    for where, wanted in [
        ("id % 1048576 = 3", [2]),
        ("(id >> 53) & 1023 IN (1, 128)", [0, 1]),
        ("id + 0 > 9007199254740992.0", [0, 1, 2]),
    ]:
        assert dataset.query(where, order="e").to_numpy()["e"].tolist() == wanted, where


@pytest.mark.parametrize("seed", range(3))
def test_expressions_are_pythons(seed, tmp_path):
    draw, columns, rows = packed(seed)
    numpy.savez(tmp_path / "a_1.npz", row=numpy.arange(ROWS, dtype="u4"), **columns)
    found = {text: results(text, rows) for text in (expression(draw) for _ in range(800))}
    stored = {f"d{number}": (text, of_type(found[text])) for number, text in enumerate(found) if of_type(found[text])}
    assert len(stored) > 50
    derive = [f"{name}:{data_type} = {text}" for name, (text, data_type) in stored.items()]
    turbidite.ingest(tmp_path / "a_%T.npz", tmp_path / "d", key="row", derive=derive)
    dataset = turbidite.open(tmp_path / "d")
    table = dataset.query(order="row").to_numpy()
    for name, (text, _) in stored.items():
        assert table[name].tolist() == found[text], text

    relations = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
    counts = set()
    for text, values in list(found.items())[:300]:
        known = [one for one in values if isinstance(one, int)]
        sign = draw.choice(list(relations))
        bound = draw.choice(known or [0]) + draw.randint(-1, 1)
        bound = min(max(bound, 1 - 2**127), 2**127 - 1)
        wanted = sum(relations[sign](one, bound) for one in known)
        condition = f"{text} {sign} {bound}"
        assert dataset.query(condition).count() == wanted, condition
        assert dataset.query(f"NOT ({condition})").count() == len(known) - wanted, condition
        counts.add((wanted, len(known)))
    assert len(counts) > 50


def test_integers_without_a_result_are_errors_with_expression_and_row(tmp_path):
    draw, columns, rows = packed(7)
    numpy.savez(tmp_path / "a_1.npz", row=numpy.arange(ROWS, dtype="u4"), **columns)
    seen = set()
    texts = ["big * big * big", "1 // small", "1 << long", "big - 1", *(expression(draw) for _ in range(6))]
    for number, text in enumerate(texts):
        values = results(text, rows)
        wrong = next((row for row, one in enumerate(values) if isinstance(one, NoResult) or not 0 <= one < 2**64), None)
        if wrong is None:
            continue
        reason = values[wrong]
        what = str(reason) if isinstance(reason, NoResult) else f"is {reason}, which does not fit u64"
        with pytest.raises(turbidite.UsageError) as raised:
            turbidite.ingest(tmp_path / "a_%T.npz", tmp_path / str(number), key="row", derive=[f"a:u64 = {text}"])
        said = str(raised.value)
        assert f"derived column 'a', row {wrong}: " in said and what in said and "a_1.npz" in said, (text, said)
        seen.add(what.split()[0])
    assert seen == {"exceeds", "divides", "shifts", "is"}


def test_rows_of_appends_are_numbered(tmp_path):
    with turbidite.Writer(tmp_path / "d", {"n": "int64"}, key="n", derive=["inverse:i8 = 100 // n"]) as writer:
        values = numpy.ones(70_123, "i8")
        values[-1] = 0
        with (
            pytest.raises(turbidite.UsageError, match=re.escape("'inverse', row 70122: 100 // n divides by zero")),
            writer.epoch(1),
        ):
            writer.append({"n": values})


@pytest.mark.parametrize(
    ("names", "stored"),
    [
        (["epoch", "e"], ["source_epoch", "e"]),
        (["e", "v.x", "v_x"], ["e", "v_x_2", "v_x"]),
        (["e", "X", "x"], ["e", "X", "x_2"]),
        (["e", "EPOCH", "source_epoch", "Epoch"], ["e", "source_EPOCH_2", "source_epoch", "source_Epoch_3"]),
    ],
)
def test_messages_about_names_propose_commands_that_work(names, stored, tmp_path):
    numpy.savez(tmp_path / "a_1.npz", **{name: numpy.arange(5.0) + place for place, name in enumerate(names)})
    arguments = ["ingest", tmp_path / "a_%T.npz", "--out", tmp_path / "d", "--key", "e"]
    for _ in names:
        said = command(*arguments, expect=USAGE).stderr
        proposed = re.search(r"(--rename .*) gives it another name", said)
        assert proposed, said
        arguments += shlex.split(proposed[1])
        if sum(one == "--rename" for one in arguments) == sum(old != new for old, new in zip(names, stored, strict=True)):
            break
    command(*arguments)
    rows = turbidite.open(tmp_path / "d").query(order="e").to_numpy()
    for place, name in enumerate(stored):
        assert rows[name].tolist() == (numpy.arange(5.0) + place).tolist()


def test_renamed_columns_have_their_names_in_all_other_options(tmp_path):
    numpy.savez(tmp_path / "a_1.npz", **{"epoch": numpy.arange(5), "x=y": numpy.arange(5.0), "gone": numpy.arange(5.0)})
    turbidite.ingest(
        tmp_path / "a_%T.npz",
        tmp_path / "d",
        key="step",
        columns=["x=y", "epoch", "gone"],
        rename={"epoch": "step", "x=y": "x", "gone": "left"},
        derive=["twice:i64 = step * 2"],
        drop=["left"],
    )
    rows = turbidite.open(tmp_path / "d").query(order="step", columns=["x", "step", "twice"]).to_numpy()
    assert rows["twice"].tolist() == [0, 2, 4, 6, 8] and rows["x"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(turbidite.UsageError, match="rename: there is no column 'step'; the columns are"):
        turbidite.ingest(tmp_path / "a_%T.npz", tmp_path / "e", key="step", rename={"step": "x"})


@pytest.mark.parametrize("seed", range(2))
def test_columns_of_queries_are_pythons(seed, tmp_path):
    draw, columns, rows = packed(seed + 20)
    numpy.savez(tmp_path / "a_1.npz", row=numpy.arange(ROWS, dtype="u4"), **columns)
    turbidite.ingest(tmp_path / "a_%T.npz", tmp_path / "d", key="row")
    dataset = turbidite.open(tmp_path / "d")
    ends = {"exact": 0, "refused": 0}
    for text in (expression(draw) for _ in range(200)):
        values = results(text, rows)
        stated = of_type(values)
        fits = stated in ("i32", "i64")
        query = dataset.query(order="row", columns=[f"v = {text}" if fits or not stated else f"v:{stated} = {text}"])
        if stated:
            found = query.to_numpy()["v"]
            assert found.dtype.kind in "iu" and found.dtype.itemsize == 8 and found.tolist() == values, text
            ends["exact"] += 1
        else:
            with pytest.raises(turbidite.UsageError, match="^column 'v': "):
                query.to_numpy()
            ends["refused"] += 1
    assert min(ends.values()) > 20, ends


def test_integer_columns_of_queries_have_64_bits(tmp_path):
    numpy.savez(tmp_path / "a_1.npz", n=numpy.arange(3, dtype="i4"), id=numpy.array([0, 2**53 + 1, 2**64 - 1], "u8"))
    turbidite.ingest(tmp_path / "a_%T.npz", tmp_path / "d", key="n")
    dataset = turbidite.open(tmp_path / "d")
    texts = ["id // 2", "greatest(id, 5)", "i = id", "n * 2", "n", "2 * epoch", "id % 7", "m:i32 = n + 1", "f:f64 = id + 1", "g:f32 = n", "id / 2"]
    found = dataset.query(order="n", columns=texts).to_numpy()
    assert {name: str(values.dtype) for name, values in found.items()} == {
        "id // 2": "int64", "greatest(id, 5)": "uint64", "i": "uint64", "n * 2": "int64", "n": "int32", "2 * epoch": "int64", "id % 7": "int64",
        "m": "int32", "f": "float64", "g": "float32", "id / 2": "float64",
    }  # fmt: skip
    assert found["id // 2"].tolist() == [0, 2**52, 2**63 - 1] and found["i"].tolist() == [0, 2**53 + 1, 2**64 - 1]
    assert found["f"].tolist() == [1.0, float(2**53 + 2), 2.0**64]
    with pytest.raises(
        turbidite.UsageError, match=r"column 'id \+ 1': id \+ 1 is 18446744073709551616, which does not fit u64; "
    ):
        dataset.query(columns=["id + 1"]).to_numpy()
    # The row without a result is not returned.
    assert dataset.query("n < 2", order="n", columns=["id + 1"]).to_numpy()["id + 1"].tolist() == [1, 2**53 + 2]
    assert dataset.query(order="n", columns=["id + 1"], limit=2).to_numpy()["id + 1"].tolist() == [1, 2**53 + 2]
