"""Attempts that train slices: of their own batch size at first, of others after their target."""

from __future__ import annotations

from functools import partial

from wattkeeper.policies.points.views import SETUP_S, Measurement, Slice
from wattkeeper.sim.attempts.attempt import (
    NO_SLICES,
    Attempt,
    AttemptTotals,
    Decision,
    Inheritance,
    Tuned,
    Untuned,
)
from wattkeeper.sim.cluster.checkpoints import TrainingSpan
from wattkeeper.sim.engine.backend import Backend
from wattkeeper.sim.replay.replayed import RecordedWorkload, ReplayRules
from wattkeeper.sim.replay.retuned import ROUNDING, RetunedTraining


class SlicedTraining(RetunedTraining):
    """An attempt of a job with a workload, whose `Tune` policy asks for slices.

    A slice of its own batch size is a part of the training, at the limit of the slice. Those of
    other batch sizes follow once the target is reached: they take time and energy, and nothing is
    kept of them. If one is interrupted, none follows: the attempt ends once it has GPUs again.

    Attributes:
        slices: What slices took so far.
        discards: Whether it trains a slice of another batch size.
        is_cut_short: Whether such a slice was interrupted.
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
        self.slices = NO_SLICES
        self.discards = False
        self.is_cut_short = False

    def measure(self, untuned: Untuned, target: float, saved_epochs: float) -> None:
        """Train a slice, or the epoch in which power limits are measured."""
        if untuned.slice is None:
            super().measure(untuned, target, saved_epochs)
            return
        self.target, self.saved_epochs = target, saved_epochs
        self._train_slice(untuned, untuned.slice)

    def _train_slice(self, untuned: Untuned, piece: Slice) -> None:
        epoch_s, epoch_j = self.curve.epoch(piece.power_limit_w)
        part = piece.epochs(epoch_s, self.profile.samples_per_epoch, untuned.batch_size)
        part = min(part, self._last_epoch() - self.epochs)
        left_s = part * epoch_s * self.attempt.job.time_scale
        then = partial(self._end_slice, untuned, piece, part)
        self.train(left_s, epoch_j / epoch_s, False, then, (epoch_s, epoch_j))

    def _end_slice(self, untuned: Untuned, piece: Slice, part: float) -> None:
        """Ask what follows, unless the training ended within the slice."""
        epoch_s, epoch_j = self.curve.epoch(piece.power_limit_w)
        spent_s, spent_j = part * epoch_s, part * epoch_j
        self.epochs += part
        last = self._last_epoch()
        if self.epochs >= last - ROUNDING:  # it measured nothing
            self.epochs = last
            self.time_s += spent_s
            self.energy_j += spent_j
            self.tuned = untuned.at_present_limit()
            self.end(self.target <= last)
            return
        measured = self._count_slice(piece, untuned.batch_size, epoch_s, epoch_j, spent_s, spent_j)
        decision = self.backend.listener.measured(untuned, (measured,))
        self.decision = decision
        if isinstance(decision, Tuned):
            train = partial(self.train_to_end, decision, self.target, self.saved_epochs, None)
        else:
            assert decision.slice is not None, "no profile follows a slice"
            train = partial(self._train_slice, decision, decision.slice)
        self.wait(self.latencies.settle_s, train, train)

    def _last_epoch(self) -> float:
        """Epochs at which it ends without a cost bound."""
        return min(self.target, float(self.profile.max_epochs))

    def _count_slice(
        self,
        piece: Slice,
        size: int,
        epoch_s: float,
        epoch_j: float,
        spent_s: float,
        spent_j: float,
    ) -> Measurement:
        """Count time and energy of a slice that ended; returns what it measured."""
        self.time_s += spent_s
        self.energy_j += spent_j
        self.slices = self.slices.add(spent_s, spent_j, self.discards)
        return Measurement(
            piece.power_limit_w, epoch_s, epoch_j / epoch_s, 0, size, spent_s, spent_j
        )

    def end(self, reached: bool) -> None:
        """End the attempt, after slices of other batch sizes if it reached its target.

        What was trained is saved before these.
        """
        if self.checkpoints is not None:
            self.checkpoints.save()
        if reached and self.backend.listener.wants_slices:
            self._ask_for_slice(())
        else:
            self.finish(reached)

    def _ask_for_slice(self, report: tuple[Measurement, ...]) -> None:
        listener, attempt = self.backend.listener, self.attempt
        piece = listener.reached(attempt, report)
        if piece is None or piece.batch_size is None:
            self.finish(True)
            return
        epoch_s, epoch_j = self.profile.curves[piece.batch_size].epoch(piece.power_limit_w)
        if not listener.allows(attempt, epoch_j / epoch_s):
            self.finish(True)
            return
        part = piece.epochs(epoch_s, self.profile.samples_per_epoch, piece.batch_size)
        spent_s = part * epoch_s + SETUP_S
        then = partial(self._end_other, piece, piece.batch_size, epoch_s, epoch_j, spent_s)
        self.discards = True
        spent_scaled_s = spent_s * attempt.job.time_scale
        self.train(spent_scaled_s, epoch_j / epoch_s, True, then, (epoch_s, epoch_j))

    def _end_other(
        self, piece: Slice, size: int, epoch_s: float, epoch_j: float, spent_s: float
    ) -> None:
        if self.checkpoints is not None:
            self.checkpoints.save()
        spent_j = spent_s * epoch_j / epoch_s
        report = self._count_slice(piece, size, epoch_s, epoch_j, spent_s, spent_j)
        self.discards = False
        self._ask_for_slice((report,))

    def go_on(self, delay_s: float) -> None:
        """See `Replayed`; what has reached its target needs nothing restored."""
        super().go_on(0.0 if self.is_cut_short else delay_s)

    def stop_work(self) -> None:
        """See `RetunedTraining`; a slice of another batch size is the last one."""
        if not self.discards:
            super().stop_work()
            return
        self.discards, self.is_cut_short = False, True
        self._add_discarded(self.take_trained(), self.power_w)
        self.next = partial(self.finish, True)

    def undo(self, lost: list[TrainingSpan]) -> None:
        """See `RetunedTraining`; what a slice of another batch size trained is not done again."""
        if not self.is_cut_short:
            super().undo(lost)
            return
        for span in lost:
            self._add_discarded(-span.time_s, span.power_w)

    def _add_discarded(self, trained_s: float, power_w: float) -> None:
        """Count training in a slice that does not end (s), at a power (W); it is no `slices`."""
        spent_s = trained_s / self.attempt.job.time_scale
        self.time_s += spent_s
        self.energy_j += spent_s * power_w

    def write_checkpoint(self) -> None:
        """See `Replayed`; once the target is reached, there is nothing more to save."""
        if not self.discards:
            super().write_checkpoint()

    def totals(self, reached: bool) -> AttemptTotals:
        """The totals, with its slices."""
        return super().totals(reached)._replace(slices=self.slices)
