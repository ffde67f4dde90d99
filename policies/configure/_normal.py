"""The normal distribution, for many values at once."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from wattkeeper.policies.arrays import Floats

ROOT_2: Final = math.sqrt(2.0)


def normal_cdf(values: Floats) -> Floats:
    """The distribution function of the standard normal distribution; any shape."""
    flat = np.array([0.5 * math.erfc(-value / ROOT_2) for value in values.ravel().tolist()])
    return flat.reshape(values.shape)


def hazard(value: float) -> float:
    """Density over the probability of exceeding a value, of the standard normal distribution."""
    exceeds = 0.5 * math.erfc(value / ROOT_2)
    if exceeds < 1e-290:
        return value + 1 / value
    return math.exp(-0.5 * value * value) / math.sqrt(2 * math.pi) / exceeds
