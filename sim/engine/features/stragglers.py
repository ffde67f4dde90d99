"""Stragglers: how slow others make a pipeline-parallel job, over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from wattkeeper.policies.points.views import Configuration, Knobs, Start
from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.attempts.pace import STRAGGLER, Pace, with_cause
from wattkeeper.sim.engine.features.retuner import Retuner
from wattkeeper.sim.engine.subscriber import Subscriber
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


class StragglerEvents(Subscriber):
    """Slows running jobs down when their stragglers come and go.

    A change is merged when it comes up, and none after the end of its job.

    Args:
        loop: The event loop of the run.
        streams: The random streams of the run.
        stragglers: By id of the job.
        retuner: Asks `Tune` about them.
    """

    def __init__(
        self,
        loop: EventLoop,
        streams: RandomStreams,
        stragglers: Mapping[str, Stragglers],
        retuner: Retuner,
    ) -> None:
        self._loop = loop
        self._retuner = retuner
        self._changes = {
            job_id: given.draw(streams, job_id)
            if isinstance(given, DrawnStragglers)
            else iter(given)
            for job_id, given in stragglers.items()
        }
        self._factors = dict.fromkeys(stragglers, 1.0)
        self._next: dict[str, Slowdown] = {}
        self._scheduled: dict[int, Callback] = {}

    def prepare(
        self, execution: Execution, start: Start, configuration: Configuration, knobs: Knobs
    ) -> None:
        """Follow an attempt."""
        self._follow(execution)

    def resume_lost(self, execution: Execution) -> float:
        """Follow the attempt after one that was lost."""
        self._follow(execution)
        return 0.0

    def book(self, attempt: Attempt, ended_s: float) -> None:
        """Follow a job no more, since its attempt ended."""
        self._forget(attempt.job.number)

    def _forget(self, number: int) -> None:
        """Let the next change of a job not happen."""
        scheduled = self._scheduled.pop(number, None)
        if scheduled is not None:
            scheduled.cancel()

    def _follow(self, execution: Execution) -> None:
        """Follow an attempt that begins: what happened before holds now."""
        job_id = execution.attempt.job.job_id
        if job_id not in self._changes:
            return
        if job_id not in self._next:
            self._advance(job_id)
        while self._next[job_id].time_s <= self._loop.now_s:
            self._factors[job_id] = self._next[job_id].factor
            self._advance(job_id)
        pace = Pace(self._factors[job_id])
        if with_cause(execution.causes, STRAGGLER, pace) != execution.causes:
            self._slow(execution, pace)
        self._forget(execution.attempt.job.number)
        self._schedule(execution)

    def _slow(self, execution: Execution, pace: Pace) -> None:
        """Let an attempt wait for a straggler elsewhere, if its own nodes are no slower."""
        execution.slow(STRAGGLER, pace)
        self._retuner.ask_slowed(execution.attempt.job.number)

    def _advance(self, job_id: str) -> None:
        self._next[job_id] = next(self._changes[job_id], Slowdown(math.inf, 1.0))

    def _schedule(self, execution: Execution) -> None:
        job = execution.attempt.job
        time_s = self._next[job.job_id].time_s
        if time_s < math.inf:
            self._scheduled[job.number] = Callback(self._happen, execution)
            schedule_at(self._loop, time_s, self._scheduled[job.number], SIGNAL)

    def _happen(self, execution: Execution) -> None:
        job_id = execution.attempt.job.job_id
        self._factors[job_id] = self._next[job_id].factor
        self._advance(job_id)
        self._schedule(execution)
        self._slow(execution, Pace(self._factors[job_id]))
