"""A scheduler with ageing: short jobs first, but nobody waits for ever.

How long the jobs of a group run is learnt from those that ended. A job's rank is its expected run
time, less what it has waited, times a weight: long jobs move up as they wait.
"""

import copy
from typing import Any, Literal

from pydantic import Field

from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Select, Selection
from wattkeeper.policies.points.views import Outcome
from wattkeeper.policies.registry import PolicyConfig


class Ageing(Select):
    """See `AgeingConfig`."""

    def __init__(self, config: "AgeingConfig") -> None:
        self.config = config
        # The state: number and sum of run times (s) by group.
        self.known: dict[str, list[float]] = {}
        # The queue is no part of it: after a restore, all jobs are submitted again.
        self.queue: dict[int, Job] = {}

    def on_submit(self, ctx: Context, job: Job) -> None:
        """A job begins to wait."""
        self.known.setdefault(job.group_id, [0, 0.0])
        self.queue[job.number] = job

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """Start the job of the lowest rank that fits; asked again until nothing changes."""
        for job in sorted(self.queue.values(), key=lambda job: (self.rank(ctx, job), job.number)):
            if capacity.fits(job):
                # One job at a time, and only if it fits: so `on_refuse` is never called.
                del self.queue[job.number]
                return Selection((job,))
        return Selection()

    def rank(self, ctx: Context, job: Job) -> float:
        """Expected run time less the weighted wait, s; a group that never ran counts as short."""
        number, total_s = self.known[job.group_id]
        expected_s = total_s / number if number else 0.0
        return expected_s - self.config.weight * (ctx.now_s - job.submit_time_s)

    def observe(self, ctx: Context, outcome: Outcome) -> None:
        """Learn how long an attempt ran."""
        known = self.known.get(outcome.start.job.group_id)
        if known is not None:  # else it was never submitted to this policy
            known[0] += 1
            known[1] += outcome.time_s

    def state_dict(self) -> dict[str, Any]:
        """What was learnt, as a copy."""
        return copy.deepcopy(self.known)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state, which stays as it is."""
        self.known = copy.deepcopy(state)


class AgeingConfig(PolicyConfig):
    """The job with the shortest run time, as learnt from its group, less its wait.

    It starts any job that fits, and preempts none.
    """

    kind: Literal["ageing"] = "ageing"
    policy = Ageing
    weight: float = Field(default=0.5, ge=0)
    """Seconds of run time that a second of waiting makes up for; 0: no ageing."""
