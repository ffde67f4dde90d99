"""The one power limit that meets a deadline at the least energy."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from wattkeeper.policies.planning.deadline import best_static
from wattkeeper.policies.planning.hull import fastest
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.tune._curves import CurveTune, ProfileSource, speed_and_work


class StaticLimit(CurveTune):
    """See `StaticLimitConfig`."""

    def __init__(self, config: StaticLimitConfig) -> None:
        super().__init__(config.profile)

    def tune(self, ctx: Context, running: Running) -> Knobs:
        """The limit, for the time and the work that are left."""
        curve = self.curves.find(ctx, running)
        if curve is None:
            return self.curves.measure(running)
        points, work = speed_and_work(running, curve)
        left_s = running.start.job.deadline_s - ctx.now_s
        point = fastest(points) if math.isnan(left_s) else best_static(points, work, left_s)
        return Knobs(point.power_limit_w)


class StaticLimitConfig(PolicyConfig):
    """Meets the deadlines of jobs at the least energy with one power limit for the whole job.

    What `deadline` is to be compared with: it reads no signal, never pauses and never changes
    its limit. A job without a deadline, or that cannot meet it, runs at full speed; a training of
    unknown length is planned as the longest recorded one.
    """

    kind: Literal["static-limit"] = "static-limit"
    policy = StaticLimit
    plain = "one limit a job"
    limits_unprofiled: ClassVar[bool] = True
    profile: ProfileSource = "known"
    """`known`: the profiles from which jobs are replayed, in a simulation only. `measured`: all
    limits are measured when a group first runs a batch size."""

    @property
    def needs_foresight(self) -> bool:  # type: ignore[override]
        """Whether profiles are read before they are measured."""
        return self.profile == "known"
