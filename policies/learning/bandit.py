"""Gaussian Thompson sampling (Zeus, NSDI '23, section 4.3, algorithms 1 and 2)."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from wattkeeper.policies.numerics.draws import skip_permutation


class Rewards:
    """Mean and population variance of an arm's last rewards.

    Attributes:
        window: Number of last rewards that count; None for all.
    """

    def __init__(self, window: int | None = None) -> None:
        self.window = window
        self._last: list[float] = []
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0

    def add(self, reward: float) -> None:
        """Add a reward: by Welford's update, or recomputed over the window if there is one."""
        if self.window is None:
            self._update(reward)
            return
        self._last = [*self._last, reward][-self.window :]
        self._count, self._mean, self._squares = 0, 0.0, 0.0
        for last in self._last:
            self._update(last)

    def _update(self, reward: float) -> None:
        self._count += 1
        step = reward - self._mean
        self._mean += step / self._count
        self._squares += step * (reward - self._mean)

    def belief(self) -> tuple[float, float]:
        """Mean and deviation of the posterior of the arm's mean reward, under a flat prior."""
        return self._mean, math.sqrt(self._squares / self._count / self._count)

    def state_dict(self) -> dict[str, Any]:
        """The state as JSON values."""
        return {
            "last": self._last,
            "count": self._count,
            "mean": self._mean,
            "squares": self._squares,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._last, self._count = list(state["last"]), state["count"]
        self._mean, self._squares = state["mean"], state["squares"]


class GaussianThompson:
    """Gaussian Thompson sampling: draws a mean reward for each arm and plays the largest.

    Attributes:
        arms: Ascending.
    """

    def __init__(self, arms: Sequence[int], rewards: dict[int, Rewards]) -> None:
        self.arms = list(arms)
        beliefs = np.array([rewards[arm].belief() for arm in self.arms])
        self._means, self._deviations = beliefs.T.copy()

    def draw(self, rng: Generator) -> int:
        """Draw the arm to play.

        First draws a permutation of the arms from the stream, as the published code does before it
        knows whether an arm was never played.
        """
        skip_permutation(rng, len(self.arms))
        drawn = self._means + self._deviations * rng.standard_normal(len(self.arms))
        return self.arms[int(drawn.argmax())]

    def learn(self, arm: int, rewards: Rewards) -> None:
        """Update the posterior of an arm; unknown arms are ignored."""
        if arm in self.arms:
            index = self.arms.index(arm)
            self._means[index], self._deviations[index] = rewards.belief()
