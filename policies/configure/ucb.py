"""Upper confidence bounds: optimism about the cost of batch sizes."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import PositiveFloat

from wattkeeper.policies.configure._cost_bandit import CostBandit, CostBoundSettings, GroupCosts
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Start
from wattkeeper.policies.registry import PolicyConfig


class Ucb(CostBandit):
    """See `UcbConfig`."""

    def __init__(self, config: UcbConfig) -> None:
        super().__init__(config)
        self._width = config.width

    def choose(self, ctx: Context, start: Start, group: GroupCosts) -> int:
        """A batch size that never ran, else the one whose cost may be least."""
        if group.untried:
            return group.untried[0]
        total = sum(costs.runs for costs in group.costs.values())
        width = self._width * group.scale

        def bound(size: int) -> float:
            costs = group.costs[size]
            return costs.mean - width * math.sqrt(2 * math.log(total) / costs.runs)

        return min(group.sizes, key=bound)


class UcbConfig(CostBoundSettings, PolicyConfig):
    """The batch size whose cost may be least: its mean less a bound that shrinks as it runs.

    UCB1 (Auer, Cesa-Bianchi, Fischer, Machine Learning 47, 2002, figure 1), with costs instead of
    rewards. Batch sizes run once first, from the default one downwards, then upwards.
    """

    kind: Literal["ucb"] = "ucb"
    policy = Ucb
    width: PositiveFloat = 0.25
    """Width of the range of costs, relative to the cost of the first run; it scales the bound."""
