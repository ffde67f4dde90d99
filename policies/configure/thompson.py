"""Plain Gaussian Thompson sampling over batch sizes."""

from __future__ import annotations

import math
from typing import ClassVar, Final, Literal

from wattkeeper.policies.configure._cost_bandit import (
    CostBandit,
    CostBoundSettings,
    GroupCosts,
    RunCosts,
)
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Start
from wattkeeper.policies.registry import PolicyConfig

LEAST_NOISE: Final = 0.1
"""Least deviation of a run's cost, relative to the cost of the first run."""


class Thompson(CostBandit):
    """See `ThompsonConfig`."""

    def choose(self, ctx: Context, start: Start, group: GroupCosts) -> int:
        """The batch size of the least cost that is drawn."""
        rng = ctx.rng(start.job.group_id)
        drawn = rng.standard_normal(len(group.sizes)).tolist()
        costs = {}
        for size, z in zip(group.sizes, drawn, strict=True):
            mean, deviation = belief(group.costs.get(size), group.scale)
            costs[size] = mean + deviation * z
        return min(group.sizes, key=costs.__getitem__)


def belief(costs: RunCosts | None, scale: float) -> tuple[float, float]:
    """Mean and deviation of the mean cost, J; the prior has mean and deviation `scale`."""
    if costs is None:
        return scale, scale
    sample = math.sqrt(costs.squares / (costs.runs - 1)) if costs.runs > 1 else 0.0
    noise = max(LEAST_NOISE * scale, sample)
    if noise == 0:
        return costs.mean, 0.0
    share = scale**2 / (scale**2 + noise**2 / costs.runs)
    return share * costs.mean + (1 - share) * scale, math.sqrt(1 - share) * scale


class ThompsonConfig(CostBoundSettings, PolicyConfig):
    """Gaussian Thompson sampling over all batch sizes, with a weak prior.

    W. R. Thompson (Biometrika 25, 1933), with normal beliefs: before it runs, the cost of a batch
    size has the mean and the deviation of the first run's cost. Nothing is pruned.
    """

    draws: ClassVar[bool] = True
    kind: Literal["thompson"] = "thompson"
    policy = Thompson
    plain = "Thompson sampling"
