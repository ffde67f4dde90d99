"""Stragglers: how slow others make a pipeline-parallel job, over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import Configuration, Knobs, Start
from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.cluster.cluster import Cluster
from wattkeeper.sim.engine.part import Part
from wattkeeper.sim.engine.retuner import Retuner
from wattkeeper.sim.kernel.loop import SIGNAL, Callback, EventLoop, schedule_at
from wattkeeper.sim.kernel.streams import RandomStreams


class Slowdown(NamedTuple):
    """From a time on, iterations take at least so many times the time at the highest clocks.

    Attributes:
        time_s: The time, s since the start of the run.
        factor: 1 or more; 1: no straggler.
    """

    time_s: float
    factor: float


class DrawnStragglers(NamedTuple):
    """Stragglers at random: one after the other, from the start of the run.

    Attributes:
        mean_gap_s: Mean time from the end of one to the start of the next, exponential, s.
        mean_length_s: Mean length, exponential, s.
        mean_excess: Mean of the factor beyond 1, exponential.
    """

    mean_gap_s: float
    mean_length_s: float
    mean_excess: float

    def draw(self, streams: RandomStreams, job_id: str) -> Iterator[Slowdown]:
        """Yield the changes of a job without an end; each job has a stream of its own."""
        rng = streams.policy("straggler", job_id)
        time_s = 0.0
        while True:
            time_s += float(rng.exponential(self.mean_gap_s))
            yield Slowdown(time_s, 1.0 + float(rng.exponential(self.mean_excess)))
            time_s += float(rng.exponential(self.mean_length_s))
            yield Slowdown(time_s, 1.0)


Stragglers = tuple[Slowdown, ...] | DrawnStragglers
"""The stragglers of a job: by time, or drawn."""


class StragglerEvents(Part):
    """Slows running jobs down when their stragglers come and go.

    A change is merged when it comes up, and none after the end of its job.

    Args:
        loop: The event loop of the run.
        streams: The random streams of the run.
        stragglers: By id of the job.
        retuner: Slows them down, and asks `Tune` about them.
        cluster: Its slow nodes slow a job down, too.
    """

    def __init__(
        self,
        loop: EventLoop,
        streams: RandomStreams,
        stragglers: Mapping[str, Stragglers],
        retuner: Retuner,
        cluster: Cluster,
    ) -> None:
        self._loop = loop
        self._retuner = retuner
        self._cluster = cluster
        self._changes = {
            job_id: given.draw(streams, job_id)
            if isinstance(given, DrawnStragglers)
            else iter(given)
            for job_id, given in stragglers.items()
        }
        self._factors = dict.fromkeys(stragglers, 1.0)
        self._next: dict[str, Slowdown] = {}
        self._scheduled: dict[int, Callback] = {}

    def factor_of(self, job: Job) -> float:
        """The present factor of a job; 1 if none slows it down."""
        return self._factors.get(job.job_id, 1.0)

    def prepare(
        self, execution: Execution, start: Start, configuration: Configuration, knobs: Knobs
    ) -> None:
        """Follow the job of an attempt."""
        self._begin(start.job)

    def resume_lost(self, attempt: Attempt) -> float:
        """Follow the job of an attempt again."""
        self._begin(attempt.job)
        return 0.0

    def book(self, attempt: Attempt, ended_s: float) -> None:
        """Follow a job no more, since its attempt ended."""
        scheduled = self._scheduled.pop(attempt.job.number, None)
        if scheduled is not None:
            scheduled.cancel()

    def _begin(self, job: Job) -> None:
        """Follow a job whose attempt begins: what happened before holds now."""
        job_id = job.job_id
        if job_id not in self._changes:
            return
        if job_id not in self._next:
            self._advance(job_id)
        while self._next[job_id].time_s <= self._loop.now_s:
            self._factors[job_id] = self._next[job_id].factor
            self._advance(job_id)
        if self._factors[job_id] != 1:
            self._slow_down(job)
        self._schedule(job)

    def _slow_down(self, job: Job) -> None:
        """Let a job keep the pace of a straggler elsewhere, if its own nodes are no slower."""
        tuning = self._retuner.find(job.number)
        assert tuning is not None
        slowest = self._cluster.slowdown(tuning.execution.attempt.placement)
        self._retuner.slow_down(job.number, max(self._factors[job.job_id], slowest))

    def _advance(self, job_id: str) -> None:
        self._next[job_id] = next(self._changes[job_id], Slowdown(math.inf, 1.0))

    def _schedule(self, job: Job) -> None:
        time_s = self._next[job.job_id].time_s
        if time_s < math.inf:
            self._scheduled[job.number] = Callback(self._happen, job)
            schedule_at(self._loop, time_s, self._scheduled[job.number], SIGNAL)

    def _happen(self, job: Job) -> None:
        job_id = job.job_id
        self._factors[job_id] = self._next[job_id].factor
        self._advance(job_id)
        self._schedule(job)
        self._slow_down(job)
