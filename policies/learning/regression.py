"""Regression of ln(epochs) over batch sizes, for one notion of what a change did to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.learning.arm import Arm, hopeless
from wattkeeper.policies.numerics import portable
from wattkeeper.policies.numerics.gaussian import Gaussian
from wattkeeper.policies.numerics.normal import hazard, survival

LEVEL: Final = math.log(10.0)
LEVEL_SD: Final = 2.0
SLOPE: Final = 0.10
SLOPE_SD: Final = 0.15
BEND_SD: Final = 0.35
BEND_OCTAVES: Final = 2.0
UNEVEN_SD: Final = 0.03
"""The prior: mean and deviation of f at b0 and of its slope an octave; deviation and length of what
is smooth besides; deviation of each batch size from its neighbours."""
NEVER_BETWEEN: Final = 0.02
NEVER_OCTAVE: Final = 0.10
"""Probability that a batch size never reaches the target: between those that did, and an octave
beyond them."""


class Regressed(NamedTuple):
    """What is believed of ln(epochs) by batch size.

    Attributes:
        mean: Of f.
        covariance: Of f.
        noise: Variance of a run.
        misses: Probability that a run never reaches the target.
        evidence: ln(density) of what was seen, but for a constant.
    """

    mean: Floats
    covariance: Floats
    noise: Floats
    misses: Floats
    evidence: float


def regress(arms: Sequence[Arm], x: Floats, noise: float, change: Floats | None) -> Regressed:
    """Regress on the mean of each batch size, and on that from before the last change.

    Args:
        arms: The runs by batch size.
        x: Octaves above the default batch size.
        noise: Variance of a run, without that of whole epochs.
        change: Covariance of what the last change did to f; None if there was none.
    """
    believed, count = _prior(x, change), len(x)
    rounding = np.zeros(count)
    for index, arm in enumerate(arms):
        if arm.runs:
            rounding[index] = arm.rounding
            believed = believed.observe(index, arm.mean, (noise + arm.rounding) / arm.runs)
        if arm.before is not None:
            believed = believed.observe(count + index, arm.before, arm.variance)
    mean, covariance = believed.mean[:count], believed.covariance[:count, :count]
    unseen = [index for index, arm in enumerate(arms) if not arm.runs]
    rounding[unseen] = portable.exp(-2 * np.maximum(mean[unseen], 0.0)) / 12
    total = noise + rounding
    return Regressed(*_add_stops(mean, covariance, total, arms, x), believed.evidence)


def mix(first: Regressed, second: Regressed, share: float) -> Regressed:
    """The moments of two notions of which either may hold; `share`: of the second, beforehand."""
    odds = math.log(share / (1 - share)) + second.evidence - first.evidence
    share = 1 / (1 + math.exp(min(700.0, max(-700.0, -odds))))
    apart = second.mean - first.mean
    within = (1 - share) * first.covariance + share * second.covariance
    return first._replace(
        mean=first.mean + share * apart,
        covariance=within + share * (1 - share) * np.outer(apart, apart),
        misses=(1 - share) * first.misses + share * second.misses,
    )


def _prior(x: Floats, change: Floats | None) -> Gaussian:
    """Of f, and behind it of f before the last change if there was one."""
    apart = (x[:, None] - x[None, :]) / BEND_OCTAVES
    covariance = LEVEL_SD**2 + SLOPE_SD**2 * np.outer(x, x)
    covariance = covariance + BEND_SD**2 * portable.exp(-0.5 * apart**2)
    mean, covariance = LEVEL + SLOPE * x, covariance + UNEVEN_SD**2 * np.eye(len(x))
    if change is None:
        return Gaussian(mean, covariance)
    both = np.block([[covariance + change, covariance], [covariance, covariance]])
    return Gaussian(np.concatenate([mean, mean]), both)


def _add_stops(
    mean: Floats, covariance: Floats, noise: Floats, arms: Sequence[Arm], x: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """The moments with runs that did not reach the target, the noise, and how probably runs do not.

    Outwards: beyond a batch size that never reaches the target, none does.
    """
    misses, octaves = np.zeros(len(x)), x.tolist()
    reached = [at for at, arm in zip(octaves, arms, strict=True) if arm.has_reached] or [0.0]
    least, most = min(reached), max(reached)
    beyond = [max(at - most, 0.0) + min(at - least, 0.0) for at in octaves]
    nearest = {True: (0.0, 0.0), False: (0.0, 0.0)}
    for index in sorted(range(len(arms)), key=lambda index: abs(beyond[index])):
        arm, apart, side = arms[index], abs(beyond[index]), beyond[index] > 0
        never = max(arm.never, NEVER_BETWEEN)
        if apart:
            last, missing = nearest[side]
            never = max(never, 1 - (1 - missing) * (1 - NEVER_OCTAVE) ** (apart - last))
        misses[index] = arm.misses(arm.stopped) if arm.has_reached else never
        if arm.stops:
            mean, covariance, misses[index] = _fold_stops(
                mean, covariance, float(noise[index]), index, arm, never
            )
        if apart:
            nearest[side] = apart, float(misses[index])
    return mean, covariance, noise, misses


def _fold_stops(
    mean: Floats, covariance: Floats, noise: float, index: int, arm: Arm, never: float
) -> tuple[Floats, Floats, float]:
    """The moments, and how probably runs miss, once an arm's runs of `stops` did.

    Each takes longer than it was stopped, unless it was without hope.
    """
    stopped = arm.stopped
    for epochs in arm.stops:
        variance = float(covariance[index, index]) + noise
        s = math.sqrt(variance)
        z = (math.log(epochs + 0.5) - float(mean[index])) / s
        never = hopeless(arm.misses(stopped) if arm.has_reached else never, survival(z))
        stopped += never
        rate, share = hazard(z), 1 - never
        gain = covariance[:, index] / variance
        mean = mean + share * s * rate * gain
        covariance = covariance - share * variance * rate * (rate - z) * np.outer(gain, gain)
    return mean, covariance, arm.misses(stopped) if arm.has_reached else never
