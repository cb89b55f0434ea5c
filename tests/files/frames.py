"""Writes data frames by pandas. Usage: python frames.py FOLDER"""

import sys
from pathlib import Path

import numpy
import pandas

folder, random = Path(sys.argv[1]), numpy.random.default_rng(7)
frame = pandas.DataFrame({"x": random.random(3000), "id": numpy.arange(3000), "tag": random.integers(0, 9, 3000).astype("i2")})
frame.to_parquet(folder / "plain.parquet")
frame.to_feather(folder / "plain.feather")
frame.set_index("id").to_parquet(folder / "indexed.parquet")
holes = frame.assign(x=frame["x"].where(frame["x"] > 0.1))
holes.to_parquet(folder / "holes.parquet")
holes.to_feather(folder / "holes.feather")
frame.assign(name="text").to_parquet(folder / "text.parquet")
