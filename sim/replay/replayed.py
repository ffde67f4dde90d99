"""Attempts that are replayed: phases of constant rate and power."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr
from typing_extensions import override

from wattkeeper.policies.points.views import Measurement, Options, Start
from wattkeeper.policies.profile import Curve, Objective, Profile
from wattkeeper.sim.attempts.attempt import (
    Attempt,
    AttemptTotals,
    Decision,
    Execution,
    Inheritance,
    LostWork,
    Tuned,
    Untuned,
)
from wattkeeper.sim.attempts.pace import Pace
from wattkeeper.sim.cluster.checkpoints import CheckpointClock, CheckpointRule, TrainingSpan
from wattkeeper.sim.engine.backend import Backend
from wattkeeper.sim.kernel.loop import EventLoop, ScheduledEvent, schedule_at
from wattkeeper.sim.kernel.streams import RandomStreams
from wattkeeper.sim.replay.latencies import Latencies
from wattkeeper.sim.replay.unprofiled import UnprofiledPower


class ReplayRules(NamedTuple):
    """How attempts of a run are replayed.

    Attributes:
        env: The event loop of the run.
        streams: Picks the recorded run that an attempt replays.
        objective: The cost of an epoch.
        recorded: Whether every attempt holds its GPUs for the recorded duration of its job.
        foreknown: Whether what profiling finds is known before the epoch that it takes.
    """

    env: EventLoop
    streams: RandomStreams
    objective: Objective
    recorded: bool
    foreknown: bool


class RecordedWorkload(NamedTuple):
    """What is known of a workload on a number of GPUs of a type."""

    profile: Profile
    options: Options
    latencies: Latencies


@mypyc_attr(acyclic=True)
class Phase(ScheduledEvent):
    """The end of a part of an attempt at constant rate and power.

    Args:
        execution: The attempt.
        number: The number of the part; nothing happens if the attempt left it before.
    """

    def __init__(self, execution: Replayed, number: int) -> None:
        self.execution = execution
        self.number = number

    def happen(self) -> None:
        """Tell the attempt that its phase is over."""
        if self.number == self.execution.phases:
            self.execution.end_phase()


DELAY: Final = 0
QUERY: Final = 1
WORK: Final = 2
PAUSED: Final = 3
"""Stages of an attempt: it waits for its nodes, searches its parent, works, or is in no phase."""


@mypyc_attr(acyclic=True)
class Replayed(Execution):
    """An attempt that is replayed.

    Attributes:
        backend: Gives the listener to which the attempt reports.
        env: The event loop of the run.
        inheritance: The share of the work that its parent leaves.
        query_s: Remaining time of the parent search.
        stage: `DELAY`, `QUERY`, `WORK` or `PAUSED`.
        phases: Number of phases begun or interrupted.
        since_s: Start of the current phase.
        left_s: Training time, or time of holding GPUs, of the current phase, unless it is
            interrupted.
        checkpoints: Its checkpoints; None where no node is lost.
        stretch: Time of training over that which its phases count.
        power_w: Power in a phase of training.
        work_pace: Two numbers by which the work of that phase is counted: those of a unit of work,
            time (s) and energy (J), unless the class says otherwise.
        trained_s: Training time of the attempt at full pace, where nodes are lost.
        trained_j: Energy of that.
    """

    checkpoints: CheckpointClock | None = None
    stretch = 1.0
    power_w = 0.0
    trained_s = 0.0
    trained_j = 0.0

    def __init__(
        self, backend: Backend, env: EventLoop, attempt: Attempt, inheritance: Inheritance
    ) -> None:
        super().__init__(attempt)
        self.backend = backend
        self.env = env
        self.inheritance = inheritance
        self.query_s = inheritance.query_s
        self.stage = PAUSED
        self.phases = 0
        self.since_s = 0.0
        self.left_s = 0.0
        self.work_pace = (0.0, 0.0)

    @abstractmethod
    def work(self) -> None:
        """Begin or resume the work of the job."""

    @abstractmethod
    def end_work(self) -> None:
        """Called when a phase of the work is over."""

    @abstractmethod
    def stop_work(self) -> None:
        """Save what is left of an interrupted phase of the work."""

    @abstractmethod
    def undo(self, lost: list[TrainingSpan]) -> None:
        """Count training as not done."""

    def go_on(self, delay_s: float) -> None:
        """Wait, search the parent, then work."""
        if delay_s:
            self.stage = DELAY
            self.hold(delay_s)
        elif self.query_s:
            self.stage = QUERY
            self.hold(self.query_s)
        else:
            self.stage = WORK
            self.work()

    def pause(self) -> None:
        """Save the remaining time of the phase; a delay starts anew."""
        self._interrupt()
        if self.checkpoints is not None:
            self.checkpoints.save()

    def _interrupt(self) -> None:
        self.phases += 1
        if self.stage == WORK:
            self.stop_work()
        elif self.stage == QUERY:
            self.query_s = max(0.0, self.left_s - (self.env.now_s - self.since_s))
        self.stage = PAUSED

    def write_checkpoints(self, rule: CheckpointRule) -> None:
        """Write checkpoints by a rule from the next phase on; what it did is saved."""
        self.checkpoints = CheckpointClock(rule)

    def write_checkpoint(self) -> None:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        if self.checkpoints is None or self.stage != WORK or self.attempt.is_idle:
            return
        self._interrupt()
        self.checkpoints.begin_write()
        self.go_on(0.0)

    @override
    def change_pace(self, peers: Pace, own: Pace) -> None:
        trains = self.stage == WORK and not self.attempt.is_idle
        if trains:
            self._interrupt()
        self.stretch = peers.slowdown * own.slowdown
        if trains:
            self.go_on(0.0)

    def lose(self) -> LostWork:
        """See `wattkeeper.sim.attempts.attempt.Execution`; the parent search is kept."""
        assert self.checkpoints is not None
        self._interrupt()
        spans = self.checkpoints.unsaved()
        self.undo(spans)
        lost_j = math.fsum([span.energy_j for span in spans])
        lost = LostWork(self.trained_s, self.trained_j, self.checkpoints.unsaved_s, lost_j)
        self.trained_s = self.trained_j = 0.0
        self.checkpoints.save()
        return lost

    def take_trained(self) -> float:
        """Training time at full pace since the phase began, or since it was last taken, s."""
        now_s = self.env.now_s
        span_s = now_s - self.since_s
        self.since_s = now_s
        if self.checkpoints is None:
            return span_s
        if self.stretch != 1:
            slow_s, span_s = span_s, span_s / self.stretch
            slow_s -= span_s
            self.attempt.slow_s += slow_s
            self.attempt.add_overhead(slow_s, slow_s * self.power_w)
        trained_s = self.checkpoints.advance(span_s, self.power_w, self.work_pace)
        self.trained_s += trained_s
        self.trained_j += trained_s * self.power_w
        if span_s > trained_s:
            written_s = span_s - trained_s
            self.attempt.add_overhead(written_s, written_s * self.power_w)
        return trained_s

    def end_phase(self) -> None:
        """Begin the next stage, or end the phase of the work."""
        if self.stage == WORK:
            self.end_work()
            return
        if self.stage == QUERY:
            self.query_s = 0.0
        self.go_on(0.0)

    def hold(self, left_s: float) -> None:
        """Hold the GPUs without training for a while, s."""
        self.backend.listener.holds(self.attempt)
        self._enter(left_s)

    def draw(self, left_s: float, power_w: float, settled: bool, pace: tuple[float, float]) -> None:
        """Train for a while (s, at full pace) at a power (W); see `Listener.draws`.

        While a blocking checkpoint is written, GPUs draw as in training. Where a node is slow, all
        of that takes as many times as long at the same power. `pace`: see `work_pace`.
        """
        self.power_w = power_w
        self.work_pace = pace
        self.backend.listener.draws(self.attempt, power_w, self.env.now_s, settled)
        if self.checkpoints is None:
            self._enter(left_s)
        else:
            self._enter(left_s, self.checkpoints.span_s(left_s) * self.stretch - left_s)

    def _enter(self, left_s: float, more_s: float = 0.0) -> None:
        env = self.env
        self.phases += 1
        self.since_s = now_s = env.now_s
        self.left_s = left_s
        schedule_at(env, now_s + left_s + more_s, Phase(self, self.phases))


@mypyc_attr(acyclic=True)
class RecordedRun(Replayed):
    """An attempt of a job without a workload: it runs for its recorded duration.

    Under a power limit it takes that over its relative speed; where occupancy is `recorded`, it
    still holds its GPUs for its recorded duration, and its energy is spread over that.

    Attributes:
        limit_w: Power limit of each of its GPUs; NaN: none.
        busy_w: Its power.
        full_s: Its time without a parent.
        hold_share: Time for which it holds its GPUs, relative to the time that it takes.
        rest_s: Remaining time.
    """

    def __init__(
        self,
        backend: Backend,
        env: EventLoop,
        attempt: Attempt,
        inheritance: Inheritance,
        power: UnprofiledPower,
        limit_w: float,
        recorded: bool = False,
    ) -> None:
        super().__init__(backend, env, attempt, inheritance)
        job = attempt.job
        self.limit_w = limit_w
        self.busy_w, speed = power.under_limit(job, attempt.gpu_type, limit_w)
        self.full_s = job.duration_s / speed
        self.hold_share = speed if recorded else 1.0
        self.rest_s = self.full_s * inheritance.work * self.hold_share

    def configured(self) -> tuple[int, float]:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        return -1, self.limit_w

    def work(self) -> None:
        """Work for the remaining time."""
        power_w = self.busy_w / self.hold_share
        self.draw(self.rest_s, power_w, not math.isnan(self.limit_w), (power_w, 1.0))

    def stop_work(self) -> None:
        """Save the remaining time."""
        self.rest_s = self.left_s - self.take_trained()

    def undo(self, lost: list[TrainingSpan]) -> None:
        """Do it once more."""
        for span in lost:
            self.rest_s += span.time_s

    def end_work(self) -> None:
        """End the attempt."""
        if self.checkpoints is not None:
            self.take_trained()
        work = self.inheritance.work
        time_s, saved_s = self.full_s * work, self.full_s * (1 - work)
        self.backend.listener.ran(self.attempt, time_s, self.busy_w * time_s, saved_s, self.limit_w)


Step = Callable[[], None]


def _nothing() -> None:
    """The step of an attempt that has no further one."""


class Trained(Replayed):
    """An attempt of a job with a workload: its training is replayed from a profile.

    Attributes:
        rules: How it is replayed.
        decision: Its configuration.
        profile: The profile of the workload.
        curve: That of its batch size.
        latencies: Delays besides training.
        next: The step at which it begins or resumes.
        then: The step after the current phase.
        settled: Whether its power limit is chosen in a phase of training.
        undone: Training that was lost, and is done once more in the next phase.
        redone_s: Time that it took more to do training once more at another pace, as profiled, s.
        redone_j: Energy of that, J.
    """

    def __init__(
        self,
        backend: Backend,
        rules: ReplayRules,
        attempt: Attempt,
        inheritance: Inheritance,
        decision: Decision,
        known: RecordedWorkload,
    ) -> None:
        super().__init__(backend, rules.env, attempt, inheritance)
        self.rules = rules
        self.decision = decision
        self.profile = known.profile
        self.curve = known.profile.curves[decision.batch_size]
        self.latencies = known.latencies
        self.next: Step = self.launch
        self.then: Step = _nothing
        self.settled = False
        self.undone: list[TrainingSpan] = []
        self.redone_s = self.redone_j = 0.0

    def configured(self) -> tuple[int, float]:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        decision = self.decision
        limit_w = decision.power_limit_w if isinstance(decision, Tuned) else math.nan
        return decision.batch_size, limit_w

    def begun_with(self) -> Start | None:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        return self.decision.start

    def work(self) -> None:
        """Begin, or resume where it was preempted."""
        self.next()

    def end_work(self) -> None:
        """Take the next step; an attempt that ended refers to no step, and so not to itself."""
        if self.checkpoints is not None and not self.attempt.is_idle:
            self.take_trained()
        then, self.then, self.next = self.then, _nothing, _nothing
        then()

    def stop_work(self) -> None:
        """Save the remaining time of training."""
        self.save_phase()

    def save_phase(self) -> None:
        """Go on with the present phase later, for the time that is left.

        If it only held its GPUs, `next` was set.
        """
        if not self.attempt.is_idle:
            left_s = self.left_s - self.take_trained()
            self.next = partial(
                self.train, left_s, self.power_w, self.settled, self.then, self.work_pace
            )

    def undo(self, lost: list[TrainingSpan]) -> None:
        """Do it once more in the next phase of training."""
        self.undone += lost

    def wait(self, delay_s: float, then: Step, again: Step) -> None:
        """Hold the GPUs for a while (s), then take a step; take another one if preempted."""
        if delay_s:
            self.then, self.next = then, again
            self.hold(delay_s)
        else:
            then()

    def train(
        self, left_s: float, power_w: float, settled: bool, then: Step, pace: tuple[float, float]
    ) -> None:
        """Train for a while (s) at a mean power (W), then take a step.

        What was lost comes first, at the pace and power of now.
        """
        self.then = then
        self.settled = settled
        undone, self.undone = self.undone, []
        for span in undone:
            again_s = span.time_s
            if span.pace != pace and span.pace[0] > 0:
                again_s *= pace[0] / span.pace[0]
            left_s += again_s
            self.recount(again_s - span.time_s, again_s * power_w - span.energy_j)
        self.draw(left_s, power_w, settled, pace)

    def recount(self, more_s: float, more_j: float) -> None:
        """Count that training took more time (s) and energy (J) than that in whose place it is."""
        scale = self.attempt.job.time_scale
        self.redone_s += more_s / scale
        self.redone_j += more_j / scale

    def launch(self) -> None:
        """Start training, which takes a while, and so does every limit or clock that is set first.

        Nothing measured how long clocks take: as long as limits.
        """
        decision, latencies = self.decision, self.latencies
        limits = 1
        if isinstance(decision, Untuned) and decision.slice is None:
            limits = len(decision.profile_w) + len(decision.profile_mhz)
        self.wait(latencies.start_s + latencies.settle_s * limits, self.begin, self.launch)

    def begin(self) -> None:
        """Train to the end, or for the epoch in which power limits are measured."""
        attempt, decision, job = self.attempt, self.decision, self.attempt.job
        run = self.rules.streams.pick(job, attempt.tries, len(self.curve.epochs))
        from_scratch = self.profile.run_epochs(decision.batch_size, run, job.recurrence)
        target = self.inheritance.epochs_left(from_scratch)
        saved_epochs = from_scratch - target if target < from_scratch else 0.0
        if isinstance(decision, Tuned):
            self.train_to_end(decision, target, saved_epochs, None)
            return
        self.measure(decision, target, saved_epochs)

    def measure(self, untuned: Untuned, target: float, saved_epochs: float) -> None:
        """Train for the epoch in which power limits are measured, then to the end."""
        attempt, rules, curve = self.attempt, self.rules, self.curve
        job = attempt.job
        report = tuple([Measurement(*point) for point in _points(curve, untuned.profile_w)])
        if untuned.profile_mhz:
            report += _locked_points(curve, untuned.profile_mhz)
        first = _profiling_epoch(report)
        if rules.foreknown:
            self.train_to_end(self.measured(untuned, report), target, saved_epochs, first)
            return

        def end_profiling() -> None:
            tuned = self.measured(untuned, report)
            follow = partial(self.train_to_end, tuned, target, saved_epochs, first)
            self.wait(self.latencies.settle_s, follow, follow)

        time_s, energy_j = first
        self.train(time_s * job.time_scale, energy_j / time_s, False, end_profiling, first)

    def measured(self, untuned: Untuned, report: tuple[Measurement, ...]) -> Tuned:
        """Report what was measured; returns the choice, which can only be a power limit."""
        decision = self.backend.listener.measured(untuned, report)
        assert isinstance(decision, Tuned)
        return decision

    def train_to_end(
        self, tuned: Tuned, target: float, saved_epochs: float, first: tuple[float, float] | None
    ) -> None:
        """Train at the limit that is now known, after the first epoch if it was taken."""
        rules, job = self.rules, self.attempt.job
        totals = self.plan(tuned, target, first)
        if saved_epochs and totals.reached:
            epoch_s = self.curve.epoch(tuned.power_limit_w, tuned.clock_mhz)[0]
            totals = totals._replace(saved_s=saved_epochs * epoch_s * job.time_scale)
        if rules.recorded:
            hold_s = job.duration_s
            power_w = totals.energy_j * job.time_scale / hold_s if hold_s > 0 else 0.0
        else:
            done_s, done_j = first if first and not rules.foreknown else (0.0, 0.0)
            left_s = totals.time_s - done_s
            hold_s = left_s * job.time_scale
            power_w = (totals.energy_j - done_j) / left_s if left_s > 0 else 0.0
        pace = self.curve.epoch(tuned.power_limit_w, tuned.clock_mhz)
        self.train(hold_s, power_w, True, lambda: self.leave(tuned, totals), pace)

    def leave(self, tuned: Tuned, totals: AttemptTotals) -> None:
        """End the attempt, whose state is saved, after the delays of its reports and stop."""
        if self.checkpoints is not None:
            self.checkpoints.save()
        if self.redone_s or self.redone_j:
            totals = totals._replace(
                time_s=totals.time_s + self.redone_s, energy_j=totals.energy_j + self.redone_j
            )
        end = partial(self._report, tuned, totals)
        latencies = self.latencies
        self.wait(latencies.stop_s + latencies.report_s * totals.epochs, end, end)

    def _report(self, tuned: Tuned, totals: AttemptTotals) -> None:
        """Report the end of the attempt that runs now: another one if a node was lost meanwhile."""
        self.backend.listener.ended(self.attempt, tuned, totals)

    def plan(self, tuned: Tuned, target: float, first: tuple[float, float] | None) -> AttemptTotals:
        """The totals at the end of the attempt."""
        time_s, energy_j = self.curve.epoch(tuned.power_limit_w, tuned.clock_mhz)
        options, bound = tuned.start.options, tuned.configuration.cost_bound
        most = float(options.max_epochs)
        if not math.isinf(bound):
            highest_w = self.curve.max_limit_w * options.gpus
            cost = self.rules.objective.cost
            epoch_cost = cost(energy_j, time_s, highest_w)
            if first and not self.rules.foreknown:
                left = bound - cost(first[1], first[0], highest_w)
                most = min(most, 1 + max(0.0, left // epoch_cost))
            else:
                most = min(most, bound // epoch_cost)
        reached = target <= most
        epochs = int(target if reached else most)
        if first and epochs:
            return AttemptTotals(
                epochs,
                first[0] + (epochs - 1) * time_s,
                first[1] + (epochs - 1) * energy_j,
                reached,
            )
        return AttemptTotals(epochs, epochs * time_s, epochs * energy_j, reached)


def _points(curve: Curve, limits_w: tuple[float, ...]) -> list[tuple[float, float, float]]:
    by_limit = dict(
        zip(
            curve.limits_w,
            zip(curve.time_per_epoch_s, curve.average_power_w, strict=True),
            strict=True,
        )
    )
    return [(limit, *by_limit[limit]) for limit in limits_w]


def _locked_points(curve: Curve, clocks_mhz: tuple[int, ...]) -> tuple[Measurement, ...]:
    by_clock = {setting.clock_mhz: setting for setting in curve.clocks}
    highest_w = curve.max_limit_w
    settings = [by_clock[clock_mhz] for clock_mhz in clocks_mhz]
    return tuple(
        [
            Measurement(highest_w, s.time_per_epoch_s, s.average_power_w, s.clock_mhz)
            for s in settings
        ]
    )


def _profiling_epoch(report: tuple[Measurement, ...]) -> tuple[float, float]:
    """Time (s) and energy (J) of an epoch, its work shared equally among limits and clocks."""
    time_s = math.fsum(m.time_per_epoch_s for m in report) / len(report)
    energy_j = math.fsum(m.time_per_epoch_s * m.average_power_w for m in report) / len(report)
    return time_s, energy_j
