"""Speed and pauses of a job with a deadline, planned on a forecast."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.planning.deadline import Menu, Step, add_surcharge, plan_step, split_time
from wattkeeper.policies.planning.hull import fastest
from wattkeeper.policies.points.moments import Moment
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Knobs, Running
from wattkeeper.policies.profile import Curve
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.tune._curves import CurveTune, ProfileSource, speed_and_work


class Deadline(CurveTune):
    """See `DeadlineConfig`."""

    def __init__(self, config: DeadlineConfig) -> None:
        super().__init__(config.profile)
        self.config = config

    def tune(self, ctx: Context, running: Running) -> Knobs | None:
        """The first step of the best plan."""
        curve = self.curves.find(ctx, running)
        if curve is None:
            return self.curves.measure(running)
        step = self._step(ctx, running, curve)
        is_pause = step.point.speed == 0
        limit_w = running.knobs.power_limit_w if is_pause else step.point.power_limit_w
        if limit_w is None:  # it pauses at the start
            limit_w = curve.max_limit_w
        knobs = Knobs(limit_w, run="pause" if is_pause else "go", wake_s=ctx.now_s + step.for_s)
        return None if knobs == running.knobs else knobs

    def _step(self, ctx: Context, running: Running, curve: Curve) -> Step:
        config, start = self.config, running.start
        points, work = speed_and_work(running, curve)
        deadline_s = start.job.deadline_s
        top = fastest(points)
        if math.isnan(deadline_s) or deadline_s <= ctx.now_s or not work > 0:
            return Step(top)
        gpus = start.options.gpus
        menu = Menu(points, config.paused_w * gpus if config.pauses else None, config.restart_s)
        rates, lengths_s = self._rates(ctx, deadline_s)
        return plan_step(menu, rates, lengths_s, work, running.knobs.run == "pause")

    def _rates(self, ctx: Context, deadline_s: float) -> tuple[Floats, Floats]:
        """Forecast rates up to the deadline, and the lengths of their slots."""
        if self.config.signal is None:
            return np.ones(1), np.array([deadline_s - ctx.now_s])
        signal = ctx.signal(self.config.signal)
        lengths_s = split_time(ctx.now_s, signal.until_s, signal.slot_s, deadline_s)
        if len(lengths_s) == 1:
            return np.array([signal.value]), lengths_s
        return add_surcharge(signal.forecast(len(lengths_s)), self.config.surcharge), lengths_s


class DeadlineConfig(PolicyConfig):
    """Meets the deadlines of jobs at the least carbon, money or energy: limits and pauses, planned.

    In each slot of the signal it plans the work left, from now to the deadline, on the forecast,
    and applies the first slot of the plan: an exact linear program over all power limits and a
    pause. Where the work cannot be done in time any more, and without a deadline, the job runs at
    full speed. A training of unknown length is planned as the longest recorded one.
    """

    kind: Literal["deadline"] = "deadline"
    policy = Deadline
    plain = "planning limits and pauses"
    limits_unprofiled: ClassVar[bool] = True
    moments: ClassVar[tuple[Moment, ...]] = ("start", "profiled", "signal", "wake")
    signal: str | None = "carbon"
    """Name of the signal that weighs energy, as `carbon` or `price`; none counts energy alone."""
    surcharge: float = Field(default=0.05, ge=0, le=10)
    """Share by which future slots count as dearer than forecast: it cuts the loss where clean hours
    do not come."""
    pauses: bool = True
    """Whether jobs may pause."""
    paused_w: float = Field(default=0.0, ge=0, le=1e6)
    """Power of each GPU of a paused job, W: 0 where pauses free GPUs (`pauses: free`), the idle
    power where jobs hold them."""
    restart_s: float = Field(default=0.0, ge=0, le=1e9)
    """Time from the end of a pause until work resumes, s, which is kept free before the deadline:
    `checkpoint_s` plus `restore_s` of the cluster's preemption."""
    profile: ProfileSource = "known"
    """`known`: the profiles from which jobs are replayed, in a simulation only. `measured`: all
    limits are measured when a group first runs a batch size."""

    @property
    def needs_foresight(self) -> bool:  # type: ignore[override]
        """Whether profiles are read before they are measured."""
        return self.profile == "known"

    @property
    def signals(self) -> tuple[str, ...]:
        """The one signal, if any."""
        return () if self.signal is None else (self.signal,)
