"""Work of jobs with a workload: their training, part by part, as their profile has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from mypy_extensions import mypyc_attr
from typing_extensions import override

from wattkeeper.policies.points.moments import Progress
from wattkeeper.policies.points.views import Knobs, Measurement
from wattkeeper.policies.profile import ROUNDING, Curve, Objective, Profile
from wattkeeper.sim.attempts.decided import (
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
from wattkeeper.sim.replay.replayed import Replayed, Segment, Unit, Work

if TYPE_CHECKING:
    from wattkeeper.policies.planning.hull import SpeedPoint


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


Step = Callable[[Replayed], None]


@mypyc_attr(acyclic=True)
class TrainingSegment(Segment):
    """A part of a training: what is lost in it is done once more in the next one that trains."""

    def __init__(self, training: Training, then: Step) -> None:
        self.training = training
        self.then = then

    @override
    def end(self, run: Replayed) -> None:
        self.then(run)

    @override
    def undo(self, lost: list[TrainingSpan]) -> None:
        self.training.undone += lost


@mypyc_attr(acyclic=True)
class Hold(TrainingSegment):
    """A time for which the GPUs are held idle, s; it is over once it is interrupted."""

    def __init__(self, training: Training, delay_s: float, then: Step) -> None:
        super().__init__(training, then)
        self.delay_s = delay_s

    @override
    def begin(self, run: Replayed) -> None:
        if self.delay_s:
            run.hold(self.delay_s)
        else:
            self.then(run)

    @override
    def interrupt(self, run: Replayed) -> None:
        self.delay_s = 0.0


@mypyc_attr(acyclic=True)
class Stretch(TrainingSegment):
    """Training for a time that is known (s), at a mean power (W).

    What was lost comes first, at the pace and power of now.
    """

    def __init__(
        self, training: Training, left_s: float, power_w: float, unit: Unit, then: Step
    ) -> None:
        super().__init__(training, then)
        self.left_s = left_s
        self.power_w = power_w
        self.unit = unit

    @override
    def begin(self, run: Replayed) -> None:
        training = self.training
        undone, training.undone = training.undone, []
        for span in undone:
            again_s = span.time_s
            if span.pace != self.unit and span.pace[0] > 0:
                again_s *= self.unit[0] / span.pace[0]
            self.left_s += again_s
            training.time_s += (again_s - span.time_s) / training.scale
            training.energy_j += (again_s * self.power_w - span.energy_j) / training.scale
        run.draw(self.left_s, self.power_w, isinstance(training.decision, Tuned), self.unit)

    @override
    def interrupt(self, run: Replayed) -> None:
        self.left_s = run.left_s - run.take_trained()

    @override
    def end(self, run: Replayed) -> None:
        if run.checkpoints is not None:
            run.take_trained()
        self.then(run)


class Profiling:
    """What is measured before the power limit is chosen: an epoch of all limits to be profiled.

    Attributes:
        slices: What slices took so far.
    """

    def __init__(self) -> None:
        self.slices: SliceTotals = NO_SLICES

    def measure(self, training: Training, run: Replayed, untuned: Untuned) -> None:
        """Train for an epoch at the limits to be measured, its work shared equally among them."""
        curve = training.curve
        limits = [_measured(curve, limit_w, 0) for limit_w in untuned.profile_w]
        clocks = [_measured(curve, curve.max_limit_w, mhz) for mhz in untuned.profile_mhz]
        report = (*limits, *clocks)
        time_s = math.fsum([m.time_per_epoch_s for m in report]) / len(report)
        energy_j = math.fsum([m.time_per_epoch_s * m.average_power_w for m in report]) / len(report)

        def choose(run: Replayed) -> None:
            training.decide(run.listener.measured(untuned, report))
            if training.rules.foreknown:
                training.foreknown = time_s, energy_j
                training.train_to_end(run)
            else:
                training.add(1.0, time_s, energy_j)
                training.wait(run, training.latencies.settle_s, training.train_to_end)

        if training.rules.foreknown:
            choose(run)
        else:
            left_s, unit = time_s * training.scale, (time_s, energy_j)
            run.do(Stretch(training, left_s, energy_j / time_s, unit, choose))

    def end(self, training: Training, run: Replayed, reached: bool) -> None:
        """Called after all epochs."""
        training.leave(run, reached)


PROFILING: Final = Profiling()


def _measured(curve: Curve, limit_w: float, clock_mhz: int) -> Measurement:
    """What profiling finds of a power limit, or of a locked clock."""
    if clock_mhz:
        (setting,) = [other for other in curve.clocks if other.clock_mhz == clock_mhz]
        return Measurement(limit_w, setting.time_per_epoch_s, setting.average_power_w, clock_mhz)
    index = curve.limits_w.index(limit_w)
    return Measurement(limit_w, curve.time_per_epoch_s[index], curve.average_power_w[index])


@mypyc_attr(acyclic=True)
class Training(Work):
    """A training that is replayed from a profile.

    It starts, is measured if its power limit is not chosen yet, trains to its end, and leaves.
    As its own first segment it takes its time to start, anew after an interruption.

    Attributes:
        rules: How it is replayed.
        decision: Its configuration, with the knobs in force.
        curve: What its batch size takes; of the recorded run that it replays, once it trains.
        scale: The job's `time_scale`.
        times: What an epoch takes.
        profiling: What is measured before its limit is chosen.
        course: Trains to the end once the limit is chosen.
        undone: Training that was lost, and is done once more in the next one that trains.
        foreknown: Time (s) and energy (J) of an epoch of profiling that is known beforehand.
        target: Epochs to the target; infinite if it is missed.
        saved_epochs: Epochs that its parent saved.
        epochs: Epochs done, with fractions.
        time_s: Time of these as profiled (without `scale`), s.
        energy_j: Energy of these as profiled, J.
    """

    def __init__(
        self,
        rules: ReplayRules,
        decision: Decision,
        inheritance: Inheritance,
        profile: Profile,
        latencies: Latencies,
        times: EpochTimes,
        profiling: Profiling,
        course: Course,
    ) -> None:
        self.rules = rules
        self.start = decision.start
        self.batch_size = decision.batch_size
        self.decide(decision)
        self.inheritance = inheritance
        self.profile = profile
        self.curve = times.curve
        self.latencies = latencies
        self.scale = decision.start.job.time_scale
        self.times = times
        self.profiling = profiling
        self.course = course
        self.undone: list[TrainingSpan] = []
        self.foreknown: Unit | None = None
        self.target = math.inf
        self.saved_epochs = self.epochs = self.time_s = self.energy_j = 0.0

    @override
    def begin(self, run: Replayed) -> None:
        """Start, which takes a while, and so does every limit or clock that is set first.

        Nothing measured how long clocks take: as long as limits.
        """
        decision, limits = self.decision, 1
        if isinstance(decision, Untuned) and decision.slice is None:
            limits = len(decision.profile_w) + len(decision.profile_mhz)
        start_s = self.latencies.start_s + self.latencies.settle_s * limits
        if start_s:
            run.hold(start_s)
        else:
            self.end(run)

    @override
    def end(self, run: Replayed) -> None:
        """Train to the end, or measure what the power limit is chosen by."""
        attempt, decision, job = run.attempt, self.decision, run.attempt.job
        recorded = self.rules.streams.pick(job, attempt.tries, len(self.curve.epochs))
        if self.curve.paces:
            self.curve = self.times.curve = self.curve.of_run(recorded)
        from_scratch = self.profile.run_epochs(decision.batch_size, recorded, job.recurrence)
        self.target = self.inheritance.epochs_left(from_scratch)
        if self.target != from_scratch:
            self.saved_epochs = from_scratch - self.target
        if isinstance(decision, Untuned):
            self.profiling.measure(self, run, decision)
        else:
            self.course(self, run)

    @override
    def undo(self, lost: list[TrainingSpan]) -> None:
        assert not lost, "nothing was trained yet"

    def decide(self, decision: Decision) -> None:
        """Go on with a decision from now on."""
        self.decision = decision
        if isinstance(decision, Tuned):
            self.limit_w = decision.power_limit_w

    def wait(self, run: Replayed, delay_s: float, then: Step) -> None:
        """Hold the GPUs for a while (s), then take a step."""
        if delay_s:
            run.do(Hold(self, delay_s, then))
        else:
            then(run)

    def train_to_end(self, run: Replayed) -> None:
        """Train with the knobs that are now known."""
        self.course(self, run)

    @property
    def tuned(self) -> Tuned:
        """Its decision, once the power limit is chosen."""
        assert isinstance(self.decision, Tuned), "its power limit is not chosen yet"
        return self.decision

    def epoch(self) -> Unit:
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
            highest_w, cost = self.curve.max_limit_w * options.gpus, self.rules.objective.cost
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
        epochs, saved_s = math.floor(self.epochs + ROUNDING), 0.0
        if self.saved_epochs and reached:
            saved_s = self.saved_epochs * self.epoch()[0] * self.scale
        slices = self.profiling.slices
        totals = AttemptTotals(epochs, self.time_s, self.energy_j, reached, saved_s, None, slices)
        delay_s = self.latencies.stop_s + self.latencies.report_s * epochs
        if delay_s:
            run.do(Hold(self, delay_s, partial(self._report, totals=totals)))
        else:
            self._report(run, totals)

    def leave_as_planned(self, run: Replayed) -> None:
        """End the attempt after all epochs."""
        self.leave(run, self.target <= self.epochs)

    def _report(self, run: Replayed, totals: AttemptTotals) -> None:
        """Report the end of the attempt that runs now: another one if a node was lost meanwhile."""
        run.listener.ended(run.attempt, self.tuned, totals)

    @override
    def progress(self, run: Replayed) -> Progress:
        run.segment.count(run)
        work_s = self.epochs * self.curve.epoch(self.curve.max_limit_w)[0] * self.scale
        return Progress(self.epochs, work_s, self.time_s * self.scale, self.energy_j * self.scale)

    @override
    def keep_pace(self, run: Replayed, peers: Pace) -> Pace:
        if not self.times.keep_pace(peers):
            return peers
        run.segment.plan_anew(run)
        return FULL_PACE

    @override
    def retune(self, run: Replayed, knobs: Knobs) -> None:
        decision = self.decision
        if isinstance(decision, Tuned):
            after = self.times.after(decision, knobs)
            if after is not decision:
                run.segment.count(run)
                self.decide(after)
                run.segment.plan_anew(run)

    @override
    def points(self, run: Replayed, chosen: Knobs) -> Sequence[SpeedPoint]:
        return self.times.points(chosen)

    @override
    def stop(self, run: Replayed) -> None:
        run.segment.count(run)
        run.phases += 1
        if isinstance(self.decision, Untuned):  # it was paused before it began
            self.decide(self.decision.at_present_limit())
        self.leave(run, False)


Course = Callable[[Training, Replayed], None]


def train_as_planned(training: Training, run: Replayed) -> None:
    """Train to an end that is known, since no knob changes."""
    rules, job = training.rules, run.attempt.job
    done_s, done_j = training.time_s, training.energy_j
    end = training.end_epochs()
    if training.foreknown and end:
        training.add(1.0, *training.foreknown)
    unit = training.epoch()
    training.add(end - training.epochs, *unit)
    if rules.recorded:
        hold_s = job.duration_s
        power_w = training.energy_j * training.scale / hold_s if hold_s > 0 else 0.0
    else:
        left_s = training.time_s - done_s
        hold_s = left_s * training.scale
        power_w = (training.energy_j - done_j) / left_s if left_s > 0 else 0.0
    run.do(Stretch(training, hold_s, power_w, unit, training.leave_as_planned))
