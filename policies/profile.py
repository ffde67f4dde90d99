"""What is known of a workload on a GPU type: the tables that runs are replayed from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

UNLIMITED_W = 1.0
"""Stands for the power limit of a device that takes none; a cost then counts seconds."""

KnobChoice = Literal["both", "batch-size", "power-limit"]
"""Which knobs may be turned."""


class Curve(NamedTuple):
    """A workload at one batch size: speed and power by power limit, epochs by run.

    Attributes:
        batch_size: Global batch size, samples.
        limits_w: Power limits of one GPU in W, ascending; `UNLIMITED_W` alone if it takes none.
        time_per_epoch_s: Seconds an epoch takes at each limit.
        average_power_w: Mean power in W of all GPUs of the job together at each limit; 0 where
            nobody measured it.
        epochs: Epochs to the workload's target, one entry a recorded run; infinite where the run
            never reached it.
    """

    batch_size: int
    limits_w: tuple[float, ...]
    time_per_epoch_s: tuple[float, ...]
    average_power_w: tuple[float, ...]
    epochs: tuple[float, ...]

    @property
    def max_limit_w(self) -> float:
        """The largest power limit that was profiled, in W."""
        return self.limits_w[-1]

    def epoch(self, limit_w: float) -> tuple[float, float]:
        """Seconds and joules of one epoch at a profiled limit.

        Raises:
            ValueError: If the limit was not profiled.
        """
        at = self.limits_w.index(limit_w)
        time_s = self.time_per_epoch_s[at]
        return time_s, time_s * self.average_power_w[at]

    def expected_epochs(self, max_epochs: float) -> float:
        """Mean number of epochs until the target, when failed runs are started again.

        A failed run costs `max_epochs`. Infinite if no recorded run reached the target.
        """
        reached = [epochs for epochs in self.epochs if epochs <= max_epochs]
        if not reached:
            return math.inf
        chance = len(reached) / len(self.epochs)
        return math.fsum(reached) / len(reached) + (1 - chance) / chance * max_epochs


class Profile(NamedTuple):
    """A workload on a number of GPUs of one type.

    Attributes:
        workload: Name of the workload.
        gpu_type: Name of the GPU type.
        gpus: Number of GPUs that the profile was recorded on.
        target: Value of the metric that ends a run.
        max_epochs: A run is given up after so many epochs.
        default_batch_size: What the workload uses if nobody chooses.
        max_power_w: Largest power limit of the GPU type in W (MAXPOWER in Zeus, section 3.1).
        curves: By batch size, ascending.
        measured: Whether its power was; else no energy is known.
    """

    workload: str
    gpu_type: str
    gpus: int
    target: float
    max_epochs: int
    default_batch_size: int
    max_power_w: float
    curves: Mapping[int, Curve]
    measured: bool = True

    @property
    def limited(self) -> bool:
        """Whether its GPUs take power limits."""
        return any(curve.limits_w != (UNLIMITED_W,) for curve in self.curves.values())

    @property
    def configurations(self) -> int:
        """Number of batch sizes times number of distinct power limits."""
        limits = {limit for curve in self.curves.values() for limit in curve.limits_w}
        return len(self.curves) * len(limits)


class Objective(NamedTuple):
    """What a job costs: energy and time, weighed by `eta` (Zeus, NSDI '23, section 3.1).

    Attributes:
        eta: 1 counts energy alone, 0 counts time alone.
    """

    eta: float

    def cost(self, energy_j: float, time_s: float, max_power_w: float) -> float:
        """`eta * energy + (1 - eta) * max_power * time`, in J; power is that of all GPUs."""
        return cost(self.eta, energy_j, time_s, max_power_w)


def cost(eta: float, energy_j: float, time_s: float, max_power_w: float) -> float:
    """See `Objective.cost`."""
    return eta * energy_j + (1 - eta) * max_power_w * time_s


class ExpectedCost(NamedTuple):
    """Mean time (s), energy (J) and cost (J) until the target, retries included."""

    batch_size: int
    power_limit_w: float
    time_s: float
    energy_j: float
    cost: float


def expectations(profile: Profile, objective: Objective) -> Iterator[ExpectedCost]:
    """The expectation of every configuration whose target was ever reached, ascending."""
    for curve in profile.curves.values():
        epochs = curve.expected_epochs(profile.max_epochs)
        if math.isinf(epochs):
            continue
        for limit_w in curve.limits_w:
            time_s, energy_j = curve.epoch(limit_w)
            time_s, energy_j = epochs * time_s, epochs * energy_j
            cost = objective.cost(energy_j, time_s, profile.max_power_w * profile.gpus)
            yield ExpectedCost(curve.batch_size, limit_w, time_s, energy_j, cost)


def optimum(
    profile: Profile, objective: Objective, knobs: KnobChoice = "both"
) -> ExpectedCost | None:
    """The expectation of the cheapest configuration; ties go to the smaller one.

    Args:
        profile: What is known of the workload.
        objective: What is to be small.
        knobs: `batch-size` keeps each batch size's highest power limit, `power-limit` keeps the
            default batch size.

    Returns:
        None if no configuration ever reached the target.
    """
    candidates: Iterable[ExpectedCost] = expectations(profile, objective)
    if knobs == "power-limit":
        candidates = (x for x in candidates if x.batch_size == profile.default_batch_size)
    elif knobs == "batch-size":
        curves = profile.curves
        candidates = (x for x in candidates if x.power_limit_w == curves[x.batch_size].max_limit_w)
    return min(candidates, key=lambda expected: expected.cost, default=None)
