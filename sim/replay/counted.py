"""Training whose knobs may change on the way: each change counts time, energy and epochs anew.

It ends as planned training if nothing changes, but for rounding.
"""

from __future__ import annotations

import math

from typing_extensions import override

from wattkeeper.policies.profile import ROUNDING
from wattkeeper.sim.cluster.checkpoints import TrainingSpan
from wattkeeper.sim.replay.replayed import Replayed, Segment
from wattkeeper.sim.replay.training import Training


def train_counted(training: Training, run: Replayed) -> None:
    """Train to an end that moves where knobs or the pace change."""
    undone, training.undone = training.undone, []
    counted = Counted(training)
    counted.undo(undone)
    run.do(counted)


class Counted(Segment):
    """Epochs with the chosen knobs.

    The cost bound is applied anew at each change: the attempt ends before the epoch that would
    raise its cost above the bound, given what was spent and the costs of epochs from now on.

    Attributes:
        end_epochs: Epochs at which it ends.
        piece_end: Epochs at which the present phase ends.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self.end_epochs = self.piece_end = 0.0

    @override
    def begin(self, run: Replayed) -> None:
        """Train until the end, or until the end of the epoch where that is a moment."""
        training = self.training
        epoch_s, epoch_j = unit = training.epoch()
        self.piece_end = self.end_epochs
        if run.listener.wants_epochs:
            self.piece_end = min(self.end_epochs, math.floor(training.epochs + ROUNDING) + 1.0)
        left = max(0.0, self.piece_end - training.epochs)
        self.is_training = True
        training.reserved_w = reserved_w = training.times.reserved_w(training.tuned)
        run.attempt.reserved_w = reserved_w
        run.draw(left * epoch_s * training.scale, epoch_j / epoch_s, True, unit)

    @override
    def interrupt(self, run: Replayed) -> None:
        self.count(run)
        self.is_training = False

    @override
    def undo(self, lost: list[TrainingSpan]) -> None:
        training = self.training
        for span in lost:
            training.add(-span.time_s / training.scale / span.pace[0], *span.pace)
        training.epochs = max(0.0, training.epochs)  # but for rounding
        self.end_epochs = training.end_epochs()

    @override
    def count(self, run: Replayed) -> None:
        if self.is_training:
            training = self.training
            epoch_s, epoch_j = training.epoch()
            spent_s = run.take_trained() / training.scale
            training.add(spent_s / epoch_s, epoch_s, epoch_j)

    @override
    def plan_anew(self, run: Replayed) -> None:
        self.end_epochs = self.training.end_epochs()
        if self.is_training:
            self.begin(run)

    @override
    def end(self, run: Replayed) -> None:
        """End the training, or ask what changes after the epoch."""
        training = self.training
        if run.checkpoints is not None:
            run.take_trained()
        training.add(self.piece_end - training.epochs, *training.epoch())
        training.epochs = self.piece_end
        self.is_training = False
        if training.epochs < self.end_epochs:
            phases = run.phases
            run.listener.epoch_ended(run.attempt)
            if run.phases != phases:  # paused or stopped
                return
            if training.epochs < self.end_epochs:
                self.begin(run)
                return
        training.profiling.end(training, run, training.target <= self.end_epochs)
