"""The normal distribution, for many values at once."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

import numpy as np

from wattkeeper.policies.arrays import Floats

ROOT_2: Final = math.sqrt(2.0)
LEAST_SHARE: Final = 1e-9


def normal_cdf(values: Floats) -> Floats:
    """The distribution function of the standard normal distribution; any shape."""
    flat = np.array([0.5 * math.erfc(-value / ROOT_2) for value in values.ravel().tolist()])
    return flat.reshape(values.shape)


def survival(value: float) -> float:
    """Probability of exceeding a value, of the standard normal distribution."""
    return 0.5 * math.erfc(value / ROOT_2)


def mean_of_largest(share: float) -> float:
    """Mean of the largest values that make up a share, of the standard normal distribution."""
    if share < LEAST_SHARE:
        share = LEAST_SHARE
    return 0.0 if share >= 1 else hazard(NormalDist().inv_cdf(1 - share))


def hazard(value: float) -> float:
    """Density over the probability of exceeding a value, of the standard normal distribution."""
    exceeds = survival(value)
    if exceeds < 1e-290:
        return value + 1 / value
    return math.exp(-0.5 * value * value) / math.sqrt(2 * math.pi) / exceeds
