"""Profiles without the noise of their measurements."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.pipeline.profile import ClockPoint, PipelineProfile

TIME_DEGREE = 2
"""Of the polynomial of time in the clock's period: what waits for memory, and what computes."""
ENERGY_DEGREE = 3
"""Of the polynomial of energy in the clock."""


@lru_cache(maxsize=64)
def smooth_profile(profile: PipelineProfile) -> PipelineProfile:
    """The profile with times and energies from least squares over each operation's clocks.

    Operations of fewer than twice as many points as coefficients stay as they are.
    """
    stages = tuple(
        stage._replace(forward=_smooth(stage.forward), backward=_smooth(stage.backward))
        for stage in profile.stages
    )
    return profile._replace(stages=stages)


def _smooth(points: tuple[ClockPoint, ...]) -> tuple[ClockPoint, ...]:
    if len(points) < 2 * (ENERGY_DEGREE + 1):
        return points
    clock, time_s, energy_j = np.array(points).T
    times_s = _fit(clock.max() / clock, time_s, TIME_DEGREE)
    energies_j = _fit(clock / clock.max(), energy_j, ENERGY_DEGREE)
    return tuple(
        ClockPoint(point.frequency_mhz, *values)
        for point, *values in zip(points, times_s.tolist(), energies_j.tolist(), strict=True)
    )


def _fit(x: Floats, y: Floats, degree: int) -> Floats:
    """The values of the best polynomial."""
    fit = np.polynomial.Polynomial.fit(x, y, degree)
    values: Floats = fit(x)
    return values
