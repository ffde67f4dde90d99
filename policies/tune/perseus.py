"""Perseus: clocks of pipeline-parallel jobs, so that only what sets the pace runs fast."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from wattkeeper.policies.pipeline.published import published_frontier
from wattkeeper.policies.points.moments import START_MOMENTS, Moment
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.tune import Tune
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.tune._pipelines import choose_plan, highest_limit


class Perseus(Tune):
    """See `PerseusConfig`."""

    def __init__(self, config: PerseusConfig) -> None:
        self._unit_s = config.unit_time_s

    def tune(self, ctx: Context, running: Running) -> Knobs | None:
        """The plan of least energy at the pace that the slowest replica needs."""
        task = running.start.options.pipeline
        if task is None:
            return highest_limit(running)
        frontier = published_frontier(task.profile, task.graph, self._unit_s)
        step = frontier.step_for(running.slowdown * frontier.fastest.time_s)
        return choose_plan(running, frontier.plan(step))


class PerseusConfig(PolicyConfig):
    """Perseus (SOSP '24): plans of clocks for the instructions of a pipeline-parallel job.

    A frontier of plans is computed once for each profile and schedule, as the published solver
    does. A job runs at the plan of least energy that is no slower than the highest clocks, or the
    fastest plan if none is as fast; while a straggler elsewhere makes iterations longer, at the
    plan that needs least until their end. Other jobs run at the highest power limit.
    """

    kind: Literal["perseus"] = "perseus"
    policy = Perseus
    plain = "Perseus"
    moments: ClassVar[tuple[Moment, ...]] = (*START_MOMENTS, "straggler")
    sets_clocks: ClassVar[Literal["none", "plans", "single"]] = "plans"
    unit_time_s: float = Field(default=1e-3, gt=0, le=10)
    """Unit of time of the plans, s: from one plan to the next, an iteration is one unit shorter."""
