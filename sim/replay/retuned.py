"""Attempts whose knobs change while they run: each change integrates progress and energy anew.

They end as those of `wattkeeper.sim.replay.replayed` if nothing changes, but for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from wattkeeper.policies.planning.hull import SpeedPoint, points_up_to, relative_points, up_to_limit
from wattkeeper.policies.points.moments import Progress
from wattkeeper.policies.points.views import NO_KNOBS, Knobs
from wattkeeper.sim.attempts.attempt import Attempt, AttemptTotals, Decision, Inheritance, Tuned
from wattkeeper.sim.cluster.checkpoints import TrainingSpan
from wattkeeper.sim.engine.backend import Backend
from wattkeeper.sim.kernel.loop import EventLoop
from wattkeeper.sim.replay.replayed import RecordedRun, RecordedWorkload, ReplayRules, Trained
from wattkeeper.sim.replay.unprofiled import UnprofiledPower

ROUNDING = 1e-9
"""A number of epochs that should be whole differs by less, by rounding."""


class RetunedRun(RecordedRun):
    """An attempt of a job without a workload, whose power limit may change while it runs.

    The two numbers of `work_pace` are its power (W) and its speed.

    Attributes:
        speed: Its speed at the present limit, relative to that without one.
        work_s: All its work, as the time that it takes without a limit.
        done_s: The work that is done.
        time_s: Time of that, s.
        energy_j: Energy of that, J.
        trains: Whether it works now.
    """

    def __init__(
        self,
        backend: Backend,
        env: EventLoop,
        attempt: Attempt,
        inheritance: Inheritance,
        power: UnprofiledPower,
        limit_w: float,
    ) -> None:
        super().__init__(backend, env, attempt, inheritance, power, limit_w)
        self.power = power
        self.speed = power.under_limit(attempt.job, attempt.gpu_type, limit_w)[1]
        self.work_s = attempt.job.duration_s * inheritance.work
        self.done_s = 0.0
        self.time_s = 0.0
        self.energy_j = 0.0
        self.trains = False

    @property
    def is_training(self) -> bool:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        return self.trains

    def work(self) -> None:
        """Work at the present limit for the remaining time."""
        self.trains = True
        left_s = max(0.0, self.work_s - self.done_s) / self.speed
        settled = not math.isnan(self.limit_w)
        self.draw(left_s, self.busy_w, settled, (self.busy_w, self.speed))

    def stop_work(self) -> None:
        """Count what is done."""
        self._count()
        self.trains = False

    def undo(self, lost: list[TrainingSpan]) -> None:
        """Count it as not done."""
        for span in lost:
            self._add(-span.time_s, *span.pace)

    def _count(self) -> None:
        """Count time, energy and work since the phase began, or since they were last counted."""
        if self.trains:
            self._add(self.take_trained(), self.busy_w, self.speed)

    def _add(self, spent_s: float, power_w: float, speed: float) -> None:
        self.time_s += spent_s
        self.energy_j += spent_s * power_w
        self.done_s += spent_s * speed

    def progress(self) -> Progress:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        self._count()
        return Progress(0.0, self.done_s, self.time_s, self.energy_j)

    def retune(self, knobs: Knobs) -> None:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        if knobs.power_limit_w is None or knobs.power_limit_w == self.limit_w:
            return
        self._count()
        self.limit_w = knobs.power_limit_w
        job, gpu_type = self.attempt.job, self.attempt.gpu_type
        self.busy_w, self.speed = self.power.under_limit(job, gpu_type, self.limit_w)
        if self.trains:
            self.work()

    def points(self, chosen: Knobs = NO_KNOBS) -> Sequence[SpeedPoint]:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        job, gpu_type = self.attempt.job, self.attempt.gpu_type
        if not self.power.is_limited(gpu_type):
            return ()
        return up_to_limit(relative_points(self.power.curve(job, gpu_type)), chosen.power_limit_w)

    def end_work(self) -> None:
        """End the attempt."""
        self._count()
        self._end(self.full_s * (1 - self.inheritance.work))

    def stop(self) -> None:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        self._count()
        self.phases += 1
        self._end(0.0)

    def _end(self, saved_s: float) -> None:
        self.trains = False
        self.backend.listener.ran(self.attempt, self.time_s, self.energy_j, saved_s, self.limit_w)


class RetunedTraining(Trained):
    """An attempt of a job with a workload, whose power limit may change while it trains.

    The cost bound is applied anew at each change: the attempt ends before the epoch that would
    raise its cost above the bound, given what was spent and the costs of epochs from now on.

    Attributes:
        tuned: The decision with the present limit; None until it is chosen.
        target: Epochs to the target; infinite if it is missed.
        saved_epochs: Epochs that its parent saved.
        end_epochs: Epochs at which it ends.
        piece_end: Epochs at which the present phase of training ends.
        epochs: Epochs done, with fractions.
        time_s: Time of these as profiled (without the job's `time_scale`), s.
        energy_j: Energy of these as profiled, J.
        trains: Whether it trains at the chosen limit now.
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
        super().__init__(backend, rules, attempt, inheritance, decision, known)
        self.tuned: Tuned | None = None
        self.target = math.inf
        self.saved_epochs = 0.0
        self.end_epochs = 0.0
        self.piece_end = 0.0
        self.epochs = 0.0
        self.time_s = 0.0
        self.energy_j = 0.0
        self.trains = False

    @property
    def is_training(self) -> bool:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        return self.trains

    def epoch(self) -> tuple[float, float]:
        """Time (s) and energy (J) of an epoch with what is in force."""
        tuned = self._chosen()
        return self.curve.epoch(tuned.power_limit_w, tuned.clock_mhz)

    def train_to_end(
        self, tuned: Tuned, target: float, saved_epochs: float, first: tuple[float, float] | None
    ) -> None:
        """Train at the limit that is now known, after the first epoch if it was taken."""
        self.tuned, self.target, self.saved_epochs = tuned, target, saved_epochs
        if first:
            self.epochs, self.time_s, self.energy_j = 1.0, first[0], first[1]
        undone, self.undone = self.undone, []
        self._take_back(undone)
        self._set_end()
        self._train_on()

    def _set_end(self) -> None:
        """Set the epochs at which it ends, given its target and its cost bound."""
        tuned = self._chosen()
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
        self.end_epochs = min(self.target, most)

    def _train_on(self) -> None:
        """Train until the end, or until the end of the epoch where that is a moment."""
        epoch_s, epoch_j = self.epoch()
        self.piece_end = self.end_epochs
        if self.backend.listener.wants_epochs:
            self.piece_end = min(self.end_epochs, math.floor(self.epochs + ROUNDING) + 1.0)
        left = max(0.0, self.piece_end - self.epochs)
        self.trains = True
        scale = self.attempt.job.time_scale
        pace = epoch_s, epoch_j
        self.train(left * epoch_s * scale, epoch_j / epoch_s, True, self._end_piece, pace)

    def stop_work(self) -> None:
        """Count what is done, and train on later; what comes before training is saved as it is."""
        if self.tuned is None:
            super().stop_work()
        elif self.trains:
            self._count()
            self.trains = False
            self.next = self._train_on

    def undo(self, lost: list[TrainingSpan]) -> None:
        """Count it as not done; before it trains to the end, do it once more."""
        if self.tuned is None:
            super().undo(lost)
            return
        self._take_back(lost)
        self._set_end()

    def _take_back(self, lost: list[TrainingSpan]) -> None:
        """Count training as not done."""
        for span in lost:
            self._add(-span.time_s / self.attempt.job.time_scale / span.pace[0], *span.pace)
        self.epochs = max(0.0, self.epochs)  # but for rounding

    def recount(self, more_s: float, more_j: float) -> None:
        """See `Trained`."""
        scale = self.attempt.job.time_scale
        self.time_s += more_s / scale
        self.energy_j += more_j / scale

    def _count(self) -> None:
        """Count time, energy and epochs since the phase began, or since they were last counted."""
        if self.trains:
            spent_s = self.take_trained() / self.attempt.job.time_scale
            epoch_s, epoch_j = self.epoch()
            self._add(spent_s / epoch_s, epoch_s, epoch_j)

    def _add(self, epochs: float, epoch_s: float, epoch_j: float) -> None:
        self.epochs += epochs
        self.time_s += epochs * epoch_s
        self.energy_j += epochs * epoch_j

    def progress(self) -> Progress:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        self._count()
        scale = self.attempt.job.time_scale
        work_s = self.epochs * self.curve.epoch(self.curve.max_limit_w)[0] * scale
        return Progress(self.epochs, work_s, self.time_s * scale, self.energy_j * scale)

    def points(self, chosen: Knobs = NO_KNOBS) -> Sequence[SpeedPoint]:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        return points_up_to(self.curve, chosen.power_limit_w, chosen.clock_mhz or 0)

    def retune(self, knobs: Knobs) -> None:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        tuned, limit_w, clock_mhz = self.tuned, knobs.power_limit_w, knobs.clock_mhz or 0
        if limit_w is None:
            return
        if tuned is None:
            if isinstance(self.decision, Tuned):
                self.decision = self.decision.at_limit(limit_w, clock_mhz)
            return
        if limit_w == tuned.power_limit_w and clock_mhz == tuned.clock_mhz:
            return
        self._count()
        self.tuned = self.decision = tuned.at_limit(limit_w, clock_mhz)
        self._set_end()
        if self.trains:
            self._train_on()

    def _end_piece(self) -> None:
        """End the attempt, or ask what changes after the epoch."""
        self._add(self.piece_end - self.epochs, *self.epoch())
        self.epochs = self.piece_end
        self.trains = False
        if self.epochs >= self.end_epochs:
            self.end(self.target <= self.end_epochs)
            return
        self.next = self._train_on
        phases = self.phases
        self.backend.listener.epoch_ended(self.attempt)
        if self.phases == phases:  # neither paused nor stopped
            if self.epochs >= self.end_epochs:
                self.end(self.target <= self.end_epochs)
            else:
                self._train_on()

    def end(self, reached: bool) -> None:
        """End the attempt."""
        self.finish(reached)

    def finish(self, reached: bool) -> None:
        """Report the totals, after the delays of the end."""
        self.leave(self._chosen(), self.totals(reached))

    def totals(self, reached: bool) -> AttemptTotals:
        """The totals at the end."""
        whole = math.floor(self.epochs + ROUNDING)
        totals = AttemptTotals(whole, self.time_s, self.energy_j, reached)
        if self.saved_epochs and reached:
            saved_s = self.saved_epochs * self.epoch()[0] * self.attempt.job.time_scale
            totals = totals._replace(saved_s=saved_s)
        return totals

    def stop(self) -> None:
        """See `wattkeeper.sim.attempts.attempt.Execution`."""
        self._count()
        self.phases += 1
        self.trains = False
        if self.tuned is None:  # it was paused before it began
            decision = self.decision
            self.tuned = decision if isinstance(decision, Tuned) else decision.at_present_limit()
        self.finish(False)

    def _chosen(self) -> Tuned:
        tuned = self.tuned
        assert tuned is not None, "its power limit is not chosen yet"
        return tuned
