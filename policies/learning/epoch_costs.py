"""What a group has learnt of the cost of an epoch on one GPU type, from slices.

The time and power of an epoch at a batch size and a power limit hardly vary: seconds of training
measure them. Costs of batch sizes that were not measured come from another GPU type of the group,
or from the nearest ones that were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.points.views import SETUP_S, Measurement, Options, Slice
from wattkeeper.policies.profile import cost

WORSE: Final = 1.15
"""Limits are measured from the highest down, until two in a row cost so much more than the best."""
CLOSE: Final = 1.03
MOST_CLOSE: Final = 3
MOST_TIMES: Final = 3
"""The second and the third run at a batch size measure limits within `CLOSE` of the cheapest again,
the `MOST_CLOSE` cheapest ones."""
PROBE: Final = 0.7
"""Other batch sizes are measured at the limit nearest to this share of the highest one."""
MOST_COST: Final = 3.0
"""Batch sizes beyond one whose epoch costs so much more than the cheapest are not measured."""
SHARE: Final = 0.03
"""Slices of other batch sizes cost at most this share of the run that they follow."""
OWN_SHARE: Final = 0.01
"""Once slices of a run's own limits cost this share of the run beyond the cheapest limit, they end
with the next one that is not the cheapest; the next run continues with them."""
RISE: Final = 0.35
FALL: Final = -0.15
"""Change of ln(cost of an epoch) an octave, down and up, beyond the batch sizes that are known."""
ONE_LIMIT_SD: Final = 0.05
OTHER_TYPE_SD: Final = 0.15
OCTAVE_SD: Final = 0.25
"""Deviations of ln(cost of an epoch): measured at one limit; from another GPU type; an octave from
the nearest known one."""


class Point(NamedTuple):
    """What slices measured at a batch size and a power limit.

    Attributes:
        slices: Their number.
        log_time: Mean of ln(time of an epoch, s).
        log_power: Mean of ln(power of all GPUs, W).
    """

    slices: int
    log_time: float
    log_power: float

    def add(self, measured: Measurement) -> Point:
        """With another slice."""
        slices = self.slices + 1
        log_time = math.log(max(measured.time_per_epoch_s, 1e-9))
        log_power = math.log(max(measured.average_power_w, 1e-9))
        return Point(
            slices,
            self.log_time + (log_time - self.log_time) / slices,
            self.log_power + (log_power - self.log_power) / slices,
        )


class EpochCosts:
    """What a group has learnt of one GPU type; keys are batch sizes, and power limits in W.

    Args:
        max_power_w: Largest power limit of all GPUs of a job together, W.

    Attributes:
        points: What was measured.
        times: By batch size whose limits are all known: how many runs measured its limits since.
    """

    def __init__(self, max_power_w: float) -> None:
        self._max_power_w = max_power_w
        self.points: dict[int, dict[float, Point]] = {}
        self.times: dict[int, int] = {}

    def add(self, measured: Measurement) -> None:
        """Learn from a slice."""
        points = self.points.setdefault(measured.batch_size, {})
        before = points.get(measured.power_limit_w, Point(0, 0.0, 0.0))
        points[measured.power_limit_w] = before.add(measured)

    def _watts(self, power_w: float, eta: float) -> float:
        """Cost of a second at a power, J."""
        return max(cost(eta, power_w, 1.0, self._max_power_w), 1e-12)

    def log_costs(self, batch_size: int, eta: float) -> dict[float, float]:
        """ln(cost of an epoch, J) by measured power limit."""
        return {
            limit_w: point.log_time + math.log(self._watts(math.exp(point.log_power), eta))
            for limit_w, point in self.points.get(batch_size, {}).items()
        }

    def cheapest_limit(self, batch_size: int, eta: float) -> float:
        """The limit at which an epoch costs least, W; of equal ones the highest."""
        costs = self.log_costs(batch_size, eta)
        return min(costs, key=lambda limit_w: (costs[limit_w], -limit_w))

    def next_own(
        self,
        batch_size: int,
        limits_w: Sequence[float],
        measured: Sequence[Measurement],
        epochs: float,
        eta: float,
    ) -> float | None:
        """The next limit of a run's own batch size to measure, W; None: no more.

        Args:
            batch_size: The batch size.
            limits_w: Its limits, ascending.
            measured: The slices of this run, in order.
            epochs: How many the run is expected to take.
            eta: Weight of energy in the cost.
        """
        costs = self.log_costs(batch_size, eta)
        done_w = [each.power_limit_w for each in measured]
        is_worse = bool(done_w) and costs[done_w[-1]] > min(costs.values())
        if is_worse and _lost_epochs(measured, costs) > OWN_SHARE * epochs:
            return None
        unmeasured_w = self._next_unmeasured(limits_w, costs)
        if unmeasured_w is not None or not 0 < self.times.get(batch_size, 0) < MOST_TIMES:
            return unmeasured_w
        least = min(costs.values())
        close = sorted((c, -w) for w, c in costs.items() if c <= least + math.log(CLOSE))
        again = [-limit_w for _, limit_w in close[:MOST_CLOSE]] if len(close) > 1 else []
        return next((limit_w for limit_w in again if limit_w not in done_w), None)

    @staticmethod
    def _next_unmeasured(limits_w: Sequence[float], costs: Mapping[float, float]) -> float | None:
        """The highest limit without a measurement, unless two in a row above it cost too much."""
        least, worse = math.inf, 0
        for limit_w in reversed(limits_w):
            if limit_w not in costs:
                return limit_w
            least = min(least, costs[limit_w])
            worse = worse + 1 if costs[limit_w] > least + math.log(WORSE) else 0
            if worse == 2:
                return None
        return None

    def end_own(self, batch_size: int, limits_w: Sequence[float], eta: float) -> None:
        """Count a run that measured limits of its batch size, once all have been."""
        costs = self.log_costs(batch_size, eta)
        if batch_size in self.times or self._next_unmeasured(limits_w, costs) is None:
            self.times[batch_size] = self.times.get(batch_size, 0) + 1

    def next_other(self, options: Options, own: int, budget: float, eta: float) -> Slice | None:
        """The next slice of another batch size; None: there is none, or it costs too much.

        Args:
            options: The batch sizes and limits.
            own: The batch size of the run that is over.
            budget: What it may cost, J.
            eta: Weight of energy in the cost.
        """
        size = self._next_size(options, eta)
        if size is None or own not in self.points:
            return None
        limits_w = options.limits(size)
        probe = Slice(min(limits_w, key=lambda w: (abs(w - PROBE * limits_w[-1]), w)), size)
        expected, variances = self.expect(options, (), eta)
        nearest = min(self.points, key=lambda known: abs(math.log2(known / size)))
        point = next(iter(self.points[nearest].values()))
        watts = self._watts(math.exp(point.log_power), eta)
        index = options.batch_sizes.index(size)
        epoch_s = math.exp(expected[index] + 2 * math.sqrt(variances[index])) / watts
        part = probe.epochs(epoch_s, options.samples_per_epoch, size)
        return probe if (part * epoch_s + SETUP_S) * watts <= budget else None

    def _next_size(self, options: Options, eta: float) -> int | None:
        """Outwards from the default one, on the sides whose epochs do not cost too much yet."""
        sizes, default = options.batch_sizes, options.default_batch_size
        costs = {size: min(self.log_costs(size, eta).values()) for size in self.points}
        if not costs:
            return None
        ceiling = min(costs.values()) + math.log(MOST_COST)
        sides = ([s for s in sizes if s > default], [s for s in reversed(sizes) if s < default])
        unknown = []
        for side in sides:
            for steps, size in enumerate(side):
                if size not in costs:
                    unknown.append((steps, size < default, size))
                    break
                if costs[size] > ceiling:
                    break
        if default not in costs:
            return default
        return min(unknown)[2] if unknown else None

    def expect(
        self, options: Options, others: Sequence[EpochCosts], eta: float
    ) -> tuple[Floats, Floats]:
        """ln(cost of an epoch, J) by batch size of the options, and its variance.

        `others` are those of the group on other GPU types.
        """
        sizes = options.batch_sizes
        best, known = self._known(eta), {}
        for other in others:
            theirs = other._known(eta)
            shared = [best[size][0] - theirs[size][0] for size in theirs if size in best]
            shift = math.fsum(shared) / len(shared) if shared else 0.0
            for size, (log_cost, variance) in theirs.items():
                if size not in best and size not in known and (shared or not best):
                    known[size] = log_cost + shift, variance + OTHER_TYPE_SD**2
        known |= best
        if not known:
            return np.zeros(len(sizes)), np.full(len(sizes), OCTAVE_SD**2)
        rows = [known[size] if size in known else _from_nearest(size, known) for size in sizes]
        return np.array([row[0] for row in rows]), np.array([row[1] for row in rows])

    def _known(self, eta: float) -> dict[int, tuple[float, float]]:
        """ln(cost of an epoch) and its variance at batch sizes that were measured."""
        ratios: dict[float, list[float]] = {}
        for size in self.times:
            costs = self.log_costs(size, eta)
            for limit_w, log_cost in costs.items():
                ratios.setdefault(limit_w, []).append(min(costs.values()) - log_cost)
        known = {}
        for size in self.points:
            costs = self.log_costs(size, eta)
            if size in self.times:
                known[size] = min(costs.values()), 0.0
                continue
            limit_w = min(costs, key=costs.__getitem__)
            log_cost = costs[limit_w]
            near = min(ratios, key=lambda known_w: abs(known_w - limit_w), default=None)
            gain = 0.0 if near is None else math.fsum(ratios[near]) / len(ratios[near])
            known[size] = log_cost + gain, ONE_LIMIT_SD**2
        return known

    def state_dict(self) -> dict[str, Any]:
        """What was measured, as JSON values."""
        points = [
            [size, [[limit_w, *point] for limit_w, point in by_limit.items()]]
            for size, by_limit in self.points.items()
        ]
        times = [[size, times] for size, times in self.times.items()]
        return {"max_power_w": self._max_power_w, "points": points, "times": times}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> EpochCosts:
        """What `state_dict` returned."""
        costs = cls(state["max_power_w"])
        for size, rows in state["points"]:
            costs.points[size] = {row[0]: Point(*row[1:]) for row in rows}
        costs.times = dict(state["times"])
        return costs


def _lost_epochs(measured: Sequence[Measurement], costs: Mapping[float, float]) -> float:
    """What slices cost beyond the cheapest limit, in epochs at that limit."""
    least = min(costs.values())
    return math.fsum(
        each.spent_s / each.time_per_epoch_s * math.expm1(costs[each.power_limit_w] - least)
        for each in measured
    )


def _from_nearest(size: int, known: Mapping[int, tuple[float, float]]) -> tuple[float, float]:
    nearest = min(known, key=lambda other: (abs(math.log2(other / size)), other))
    log_cost, variance = known[nearest]
    octaves = math.log2(size / nearest)
    slope = FALL if octaves > 0 else -RISE
    return log_cost + slope * octaves, variance + (OCTAVE_SD * octaves) ** 2
