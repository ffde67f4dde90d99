"""A preemptive scheduler: a job that is expected to end sooner takes the GPUs of one that is not.

How long the jobs of a group run is learnt from those that ended. A job that outlived that, or whose
group never ran, is expected to run for as long again as it did.
"""

import copy
from typing import Any, Literal

from pydantic import Field

from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Select, Selection
from wattkeeper.policies.points.views import Outcome
from wattkeeper.policies.registry import PolicyConfig


class ShortestRemaining(Select):
    """See `ShortestRemainingConfig`."""

    def __init__(self, config: "ShortestRemainingConfig") -> None:
        self.config = config
        # The state: number and sum of run times (s) by group.
        self.known: dict[str, list[float]] = {}
        # Jobs are no part of it: after a restore, all are submitted again.
        self.waiting: dict[int, Job] = {}
        self.running: dict[int, Job] = {}
        self.started_s: dict[int, float] = {}
        # How long a job ran before its last start, s: work is kept when a job is preempted.
        self.earlier_s: dict[int, float] = {}

    def on_submit(self, ctx: Context, job: Job) -> None:
        """A job begins to wait."""
        self.known.setdefault(job.group_id, [0, 0.0])
        self.earlier_s[job.number] = 0.0
        self.waiting[job.number] = job

    def on_end(self, ctx: Context, job: Job) -> None:
        """A running job ended."""
        del self.running[job.number], self.started_s[job.number], self.earlier_s[job.number]

    def on_pause(self, ctx: Context, job: Job) -> None:
        """A running job gave up its GPUs, by no choice of this policy, and does not wait yet."""
        self.stop(ctx, job)

    def on_resume(self, ctx: Context, job: Job) -> None:
        """It waits again."""
        self.waiting[job.number] = job

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """Start one job, and preempt those whose GPUs it takes; asked until nothing changes."""
        for job in sorted(self.waiting.values(), key=lambda job: self.rank(ctx, job)):
            # First without preemption; then the job that is expected to end last loses its GPUs.
            victims: list[Job] = []
            behind = self.behind(ctx, job)
            while not capacity.fits(job, victims) and behind:
                victims.append(behind.pop())
            if not capacity.fits(job, victims):
                continue
            # A job that this policy preempts waits again without a call of `on_submit`.
            for victim in victims:
                self.stop(ctx, victim)
                self.waiting[victim.number] = victim
            del self.waiting[job.number]
            self.running[job.number] = job
            self.started_s[job.number] = ctx.now_s
            return Selection((job,), tuple(victims))
        return Selection()

    def behind(self, ctx: Context, job: Job) -> list[Job]:
        """The running jobs that a waiting one may preempt, the one that is to end last at the end.

        None that started just now: `select` would be asked for ever.
        """
        least_s = self.remaining_s(ctx, job) + self.config.margin_s
        others = [
            other
            for number, other in self.running.items()
            if self.started_s[number] < ctx.now_s and self.remaining_s(ctx, other) > least_s
        ]
        return sorted(others, key=lambda other: self.rank(ctx, other))

    def rank(self, ctx: Context, job: Job) -> tuple[float, int]:
        """The order of jobs: expected remaining time (s), then number."""
        return self.remaining_s(ctx, job), job.number

    def remaining_s(self, ctx: Context, job: Job) -> float:
        """How long a job is expected to run on, s."""
        ran_s = self.earlier_s[job.number]
        if job.number in self.running:
            ran_s += ctx.now_s - self.started_s[job.number]
        number, total_s = self.known[job.group_id]
        expected_s = total_s / number if number else 0.0
        return max(expected_s - ran_s, ran_s if ran_s > expected_s else 0.0)

    def stop(self, ctx: Context, job: Job) -> None:
        """Note that a running job gives up its GPUs."""
        del self.running[job.number]
        self.earlier_s[job.number] += ctx.now_s - self.started_s.pop(job.number)

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


class ShortestRemainingConfig(PolicyConfig):
    """The job with the shortest expected remaining time first, with preemption.

    What a preemption costs is the cluster's (`cluster.preemption`).
    """

    kind: Literal["shortest-remaining"] = "shortest-remaining"
    policy = ShortestRemaining
    margin_s: float = Field(default=60.0, ge=0)
    """A running job is only preempted for one that is expected to end so much sooner, s."""
