"""Which batch size to run next: what trying one costs, against what knowing it is worth.

One step ahead: a run of batch size b that is stopped after k epochs costs an excess over the
incumbent, the batch size that is believed cheapest of those that ever reached the target. Its
result changes the belief on all batch sizes, and the recurrences to come take the one that is
cheapest then. Costs are in J, epochs costs and epochs lognormal.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.learning.epoch_belief import Posterior
from wattkeeper.policies.numerics import portable
from wattkeeper.policies.numerics.normal import normal_cdf
from wattkeeper.policies.numerics.portable import each

REACH: Final = 1.6
"""Octaves from a batch size that reached the target within which any other may be tried."""
SHARPER: Final = 4.0
"""One result stands for so many, since more would follow."""
EACH: Final = 200
APART: Final = 1.02
"""Stops are thought of after each of so many epochs, later ones in steps of this ratio."""


class Trial(NamedTuple):
    """A run of a batch size that is stopped after some epochs.

    Attributes:
        choice: Index of the batch size.
        epochs: Epochs after which it is stopped.
        score: What it costs beyond a run of the incumbent, in expectation, less the worth of what
            it teaches, J.
    """

    choice: int
    epochs: int
    score: float


class Lookahead:
    """The beliefs at a decision.

    Args:
        belief: On epochs, what is under way included.
        log_costs: ln(cost of an epoch, J) by batch size.
        variances: Variance of these.
        max_epochs: A run ends after so many.

    Attributes:
        epoch_costs: Cost of an epoch by batch size, J.
        costs: Expected cost of reaching the target by batch size, J.
        incumbent: Index of the cheapest batch size that ever reached it; None if none did.
    """

    def __init__(
        self, belief: Posterior, log_costs: Floats, variances: Floats, max_epochs: int
    ) -> None:
        self._belief = belief
        self.epoch_costs = portable.exp(log_costs)
        self._joint = belief.covariance + np.diag(variances)
        self._base = log_costs + belief.noise / 2
        log_means = self._base + belief.mean + np.diag(self._joint) / 2
        self.costs = portable.exp(log_means) / (1 - belief.misses)
        reached = np.flatnonzero(belief.reached)
        self.incumbent: int | None = None
        if reached.size:
            self.incumbent = int(reached[np.argmin(self.costs[reached])])
        self._stops = _stops(max_epochs)

    def candidates(self) -> list[int]:
        """The batch sizes that may be tried, other than the incumbent.

        Those near to one that reached the target, and farther ones that are expected to cost less
        than the incumbent.
        """
        assert self.incumbent is not None
        x, reached = self._belief.x, self._belief.reached
        may_run = (np.abs(x[:, None] - x[reached][None, :]) <= REACH).any(axis=1)
        may_run |= self.costs < self.costs[self.incumbent]
        may_run[self.incumbent] = False
        return [int(index) for index in np.flatnonzero(may_run)]

    def exploit(self, horizon: float) -> Trial:
        """A run of the incumbent to its end."""
        assert self.incumbent is not None
        gain = float(self._gains(self.incumbent)[-1])
        return Trial(self.incumbent, int(self._stops.epochs[-1]), -horizon * gain)

    def explore(self, index: int, horizon: float) -> Trial:
        """The best run of a batch size; `horizon`: recurrences that profit from what it teaches."""
        scores = self._excess(index) - horizon * self._gains(index)
        best = int(np.argmin(scores))
        return Trial(index, int(self._stops.epochs[best]), float(scores[best]))

    def excess(self, trial: Trial) -> float:
        """What a trial costs beyond a run of the incumbent, in expectation, J."""
        return float(self._excess(trial.choice)[np.searchsorted(self._stops.epochs, trial.epochs)])

    def _excess(self, index: int) -> Floats:
        """The same by the number of epochs after which a run of a batch size is stopped."""
        assert self.incumbent is not None
        reached = self._reached_by(index, self._belief.noise[index])
        parts = np.diff(reached, prepend=0.0)
        epochs = np.cumsum(self._stops.ends * parts) + self._stops.epochs * (1 - reached)
        spare = self.costs[self.incumbent]
        excess: Floats = self.epoch_costs[index] * epochs + (1 - reached) * spare - spare
        return excess

    def _reached_by(self, index: int, noise: float) -> Floats:
        """Probability of having reached the target by each of the stops."""
        belief = self._belief
        spread = math.sqrt(self._joint[index, index] + noise)
        z = (self._stops.log_epochs - belief.mean[index]) / spread
        return (1 - float(belief.misses[index])) * normal_cdf(z)

    def _gains(self, index: int) -> Floats:
        """What each recurrence saves in expectation once a run's result is known, by its bound."""
        belief, joint = self._belief, self._joint
        noise = float(belief.noise[index]) / SHARPER
        parts = np.diff(self._reached_by(index, noise), prepend=0.0)
        column = joint[:, index]
        share = column / (joint[index, index] + noise)
        after = self._base + belief.mean + (np.diag(joint) - share * column) / 2
        moved = share[:, None] * (self._stops.log_ends - belief.mean[index])[None, :]
        misses = belief.misses.copy()
        if not belief.reached[index]:
            misses[index] = 0.0
        costs = portable.exp(after[:, None] + moved) / (1 - misses)[:, None]
        now = int(np.argmin(self.costs))
        return np.cumsum(parts * (costs[now] - costs.min(axis=0)))


class _Stops(NamedTuple):
    """When a run may be stopped.

    Attributes:
        epochs: Epochs after which it may be, rising.
        ends: Mean epochs of runs that end by then, and no sooner.
        log_epochs: ln(epochs + 1/2).
        log_ends: ln(ends).
    """

    epochs: Floats
    ends: Floats
    log_epochs: Floats
    log_ends: Floats


@cache
def _stops(max_epochs: int) -> _Stops:
    stops = [min(EACH, max_epochs)]
    while stops[-1] < max_epochs:
        stops.append(min(max_epochs, int(stops[-1] * APART)))
    later = np.array([*range(1, stops[0]), *stops], dtype=np.float64)
    ends = later - (np.diff(later, prepend=0.0) - 1) / 2
    return _Stops(later, ends, each(math.log, later + 0.5), each(math.log, ends))
