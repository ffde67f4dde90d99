"""Conditioning of joint normal distributions."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats


class Gaussian(NamedTuple):
    """A joint normal distribution.

    Attributes:
        mean: Shape (variables,).
        covariance: Shape (variables, variables).
        evidence: ln(density) of what was observed, but for a constant.
    """

    mean: Floats
    covariance: Floats
    evidence: float = 0.0

    def observe(self, index: int, value: float, variance: float) -> Gaussian:
        """The distribution once a variable was observed with an error of this variance.

        One observation at a time needs no system of equations, whose rounding varies with
        processors: it is the update of a Kalman filter by a scalar (Kalman, Journal of Basic
        Engineering 82, 1960).
        """
        column = self.covariance[:, index]
        total = float(column[index]) + variance
        left = value - float(self.mean[index])
        gain = column / total
        return Gaussian(
            self.mean + gain * left,
            self.covariance - np.outer(gain, column),
            self.evidence - (left * left / total + math.log(total)) / 2,
        )
