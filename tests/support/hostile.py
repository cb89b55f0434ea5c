"""Inputs that upset partitioners: each a list of key arrays, one per rank, of about a million records in all."""

import numpy

ROWS = 1_000_000


def split(keys: numpy.ndarray, ranks: int) -> list[numpy.ndarray]:
    return numpy.array_split(keys, ranks)


def shuffled(keys: numpy.ndarray) -> numpy.ndarray:
    return numpy.random.default_rng(99).permutation(keys)


def blast_wave(ranks: int, step: int) -> list[numpy.ndarray]:
    """Cells of a mesh in file order: nine of ten exactly 0, a front that moves over the ranks from step to step."""
    keys = numpy.zeros(ROWS, numpy.float32)
    front = ROWS // 10
    begin = (step * 3 * front) % (ROWS - front)
    position = numpy.linspace(0, 1, front)
    keys[begin : begin + front] = numpy.exp(8 * position) * (1 + 0.1 * numpy.random.default_rng(step).random(front))
    return split(keys, ranks)


def equal_keys(share: float, ranks: int) -> list[numpy.ndarray]:
    keys = numpy.random.default_rng(4).lognormal(0, 1, ROWS).astype(numpy.float32)
    keys[: int(share * ROWS)] = 1.5
    return split(shuffled(keys), ranks)


def extremes(dtype: str, ranks: int) -> list[numpy.ndarray]:
    """A quarter at the type's smallest value, a quarter at its largest, the rest over its whole range."""
    rng = numpy.random.default_rng(5)
    kind = numpy.dtype(dtype)
    if kind.kind == "f":
        info = numpy.finfo(kind)
        low, high = info.min, info.max
        keys = (rng.random(ROWS) * 2 - 1) * float(info.max) * 0.999
        keys = keys.astype(kind)
    else:
        info = numpy.iinfo(kind)
        low, high = info.min, info.max
        keys = rng.integers(low, high, ROWS, dtype=kind, endpoint=True)
    keys[: ROWS // 4] = low
    keys[ROWS // 4 : ROWS // 2] = high
    return split(shuffled(keys), ranks)


def with_values(share: float, values: tuple, ranks: int) -> list[numpy.ndarray]:
    """Lognormal keys of which a share is replaced by odd values."""
    rng = numpy.random.default_rng(6)
    keys = rng.lognormal(0, 1, ROWS).astype(numpy.float32)
    chosen = rng.choice(ROWS, int(share * ROWS), replace=False)
    keys[chosen] = numpy.resize(numpy.array(values, numpy.float32), len(chosen))
    return split(keys, ranks)


def lognormal(dtype: str = "f4", scale: float = 1) -> numpy.ndarray:
    return (numpy.random.default_rng(7).lognormal(0, 2, ROWS) * scale).astype(dtype)


def one_owner(ranks: int) -> list[numpy.ndarray]:
    return [lognormal() if rank == ranks // 2 else numpy.empty(0, numpy.float32) for rank in range(ranks)]


def empty_ranks(ranks: int) -> list[numpy.ndarray]:
    parts = iter(split(lognormal(), (ranks + 1) // 2))
    return [next(parts) if rank % 2 == 0 else numpy.empty(0, numpy.float32) for rank in range(ranks)]


# Name to a function of the number of ranks that gives the epochs' keys.
INPUTS = {
    "blast wave": lambda ranks: {step: blast_wave(ranks, step) for step in range(3)},
    "lognormal": lambda ranks: {0: split(lognormal(), ranks)},
    "50 % equal": lambda ranks: {0: equal_keys(0.5, ranks)},
    "90 % equal": lambda ranks: {0: equal_keys(0.9, ranks)},
    "100 % equal": lambda ranks: {0: equal_keys(1.0, ranks)},
    "integers 0 to 9": lambda ranks: {0: split(numpy.random.default_rng(8).integers(0, 10, ROWS, dtype="i4"), ranks)},
    "1 % NaN": lambda ranks: {0: with_values(0.01, (numpy.nan,), ranks)},
    "0.01 % infinite": lambda ranks: {0: with_values(0.0001, (numpy.inf, -numpy.inf), ranks)},
    "lognormal x 1e-30": lambda ranks: {0: split(lognormal(scale=1e-30), ranks)},
    "sorted": lambda ranks: {0: split(numpy.sort(lognormal()), ranks)},
    "reverse-sorted": lambda ranks: {0: split(numpy.sort(lognormal())[::-1], ranks)},
    "one rank owns all": lambda ranks: {0: one_owner(ranks)},
    "every second rank empty": lambda ranks: {0: empty_ranks(ranks)},
    "an epoch without records": lambda ranks: {0: [numpy.empty(0, numpy.float32)] * ranks, 1: split(lognormal(), ranks)},
    "one record": lambda ranks: {0: [numpy.float32([3.5])] + [numpy.empty(0, numpy.float32)] * (ranks - 1)},
    "f64": lambda ranks: {0: split(lognormal("f8"), ranks)},
    "u64 beyond 2^63": lambda ranks: {0: split((numpy.uint64(1 << 63) + lognormal("f8", 1e14).astype("u8")), ranks)},
    **{f"extremes of {name}": (lambda ranks, dtype=dtype: {0: extremes(dtype, ranks)}) for name, dtype in
       {"f32": "f4", "f64": "f8", "i32": "i4", "i64": "i8", "u32": "u4", "u64": "u8"}.items()},
}  # fmt: skip

# Where the future is not in the past: every key is beyond all that came before on its rank.
UNPREDICTABLE = {"sorted", "reverse-sorted"}
