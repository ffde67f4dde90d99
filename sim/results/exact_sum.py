"""Sums that are rounded once."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

CHUNK = 1 << 16
"""Numbers at a time."""
DIGITS = 53
HALF = 26
"""Binary digits of a double, and of the lower half of one."""


def exact_sum(values: npt.NDArray[np.float64]) -> float:
    """The sum of numbers, shape (numbers,), rounded once, as by `math.fsum`, but sooner.

    Each is a whole number of 53 binary digits times a power of two. Those of one power are summed
    in two halves, so that doubles hold the sums exactly.
    """
    if not np.isfinite(values).all():
        return math.fsum(values.tolist())
    total = Fraction(0)
    for begin in range(0, len(values), CHUNK):
        fraction, power = np.frexp(values[begin : begin + CHUNK])
        whole = np.ldexp(fraction, DIGITS).astype(np.int64)
        least = int(power.min())
        upper = np.bincount(power - least, whole >> HALF).tolist()
        lower = np.bincount(power - least, whole & ((1 << HALF) - 1)).tolist()
        units = sum(
            ((int(one) << HALF) + int(other)) << place
            for place, (one, other) in enumerate(zip(upper, lower, strict=True))
        )
        total += units * Fraction(2) ** (least - DIGITS)
    return float(total)
