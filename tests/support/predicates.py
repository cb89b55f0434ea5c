"""Random predicates: the text the command gets, and the same decision in NumPy.

The two forms share nothing but the random choice: the NumPy side follows IEEE comparisons (NaN matches nothing), rounds
a literal to the column's type where a bare column is compared, and computes arithmetic in float64.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy

Records = numpy.ndarray
FLOATS = ("energy", "ux", "uy", "uz", "dx", "dy", "dz", "x", "slope")
INTEGERS = ("id", "i")


@dataclass(frozen=True)
class Predicate:
    """One condition in both forms."""

    text: str
    mask: Callable[[Records], numpy.ndarray]

    def __and__(self, other: "Predicate") -> "Predicate":
        return Predicate(f"({self.text}) AND ({other.text})", lambda rows: self.mask(rows) & other.mask(rows))

    def __or__(self, other: "Predicate") -> "Predicate":
        return Predicate(f"({self.text}) OR ({other.text})", lambda rows: self.mask(rows) | other.mask(rows))

    def __invert__(self) -> "Predicate":
        return Predicate(f"NOT ({self.text})", lambda rows: ~self.mask(rows))


COMPARISONS = {
    "<": numpy.less, "<=": numpy.less_equal, ">": numpy.greater, ">=": numpy.greater_equal,
    "=": numpy.equal, "<>": numpy.not_equal, "!=": numpy.not_equal,
}  # fmt: skip


def written(value) -> str:
    """A literal that reads back as the same value, infinities and NaN by name."""
    number = float(value)
    if numpy.isnan(number):
        return "nan"
    if numpy.isinf(number):
        return "inf" if number > 0 else "-inf"
    if float(value) == int(number) and isinstance(value, (int, numpy.integer)):
        return str(int(value))
    return repr(number)


class Generator:
    """Draws predicates whose bounds follow the data's distribution."""

    def __init__(self, seed: int, epochs: dict[int, Records]):
        self.random = numpy.random.default_rng(seed)
        self.epochs = epochs
        everything = numpy.concatenate(list(epochs.values()))
        self.sorted = {}
        for name in FLOATS + INTEGERS:
            values = everything[name]
            if values.dtype.kind == "f":
                values = values[numpy.isfinite(values)]
            self.sorted[name] = numpy.sort(values)

    def choice(self, options):
        return options[int(self.random.integers(len(options)))]

    def compare(self, column: str, operator: str, literal) -> Predicate:
        """A column against a literal, in either order."""
        function = COMPARISONS[operator]

        def mask(rows: Records) -> numpy.ndarray:
            values = rows[column]
            with numpy.errstate(over="ignore"):
                bound = values.dtype.type(literal)
            return function(values, bound)

        if self.random.random() < 0.2:
            mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
            return Predicate(f"{written(literal)} {mirrored} {column}", mask)
        return Predicate(f"{column} {operator} {written(literal)}", mask)

    def window(self, column: str) -> tuple:
        """Bounds around a share of the column's values that is log-uniform between one in a million and all."""
        values = self.sorted[column]
        count = max(1, int(len(values) * 10.0 ** self.random.uniform(-6, 0)))
        begin = int(self.random.integers(0, len(values) - count + 1))
        low, high = values[begin], values[begin + count - 1]
        if column in FLOATS and self.random.random() < 0.5:
            # Not a value of the data, and with more digits than the column keeps.
            low, high = (float(bound) * (1 + self.random.normal() * 1e-4) for bound in (low, high))
        return low, high

    def range(self, column: str) -> Predicate:
        low, high = self.window(column)
        shape = self.random.integers(6)
        if shape == 0:
            literals = f"{written(low)} AND {written(high)}"
            both = self.compare(column, ">=", low), self.compare(column, "<=", high)
            return Predicate(f"{column} BETWEEN {literals}", lambda rows: both[0].mask(rows) & both[1].mask(rows))
        if shape == 1:
            return self.compare(column, self.choice(("<", "<=")), low)
        if shape == 2:
            return self.compare(column, self.choice((">", ">=")), high)
        return self.compare(column, self.choice((">", ">=")), low) & self.compare(column, self.choice(("<", "<=")), high)

    def points(self, column: str) -> Predicate:
        """Equality with values that occur, sometimes several."""
        values = [self.choice(self.sorted[column]) for _ in range(int(self.random.integers(1, 5)))]
        if len(values) == 1:
            return self.compare(column, self.choice(("=", "=", "<>")), values[0])
        text = f"{column} IN ({', '.join(written(value) for value in values)})"
        return Predicate(text, lambda rows: numpy.isin(rows[column], values))

    def odd(self) -> Predicate:
        """Bounds that are NaN or infinite, empty ranges, NaN tests."""
        column = self.choice(FLOATS)
        infinite = self.choice((numpy.inf, -numpy.inf))
        shape = self.random.integers(6)
        if shape == 0:
            return self.compare(column, self.choice(tuple(COMPARISONS)), numpy.nan)
        if shape == 1:
            return self.compare(column, self.choice(tuple(COMPARISONS)), infinite)
        if shape == 2:
            low, high = self.window(column)
            return self.compare(column, ">", high) & self.compare(column, "<", low)
        if shape == 3:
            return self.compare(column, ">", 1e30 if column != "slope" else 1e300)
        if shape == 4:
            return Predicate("isnan(slope)", lambda rows: numpy.isnan(rows["slope"]))
        low, _ = self.window(column)
        return self.compare(column, ">=", low) & self.compare(column, "<=", infinite)

    def arithmetic(self) -> Predicate:
        """Expressions over several columns, in float64."""

        def wide(rows, *columns):
            return [rows[column].astype(numpy.float64) for column in columns]

        one, other = self.choice(("ux", "uy", "uz")), self.choice(("dx", "uy", "energy"))
        bound = float(round(self.random.lognormal(0, 1), 3))
        shape = self.random.integers(6)
        if shape == 0:
            def mask(rows):
                a, b = wide(rows, one, other)
                return a * a + b * b < bound
            return Predicate(f"{one} * {one} + {other} * {other} < {bound}", mask)
        if shape == 1:
            return Predicate(f"abs({one}) < {bound}", lambda rows: numpy.abs(wide(rows, one)[0]) < bound)
        if shape == 2:
            def mask(rows):
                a, b = wide(rows, one, other)
                return a - b >= bound
            return Predicate(f"{one} - {other} >= {bound}", mask)
        if shape == 3:
            modulus = int(self.random.integers(2, 5000))
            return Predicate(f"id % {modulus} = 1", lambda rows: rows["id"] % modulus == 1)
        if shape == 4:
            return Predicate(f"floor(energy) = {int(bound)}", lambda rows: numpy.floor(wide(rows, "energy")[0]) == int(bound))
        return Predicate(f"{one} > {other}", lambda rows: rows[one] > rows[other])

    def one(self) -> Predicate:
        kind = self.random.random()
        if kind < 0.35:
            return self.range("energy")
        if kind < 0.6:
            return self.range(self.choice(FLOATS + INTEGERS))
        if kind < 0.72:
            return self.points(self.choice(FLOATS + INTEGERS))
        if kind < 0.85:
            return self.arithmetic()
        return self.odd()

    def predicate(self) -> Predicate:
        """One to three conditions, joined and negated at random."""
        result = self.one()
        for _ in range(int(self.choice((0, 0, 1, 1, 2)))):
            result = result & self.one() if self.random.random() < 0.65 else result | self.one()
        return ~result if self.random.random() < 0.1 else result

    def epoch_range(self) -> tuple[str, list[int]]:
        """The text of `--epoch` and the epochs it means: one, some, all, none in between."""
        labels = sorted(self.epochs)
        if self.random.random() < 0.5:
            label = self.choice(labels)
            return str(label), [label]
        low, high = sorted((self.choice(labels), self.choice(labels)))
        low -= int(self.random.integers(0, 3))
        return f"{low}..{high}", [label for label in labels if low <= label <= high]
