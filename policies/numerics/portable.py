"""Functions of arrays that give the same bits on all processors.

numpy's own exponential, logarithm and trigonometric functions, and its products of matrices, choose
instructions by the processor, and their last bits differ. A decision that hangs on such a bit would
differ, too. Addition, multiplication and what is built from them is rounded alike everywhere (IEEE
754), and so are the functions of `math` under one C library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

import numpy as np

from wattkeeper.policies.arrays import AnyFloats, Floats

LN_2_HIGH: Final = float.fromhex("0x1.62e42feep-1")
"""ln 2 to 32 bits: its product with an exponent is exact."""
LN_2_LOW: Final = float.fromhex("0x1.a39ef35793c76p-33")
EXP_SERIES: Final = tuple(float(Fraction(1, math.factorial(power))) for power in range(13, -1, -1))
"""Taylor's series of the exponential, which for |x| <= ln(2) / 2 is exact to 1e-17."""
ATANH_SERIES: Final = tuple(1 / (2 * term + 1) for term in range(11, 0, -1))
"""The series of atanh(x) / x - 1 in x**2, which for |x| <= 0.172 is exact to 1e-18."""
OVERFLOW: Final = 746.0
"""The exponential of more is infinite, and of less than minus this, 0."""
BLOCK: Final = 1 << 14
"""Elements that are computed at once: they stay in the cache."""


def exp(values: AnyFloats) -> Floats:
    """The exponential of each element, to a unit in the last place; any shape.

    A power of two times a series, with the reduction of Cody and Waite (Software Manual for the
    Elementary Functions, 1980).
    """
    return _by_block(_exp, values)


def log(values: AnyFloats) -> Floats:
    """The natural logarithm of each element, all positive, to a few units in the last place.

    Any shape. The exponent's logarithm, and a series for what is left.
    """
    return _by_block(_log, values)


def each(function: Callable[[float], float], values: AnyFloats) -> Floats:
    """A function of `math` of each element; any shape."""
    flat = np.array([function(value) for value in values.ravel().tolist()], dtype=np.float64)
    return flat.reshape(values.shape)


def dot(first: Floats, second: Floats) -> float:
    """The sum of the products of two vectors; no negative zero."""
    return float((first * second).sum()) + 0.0


def _by_block(function: Callable[[AnyFloats], Floats], values: AnyFloats) -> Floats:
    if values.size <= BLOCK:
        return function(values)
    flat = values.ravel()
    computed = np.empty(flat.shape)
    for start in range(0, len(flat), BLOCK):
        computed[start : start + BLOCK] = function(flat[start : start + BLOCK])
    return computed.reshape(values.shape)


def _exp(values: AnyFloats) -> Floats:
    values = np.clip(values, -OVERFLOW, OVERFLOW)
    power = np.rint(values / math.log(2.0))
    rest = (values - power * LN_2_HIGH) - power * LN_2_LOW
    total = np.full(rest.shape, EXP_SERIES[0])
    for coefficient in EXP_SERIES[1:]:
        total *= rest
        total += coefficient
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        exponentials: Floats = np.ldexp(total, power.astype(np.int32))
    return exponentials


def _log(values: AnyFloats) -> Floats:
    share, power = np.frexp(values)
    low = share < math.sqrt(0.5)
    share = np.where(low, 2 * share, share)
    power = power - low
    x = (share - 1) / (share + 1)
    square = x * x
    total = np.full(x.shape, ATANH_SERIES[0])
    for coefficient in ATANH_SERIES[1:]:
        total *= square
        total += coefficient
    total *= square
    logs: Floats = power * LN_2_HIGH + (2 * x * total + power * LN_2_LOW + 2 * x)
    return logs
