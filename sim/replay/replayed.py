"""The attempt that is replayed: phases of constant rate and power, one after the other."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr
from typing_extensions import override

from wattkeeper.policies.points.moments import NO_PROGRESS, Progress
from wattkeeper.policies.points.views import NO_KNOBS, Knobs, Start
from wattkeeper.sim.attempts.attempt import Attempt, Execution, LostWork
from wattkeeper.sim.attempts.pace import Pace
from wattkeeper.sim.cluster.checkpoints import (
    NO_CHECKPOINTS,
    CheckpointClock,
    CheckpointRule,
    TrainingSpan,
)
from wattkeeper.sim.engine.backend import Listener
from wattkeeper.sim.kernel.loop import EventLoop, ScheduledEvent, schedule_at

if TYPE_CHECKING:
    from wattkeeper.policies.planning.hull import SpeedPoint

Unit = tuple[float, float]
"""Time (s) and energy (J) of a unit of the work of an attempt, unless the work says otherwise."""


@mypyc_attr(acyclic=True)
class Phase(ScheduledEvent):
    """The end of a phase of an attempt, by its number; nothing happens if it was left before."""

    def __init__(self, execution: Replayed, number: int) -> None:
        self.execution = execution
        self.number = number

    def happen(self) -> None:
        """Tell the attempt that it is over."""
        if self.number == self.execution.phases:
            self.execution.end_phase()


@mypyc_attr(acyclic=True)
class Segment:
    """A part of the work of an attempt; it refers to no execution, and so not to itself.

    Attributes:
        is_training: Whether it trains with knobs that can be changed now.
        is_over: Whether the target is reached: nothing needs to be saved or restored any more.
    """

    is_training = False
    is_over = False

    @abstractmethod
    def begin(self, run: Replayed) -> None:
        """Begin, or go on after an interruption."""

    @abstractmethod
    def end(self, run: Replayed) -> None:
        """Called when its phase is over: take the step that follows."""

    def interrupt(self, run: Replayed) -> None:
        """Save what is left of its phase, or count what is done."""
        return

    def break_off(self) -> None:
        """Called after an interruption for which the attempt stops."""
        return

    @abstractmethod
    def undo(self, lost: list[TrainingSpan]) -> None:
        """Count training as not done."""

    def count(self, run: Replayed) -> None:
        """Count what is done since the phase began, or since it was last counted."""
        return

    def plan_anew(self, run: Replayed) -> None:
        """Go on with knobs or a pace that changed, after `count` or an interruption."""
        return


@mypyc_attr(acyclic=True)
class Work(Segment):
    """All that an attempt does once it has its GPUs and its parent; its first segment is itself.

    Methods that an `Execution` has too do what they say there.

    Attributes:
        reserved_w: What it counts with under a power cap at least, W.
        start: What `Configure` was asked about; None: it was not.
        batch_size: Its batch size; -1: not known.
        limit_w: Power limit of each of its GPUs, W; NaN: none.
    """

    reserved_w = 0.0
    start: Start | None = None
    batch_size = -1
    limit_w = math.nan

    def keep_pace(self, run: Replayed, peers: Pace) -> Pace:
        """Called with the pace of the slowest peer; returns that at which the phases pass."""
        return peers

    def progress(self, run: Replayed) -> Progress:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        return NO_PROGRESS

    def retune(self, run: Replayed, knobs: Knobs) -> None:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        raise NotImplementedError

    def points(self, run: Replayed, chosen: Knobs) -> Sequence[SpeedPoint]:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        return ()

    def stop(self, run: Replayed) -> None:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        raise NotImplementedError


DELAY: Final = 0
QUERY: Final = 1
WORK: Final = 2
PAUSED: Final = 3
"""Stages of an attempt: it waits for its nodes, searches its parent, works, or is in no phase."""


@mypyc_attr(acyclic=True)
class Replayed(Execution):
    """An attempt that is replayed.

    Causes stretch the phases of training: their work is that at full pace, and what more they take
    is overhead. The time of checkpoints counts as that of training.

    Attributes:
        listener: To whom it reports.
        env: The event loop of the run.
        query_s: Remaining time of the parent search.
        work: What it does.
        segment: The part of that which it does now.
        stage: `DELAY`, `QUERY`, `WORK` or `PAUSED`.
        phases: Number of phases begun or interrupted.
        since_s: Start of the current phase.
        left_s: Training time, or time of holding GPUs, of the current phase, unless it is
            interrupted.
        checkpoints: Its checkpoints; None where no node is lost and nothing ever slowed it down.
        stretch: Time of training over that at full pace.
        power_share: Power of training over that at full pace.
        power_w: Power in a phase of training, at full pace.
        unit: By which its work is counted.
        trained_s: Training time of the attempt at full pace, where nodes are lost.
        trained_j: Energy of that.
    """

    checkpoints: CheckpointClock | None = None
    stretch = 1.0
    power_share = 1.0
    power_w = 0.0
    trained_s = 0.0
    trained_j = 0.0

    def __init__(
        self, listener: Listener, env: EventLoop, attempt: Attempt, query_s: float, work: Work
    ) -> None:
        self.attempt = attempt
        self.listener = listener
        self.env = env
        self.query_s = query_s
        self.work = work
        self.segment: Segment = work
        self.stage = PAUSED
        self.phases = 0
        self.since_s = 0.0
        self.left_s = 0.0
        self.unit: Unit = (0.0, 0.0)

    def go_on(self, delay_s: float) -> None:
        """Wait, search the parent, then work."""
        if delay_s and not self.segment.is_over:
            self.stage = DELAY
            self.hold(delay_s)
        elif self.query_s:
            self.stage = QUERY
            self.hold(self.query_s)
        else:
            self.stage = WORK
            self.segment.begin(self)

    def pause(self) -> None:
        """Save the remaining time of the phase; a delay starts anew."""
        self._break_off()
        if self.checkpoints is not None:
            self.checkpoints.save()

    def _break_off(self) -> None:
        if self._interrupt() == WORK:
            self.segment.break_off()

    def _interrupt(self) -> int:
        """End the present phase; returns the stage."""
        self.phases += 1
        stage, self.stage = self.stage, PAUSED
        if stage == WORK:
            self.segment.interrupt(self)
        elif stage == QUERY:
            self.query_s = max(0.0, self.left_s - (self.env.now_s - self.since_s))
        return stage

    def write_checkpoints(self, rule: CheckpointRule) -> None:
        """Write checkpoints by a rule from the next phase on; what it did is saved."""
        self.checkpoints = CheckpointClock(rule)

    @override
    def write_checkpoint(self) -> None:
        if self.checkpoints is not None and self._trains and not self.segment.is_over:
            self._interrupt()
            self.checkpoints.begin_write()
            self.go_on(0.0)

    @property
    def _trains(self) -> bool:
        return self.stage == WORK and not self.attempt.is_idle

    @override
    def change_pace(self, peers: Pace, own: Pace) -> None:
        trains = self._trains
        if trains:
            self._interrupt()
        if self.checkpoints is None:
            self.checkpoints = CheckpointClock(NO_CHECKPOINTS)
        rest = self.work.keep_pace(self, peers)
        self.stretch = rest.slowdown * own.slowdown
        self.power_share = rest.power * own.power
        if trains:
            self.go_on(0.0)

    def lose(self) -> LostWork:
        """See `wattkeeper.sim.attempts.attempt.Execution`; the parent search is kept."""
        assert self.checkpoints is not None
        self._break_off()
        spans = self.checkpoints.unsaved()
        self.segment.undo(spans)
        lost_j = math.fsum([span.energy_j for span in spans])
        lost = LostWork(self.trained_s, self.trained_j, self.checkpoints.unsaved_s, lost_j)
        self.trained_s = self.trained_j = 0.0
        self.checkpoints.save()
        return lost

    def do(self, segment: Segment) -> None:
        """Do a part of the work from now on."""
        self.segment = segment
        segment.begin(self)

    def take_trained(self) -> float:
        """Training time at full pace since the phase began, or since it was last taken, s."""
        now_s = self.env.now_s
        span_s = now_s - self.since_s
        self.since_s = now_s
        if self.checkpoints is None:
            return span_s
        power_w, share = self.power_w, self.power_share
        if self.stretch != 1 or share != 1:
            slow_s, span_s = span_s, span_s / self.stretch
            slow_s -= span_s
            self.attempt.slow_s += slow_s
            more_j = slow_s * power_w * share + span_s * power_w * (share - 1)
            self.attempt.add_overhead(slow_s, more_j)
        trained_s = self.checkpoints.advance(span_s, power_w, self.unit)
        self.trained_s += trained_s
        self.trained_j += trained_s * power_w
        if span_s > trained_s:
            written_s = span_s - trained_s
            self.attempt.add_overhead(written_s, written_s * power_w)
        return trained_s

    def end_phase(self) -> None:
        """Begin the next stage, or end the segment."""
        if self.stage == WORK:
            self.segment.end(self)
            return
        if self.stage == QUERY:
            self.query_s = 0.0
        self.go_on(0.0)

    def hold(self, left_s: float) -> None:
        """Hold the GPUs without training for a while, s."""
        self.listener.holds(self.attempt)
        self._enter(left_s)

    def draw(self, left_s: float, power_w: float, settled: bool, unit: Unit) -> None:
        """Train for a while (s) at a power (W), both at full pace; see `Listener.draws`.

        While a blocking checkpoint is written, GPUs draw as in training.
        """
        self.power_w = power_w
        self.unit = unit
        if self.checkpoints is None:
            self.listener.draws(self.attempt, power_w, self.env.now_s, settled)
            self._enter(left_s)
            return
        self.attempt.reserved_w = max(power_w, self.work.reserved_w)
        drawn_w = power_w * self.power_share
        self.listener.draws(self.attempt, drawn_w, self.env.now_s, settled)
        self._enter(left_s, self.checkpoints.span_s(left_s) * self.stretch - left_s)

    def _enter(self, left_s: float, more_s: float = 0.0) -> None:
        env = self.env
        self.phases += 1
        self.since_s = now_s = env.now_s
        self.left_s = left_s
        schedule_at(env, now_s + left_s + more_s, Phase(self, self.phases))

    @override
    def configured(self) -> tuple[int, float]:
        return self.work.batch_size, self.work.limit_w

    @override
    def begun_with(self) -> Start | None:
        return self.work.start

    @property
    @override
    def is_training(self) -> bool:
        return self.segment.is_training

    @override
    def progress(self) -> Progress:
        return self.work.progress(self)

    @override
    def retune(self, knobs: Knobs) -> None:
        self.work.retune(self, knobs)

    @override
    def points(self, chosen: Knobs = NO_KNOBS) -> Sequence[SpeedPoint]:
        return self.work.points(self, chosen)

    @override
    def stop(self) -> None:
        self.work.stop(self)
