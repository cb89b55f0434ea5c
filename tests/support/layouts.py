"""Datasets of every layout, with rows that NumPy has, too."""

import numpy
import turbidite

COLUMNS = {"x": "f4", "y": "f8", "w": "f8", "v": "f8", "q": "int32", "id": "uint64"}
LAYOUTS = {
    "range": {"key": "x"},
    "hash": {"key": "hash:id"},
    "space": {"key": "space:x,y"},
    "levels": {"key": "space:x,y", "levels": 2},
    "indexed": {"key": "y", "indexes": ["hash:id", "bitmap:x,q"]},
}
EPOCHS = (10, 20, 30)
Rows = dict[str, numpy.ndarray]


def drawn(random: numpy.random.Generator, count: int) -> Rows:
    """Random rows, some of them with NaN, infinities, both zeros, no weight, or a far id."""
    x, y = random.normal(size=count), 1e6 + random.normal(size=count)
    special = numpy.array([numpy.nan, numpy.inf, -numpy.inf, -0.0, 0.0, 2.0])
    x[random.random(count) < 0.01] = numpy.nan
    places = random.integers(0, count, count // 800)
    x[places] = random.choice(special, len(places))
    w = random.exponential(size=count) * (random.random(count) < 0.9)
    ids = random.integers(0, 2**64, count, dtype="u8", endpoint=False)
    ids[::2] = random.integers(0, 50, len(ids[::2]), dtype="u8")
    q = random.integers(-4, 5, count)
    return {"x": x, "y": y, "w": w, "v": random.normal(size=count), "q": q, "id": ids}


def write(path, layout: dict, epochs: dict[int, Rows]) -> turbidite.Dataset:
    layout = dict(layout)
    with turbidite.Writer(path, COLUMNS, ranks=2, **layout) as writer:
        for label, rows in epochs.items():
            with writer.epoch(label):
                if len(rows["x"]):
                    writer.append({name: rows[name].astype(kind) for name, kind in COLUMNS.items()})
    return turbidite.open(path)


def whole(epochs: dict[int, Rows]) -> Rows:
    """All rows as stored: floats in 64 bits, integers of Python."""
    stored = {name: numpy.concatenate([rows[name].astype(kind) for rows in epochs.values()]) for name, kind in COLUMNS.items()}
    out = {name: array.astype("f8" if COLUMNS[name][0] == "f" else object) for name, array in stored.items()}
    out["epoch"] = numpy.concatenate([numpy.full(len(rows["x"]), label, object) for label, rows in epochs.items()])
    return out
