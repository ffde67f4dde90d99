"""Successive halving of the batch sizes."""

from __future__ import annotations

import math
from typing import Literal

from wattkeeper.policies.configure._cost_bandit import CostBandit, CostBoundSettings, GroupCosts
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Start
from wattkeeper.policies.registry import PolicyConfig


class SuccessiveHalving(CostBandit):
    """See `SuccessiveHalvingConfig`."""

    def choose(self, ctx: Context, start: Start, group: GroupCosts) -> int:
        """The next batch size of the present round, or the last one that remains."""
        survivors, runs = list(group.sizes), 1
        while len(survivors) > 1:
            for size in survivors:
                if size not in group.costs or group.costs[size].runs < runs:
                    return size
            survivors.sort(key=lambda size: group.costs[size].mean)
            survivors = survivors[: math.ceil(len(survivors) / 2)]
            runs *= 2
        return survivors[0]


class SuccessiveHalvingConfig(CostBoundSettings, PolicyConfig):
    """Rounds in which every batch size runs as often, and the cheaper half remains.

    Successive halving (Jamieson, Talwalkar, AISTATS '16), with recurrences as its resource: in the
    first round each batch size has run once, in the next ones twice as often as in the one before,
    until one remains. At each decision the rounds are gone through anew with all runs so far: a
    batch size that left may come back if those that remained turn out dearer.
    """

    kind: Literal["successive-halving"] = "successive-halving"
    policy = SuccessiveHalving
    plain = "successive halving"
