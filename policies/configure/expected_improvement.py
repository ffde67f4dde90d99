"""Bayesian optimisation of the batch size: a Gaussian process and expected improvement."""

from __future__ import annotations

import math
from typing import Final, Literal

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.configure._cost_bandit import CostBandit, CostBoundSettings, GroupCosts
from wattkeeper.policies.numerics import portable
from wattkeeper.policies.numerics.gaussian import Gaussian
from wattkeeper.policies.numerics.normal import survival
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Start
from wattkeeper.policies.registry import PolicyConfig

DEVIATION: Final = 0.5
OCTAVES: Final = 1.5
NOISE: Final = 0.1
"""The kernel over log2(batch size): deviation of ln(cost) and its length; deviation of ln(cost)
from run to run. The prior mean is the cost of the first run."""
ENOUGH: Final = 0.01
"""Expected improvement, relative to the cost, below which the cheapest batch size is used."""


class ExpectedImprovement(CostBandit):
    """See `ExpectedImprovementConfig`."""

    def choose(self, ctx: Context, start: Start, group: GroupCosts) -> int:
        """The batch size of the largest expected improvement, or the cheapest one."""
        mean, deviation = posterior(group)
        tried = [index for index, size in enumerate(group.sizes) if size in group.costs]
        reached = [index for index in tried if group.costs[group.sizes[index]].reached]
        best = min(reached, key=lambda index: mean[index])
        gains = [
            improvement(float(mean[best] - mean[index]), float(deviation[index]))
            for index in range(len(group.sizes))
        ]
        most = int(np.argmax(gains))
        return group.sizes[most if gains[most] > ENOUGH else best]


def posterior(group: GroupCosts) -> tuple[Floats, Floats]:
    """Mean and deviation of ln(cost / scale) by batch size, in the order of `group.sizes`."""
    x = np.array([math.log2(size) for size in group.sizes])
    kernel = DEVIATION**2 * portable.exp(-0.5 * ((x[:, None] - x[None, :]) / OCTAVES) ** 2)
    believed = Gaussian(np.zeros(len(x)), kernel)
    for index, size in enumerate(group.sizes):
        if size in group.costs:
            cost = group.costs[size]
            log_cost = math.log(max(cost.mean, 1e-300) / max(group.scale, 1e-300))
            believed = believed.observe(index, log_cost, NOISE**2 / cost.runs)
    return believed.mean, np.sqrt(np.maximum(np.diag(believed.covariance), 0.0))


def improvement(better: float, deviation: float) -> float:
    """Expected positive part of a normal variable of this mean (Jones et al. 1998, equation 15)."""
    if deviation < 1e-12:
        return max(better, 0.0)
    z = better / deviation
    density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return better * survival(-z) + deviation * density


class ExpectedImprovementConfig(CostBoundSettings, PolicyConfig):
    """A Gaussian process over the cost of batch sizes, and expected improvement.

    As Bayesian optimisation has it (Jones, Schonlau, Welch, Journal of Global Optimization 13,
    1998; Snoek, Larochelle, Adams, NIPS '12): the batch size whose cost is expected to fall
    furthest below the cheapest one, until that is less than 1 %.
    """

    kind: Literal["expected-improvement"] = "expected-improvement"
    policy = ExpectedImprovement
    plain = "expected improvement"
