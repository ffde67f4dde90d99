"""Asks `Tune` about attempts after their start, and has its answers carried out."""

from __future__ import annotations

import math
from typing import Final

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.moments import Moment
from wattkeeper.policies.points.views import (
    NO_KNOBS,
    Configuration,
    Knobs,
    Measurement,
    Running,
    Slice,
    Start,
)
from wattkeeper.sim.attempts.attempt import Attempt, Execution
from wattkeeper.sim.attempts.decisions import DecisionMaker
from wattkeeper.sim.engine.board import WakeLimit
from wattkeeper.sim.engine.core import Core
from wattkeeper.sim.engine.features.pauses import Pauses
from wattkeeper.sim.engine.features.power_limits import PowerLimits
from wattkeeper.sim.engine.subscriber import Subscriber
from wattkeeper.sim.kernel.loop import Callback, schedule_at
from wattkeeper.sim.recording.row_types import DrawRow, RetuneRow

MOST_SLICES: Final = 10_000
"""In an attempt."""


def pace_of(knobs: Knobs) -> tuple[object, ...]:
    """What of knobs sets the pace of an attempt."""
    return knobs.power_limit_w, knobs.clock_mhz, knobs.plan


NO_PACE: Final = pace_of(NO_KNOBS)


class Tuning:
    """An attempt between its start and its end.

    Attributes:
        execution: The attempt.
        start: What `Tune` was shown at the start.
        configuration: The choice of `Configure`.
        knobs: What is in force.
        chosen: The pace that `Tune` chose, which a power cap may lower.
        retunes: How often knobs changed after the start.
        measured: What was measured of power limits.
        wake: When `Tune` is asked again; None if it did not ask for that.
        missed: A moment that came while it did not train; it is asked when it does.
        share_w: Its share of the power cap, W.
    """

    def __init__(
        self, execution: Execution, start: Start, configuration: Configuration, knobs: Knobs
    ) -> None:
        self.execution = execution
        self.start = start
        self.configuration = configuration
        self.knobs = knobs
        self.chosen = knobs
        self.retunes = 0
        self.measured: tuple[Measurement, ...] = ()
        self.wake: Callback | None = None
        self.missed: Moment | None = None
        self.share_w = math.inf

    @property
    def is_paused(self) -> bool:
        """Whether `Tune` paused it."""
        return self.knobs.run == "pause"

    def change_pace(self, before: Knobs, knobs: Knobs) -> Knobs:
        """Knobs with the pace of others, as far as these state one.

        A job that is not pipeline-parallel has a power limit, or a clock at the highest limit.
        """
        limit_w, options = knobs.power_limit_w, self.start.options
        if options.pipeline is None and knobs.clock_mhz is not None:
            limit_w = options.limits(self.configuration.batch_size)[-1]
        if limit_w is not None:
            before = before._replace(power_limit_w=limit_w)
            if options.pipeline is None:
                return before._replace(clock_mhz=knobs.clock_mhz)
        if knobs.clock_mhz is not None or knobs.plan is not None:
            before = before._replace(clock_mhz=knobs.clock_mhz, plan=knobs.plan)
        return before


def _running(tuning: Tuning, moment: Moment) -> Running:
    """What `Tune` is shown of an attempt."""
    return Running(
        tuning.start,
        tuning.configuration,
        tuning.measured,
        moment,
        tuning.execution.progress(),
        tuning.knobs,
        tuning.execution.slowdown,
        tuning.share_w,
    )


class Retuner(Subscriber):
    """Asks `Tune` at the moments that its config names, and has its answers carried out.

    An attempt that does not train, since it waits, is restored or profiled, is asked as soon as it
    does; one that `Tune` itself paused is asked at once.

    Args:
        core: What the parts of the world share.
        decisions: Asks the policy.
        moments: The moments that it wants.
        pauses: Pauses, resumes and stops attempts.
        limits: The pace nearest to the chosen one that the power cap allows.
    """

    def __init__(
        self,
        core: Core,
        decisions: DecisionMaker,
        moments: tuple[Moment, ...],
        pauses: Pauses,
        limits: PowerLimits,
    ) -> None:
        self._loop = core.loop
        self._decisions = decisions
        self._moments = frozenset(moments)
        self._pauses = pauses
        self._limits = limits
        self._recorder = core.recorder
        self._board = core.board
        self._ended: Tuning | None = None
        self._tunings: dict[int, Tuning] = {}
        self._wakes = WakeLimit(core.loop)

    def wants(self, moment: Moment) -> bool:
        """Whether the policy is asked at a moment."""
        return moment in self._moments

    def prepare(
        self, execution: Execution, start: Start, configuration: Configuration, knobs: Knobs
    ) -> None:
        """Follow an attempt that begins with knobs."""
        tuning = Tuning(execution, start, configuration, knobs._replace(profile_w=()))
        self._tunings[start.job.number] = tuning
        self._wake_at(tuning, knobs.wake_s)

    def holds_back(self, execution: Execution) -> bool:
        """Keep an attempt that has GPUs paused, if `Tune` said so."""
        attempt = execution.attempt
        if attempt.draws is None:
            attempt.draws = []
        if not self._is_paused(attempt.job.number):
            return False
        self._pauses.keep_paused(execution)
        return True

    def settle(self, number: int, knobs: Knobs, measured: tuple[Measurement, ...]) -> None:
        """Take over the knobs that were chosen after power limits of a job were measured."""
        tuning = self._tunings.get(number)
        if tuning is None:
            return
        tuning.measured = measured
        tuning.knobs = knobs._replace(run="go")
        tuning.chosen = knobs
        self._wake_at(tuning, knobs.wake_s)
        if knobs.run != "go":  # once it trains
            late = Callback(self._carry_out_late, (tuning, knobs))
            schedule_at(self._loop, self._loop.now_s, late)

    def _carry_out_late(self, chosen: tuple[Tuning, Knobs]) -> None:
        tuning, knobs = chosen
        if self._tunings.get(tuning.start.job.number) is tuning:
            self._carry_out(tuning, knobs)

    def repeat(self, execution: Execution) -> None:
        """Let an attempt continue with the knobs and times of the one that ended last."""
        lost = self._ended
        if lost is None:
            return
        tuning = self._tunings[execution.attempt.job.number]
        tuning.knobs = lost.knobs._replace(run="go")
        tuning.chosen, tuning.measured = lost.chosen, lost.measured
        tuning.missed, tuning.share_w = lost.missed, lost.share_w
        self._wake_at(tuning, tuning.knobs.wake_s)

    def requeue_lost(self, execution: Execution) -> None:
        """Follow the attempt that resumes where the one that ended last was lost."""
        tuning = self._ended
        if tuning is None:
            return
        self._tunings[tuning.start.job.number] = tuning
        tuning.start = tuning.start._replace(attempt=execution.attempt.number)
        tuning.retunes = 0
        self._wake_at(tuning, tuning.knobs.wake_s)

    def book(self, attempt: Attempt, ended_s: float) -> None:
        """Follow an attempt no more, which ended; record how often its knobs changed."""
        tuning = self._ended = self._tunings.pop(attempt.job.number, None)
        retunes = 0
        if tuning is not None:
            retunes = tuning.retunes
            if tuning.wake is not None:
                tuning.wake.cancel()
        self._recorder.add_detail(RetuneRow(retunes, attempt.tune_paused_s))
        for draw in DrawRow.spans(attempt.draws or [], ended_s):
            self._recorder.add_detail(draw)

    def clear(self) -> None:
        """Follow nothing any more."""
        self._tunings.clear()
        self._ended = None

    def chosen(self, number: int) -> Knobs:
        """The pace that `Tune` chose for a job."""
        tuning = self._tunings.get(number)
        return NO_KNOBS if tuning is None else tuning.chosen

    def in_force(self, number: int) -> Knobs:
        """The knobs of a job that are in force."""
        return self._tunings[number].knobs

    def set_pace(self, number: int, pace: Knobs) -> None:
        """Note that a power cap sets another pace of a job."""
        tuning = self._tunings[number]
        tuning.knobs = tuning.change_pace(tuning.knobs, pace)
        tuning.retunes += 1

    def set_share(self, number: int, share_w: float) -> None:
        """Note a job's share of the power cap, W."""
        self._tunings[number].share_w = share_w

    def _is_paused(self, number: int) -> bool:
        """Whether `Tune` paused the attempt of a job."""
        tuning = self._tunings.get(number)
        return tuning is not None and tuning.is_paused

    def draw(self, attempt: Attempt, power_w: float, settled: bool) -> None:
        """Ask about an attempt, which trains, what it missed."""
        if settled:
            self.training(attempt)

    def training(self, attempt: Attempt) -> None:
        """Note that an attempt trains: it is asked about what it missed, at once."""
        tuning = self._tunings.get(attempt.job.number)
        if tuning is not None and tuning.missed is not None:
            moment, tuning.missed = tuning.missed, None
            schedule_at(self._loop, self._loop.now_s, Callback(self._ask_missed, (tuning, moment)))

    def _ask_missed(self, missed: tuple[Tuning, Moment]) -> None:
        self._ask(*missed)

    def epoch_ended(self, attempt: Attempt) -> None:
        """Ask about an attempt that ended an epoch, and continues if not paused or stopped."""
        tuning = self._tunings[attempt.job.number]
        self._ask_now(tuning, "epoch")

    def reached(self, attempt: Attempt, report: tuple[Measurement, ...]) -> Slice | None:
        """Ask about an attempt that reached its target; returns the slice to train before it ends.

        `report`: the slice that was measured since it was asked last; empty at first.

        Raises:
            PolicyError: If there are too many slices.
        """
        tuning = self._tunings[attempt.job.number]
        tuning.measured += report
        if len(tuning.measured) > MOST_SLICES:
            raise PolicyError(
                f"job {attempt.job.job_id}: Tune asked for more than {MOST_SLICES:,} slices in an "
                "attempt",
                "tune",
            )
        knobs = self._decisions.retune(_running(tuning, "reached"))
        return None if knobs is None else knobs.slice

    def ask_slowed(self, number: int) -> None:
        """Ask about the attempt of a job, if it is followed, whose peers have another pace."""
        tuning = self._tunings.get(number)
        if tuning is not None and self.wants("straggler"):
            self._ask(tuning, "straggler")

    def ask_all(self, moment: Moment) -> None:
        """Ask about all attempts, in the order of their jobs."""
        for number in sorted(self._tunings):
            tuning = self._tunings.get(number)
            if tuning is not None:
                self._ask(tuning, moment)

    def _ask(self, tuning: Tuning, moment: Moment) -> None:
        number = tuning.start.job.number
        if self._tunings.get(number) is not tuning:
            return  # it ended
        if tuning.is_paused and not self._board.has(tuning.execution):
            late = Callback(self._ask_missed, (tuning, moment))  # it is about to begin
            schedule_at(self._loop, self._loop.now_s, late)
        elif tuning.is_paused or tuning.execution.is_training:
            self._ask_now(tuning, moment)
        else:
            tuning.missed = moment

    def _ask_now(self, tuning: Tuning, moment: Moment) -> None:
        knobs = self._decisions.retune(_running(tuning, moment))
        if knobs is not None:
            self._carry_out(tuning, knobs)

    def _carry_out(self, tuning: Tuning, knobs: Knobs) -> None:
        execution, before = tuning.execution, tuning.knobs
        if knobs.run == "stop":
            self._pauses.stop(execution)
            return
        self._wake_at(tuning, knobs.wake_s)
        now = before._replace(run=knobs.run, wake_s=knobs.wake_s)
        if pace_of(knobs) != NO_PACE:
            tuning.chosen = tuning.change_pace(tuning.chosen, knobs)
            now = tuning.change_pace(now, self._limits.allow(execution, tuning.chosen, before))
        tuning.knobs = now
        is_paced_anew = pace_of(now) != pace_of(before)
        if not is_paced_anew and now.run == before.run:
            return
        tuning.retunes += 1
        if now.run == "pause" and before.run == "go":
            self._pauses.pause(execution)
        if is_paced_anew:
            execution.retune(now)
        if now.run == "go" and before.run == "pause":
            self._pauses.resume(execution)

    def _wake_at(self, tuning: Tuning, time_s: float) -> None:
        if tuning.wake is not None:
            tuning.wake.cancel()
            tuning.wake = None
        if self._loop.now_s < time_s < math.inf:  # it has passed if a lost attempt is repeated
            tuning.wake = Callback(self._woken, tuning)
            schedule_at(self._loop, time_s, tuning.wake)

    def _woken(self, tuning: Tuning) -> None:
        tuning.wake = None
        too_often = self._wakes.count()
        if too_often:
            raise PolicyError(f"Tune {too_often}", "tune")
        self._ask(tuning, "wake")
