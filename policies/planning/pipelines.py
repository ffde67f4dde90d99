"""What a pipeline-parallel job may do under a power cap."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from wattkeeper.policies.pipeline.exact import exact_frontier
from wattkeeper.policies.pipeline.execution import PipelineIteration
from wattkeeper.policies.pipeline.profile import ClockPlan
from wattkeeper.policies.pipeline.task import PipelineTask
from wattkeeper.policies.planning.hull import SpeedPoint
from wattkeeper.policies.profile import UNLIMITED_W

PLANS: Final = 64
"""Plans along the frontier."""


@lru_cache(maxsize=64)
def cap_menu(task: PipelineTask) -> tuple[SpeedPoint, ...]:
    """What it does at plans along its exact frontier, and at one clock, by ascending speed.

    Speeds are relative to the highest clocks.
    """
    frontier = exact_frontier(task.profile, task.graph)
    times = np.linspace(frontier.vertices[0].time_s, frontier.fastest_s, PLANS).tolist()
    plans = dict.fromkeys(frontier.plan(time_s) for time_s in times)
    points = [plan_point(task, task.execute(plan), plan=plan) for plan in plans]
    points += [
        plan_point(task, task.execute(None, clock_mhz), clock_mhz) for clock_mhz in task.clocks_mhz
    ]
    return tuple(sorted(points, key=lambda point: (point.speed, -point.power_w)))


def plan_point(
    task: PipelineTask, iteration: PipelineIteration, clock_mhz: int = 0, plan: ClockPlan = ()
) -> SpeedPoint:
    """An iteration as a point.

    Its power is the mean one, or, if that is more, what it draws while all wait for a straggler.
    """
    speed = task.fastest.time_s / iteration.time_s
    power_w = max(iteration.energy_j / iteration.time_s, task.waiting_w)
    return SpeedPoint(speed, power_w, UNLIMITED_W, clock_mhz, plan)
