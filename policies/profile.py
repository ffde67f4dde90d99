"""Profiles: recorded time, power and epochs of a workload, from which runs are replayed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from wattkeeper.policies.pipeline.task import PipelineTask

UNLIMITED_W = 1.0
"""Stands for the power limit of a device without power limits; its cost then counts seconds."""

KnobChoice = Literal["both", "batch-size", "power-limit"]
"""Which knobs may be chosen."""


class Curve(NamedTuple):
    """A workload at one batch size: speed and power by power limit, epochs by recorded run.

    Attributes:
        batch_size: Global batch size, samples.
        limits_w: Power limits of one GPU in W, ascending; only `UNLIMITED_W` if it has none.
        time_per_epoch_s: Seconds per epoch at each limit.
        average_power_w: Mean power of all GPUs of the job together at each limit, W; 0 where it was
            not measured.
        epochs: Epochs to the workload's target by recorded run; infinite where the target was not
            reached.
        interpolated: Whether there are limits between the recorded ones, with interpolated values.
    """

    batch_size: int
    limits_w: tuple[float, ...]
    time_per_epoch_s: tuple[float, ...]
    average_power_w: tuple[float, ...]
    epochs: tuple[float, ...]
    interpolated: bool = False

    @property
    def max_limit_w(self) -> float:
        """The largest profiled power limit, W."""
        return self.limits_w[-1]

    def epoch(self, limit_w: float) -> tuple[float, float]:
        """Time (s) and energy (J) of one epoch at a profiled limit.

        Raises:
            ValueError: If the limit was not profiled.
        """
        index = self.limits_w.index(limit_w)
        time_s = self.time_per_epoch_s[index]
        return time_s, time_s * self.average_power_w[index]

    def expected_epochs(self, max_epochs: float) -> float:
        """Expected number of epochs until the target, failed runs and their retries included.

        A failed run costs `max_epochs`. Infinite if no recorded run reached the target.
        """
        reached = [epochs for epochs in self.epochs if epochs <= max_epochs]
        if not reached:
            return math.inf
        share = len(reached) / len(self.epochs)
        return math.fsum(reached) / len(reached) + (1 - share) / share * max_epochs


class Profile(NamedTuple):
    """The profile of a workload on a number of GPUs of one type.

    Attributes:
        workload: Name of the workload.
        gpu_type: Name of the GPU type.
        gpus: Number of GPUs of the recording.
        target: Value of the metric that ends a run.
        max_epochs: A training that has not reached its target after so many epochs is ended.
        default_batch_size: The workload's batch size where no policy chooses one.
        max_power_w: Largest power limit of the GPU type in W (MAXPOWER in Zeus, section 3.1).
        curves: By batch size, ascending.
        measured: Whether power was measured; otherwise energy is unknown.
        pipeline: Its instructions, if it is pipeline-parallel; an epoch is an iteration then.
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
    pipeline: PipelineTask | None = None

    @property
    def limited(self) -> bool:
        """Whether its GPUs have power limits."""
        return any(curve.limits_w != (UNLIMITED_W,) for curve in self.curves.values())

    @property
    def fixed_epochs(self) -> int | None:
        """The number of epochs that every training takes; None if they differ."""
        most = float(self.max_epochs)
        runs = {epochs for curve in self.curves.values() for epochs in curve.epochs}
        return self.max_epochs if runs == {most} else None

    @property
    def most_power_w(self) -> float:
        """The largest mean power of all its GPUs, W."""
        return max(max(curve.average_power_w) for curve in self.curves.values())

    @property
    def configurations(self) -> int:
        """Number of batch sizes times number of distinct power limits."""
        limits = {limit for curve in self.curves.values() for limit in curve.limits_w}
        return len(self.curves) * len(limits)


class Objective(NamedTuple):
    """Cost of a job: energy and time, weighed by `eta` (Zeus, NSDI '23, section 3.1).

    Attributes:
        eta: 1 counts energy only, 0 counts time only.
    """

    eta: float

    def cost(self, energy_j: float, time_s: float, max_power_w: float) -> float:
        """`eta * energy + (1 - eta) * max_power * time` in J; `max_power_w` is that of all GPUs."""
        return cost(self.eta, energy_j, time_s, max_power_w)


def cost(eta: float, energy_j: float, time_s: float, max_power_w: float) -> float:
    """See `Objective.cost`."""
    return eta * energy_j + (1 - eta) * max_power_w * time_s


class ExpectedCost(NamedTuple):
    """Expected time (s), energy (J) and cost (J) until the target, retries included."""

    batch_size: int
    power_limit_w: float
    time_s: float
    energy_j: float
    cost: float


def expectations(profile: Profile, objective: Objective) -> Iterator[ExpectedCost]:
    """Yield the expected cost of every configuration that ever reached its target, ascending."""
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
    """The configuration with the smallest expected cost; ties go to the smaller one.

    Args:
        profile: The profile of the workload.
        objective: The cost to minimise.
        knobs: `batch-size` fixes the highest power limit of each batch size, `power-limit` fixes
            the default batch size.

    Returns:
        None if no configuration ever reached the target.
    """
    candidates: Iterable[ExpectedCost] = expectations(profile, objective)
    if knobs == "power-limit":
        candidates = (c for c in candidates if c.batch_size == profile.default_batch_size)
    elif knobs == "batch-size":
        curves = profile.curves
        candidates = (c for c in candidates if c.power_limit_w == curves[c.batch_size].max_limit_w)
    return min(candidates, key=lambda expected: expected.cost, default=None)
