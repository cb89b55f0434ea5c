"""Random LAMMPS text dumps for Hypothesis, and a small reader of such text, which serves as the oracle."""

import re
from dataclasses import dataclass, field, replace

import numpy
from hypothesis import strategies as st

AXES = ("x", "y", "z")
FORMS = ("", "s", "u", "su")
FURTHER = ("vx", "q", "c_pe", "f_1[2]", "v_a", "d_w", "mol", "type", "proc", "ix", "iy", "i_tag", "i2_pair[1]", "element", "typelabel")
TEXT = ("element", "typelabel")
I64 = ("id", "mol")
I32 = re.compile(r"type|proc|procp1|ix|iy|iz|i2?_.*")
NUMBERS = ("0.5", "-1e-05", "1e+20", "3", "+2.25", "nan", "-nan", "inf", "-inf", "0", "-0", "1.7976931348623157e+308", "5e-324", ".5", "7.", "1E3")
BOUNDARIES = ("pp pp pp", "pp pp pp", "pp pp ff", "fs mm ps", "ff ff ff", "")
DEFECTS = ("cut", "word", "fraction", "wide", "few", "columns", "style", "labels", "count")


@dataclass(frozen=True)
class Step:
    """A time step."""

    label: int
    atoms: int
    seed: int
    bounds: tuple[tuple[float, float], ...]
    tilt: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Text:
    """A series of time steps and how it is written."""

    steps: list[Step]
    names: list[str]
    boundaries: str = "pp pp pp"
    units: str = "none"
    time: str = "none"
    is_box_first: bool = False
    ends: str = "\n"
    has_last_end: bool = True
    blanks: str = " "
    trails: str = " "
    turned: bool = False
    """Whether the columns are in another order from the second step on."""
    defect: str | None = None
    place: int = 0
    """Where the defect is."""

    def lines(self) -> list[list[str]]:
        """The lines of each step."""
        made = []
        for number, step in enumerate(self.steps):
            lines = [f"ITEM: TIMESTEP{self.trails}", str(step.label)]
            units, time = ["ITEM: UNITS", "lj"], ["ITEM: TIME", f"{step.label * 0.005:g}"]
            if self.time != "none":
                lines = time + lines if self.time == "before" else lines + time
            if self.units == "each" or (self.units == "once" and number == 0):
                lines = units + lines
            count = ["ITEM: NUMBER OF ATOMS", str(step.atoms)]
            lines += [*self._box(step), *count] if self.is_box_first else [*count, *self._box(step)]
            names = self.names[::-1] if self.turned and number else self.names
            rows = atoms(step, self.names)
            if self.turned and number:
                rows = [row[::-1] for row in rows]
            lines += [f"ITEM: ATOMS {' '.join(names)}{self.trails}"]
            made.append(lines + [self.blanks.join(row) + self.trails for row in rows])
        return made

    def _box(self, step: Step) -> list[str]:
        head = " ".join(["ITEM: BOX BOUNDS", *(["xy xz yz"] if step.tilt else []), *([self.boundaries] if self.boundaries else [])])
        sides = [f"{low!r} {high:.16e}" for low, high in step.bounds]
        if step.tilt:
            sides = [f"{side} {tilt:.16e}" for side, tilt in zip(sides, step.tilt, strict=True)]
        return [head, *sides]

    def texts(self) -> list[str]:
        """The text of each step, with the defect in one of them."""
        steps = self.lines()
        made = [self.ends.join(lines) + self.ends for lines in steps]
        number = self.place % len(steps)
        made[number] = self._defective(steps[number])
        if not self.has_last_end:
            made[-1] = made[-1].rstrip("\r\n")
        return made

    def _defective(self, lines: list[str]) -> str:
        lines = list(lines)
        head = next(number for number, line in enumerate(lines) if line.startswith("ITEM: ATOMS"))
        count = next(number for number, line in enumerate(lines) if line.startswith("ITEM: NUMBER"))
        names = lines[head].split()[2:]
        row = head + 1 + self.place % max(1, len(lines) - head - 1)
        words = lines[row].split() if row < len(lines) else []
        field_ = self.place % len(names)
        if self.defect == "word" and words:
            words[field_] = "abc"
        elif self.defect == "fraction" and words:
            words[field_] = "1.5"
        elif self.defect == "wide" and words:
            words.append("1")
        elif self.defect == "few" and words:
            words.pop()
        elif self.defect == "columns":
            lines[head] += " more"
            lines[head + 1 :] = [f"{line} 1" for line in lines[head + 1 :]]
            words = words and [*words, "1"]
        elif self.defect == "style":
            lines[count], lines[head] = "ITEM: NUMBER OF ENTRIES", lines[head].replace("ATOMS", "ENTRIES")
        elif self.defect == "labels" and words and "type" in names:
            words[names.index("type")] = "C_3"
        elif self.defect == "count":
            lines[count + 1] = ["-3", "many", str(len(lines) - head), ""][self.place % 4]
        if words:
            lines[row] = self.blanks.join(words) + self.trails
        text = self.ends.join(lines) + self.ends
        return text[: 1 + self.place % len(text)] if self.defect == "cut" else text


def atoms(step: Step, names: list[str]) -> list[list[str]]:
    """The words of each atom. Ids are in any order, some of them above 2^53."""
    random = numpy.random.default_rng(step.seed)
    columns = []
    for name in names:
        if name in TEXT:
            words = random.choice(["C", "Si", "C_3", "N4+"], step.atoms).tolist()
        elif name in I64:
            words = map(str, (random.permutation(step.atoms) + (2**60 if step.seed % 3 == 0 else 1)).tolist())
        elif I32.fullmatch(name):
            words = map(str, random.integers(-9 if name[0] == "i" else 1, 9, step.atoms).tolist())
        else:
            plain = [f"{value:{'.16e' if step.seed % 2 else 'g'}}" for value in random.normal(size=step.atoms) * 10]
            words = [text if random.random() < 0.8 else str(random.choice(NUMBERS)) for text in plain]
        columns.append(list(words))
    return [list(row) for row in zip(*columns, strict=True)]


bounds = st.tuples(*[st.tuples(st.sampled_from([0.0, -4.0, 1e-3]), st.sampled_from([1.0, 12.5, 16.795961913825074])) for _ in AXES])


@st.composite
def texts(draw) -> Text:
    """Mostly text without a defect."""
    forms = [draw(st.sampled_from(("", *FORMS))) for _ in AXES]
    names = [*(["id"] if draw(st.integers(0, 4)) else []), *(f"{axis}{form}" for axis, form in zip(AXES, forms, strict=True))]
    names += draw(st.lists(st.sampled_from(FURTHER), max_size=4, unique=True))
    same, tilt = draw(bounds), draw(st.sampled_from([None, None, None, (0.0, 0.0, 0.0), (0.5, 0.0, -0.25)]))
    label, steps = draw(st.sampled_from([0, 100, 7_000_000_000])), []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.sampled_from([0, 1, 5, 5, 40, 5000]) if not steps else st.sampled_from([0, 1, 5, 40]))
        steps.append(Step(label, count, draw(st.integers(0, 999)), draw(st.one_of(st.just(same), bounds)), tilt))
        label += draw(st.sampled_from([10, 10, 10, 1, 0]))
    return Text(
        steps,
        draw(st.permutations(names)),
        draw(st.sampled_from(BOUNDARIES)),
        draw(st.sampled_from(["none", "once", "each"])),
        draw(st.sampled_from(["none", "before", "after"])),
        draw(st.booleans()),
        draw(st.sampled_from(["\n", "\n", "\r\n"])),
        draw(st.sampled_from([True, True, False])),
        draw(st.sampled_from([" ", " ", "  ", "\t"])),
        draw(st.sampled_from(["", " "])),
        draw(st.sampled_from([False, False, True])),
        draw(st.sampled_from([None, None, *DEFECTS])),
        draw(st.integers(0, 9999)),
    )


# ---- the oracle


class Wrong(Exception):
    """Text that is none of LAMMPS', with the words that a refusal has, any of them."""


@dataclass
class Read:
    """A time step as it was read."""

    label: int
    columns: dict[str, numpy.ndarray] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    periods: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    """The words of refusals of its rows, any of them."""


def read(text: str) -> list[Read]:
    """Reads text line by line, and word by word."""
    lines = text.replace("\r\n", "\n").split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    found, place = [], 0

    def following(what: str) -> str:
        nonlocal place
        if place >= len(lines):
            raise Wrong("the file ends", what)
        place += 1
        return lines[place - 1]

    while place < len(lines):
        while (line := following("TIMESTEP")).startswith(("ITEM: UNITS", "ITEM: TIME")) and line.strip() != "ITEM: TIMESTEP":
            following("TIMESTEP")
        if line.strip() != "ITEM: TIMESTEP":
            raise Wrong(f"'{line.strip()[:60]}")
        found.append(_read_step(following))
    if not found:
        raise Wrong("empty")
    return found


def _read_step(following) -> Read:
    made, count, box = Read(_natural(following("step"))), None, None
    while not (line := following("ATOMS")).startswith("ITEM: ATOMS"):
        if line.startswith("ITEM: NUMBER OF ATOMS"):
            count = _natural(following("atoms"))
        elif line.startswith("ITEM: BOX BOUNDS"):
            box = line.split()[3:], [following("ITEM") for _ in AXES]
        elif line.startswith(("ITEM: UNITS", "ITEM: TIME")):
            following("ITEM")
        elif line.startswith("ITEM: NUMBER OF ENTRIES"):
            raise Wrong("dump local")
        else:
            raise Wrong(f"'{line.strip()[:60]}")
    names = line.split()[2:]
    if count is None:
        raise Wrong("number of atoms")
    if not names or len(set(names)) < len(names):
        raise Wrong("columns", "column twice")
    rows = [following(f"step {made.label}").split() for _ in range(count)]
    made.texts = [name for name in names if name in TEXT]
    if any(len(row) != len(names) for row in rows):
        made.wrong = [f"has {len(names)} columns"]
        rows = [[*row, *names][: len(names)] for row in rows]
    for name, words in zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True):
        if name not in TEXT:
            made.columns[name], is_right = _numbers(name, words)
            made.wrong += [] if is_right or made.wrong else [f"column '{name}'"]
    made.periods = _periods(box, made.columns)
    return made


def _natural(line: str) -> int:
    if not re.fullmatch(r"\s*\+?\d+\s*", line):
        raise Wrong(f"'{line.strip()}'", "the file ends")
    return int(line)


def _numbers(name: str, words: tuple[str, ...]) -> tuple[numpy.ndarray, bool]:
    """Returns the numbers, and whether all words are some."""
    kind = "i8" if name in I64 else "i4" if I32.fullmatch(name) else "f8"
    try:
        if kind != "f8":
            # Some styles write integers as floats.
            numbers = [int(word) if re.fullmatch(r"[+-]?\d+", word) else float(word) for word in words]
            if any(number != int(number) for number in numbers):
                raise ValueError
            return numpy.array([int(number) for number in numbers], kind), True
        return numpy.array([float(word) for word in words], kind), True
    except (ValueError, OverflowError):
        return numpy.zeros(len(words), kind), False


def _periods(box, columns) -> dict[str, float]:
    """The periods of wrapped coordinates at periodic sides of an orthogonal box."""
    if box is None:
        return {}
    words, sides = box
    numbers = [[float(word) for word in side.split()] for side in sides]
    if any(any(side[2:]) for side in numbers):
        return {}
    flags = words[-3:] if len(words) >= 3 else [""] * 3
    lengths = {axis: side[1] - side[0] for axis, side, flag in zip(AXES, numbers, flags, strict=True) if flag == "pp"}
    return {axis: length for axis, length in lengths.items() if axis in columns and length > 0}


def ends_in_a_row(text: str) -> bool:
    """Whether the last line of a text is an atom's."""
    lines = [line for line in text.splitlines() if line.strip()]
    return bool(lines) and not lines[-1].startswith("ITEM:") and not any(
        line.startswith("ITEM:") and not line.startswith("ITEM: ATOMS") for line in lines[-2:-1]
    )


def without_defect(text: Text) -> Text:
    return replace(text, defect=None)
