"""Quantiles by rank, exactly."""

import math
from fractions import Fraction

import numpy


def value_at(ordered: numpy.ndarray, share: float):
    """The smallest value that at least this share of all sorted values does not exceed. NumPy takes the product in binary,
    where 0.14 of 40,000 is a little more than 5,600."""
    position = math.ceil(Fraction(str(round(share, 9))) * len(ordered))
    return ordered[max(position, 1) - 1]
