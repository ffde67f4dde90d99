"""The power that jobs may draw under a cap, as they choose and change their pace."""

from __future__ import annotations

from wattkeeper.policies.planning.hull import SpeedPoint
from wattkeeper.policies.points.views import Knobs
from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.attempts.decisions import format_pace
from wattkeeper.sim.engine.core import Core
from wattkeeper.sim.engine.subscriber import Subscriber


class PowerLimits(Subscriber):
    """Keeps what jobs draw below the cap, as they choose and change their pace.

    Args:
        core: What the parts of the world share.
        follows_signal: Whether the cap changes, so that the journal names it.
    """

    def __init__(self, core: Core, follows_signal: bool) -> None:
        self._loop = core.loop
        self._budget = core.budget
        self._room = core.room
        self._board = core.board
        self._journal = core.recorder.journal
        self._follows_signal = follows_signal

    def draw(self, attempt: Attempt, power_w: float, settled: bool) -> None:
        """Count what an attempt draws once its limit is chosen."""
        if settled:
            self._budget.settle(attempt.job, max(power_w, attempt.reserved_w))
            self._room.grow()
            self._board.ask_for_pass()

    def allow(self, execution: Execution, chosen: Knobs, in_force: Knobs) -> Knobs:
        """The fastest pace up to the chosen one that the cap allows; none: that in force."""
        attempt, budget = execution.attempt, self._budget
        job = attempt.job
        if not budget.counts(job.number):
            return chosen  # without GPUs: it counts with the most that it may draw when it has some
        points = list(execution.points(chosen))
        allowed = [point for point in points if budget.allows_change(job, point.power_w)]
        if allowed:
            pace, power_w = pace_at(allowed[-1]), allowed[-1].power_w
            if power_w - attempt.idle_w > budget.more_w(job.number):
                budget.settle(job, power_w)  # a paused attempt draws it later
                self._room.shrink()
        else:
            pace, power_w = in_force, budget.total_w(job.number)
        if self._follows_signal and allowed[-1:] != points[-1:]:
            self.note(execution, chosen, pace, power_w)
        return pace

    def note(self, execution: Execution, chosen: Knobs, pace: Knobs, share_w: float) -> None:
        """Note in the journal a pace that the cap sets, with which a job may draw a share, W."""
        attempt = execution.attempt
        saw = self._budget.cap_w, format_pace(chosen)
        chose = f"{format_pace(pace)} share_w={share_w}"
        self._journal.note(self._loop.now_s, "cap", attempt.job.number, attempt.number, saw, chose)


def pace_at(point: SpeedPoint) -> Knobs:
    """The knobs of a point."""
    if point.plan or point.clock_mhz:
        clock_mhz, plan = point.clock_mhz or None, point.plan or None
        return Knobs(point.power_limit_w, clock_mhz=clock_mhz, plan=plan)
    return Knobs(point.power_limit_w)
