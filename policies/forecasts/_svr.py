"""Epsilon-insensitive support-vector regression, solved by steps along pairs of coefficients."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.numerics import portable

MOST_STEPS: Final = 1_000_000
ROUNDING: Final = 1e-12
"""Share of the bound by which a coefficient at 0 or at the bound differs from it."""


class Regression(NamedTuple):
    """A fitted regression.

    Attributes:
        rows: Features of the training rows, shape (rows, features).
        coefficients: Of the training rows, shape (rows,).
        offset: Constant term.
        gamma: Width of the kernel.
    """

    rows: Floats
    coefficients: Floats
    offset: float
    gamma: float

    def predict(self, row: Floats) -> float:
        """Predicted target of one row, shape (features,)."""
        distances = ((self.rows - row) ** 2).sum(axis=1)
        weights = portable.exp(-self.gamma * distances)
        return portable.dot(self.coefficients, weights) + self.offset


def fit_regression(
    rows: Floats,
    targets: Floats,
    gamma: float = 1e-4,
    bound: float = 100.0,
    epsilon: float = 0.1,
    tolerance: float = 1e-6,
) -> Regression:
    """Fit the regression by its dual, with kernel ``exp(-gamma |x - y|^2)``.

    The dual is ``min b'Kb / 2 - y'b + epsilon * sum |b|`` with ``sum b = 0`` and ``|b| <= bound``.
    Each step raises the coefficient with the steepest descent upwards and lowers the one with the
    steepest descent downwards by as much, at most until a bound or a zero of one of them, where
    the slope of ``|b|`` changes.

    Args:
        rows: Features, shape (rows, features).
        targets: Shape (rows,).
        gamma: Width of the kernel.
        bound: Largest absolute coefficient, ``C``.
        epsilon: Errors up to it cost nothing.
        tolerance: Steps end where the slopes of all pairs are smaller.
    """
    kernel = portable.exp(-gamma * ((rows[:, None] - rows[None]) ** 2).sum(axis=2))
    b = np.zeros(len(targets))
    gradient = -targets.astype(np.float64)  # of the smooth part
    for _ in range(MOST_STEPS):
        up = np.where(b < bound, gradient + np.where(b >= 0, epsilon, -epsilon), np.inf)
        down = np.where(b > -bound, gradient + np.where(b > 0, epsilon, -epsilon), -np.inf)
        i, j = int(np.argmin(up)), int(np.argmax(down))
        descent = down[j] - up[i]
        if descent < tolerance:
            break
        curvature = max(kernel[i, i] + kernel[j, j] - 2 * kernel[i, j], 1e-12)
        raised = -b[i] if b[i] < 0 else bound - b[i]
        lowered = b[j] if b[j] > 0 else bound + b[j]
        step = min(descent / curvature, raised, lowered)
        b[i] += step
        b[j] -= step
        gradient += step * (kernel[i] - kernel[j])
    size = np.abs(b)
    free = (size > ROUNDING * bound) & (size < bound * (1 - ROUNDING))
    if free.any():
        offset = -np.mean(gradient[free] + epsilon * np.sign(b[free]))
    else:
        offset = -(np.min(up) + np.max(down)) / 2
    return Regression(rows, b, float(offset), gamma)
