"""Slices of a training: of its own batch size at first, of others after its target."""

from __future__ import annotations

from functools import partial

from typing_extensions import override

from wattkeeper.policies.points.views import SETUP_S, Measurement, Slice
from wattkeeper.policies.profile import ROUNDING
from wattkeeper.sim.attempts.decided import Untuned
from wattkeeper.sim.cluster.checkpoints import TrainingSpan
from wattkeeper.sim.replay.replayed import Replayed
from wattkeeper.sim.replay.training import Profiling, Stretch, Training


class Slicing(Profiling):
    """What a `Tune` policy measures that asks for slices.

    A slice of its own batch size is a part of the training, at the limit of the slice. Those of
    other batch sizes follow once the target is reached: they take time and energy, and nothing is
    kept of them. If one is broken off, none follows: the attempt ends once it has GPUs again.
    """

    @override
    def measure(self, training: Training, run: Replayed, untuned: Untuned) -> None:
        piece = untuned.slice
        if piece is None:
            super().measure(training, run, untuned)
            return
        unit = epoch_s, epoch_j = training.curve.epoch(piece.power_limit_w)
        part = piece.epochs(epoch_s, training.profile.samples_per_epoch, untuned.batch_size)
        part = min(part, _last_epoch(training) - training.epochs)
        left_s = part * epoch_s * training.scale

        def end_slice(run: Replayed) -> None:
            self._end_own(training, run, untuned, piece, part)

        run.do(Stretch(training, left_s, epoch_j / epoch_s, unit, end_slice))

    def _end_own(
        self, training: Training, run: Replayed, untuned: Untuned, piece: Slice, part: float
    ) -> None:
        """Ask what follows, unless the training ended within the slice."""
        epoch_s, epoch_j = training.curve.epoch(piece.power_limit_w)
        training.add(part, epoch_s, epoch_j)
        last = _last_epoch(training)
        if training.epochs >= last - ROUNDING:  # it measured nothing
            training.epochs = last
            training.decide(untuned.at_present_limit())
            self.end(training, run, training.target <= last)
            return
        spent_s, spent_j = part * epoch_s, part * epoch_j
        self.slices = self.slices.add(spent_s, spent_j, False)
        size, power_w = untuned.batch_size, epoch_j / epoch_s
        found = Measurement(piece.power_limit_w, epoch_s, power_w, 0, size, spent_s, spent_j)
        decision = run.listener.measured(untuned, (found,))
        training.decide(decision)
        follow = training.train_to_end
        if isinstance(decision, Untuned):
            assert decision.slice is not None, "no profile follows a slice"
            follow = partial(self.measure, training, untuned=decision)
        training.wait(run, training.latencies.settle_s, follow)

    @override
    def end(self, training: Training, run: Replayed, reached: bool) -> None:
        """Leave, after slices of other batch sizes if it reached its target."""
        if reached:
            self._ask(training, run, ())
        else:
            training.leave(run, False)

    def _ask(self, training: Training, run: Replayed, report: tuple[Measurement, ...]) -> None:
        """Save what was trained, and train the slice that follows, if any does."""
        if run.checkpoints is not None:
            run.checkpoints.save()
        piece = run.listener.reached(run.attempt, report)
        if piece is None or piece.batch_size is None:
            training.leave(run, True)
            return
        size = piece.batch_size
        unit = epoch_s, epoch_j = training.profile.curves[size].epoch(piece.power_limit_w)
        power_w = epoch_j / epoch_s
        if not run.listener.allows(run.attempt, power_w):
            training.leave(run, True)
            return
        part = piece.epochs(epoch_s, training.profile.samples_per_epoch, size)
        spent_s = part * epoch_s + SETUP_S

        def end_slice(run: Replayed) -> None:
            spent_j = spent_s * epoch_j / epoch_s
            training.time_s += spent_s
            training.energy_j += spent_j
            self.slices = self.slices.add(spent_s, spent_j, True)
            report = Measurement(piece.power_limit_w, epoch_s, power_w, 0, size, spent_s, spent_j)
            self._ask(training, run, (report,))

        run.do(DiscardedSlice(training, spent_s * training.scale, power_w, unit, end_slice))


def _last_epoch(training: Training) -> float:
    """Epochs at which it ends without a cost bound."""
    return min(training.target, float(training.profile.max_epochs))


class DiscardedSlice(Stretch):
    """A slice of another batch size: broken off, it is the last one, and not done again."""

    is_over = True
    done_s = 0.0
    is_broken_off = False

    @override
    def begin(self, run: Replayed) -> None:
        if self.is_broken_off:
            self.training.leave(run, True)
        else:
            super().begin(run)

    @override
    def interrupt(self, run: Replayed) -> None:
        trained_s = run.take_trained()
        self.left_s = run.left_s - trained_s
        self.done_s += trained_s

    @override
    def break_off(self) -> None:
        """Count what it trained; it is none of `slices`."""
        self.is_broken_off = True
        self._count(self.done_s)

    @override
    def undo(self, lost: list[TrainingSpan]) -> None:
        for span in lost:
            self._count(-span.time_s)

    def _count(self, trained_s: float) -> None:
        spent_s = trained_s / self.training.scale
        self.training.time_s += spent_s
        self.training.energy_j += spent_s * self.power_w
