"""Jobs with slack wait for hours in which the grid is cleaner, or energy cheaper."""

from __future__ import annotations

import math
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from wattkeeper.policies.arrays import Bools, Floats
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Select, Selection
from wattkeeper.policies.registry import PolicyConfig, find_config
from wattkeeper.policies.scheduling.estimates import Estimates, needed_columns


class _Held(NamedTuple):
    """A job that is held back: its planned and its latest start, and its run time, s."""

    start_s: float
    number: int
    latest_s: float
    run_s: float
    job: Job


class CarbonAware(Select):
    """See `CarbonAwareConfig`.

    Held jobs are in a heap by planned start. At each new value of the signal, one comparison for
    each finds out whether its plan still gains; only jobs whose plan does not are planned anew.
    """

    def __init__(self, config: CarbonAwareConfig) -> None:
        self.config = config
        self._queue: Select = config.queue_config.build()
        self._held: list[_Held] = []
        self._since_s = -math.inf
        self._forecast = np.empty(0)

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Hold the job back if waiting gains, else enqueue it.

        Raises:
            PolicyError: If it has a deadline, and its expected run time is unknown.
        """
        if math.isnan(job.deadline_s):
            self._queue.on_submit(ctx, job)
            return
        run_s = job.duration_s if self.config.estimates == "perfect" else job.estimate_s
        if not run_s >= 0:
            column = "duration_s" if self.config.estimates == "perfect" else "estimate_s"
            raise PolicyError(
                f"carbon-aware needs to know how long jobs with a deadline are expected to run, "
                f"and job {job.job_id} has {column} {run_s}: give it one that is not negative",
                "select",
            )
        self._plan(ctx, _Held(ctx.now_s, job.number, job.deadline_s - run_s, run_s, job))

    def on_end(self, ctx: Context, job: Job) -> None:
        """Tell the queue."""
        self._queue.on_end(ctx, job)

    def on_pause(self, ctx: Context, job: Job) -> None:
        """Tell the queue."""
        self._queue.on_pause(ctx, job)

    def on_resume(self, ctx: Context, job: Job) -> None:
        """Tell the queue: a job that began is not held back."""
        self._queue.on_resume(ctx, job)

    def on_refuse(self, ctx: Context, job: Job) -> None:
        """Tell the queue."""
        self._queue.on_refuse(ctx, job)

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """The choice of the queue among the jobs that are not held back."""
        if self._held:
            self._release(ctx)
        return self._queue.select(ctx, capacity)

    def wake_s(self, ctx: Context) -> float:
        """The next planned start, or the next value of the signal."""
        wake_s = self._queue.wake_s(ctx)
        if self._held:
            until_s = ctx.signal(self.config.signal).until_s
            wake_s = min(wake_s, until_s, self._held[0].start_s)
        return wake_s

    def _release(self, ctx: Context) -> None:
        """Enqueue the jobs whose time has come."""
        signal = ctx.signal(self.config.signal)
        if signal.since_s != self._since_s:
            self._review(ctx)
        while self._held and self._held[0].start_s <= ctx.now_s:
            self._queue.on_submit(ctx, heappop(self._held).job)

    def _review(self, ctx: Context) -> None:
        """Plan those jobs anew that no longer gain by their plan, or would start in this slot."""
        held, self._held = self._held, []
        until_s = ctx.signal(self.config.signal).until_s
        outlook = self._outlook(ctx, max(each.latest_s + each.run_s for each in held))
        runs_s = np.array([each.run_s for each in held])
        starts_s = np.array([each.start_s for each in held])
        costs_now = outlook.cost(np.full(len(held), ctx.now_s), runs_s)
        waits = self._gains(outlook.cost(starts_s, runs_s), costs_now) & (starts_s >= until_s)
        self._held = [each for each, stays in zip(held, waits.tolist(), strict=True) if stays]
        heapify(self._held)
        for each, stays in zip(held, waits.tolist(), strict=True):
            if not stays:
                self._plan(ctx, each)

    def _plan(self, ctx: Context, job: _Held) -> None:
        """Hold a job back until its best start, or enqueue it."""
        now_s, signal = ctx.now_s, ctx.signal(self.config.signal)
        if job.latest_s > now_s and job.run_s > 0 and signal.until_s < math.inf:
            outlook = self._outlook(ctx, job.latest_s + job.run_s)
            start_s, cost = best_start(outlook, job.latest_s, job.run_s)
            cost_now = outlook.cost(np.array([now_s]), job.run_s)
            if start_s > now_s and self._gains(np.array([cost]), cost_now)[0]:
                heappush(self._held, job._replace(start_s=start_s))
                return
        self._queue.on_submit(ctx, job.job)

    def _gains(self, cost: Floats, now: Floats) -> Bools:
        """Whether costs later are lower than those now by the least gain."""
        return np.asarray(now - cost > self.config.least_gain * np.abs(now))

    def _outlook(self, ctx: Context, until_s: float) -> Outlook:
        """The signal up to a time as forecast in the present slot."""
        signal = ctx.signal(self.config.signal)
        if not signal.slot_s > 0:
            raise PolicyError(
                f"carbon-aware needs slots of one length; those of {self.config.signal!r} differ",
                "select",
            )
        slots = 1 + max(0, math.ceil((until_s - signal.until_s) / signal.slot_s))
        if signal.since_s != self._since_s or slots > len(self._forecast):
            self._since_s, self._forecast = signal.since_s, signal.forecast(slots)
        return Outlook.of(ctx.now_s, signal.until_s, signal.slot_s, self._forecast[:slots])


class CarbonAwareConfig(PolicyConfig):
    """Holds jobs back until cleaner or cheaper hours, within the slack that their deadlines leave.

    Of all starts from now up to the latest one from which the deadline can be met, the one of the
    least forecast cost is planned: the signal, added up over the run. A job is enqueued at its
    planned start, and as soon as waiting gains too little. It is decided again at each new value of
    the signal. Jobs without a deadline are not held back, nor is one that began. Those whose time
    has come start in the order of another policy, the queue, once there are GPUs.
    """

    kind: Literal["carbon-aware"] = "carbon-aware"
    policy = CarbonAware
    plain = "in cleaner hours"
    signal: str = "carbon"
    """Name of the signal that weighs energy, as `carbon` or `price`; its forecast is read."""
    least_gain: float = Field(default=0.0, ge=0, le=1)
    """Share of the forecast cost of starting now that waiting must save."""
    queue: Literal["fifo", "fjf", "easy-backfill"] = "fjf"
    """Order of the jobs that are not held back: that of the policy of this name."""
    estimates: Estimates = "user"
    """Expected run time of a job at full speed: the user's estimate (`estimate_s`) or the exact one
    (`duration_s`). A job without it is refused."""

    @property
    def queue_config(self) -> PolicyConfig:
        """The config of the queue."""
        settings = {"estimates": self.estimates} if self.queue == "easy-backfill" else {}
        return find_config("select", self.queue, settings)

    @property
    def signals(self) -> tuple[str, ...]:
        """The one signal."""
        return (self.signal,)

    @property
    def needed_columns(self) -> Mapping[str, str]:
        """The column of the expected run time."""
        return needed_columns(self.estimates)


class Outlook(NamedTuple):
    """A signal from now on, as a sum over time.

    Attributes:
        time_s: Now, and the ends of the slots that follow, s, ascending, shape (slots + 1,).
        total: Integral of the signal from now up to each, shape (slots + 1,).
    """

    time_s: Floats
    total: Floats

    @classmethod
    def of(cls, now_s: float, until_s: float, slot_s: float, values: Floats) -> Outlook:
        """The outlook of values by slot, of which the first one ends at `until_s`.

        Args:
            now_s: Present time, s.
            until_s: End of the present slot, s.
            slot_s: Length of a slot, s.
            values: Of the present slot and of those after it, shape (slots,).
        """
        time_s = np.append(now_s, until_s + slot_s * np.arange(len(values)))
        return cls(time_s, np.append(0.0, np.cumsum(values * np.diff(time_s))))

    def cost(self, start_s: Floats, run_s: Floats | float) -> Floats:
        """Integral of the signal over runs, by start and run time in s; of the shape of these."""
        after = np.interp(start_s + run_s, self.time_s, self.total)
        return np.asarray(after - np.interp(start_s, self.time_s, self.total))


def best_start(outlook: Outlook, latest_s: float, run_s: float) -> tuple[float, float]:
    """The earliest start of the least cost from now to the latest one, and its cost.

    The cost is linear between the starts at which a slot begins or the run ends with one.

    Args:
        outlook: The signal, up to the end of a run that starts last.
        latest_s: Latest start, s; not before now.
        run_s: Run time, s.
    """
    now_s = float(outlook.time_s[0])
    ends_s = outlook.time_s - run_s
    starts_s = np.concatenate([[now_s, latest_s], outlook.time_s, ends_s])
    starts_s = np.unique(starts_s[(starts_s >= now_s) & (starts_s <= latest_s)])
    costs = outlook.cost(starts_s, run_s)
    index = int(np.argmin(costs))
    return float(starts_s[index]), float(costs[index])
