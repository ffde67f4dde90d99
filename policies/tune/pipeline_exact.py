"""Clocks of pipeline-parallel jobs by the exact frontier of time and energy."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.pipeline.exact import exact_frontier
from wattkeeper.policies.pipeline.profile import ClockPoint, PipelineProfile
from wattkeeper.policies.points.moments import START_MOMENTS, Moment
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.tune._pipelines import choose_plan, highest_limit

TIME_DEGREE = 2
"""Of the polynomial of time in the clock's period: what waits for memory, and what computes."""

ENERGY_DEGREE = 3
"""Of the polynomial of energy in the clock."""


class PipelineExact(Tune):
    """See `PipelineExactConfig`."""

    def __init__(self, config: PipelineExactConfig) -> None:
        self._extra_time = config.extra_time
        self._margin = config.margin
        self._smooths = config.smooth

    def tune(self, ctx: Context, running: Running) -> Knobs | None:
        """The plan near the frontier at the time that an iteration may take."""
        task = running.start.options.pipeline
        if task is None:
            return highest_limit(running)
        profile = smooth_profile(task.profile) if self._smooths else task.profile
        frontier = exact_frontier(profile, task.graph)
        fastest_s = task.fastest.time_s
        # A longer iteration than the cheapest one needs more energy, unless it must be longer.
        time_s = min((1 + self._extra_time) * fastest_s, max(fastest_s, frontier.cheapest.time_s))
        time_s = max(time_s, running.slowdown * fastest_s)
        return choose_plan(running, frontier.plan(time_s, self._margin))


class PipelineExactConfig(PolicyConfig):
    """Plans of clocks for pipeline-parallel jobs, near the exact frontier of time and energy.

    The frontier is a linear program over the convex hulls of the measured points, solved at once
    for all times, and rounded to one clock for each instruction. A job runs at the plan of least
    energy that is no slower than the highest clocks, or by `extra_time` slower; while a straggler
    elsewhere makes iterations longer, at the plan for that time. Other jobs run at the highest
    power limit.
    """

    kind: Literal["pipeline-exact"] = "pipeline-exact"
    policy = PipelineExact
    moments: ClassVar[tuple[Moment, ...]] = (*START_MOMENTS, "straggler")
    sets_clocks: ClassVar[Literal["none", "plans", "single"]] = "plans"
    extra_time: float = Field(default=0.0, ge=0, le=10)
    """How much longer an iteration may take than at the highest clocks, relative to that; no longer
    than saves energy."""
    margin: float = Field(default=0.0, ge=0, le=1)
    """Share of the time that plans keep free, for measurements that deviate."""
    smooth: bool = False
    """Whether plans trust polynomials through the measured points of each instruction, instead of
    the points: for measurements with noise."""


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
