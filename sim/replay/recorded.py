"""Work of jobs without a workload: it lasts for their recorded duration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr
from typing_extensions import override

from wattkeeper.policies.planning.hull import SpeedPoint, relative_points, up_to_limit
from wattkeeper.policies.points.moments import Progress
from wattkeeper.policies.points.views import Knobs
from wattkeeper.sim.attempts.attempt import Attempt
from wattkeeper.sim.attempts.decided import Inheritance
from wattkeeper.sim.replay.replayed import Replayed, Work

if TYPE_CHECKING:
    from wattkeeper.sim.cluster.checkpoints import TrainingSpan
    from wattkeeper.sim.engine.backend import Backend
    from wattkeeper.sim.kernel.loop import EventLoop
    from wattkeeper.sim.replay.unprofiled import UnprofiledPower


def replay_recorded(
    backend: Backend,
    env: EventLoop,
    attempt: Attempt,
    inheritance: Inheritance,
    power: UnprofiledPower,
    limit_w: float,
    recorded: bool = False,
) -> Replayed:
    """An attempt of a job without a workload, under a power limit for each GPU (W; NaN: none).

    `recorded`: whether it holds its GPUs for its recorded duration under any limit.
    """
    if backend.listener.retunes:
        work: Work = AdjustableDuration(attempt, inheritance, power, limit_w)
    else:
        work = RecordedDuration(attempt, inheritance, power, limit_w, recorded)
    return Replayed(backend.listener, env, attempt, inheritance.query_s, work)


@mypyc_attr(acyclic=True)
class RecordedDuration(Work):
    """Work whose end is known when it begins.

    Under a power limit it takes the recorded duration over its relative speed; where occupancy is
    `recorded`, it still holds its GPUs for that duration, and its energy is spread over that.

    Attributes:
        busy_w: Its power.
        full_s: Its time without a parent.
        share: What its parent leaves of that.
        hold_share: Time for which it holds its GPUs, relative to the time that it takes.
        rest_s: Remaining time.
    """

    def __init__(
        self,
        attempt: Attempt,
        inheritance: Inheritance,
        power: UnprofiledPower,
        limit_w: float,
        recorded: bool = False,
    ) -> None:
        job = attempt.job
        self.limit_w = limit_w
        self.busy_w, speed = power.under_limit(job, attempt.gpu_type, limit_w)
        self.full_s = job.duration_s / speed
        self.share = inheritance.work
        self.hold_share = speed if recorded else 1.0
        self.rest_s = self.full_s * self.share * self.hold_share

    @override
    def begin(self, run: Replayed) -> None:
        power_w = self.busy_w / self.hold_share
        run.draw(self.rest_s, power_w, not math.isnan(self.limit_w), (power_w, 1.0))

    @override
    def interrupt(self, run: Replayed) -> None:
        self.rest_s = run.left_s - run.take_trained()

    @override
    def undo(self, lost: list[TrainingSpan]) -> None:
        for span in lost:
            self.rest_s += span.time_s

    @override
    def end(self, run: Replayed) -> None:
        if run.checkpoints is not None:
            run.take_trained()
        time_s, saved_s = self.full_s * self.share, self.full_s * (1 - self.share)
        run.listener.ran(run.attempt, time_s, self.busy_w * time_s, saved_s, self.limit_w)


class AdjustableDuration(RecordedDuration):
    """Work whose power limit may change while it runs: each change counts what is done.

    The two numbers of `Unit` are its power (W) and its speed.

    Attributes:
        speed: Its speed at the present limit, relative to that without one.
        work_s: All its work, as the time that it takes without a limit.
        done_s: The work that is done.
        time_s: Time of that, s.
        energy_j: Energy of that, J.
    """

    def __init__(
        self, attempt: Attempt, inheritance: Inheritance, power: UnprofiledPower, limit_w: float
    ) -> None:
        super().__init__(attempt, inheritance, power, limit_w)
        self.power = power
        self.speed = power.under_limit(attempt.job, attempt.gpu_type, limit_w)[1]
        self.work_s = attempt.job.duration_s * inheritance.work
        self.done_s = self.time_s = self.energy_j = 0.0

    @override
    def begin(self, run: Replayed) -> None:
        self.is_training = True
        left_s = max(0.0, self.work_s - self.done_s) / self.speed
        run.draw(left_s, self.busy_w, not math.isnan(self.limit_w), (self.busy_w, self.speed))

    @override
    def interrupt(self, run: Replayed) -> None:
        self.count(run)
        self.is_training = False

    @override
    def undo(self, lost: list[TrainingSpan]) -> None:
        for span in lost:
            self._add(-span.time_s, *span.pace)

    @override
    def count(self, run: Replayed) -> None:
        if self.is_training:
            self._add(run.take_trained(), self.busy_w, self.speed)

    def _add(self, spent_s: float, power_w: float, speed: float) -> None:
        self.time_s += spent_s
        self.energy_j += spent_s * power_w
        self.done_s += spent_s * speed

    @override
    def progress(self, run: Replayed) -> Progress:
        self.count(run)
        return Progress(0.0, self.done_s, self.time_s, self.energy_j)

    @override
    def retune(self, run: Replayed, knobs: Knobs) -> None:
        if knobs.power_limit_w is None or knobs.power_limit_w == self.limit_w:
            return
        self.count(run)
        self.limit_w = knobs.power_limit_w
        job, gpu_type = run.attempt.job, run.attempt.gpu_type
        self.busy_w, self.speed = self.power.under_limit(job, gpu_type, self.limit_w)
        if self.is_training:
            self.begin(run)

    @override
    def points(self, run: Replayed, chosen: Knobs) -> Sequence[SpeedPoint]:
        job, gpu_type = run.attempt.job, run.attempt.gpu_type
        if not self.power.is_limited(gpu_type):
            return ()
        return up_to_limit(relative_points(self.power.curve(job, gpu_type)), chosen.power_limit_w)

    @override
    def end(self, run: Replayed) -> None:
        self._end(run, self.full_s * (1 - self.share))

    @override
    def stop(self, run: Replayed) -> None:
        self._end(run, 0.0)

    def _end(self, run: Replayed, saved_s: float) -> None:
        self.count(run)
        run.phases += 1
        self.is_training = False
        run.listener.ran(run.attempt, self.time_s, self.energy_j, saved_s, self.limit_w)
