"""What policies for pipeline-parallel jobs share."""

from __future__ import annotations

from wattkeeper.policies.pipeline.profile import ClockPlan
from wattkeeper.policies.points.moments import START_MOMENTS
from wattkeeper.policies.points.views import Knobs, Running


def highest_limit(running: Running) -> Knobs | None:
    """The answer for jobs whose clocks cannot be chosen: the highest limit, and no change of it."""
    if running.moment not in START_MOMENTS:
        return None
    return Knobs(running.start.options.limits(running.configuration.batch_size)[-1])


def choose_plan(running: Running, plan: ClockPlan) -> Knobs | None:
    """The answer that sets a plan; None if it is in force."""
    first = highest_limit(running)
    if first is not None:
        return first._replace(plan=plan)
    return None if plan == running.knobs.plan else Knobs(plan=plan)
