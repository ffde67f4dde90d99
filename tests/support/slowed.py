"""A backend whose attempts are slowed down from their start, and while they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import Options, Start
from wattkeeper.policies.profile import Profile
from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.attempts.decided import Decision, Inheritance
from wattkeeper.sim.attempts.pace import Pace
from wattkeeper.sim.engine.backend import Backend
from wattkeeper.sim.kernel.loop import SIGNAL, Callback, EventLoop, schedule_at


class Change(NamedTuple):
    """A cause imposes a pace on all attempts from a time on, s."""

    time_s: float
    cause: str
    pace: Pace


class SlowedBackend(Backend):
    """Passes on to a backend, and slows what that runs.

    Args:
        env: The event loop of the run.
        inner: The backend.
        causes: The paces that causes impose from the start.
        changes: Those that they impose later, by time, on what runs then or starts afterwards.

    Attributes:
        running: What runs; set after its construction.
    """

    def __init__(
        self,
        env: EventLoop,
        inner: Backend,
        causes: Mapping[str, Pace],
        changes: Sequence[Change] = (),
    ) -> None:
        self.inner = inner
        self.causes = dict(causes)
        self.running: Mapping[int, Execution] = {}
        for change in changes:
            schedule_at(env, change.time_s, Callback(self._change, change), SIGNAL)

    def _change(self, change: Change) -> None:
        self.causes[change.cause] = change.pace
        for execution in self.running.values():
            execution.slow(change.cause, change.pace)

    def _slow(self, execution: Execution) -> Execution:
        for cause, pace in self.causes.items():
            execution.slow(cause, pace)
        return execution

    def options(self, job: Job, gpu_type: str) -> Options:
        return self.inner.options(job, gpu_type)

    def most_power_w(self, job: Job, gpu_type: str) -> float:
        return self.inner.most_power_w(job, gpu_type)

    def foresight(self, start: Start) -> Profile:
        return self.inner.foresight(start)

    def run(self, attempt: Attempt, inheritance: Inheritance, limit_w: float) -> Execution:
        return self._slow(self.inner.run(attempt, inheritance, limit_w))

    def train(self, attempt: Attempt, decision: Decision, inheritance: Inheritance) -> Execution:
        return self._slow(self.inner.train(attempt, decision, inheritance))
