"""Profiles: recorded time, power and epochs of a workload, from which runs are replayed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from wattkeeper.policies.pipeline.task import PipelineTask

UNLIMITED_W: Final = 1.0
"""Stands for the power limit of a device without power limits; its cost then counts seconds."""

MOST_LIMITS: Final = 10_000
"""Largest number of power limits of a workload at one batch size; GPUs take whole watts."""

ROUNDING: Final = 1e-9
"""A number of epochs that should be whole differs by less, by rounding."""

KnobChoice = Literal["both", "batch-size", "power-limit"]
"""Which knobs may be chosen."""


def epochs_left(from_scratch: float, work: float) -> float:
    """Whole epochs that are left of those to the target, which are infinite if it is missed.

    `work` is the share that a parent leaves; 1 from scratch, and more with a parent that harms.
    """
    if work == 1 or math.isinf(from_scratch):
        return from_scratch
    return max(1.0, float(math.ceil(from_scratch * work - ROUNDING)))


class ClockSetting(NamedTuple):
    """What a workload does with locked clocks, at the highest power limit.

    Attributes:
        clock_mhz: Clock of each GPU, MHz.
        time_per_epoch_s: Seconds per epoch.
        average_power_w: Mean power of all GPUs of the job together, W; 0 where it was not measured.
    """

    clock_mhz: int
    time_per_epoch_s: float
    average_power_w: float


class RunPace(NamedTuple):
    """Time and energy of an epoch of a recorded run, over the means of its batch size."""

    time: float
    energy: float


EnergyOf = Literal["gpu", "node", "facility"]
"""What a power or an energy is of."""

BOUNDARY_WORDS: Final[Mapping[EnergyOf, str]] = {
    "gpu": "GPUs alone",
    "node": "whole nodes at the plug",
    "facility": "the facility",
}
"""What energy is of, in words."""


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
        clocks: Locked clocks, ascending; empty if none was measured.
        paces: By recorded run, as `epochs`; empty if runs were not measured one by one.
    """

    batch_size: int
    limits_w: tuple[float, ...]
    time_per_epoch_s: tuple[float, ...]
    average_power_w: tuple[float, ...]
    epochs: tuple[float, ...]
    interpolated: bool = False
    clocks: tuple[ClockSetting, ...] = ()
    paces: tuple[RunPace, ...] = ()

    def of_run(self, run: int) -> Curve:
        """The curve at the pace of a recorded run, by its index."""
        if not self.paces:
            return self
        pace = self.paces[run]
        power = pace.energy / pace.time
        return self._replace(
            time_per_epoch_s=tuple([time_s * pace.time for time_s in self.time_per_epoch_s]),
            average_power_w=tuple([power_w * power for power_w in self.average_power_w]),
            clocks=tuple(
                [
                    ClockSetting(
                        clock.clock_mhz,
                        clock.time_per_epoch_s * pace.time,
                        clock.average_power_w * power,
                    )
                    for clock in self.clocks
                ]
            ),
            paces=(),
        )

    @property
    def most_power_w(self) -> float:
        """The largest mean power of a run, at any limit or clock, W."""
        most_w = max(self.average_power_w)
        if self.clocks:
            most_w = max(most_w, max([clock.average_power_w for clock in self.clocks]))
        if self.paces:
            most_w *= max([pace.energy / pace.time for pace in self.paces])
        return most_w

    @property
    def max_limit_w(self) -> float:
        """The largest profiled power limit, W."""
        return self.limits_w[-1]

    def epoch(self, limit_w: float, clock_mhz: int = 0) -> tuple[float, float]:
        """Time (s) and energy (J) of one epoch at a profiled limit, or with a locked clock (MHz).

        Raises:
            ValueError: If the limit or the clock was not profiled.
        """
        if clock_mhz:
            for setting in self.clocks:
                if setting.clock_mhz == clock_mhz:
                    time_s = setting.time_per_epoch_s
                    return time_s, time_s * setting.average_power_w
            raise ValueError(f"{clock_mhz} MHz was not profiled")
        index = self.limits_w.index(limit_w)
        time_s = self.time_per_epoch_s[index]
        return time_s, time_s * self.average_power_w[index]

    def cheapest_epoch(self, objective: Objective, max_power_w: float) -> tuple[float, float]:
        """Least cost of an epoch at a profiled limit, J, and that limit, W; the lower of two.

        `max_power_w`: of all GPUs together.
        """
        costs = []
        for limit_w in self.limits_w:
            time_s, energy_j = self.epoch(limit_w)
            costs.append((objective.cost(energy_j, time_s, max_power_w), limit_w))
        return min(costs)

    def expected_epochs(self, max_epochs: float, work: float = 1.0) -> float:
        """Expected number of epochs until the target, failed runs and their retries included.

        A failed run costs `max_epochs`. Infinite if no recorded run reached the target. `work` is
        the share that a parent leaves.
        """
        left = [epochs_left(epochs, work) for epochs in self.epochs]
        reached = [epochs for epochs in left if epochs <= max_epochs]
        if not reached:
            return math.inf
        share = len(reached) / len(self.epochs)
        return math.fsum(reached) / len(reached) + (1 - share) / share * max_epochs


class Drift(NamedTuple):
    """A change of the epochs that a workload needs, while it recurs.

    Attributes:
        after: The last recurrence before it begins.
        per_octave: Batch size b then needs (b / default batch size) ** `per_octave` times as many.
        over: Number of recurrences until the exponent has changed by all of it; 1: at once.
    """

    after: int
    per_octave: float
    over: int = 1

    def step(self, recurrence: int) -> int:
        """How many of its `over` steps a recurrence has seen."""
        return min(max(recurrence - self.after, 0), self.over)

    def change(self, epochs: float, octaves: float, step: int) -> float:
        """Whole epochs of a run after some steps; `octaves`: from the default batch size."""
        if not step or math.isinf(epochs):
            return epochs
        factor = math.exp2(self.per_octave * octaves * step / self.over)
        return max(1.0, float(math.floor(epochs * factor + 0.5)))


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
        samples_per_epoch: Samples of an epoch; 0 if not known.
        drift: How the epochs change from recurrence to recurrence; None: they do not.
        energy_of: What its power is of.
        nodes: Nodes that it was recorded on; 0 if not known.
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
    samples_per_epoch: float = 0.0
    drift: Drift | None = None
    energy_of: EnergyOf = "gpu"
    nodes: int = 0

    def run_epochs(self, batch_size: int, run: int, recurrence: int) -> float:
        """Epochs of a recorded run, by its index, as a recurrence takes them."""
        epochs = self.curves[batch_size].epochs[run]
        if self.drift is None:
            return epochs
        octaves = math.log2(batch_size / self.default_batch_size)
        return self.drift.change(epochs, octaves, self.drift.step(recurrence))

    def after_drift(self, step: int) -> Profile:
        """The profile, without drift, that recurrences have after some of its steps."""
        if self.drift is None:
            return self
        curves = {}
        for size, curve in self.curves.items():
            octaves = math.log2(size / self.default_batch_size)
            epochs = [self.drift.change(epochs, octaves, step) for epochs in curve.epochs]
            curves[size] = curve._replace(epochs=tuple(epochs))
        return self._replace(curves=curves, drift=None)

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
    def has_clocks(self) -> bool:
        """Whether locked clocks were measured at any batch size."""
        return any(curve.clocks for curve in self.curves.values())

    def drop_clocks(self) -> Profile:
        """The same without locked clocks."""
        curves = {size: curve._replace(clocks=()) for size, curve in self.curves.items()}
        return self._replace(curves=curves)

    @property
    def most_power_w(self) -> float:
        """The largest mean power of a run, W."""
        return max([curve.most_power_w for curve in self.curves.values()])

    @property
    def configurations(self) -> int:
        """Number of batch sizes times number of distinct power limits and locked clocks."""
        limits = {limit for curve in self.curves.values() for limit in curve.limits_w}
        clocks = {s.clock_mhz for curve in self.curves.values() for s in curve.clocks}
        return len(self.curves) * (len(limits) + len(clocks))


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
    """The cost of `Objective` with a given `eta`, J."""
    return eta * energy_j + (1 - eta) * max_power_w * time_s


class ExpectedCost(NamedTuple):
    """Expected time (s), energy (J) and cost (J) until the target, retries included.

    With a locked clock (MHz, 0: free) the power limit is the highest one.
    """

    batch_size: int
    power_limit_w: float
    time_s: float
    energy_j: float
    cost: float
    clock_mhz: int = 0


def expectations(
    profile: Profile, objective: Objective, work: float = 1.0
) -> Iterator[ExpectedCost]:
    """Yield the expected cost of every configuration that ever reached its target.

    By ascending batch size; of each, power limits ascending, then locked clocks ascending. `work`
    is the share that a parent leaves.
    """
    for curve in profile.curves.values():
        epochs = curve.expected_epochs(profile.max_epochs, work)
        if math.isinf(epochs):
            continue
        settings = [(limit_w, 0) for limit_w in curve.limits_w]
        settings += [(curve.max_limit_w, setting.clock_mhz) for setting in curve.clocks]
        for limit_w, clock_mhz in settings:
            time_s, energy_j = curve.epoch(limit_w, clock_mhz)
            time_s, energy_j = epochs * time_s, epochs * energy_j
            cost = objective.cost(energy_j, time_s, profile.max_power_w * profile.gpus)
            yield ExpectedCost(curve.batch_size, limit_w, time_s, energy_j, cost, clock_mhz)


def least_costs(profile: Profile, objective: Objective) -> list[float]:
    """The smallest expected cost (J) by recurrence, from the first; the last one holds from then.

    NaN where no configuration ever reached the target.
    """
    if profile.drift is None:
        best = optimum(profile, objective)
        return [math.nan if best is None else best.cost]
    after, over = profile.drift.after, profile.drift.over
    steps = [least_costs(profile.after_drift(step), objective)[0] for step in range(over + 1)]
    return [steps[0]] * after + steps[1:]


def optimum(
    profile: Profile, objective: Objective, knobs: KnobChoice = "both", work: float = 1.0
) -> ExpectedCost | None:
    """The configuration with the smallest expected cost; ties go to the smaller one.

    Args:
        profile: The profile of the workload.
        objective: The cost to minimise.
        knobs: `batch-size` fixes the highest power limit of each batch size, and free clocks;
            `power-limit` fixes the default batch size.
        work: The share of the training that a parent leaves.

    Returns:
        None if no configuration ever reached the target.
    """
    candidates: Iterable[ExpectedCost] = expectations(profile, objective, work)
    if knobs == "power-limit":
        candidates = (c for c in candidates if c.batch_size == profile.default_batch_size)
    elif knobs == "batch-size":
        curves = profile.curves
        candidates = (
            c
            for c in candidates
            if c.power_limit_w == curves[c.batch_size].max_limit_w and not c.clock_mhz
        )
    return min(candidates, key=lambda expected: expected.cost, default=None)
