"""Bayesian search by network morphism, as AutoKeras searched up to version 0.4 (KDD '19)."""

from __future__ import annotations

import math
import random
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np
from typing_extensions import override

from wattkeeper.policies.arrays import Floats
from wattkeeper.sim.search.architectures import Architecture
from wattkeeper.sim.search.morphism import children, distance
from wattkeeper.sim.search.strategy import Proposal, Strategy

OPTIMISM: Final = 2.576
"""Standard deviations above the mean of the upper confidence bound."""
NOISE: Final = 1e-10
"""Smallest variance of the observations; ten times as much until the matrix can be factored."""
COOLING: Final = 0.9
COLDEST: Final = 1e-4
DIGITS: Final = 9
"""Digits that scores are rounded to."""


class _Model:
    """A Gaussian process with covariance `exp(-distance ** 2)`."""

    def __init__(self, networks: list[Architecture], accuracies: list[float], mean: float) -> None:
        self._networks, self._mean = networks, mean
        covariance = _covariance([[distance(a, b) for b in networks] for a in networks])
        noise, unit = NOISE, np.eye(len(networks))
        while True:
            try:
                factor = np.linalg.cholesky(covariance + noise * unit)
                break
            except np.linalg.LinAlgError:
                noise *= 10
        self._inverse = np.linalg.inv(factor)
        self._weights = self._inverse.T @ (self._inverse @ (np.array(accuracies) - mean))

    def scores(self, networks: list[Architecture]) -> list[float]:
        """The upper confidence bounds of the accuracies of networks."""
        distances = [[distance(one, other) for other in self._networks] for one in networks]
        covariance = _covariance(distances)
        variance = 1 - ((covariance @ self._inverse.T) ** 2).sum(axis=1)
        mean = self._mean + covariance @ self._weights
        bound = mean + OPTIMISM * np.sqrt(np.maximum(variance, 0))
        return [round(each, DIGITS) for each in bound.tolist()]


def _covariance(distances: list[list[float]]) -> Floats:
    covariance: Floats = np.exp(-(np.array(distances) ** 2))
    return covariance


class _Entry(NamedTuple):
    """An entry of the queue; the least one comes first."""

    negative: float
    order: int
    network: Architecture
    father: int


class Bayesian(Strategy[Architecture]):
    """Walks over the morphisms of all trials by simulated annealing, for the highest bound.

    One trial runs at a time; its origin is the trial that the walk began at.

    Args:
        start: The first network.
        seed: Of the generator.
        trials: Number of trials until the search ends.
        centred: Whether the process has the mean of the accuracies; as published it is 0, which
            prefers networks that are far from all trials.
    """

    def __init__(
        self, start: Architecture, seed: int, *, trials: int, centred: bool = False
    ) -> None:
        super().__init__()
        self._start, self._rng, self._trials = start, random.Random(seed), trials
        self._centred = centred
        self._runs = False
        self._proposals: list[Architecture] = []
        self._accuracies: dict[int, float] = {}

    @override
    def propose(self) -> Proposal[Architecture] | None:
        if self._runs or self._proposed == self._trials:
            return None
        found: tuple[Architecture, int | None] | None = (self._start, None)
        if self._accuracies:
            found = self._walk()
        elif self._proposed:  # all failed
            found = None
        if found is None:
            return None
        self._runs = True
        self._proposals.append(found[0])
        return self._number(*found)

    def _walk(self) -> tuple[Architecture, int | None] | None:
        trials = list(self._accuracies)
        accuracies = list(self._accuracies.values())
        mean = math.fsum(accuracies) / len(accuracies) if self._centred else 0.0
        model = _Model([self._proposals[trial] for trial in trials], accuracies, mean)
        met = set(self._proposals)
        queue: list[_Entry] = []
        for trial, accuracy in self._accuracies.items():
            entry = _Entry(-round(accuracy, DIGITS), len(queue), self._proposals[trial], trial)
            heappush(queue, entry)
        pushed, temperature, best, found = len(queue), 1.0, -math.inf, None
        while queue and temperature > COLDEST:
            entry = heappop(queue)
            gain = min((-entry.negative - best) / temperature, 1)
            temperature *= COOLING
            if math.exp(gain) < self._rng.uniform(0, 1):
                continue
            fresh = [each for each in dict.fromkeys(children(entry.network)) if each not in met]
            met.update(fresh)
            for network, score in zip(fresh, model.scores(fresh) if fresh else (), strict=True):
                heappush(queue, _Entry(-score, pushed, network, entry.father))
                pushed += 1
                if score > best:
                    best, found = score, (network, entry.father)
        return found

    @override
    def report(self, trial: int, accuracy: float | None) -> None:
        self._runs = False
        if accuracy is not None:
            self._accuracies[trial] = accuracy
