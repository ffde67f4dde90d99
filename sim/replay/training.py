"""Work of jobs with a workload: their training, part by part, as their profile has it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from typing_extensions import override

from wattkeeper.policies.points.moments import Progress
from wattkeeper.policies.points.views import Knobs, Measurement, Options, Start
from wattkeeper.policies.profile import Curve, Objective, Profile
from wattkeeper.sim.attempts.attempt import (
    NO_SLICES,
    AttemptTotals,
    Decision,
    Inheritance,
    SliceTotals,
    Tuned,
    Untuned,
)
from wattkeeper.sim.attempts.pace import FULL_PACE, Pace
from wattkeeper.sim.cluster.checkpoints import TrainingSpan
from wattkeeper.sim.kernel.loop import EventLoop
from wattkeeper.sim.kernel.streams import RandomStreams
from wattkeeper.sim.replay.epochs import EpochTimes
from wattkeeper.sim.replay.latencies import Latencies
from wattkeeper.sim.replay.replayed import Replayed, Work

if TYPE_CHECKING:
    from wattkeeper.policies.planning.hull import SpeedPoint

ROUNDING = 1e-9
"""A number of epochs that should be whole differs by less, by rounding."""


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


Step = Callable[[Replayed], None]


class Part:
    """A part of a training; a step follows its end."""

    is_training = False

    @abstractmethod
    def begin(self, training: Training, run: Replayed) -> None:
        """Begin, or go on after an interruption."""

    @abstractmethod
    def end(self, run: Replayed) -> None:
        """Take the step that follows."""

    def interrupt(self, run: Replayed) -> None:
        """Save what is left."""
        return

    def break_off(self, training: Training) -> None:
        """Called after an interruption for which the training stops."""
        return

    def undo(self, training: Training, lost: list[TrainingSpan]) -> None:
        """Do training that was lost once more, in the next part that trains."""
        training.undone += lost

    def count(self, run: Replayed) -> None:
        """Count what is done since the phase began, or since it was last counted."""
        return

    def plan_anew(self, run: Replayed) -> None:
        """Go on with knobs or a pace that changed, after `count`."""
        return


class Nothing(Part):
    """No part: between two of them, and after the end."""

    @override
    def begin(self, training: Training, run: Replayed) -> None:
        return

    @override
    def end(self, run: Replayed) -> None:
        return


NOTHING: Final = Nothing()


class Hold(Part):
    """A time for which the GPUs are held idle, s; an interrupted one is over, or begins anew."""

    def __init__(self, delay_s: float, then: Step, is_repeated: bool) -> None:
        self.delay_s = delay_s
        self.then = then
        self.is_repeated = is_repeated

    @override
    def begin(self, training: Training, run: Replayed) -> None:
        if self.delay_s:
            run.hold(self.delay_s)
        else:
            training.part = NOTHING
            self.then(run)

    @override
    def interrupt(self, run: Replayed) -> None:
        if not self.is_repeated:
            self.delay_s = 0.0

    @override
    def end(self, run: Replayed) -> None:
        self.then(run)


class Stretch(Part):
    """Training for a time that is known (s), at a mean power (W).

    What was lost comes first, at the pace and power of now.
    """

    def __init__(
        self, left_s: float, power_w: float, settled: bool, then: Step, unit: tuple[float, float]
    ) -> None:
        self.left_s = left_s
        self.power_w = power_w
        self.settled = settled
        self.then = then
        self.unit = unit

    @override
    def begin(self, training: Training, run: Replayed) -> None:
        undone, training.undone = training.undone, []
        for span in undone:
            again_s = span.time_s
            if span.pace != self.unit and span.pace[0] > 0:
                again_s *= self.unit[0] / span.pace[0]
            self.left_s += again_s
            training.time_s += (again_s - span.time_s) / training.scale
            training.energy_j += (again_s * self.power_w - span.energy_j) / training.scale
        run.draw(self.left_s, self.power_w, self.settled, self.unit)

    @override
    def interrupt(self, run: Replayed) -> None:
        self.left_s = run.left_s - run.take_trained()

    @override
    def end(self, run: Replayed) -> None:
        self.then(run)


class Profiling:
    """What is measured before the power limit is chosen: an epoch of all limits to be profiled.

    Attributes:
        slices: What slices took so far.
    """

    def __init__(self) -> None:
        self.slices: SliceTotals = NO_SLICES

    def measure(self, training: Training, run: Replayed, untuned: Untuned) -> None:
        """Train for an epoch at the limits to be measured, then to the end."""
        curve, scale = training.curve, training.scale
        report = tuple([Measurement(*point) for point in _points(curve, untuned.profile_w)])
        if untuned.profile_mhz:
            report += _locked_points(curve, untuned.profile_mhz)
        first = _profiling_epoch(report)
        if training.rules.foreknown:
            training.train_to_end(run, _choice(run, untuned, report), first)
            return

        def end_profiling(run: Replayed) -> None:
            tuned = _choice(run, untuned, report)
            follow = partial(training.train_to_end, tuned=tuned, first=first)
            training.wait(run, training.latencies.settle_s, follow)

        time_s, energy_j = first
        training.go_on_with(
            run, Stretch(time_s * scale, energy_j / time_s, False, end_profiling, first)
        )

    def end(self, training: Training, run: Replayed, reached: bool) -> None:
        """Called after all epochs."""
        training.leave(run, reached)


PROFILING: Final = Profiling()


def _choice(run: Replayed, untuned: Untuned, report: tuple[Measurement, ...]) -> Tuned:
    """Report what was measured; returns the choice, which can only be a power limit."""
    decision = run.listener.measured(untuned, report)
    assert isinstance(decision, Tuned)
    return decision


class Training(Work):
    """A training that is replayed from a profile.

    It starts, is measured if its power limit is not chosen yet, trains to its end, and leaves.

    Args:
        rules: How it is replayed.
        decision: Its configuration.
        inheritance: What it takes over from its parent.
        known: What is known of its workload.
        scale: The job's `time_scale`.
        times: What an epoch takes.
        profiling: What is measured before its limit is chosen.
        course: Trains to the end after the limit is chosen, and the first epoch if that was taken.

    Attributes:
        decision: Its configuration, with the knobs in force.
        profile: The profile of the workload.
        curve: That of its batch size.
        latencies: Delays besides training.
        part: What it does now.
        undone: Training that was lost, and is done once more in the next part.
        target: Epochs to the target; infinite if it is missed.
        saved_epochs: Epochs that its parent saved.
        epochs: Epochs done, with fractions.
        time_s: Time of these as profiled (without the job's `time_scale`), s.
        energy_j: Energy of these as profiled, J.
    """

    def __init__(
        self,
        rules: ReplayRules,
        decision: Decision,
        inheritance: Inheritance,
        known: RecordedWorkload,
        scale: float,
        times: EpochTimes,
        profiling: Profiling,
        course: Course,
    ) -> None:
        self.rules = rules
        self.decision = decision
        self.inheritance = inheritance
        self.profile = known.profile
        self.curve = known.profile.curves[decision.batch_size]
        self.latencies = latencies = known.latencies
        self.scale = scale
        self.times = times
        self.profiling = profiling
        self.course = course
        self.undone: list[TrainingSpan] = []
        self.target = math.inf
        self.saved_epochs = self.epochs = self.time_s = self.energy_j = 0.0
        # Nothing measured how long clocks take to be in force: as long as limits.
        limits = 1
        if isinstance(decision, Untuned) and decision.slice is None:
            limits = len(decision.profile_w) + len(decision.profile_mhz)
        start_s = latencies.start_s + latencies.settle_s * limits
        self.part: Part = Hold(start_s, self._launch, True)

    @override
    def configured(self) -> tuple[int, float]:
        decision = self.decision
        limit_w = decision.power_limit_w if isinstance(decision, Tuned) else math.nan
        return decision.batch_size, limit_w

    @override
    def begun_with(self) -> Start | None:
        return self.decision.start

    @override
    def begin(self, run: Replayed) -> None:
        self.part.begin(self, run)

    @override
    def end_phase(self, run: Replayed) -> None:
        if run.checkpoints is not None and not run.attempt.is_idle:
            run.take_trained()
        part, self.part = self.part, NOTHING  # what ended refers to no step, and so not to itself
        part.end(run)

    @override
    def interrupt(self, run: Replayed) -> None:
        self.part.interrupt(run)

    @override
    def break_off(self) -> None:
        self.part.break_off(self)

    @override
    def undo(self, lost: list[TrainingSpan]) -> None:
        self.part.undo(self, lost)

    def go_on_with(self, run: Replayed, part: Part) -> None:
        """Do a part from now on."""
        self.part = part
        part.begin(self, run)

    def wait(self, run: Replayed, delay_s: float, then: Step) -> None:
        """Hold the GPUs for a while (s), then take a step, at once once it is interrupted."""
        self.go_on_with(run, Hold(delay_s, then, False))

    def _launch(self, run: Replayed) -> None:
        """Train to the end, or measure what the power limit is chosen by."""
        attempt, decision, job = run.attempt, self.decision, run.attempt.job
        recorded = self.rules.streams.pick(job, attempt.tries, len(self.curve.epochs))
        from_scratch = self.profile.run_epochs(decision.batch_size, recorded, job.recurrence)
        self.target = self.inheritance.epochs_left(from_scratch)
        if self.target < from_scratch:
            self.saved_epochs = from_scratch - self.target
        if isinstance(decision, Tuned):
            self.train_to_end(run, decision, None)
        else:
            self.profiling.measure(self, run, decision)

    def train_to_end(self, run: Replayed, tuned: Tuned, first: tuple[float, float] | None) -> None:
        """Train with the knobs that are now known, after the first epoch if it was taken."""
        self.decision = tuned
        self.course(self, run, first)

    @property
    def tuned(self) -> Tuned:
        """Its decision, once the power limit is chosen."""
        decision = self.decision
        assert isinstance(decision, Tuned), "its power limit is not chosen yet"
        return decision

    def epoch(self) -> tuple[float, float]:
        """Time (s) and energy (J) of an epoch with what is in force."""
        return self.times.epoch(self.tuned)

    def add(self, epochs: float, epoch_s: float, epoch_j: float) -> None:
        """Count epochs, each of a time (s) and an energy (J)."""
        self.epochs += epochs
        self.time_s += epochs * epoch_s
        self.energy_j += epochs * epoch_j

    def end_epochs(self) -> float:
        """Epochs at which it ends, given its target, its cost bound and what was spent."""
        tuned = self.tuned
        options, bound = tuned.start.options, tuned.configuration.cost_bound
        most = float(options.max_epochs)
        if not math.isinf(bound):
            highest_w = self.curve.max_limit_w * options.gpus
            cost = self.rules.objective.cost
            epoch_s, epoch_j = self.epoch()
            epoch_cost = cost(epoch_j, epoch_s, highest_w)
            whole = math.floor(self.epochs + ROUNDING)
            begun = self.epochs - whole
            left = bound - cost(self.energy_j, self.time_s, highest_w) + begun * epoch_cost
            most = min(most, whole + max(float(begun > ROUNDING), left // epoch_cost))
        return min(self.target, most)

    def leave(self, run: Replayed, reached: bool) -> None:
        """End the attempt, whose state is saved, after the delays of its reports and stop."""
        if run.checkpoints is not None:
            run.checkpoints.save()
        whole = math.floor(self.epochs + ROUNDING)
        saved_s = 0.0
        if self.saved_epochs and reached:
            saved_s = self.saved_epochs * self.epoch()[0] * self.scale
        totals = AttemptTotals(
            whole, self.time_s, self.energy_j, reached, saved_s, None, self.profiling.slices
        )
        latencies = self.latencies
        end = partial(self._report, tuned=self.tuned, totals=totals)
        self.wait(run, latencies.stop_s + latencies.report_s * whole, end)

    def _report(self, run: Replayed, tuned: Tuned, totals: AttemptTotals) -> None:
        """Report the end of the attempt that runs now: another one if a node was lost meanwhile."""
        run.listener.ended(run.attempt, tuned, totals)

    @property
    @override
    def is_training(self) -> bool:
        return self.part.is_training

    @override
    def progress(self, run: Replayed) -> Progress:
        self.part.count(run)
        work_s = self.epochs * self.curve.epoch(self.curve.max_limit_w)[0] * self.scale
        return Progress(self.epochs, work_s, self.time_s * self.scale, self.energy_j * self.scale)

    @override
    def keep_pace(self, run: Replayed, peers: Pace) -> Pace:
        if not self.times.keep_pace(peers):
            return peers
        self.part.plan_anew(run)
        return FULL_PACE

    @override
    def retune(self, run: Replayed, knobs: Knobs) -> None:
        decision = self.decision
        if isinstance(decision, Tuned):
            after = self.times.after(decision, knobs)
            if after is not decision:
                self.part.count(run)
                self.decision = after
                self.part.plan_anew(run)

    @override
    def points(self, run: Replayed, chosen: Knobs) -> Sequence[SpeedPoint]:
        return self.times.points(chosen)

    @override
    def stop(self, run: Replayed) -> None:
        self.part.count(run)
        run.phases += 1
        decision = self.decision
        if isinstance(decision, Untuned):  # it was paused before it began
            self.decision = decision.at_present_limit()
        self.leave(run, False)


Course = Callable[[Training, Replayed, tuple[float, float] | None], None]


def train_as_planned(training: Training, run: Replayed, first: tuple[float, float] | None) -> None:
    """Train to an end that is known, since no knob changes."""
    rules, job = training.rules, run.attempt.job
    if first and not rules.foreknown:
        training.add(1.0, *first)
    done_s, done_j = training.time_s, training.energy_j
    end = training.end_epochs()
    if first and rules.foreknown and end:
        training.add(1.0, *first)
    unit = training.epoch()
    training.add(end - training.epochs, *unit)
    if rules.recorded:
        hold_s = job.duration_s
        power_w = training.energy_j * training.scale / hold_s if hold_s > 0 else 0.0
    else:
        left_s = training.time_s - done_s
        hold_s = left_s * training.scale
        power_w = (training.energy_j - done_j) / left_s if left_s > 0 else 0.0
    leave = partial(training.leave, reached=training.target <= end)
    training.go_on_with(run, Stretch(hold_s, power_w, True, leave, unit))


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
