"""A trial of several parents of one network: the best one's training goes on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from wattkeeper.live.search.training_log import FinishedTrial
from wattkeeper.policies.learning.halving import halve

if TYPE_CHECKING:
    from torch import nn

    from wattkeeper.live.search.dataset import Digits
    from wattkeeper.live.search.trainer import NetworkTraining

FORWARD: Final = 1 / 3
"""Work of a forward pass over that of a step of training, which also goes back: assumed."""


class TakenWeights(NamedTuple):
    """Coverage, and how many of the parent's tensors were used."""

    coverage: float
    matched: int
    parent_tensors: int


class ParentArm(NamedTuple):
    """A network with the weights of a parent, or with its own, and its training.

    Attributes:
        parent: Name of the parent; None: it starts from scratch.
        warm: What the parent gave; None without one.
        net: The network.
        training: Its training.
        transfer_s: CPU time of the weight transfer, s.
    """

    parent: str | None
    warm: TakenWeights | None
    net: nn.Module
    training: NetworkTraining
    transfer_s: float


class TriedParents(NamedTuple):
    """The arm that a trial left, and its record.

    Attributes:
        best: The arm.
        record: The trial's record.
        transfer_s: CPU time of the weight transfers of all arms, s.
    """

    best: ParentArm
    record: FinishedTrial | None
    transfer_s: float


def try_arms(arms: Sequence[ParentArm], epochs: int, digits: Digits) -> TriedParents:
    """Leave the best of some arms by successive halving.

    Each arm that loses is charged with its epochs, and with the forward passes that compared the
    initial weights; the best one has these in any case.
    """
    scores = [math.nan] * len(arms)

    def advance(arm: int, total: int) -> float:
        scores[arm] = arms[arm].training.advance(total)
        return scores[arm]

    best = halve(len(arms), epochs, advance)
    lost = [arm.training for arm in arms if arm is not arms[best]]
    lost_epochs = sum(training.epochs for training in lost)
    evaluation = FORWARD * len(digits.validation.labels) / len(digits.train.labels)
    parameters = sum(tensor.numel() for tensor in arms[best].net.parameters())
    readings = [training.reading for training in lost if training.reading is not None]
    energies_j = [reading.energy_j for reading in readings if reading.energy_j is not None]
    record = FinishedTrial(
        parents=tuple(str(arm.parent) for arm in arms),
        rung=epochs,
        accuracies=tuple(scores),
        trained=tuple(arm.training.epochs for arm in arms),
        epochs=lost_epochs,
        work=parameters * (lost_epochs + evaluation * len(lost)),
        time_s=math.fsum(reading.time_s for reading in readings),
        energy_j=math.fsum(energies_j) if len(energies_j) == len(readings) else None,
    )
    return TriedParents(arms[best], record, math.fsum(arm.transfer_s for arm in arms))
