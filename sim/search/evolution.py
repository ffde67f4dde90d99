"""Regularised evolution (Real et al., AAAI '19) in the form of NNI's `RegularizedEvolution`."""

from __future__ import annotations

import random
from collections import deque

from typing_extensions import override

from wattkeeper.sim.search.strategy import Choices, Proposal, Space, Strategy


class Evolution(Strategy[Choices]):
    """The best of a sample of the population is mutated; the oldest one leaves the population.

    The first population is drawn from the space. All of it ends before anything is mutated.

    Args:
        space: Names and their choices.
        seed: Of the only generator.
        population: Number of trials that the population holds.
        sample: Number of trials of which the best one becomes the parent.
        probability: With which each name of a child is drawn anew.
        trials: Number of trials until the search ends. Failed ones do not count, and are left out
            of the population: another one is proposed.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        *,
        population: int,
        sample: int,
        probability: float,
        trials: int,
    ) -> None:
        super().__init__()
        self._space, self._rng = space, random.Random(seed)
        self._sample, self._probability = sample, probability
        self._left = trials
        self._line = deque(self._draw() for _ in range(min(population, trials)))
        self._first_running = len(self._line)
        self._population: deque[tuple[int, float]] = deque(maxlen=population)
        self._configurations: list[Choices] = []

    def _draw(self) -> Choices:
        return tuple(self._rng.choice(choices) for choices in self._space.choices)

    @override
    def propose(self) -> Proposal[Choices] | None:
        if not self._left or (not self._line and self._first_running):
            return None
        self._left -= 1
        parent = None if self._line else self._select()
        network = self._line.popleft() if parent is None else self._mutate(parent)
        self._configurations.append(network)
        return self._number(network, parent)

    def _select(self) -> int:
        shuffled = list(self._population)
        self._rng.shuffle(shuffled)
        return max(shuffled[: self._sample], key=lambda trial: trial[1])[0]

    def _mutate(self, parent: int) -> Choices:
        rng, probability = self._rng, self._probability
        return tuple(
            rng.choice(choices) if rng.uniform(0, 1) < probability else kept
            for choices, kept in zip(self._space.choices, self._configurations[parent], strict=True)
        )

    @override
    def report(self, trial: int, accuracy: float | None) -> None:
        if accuracy is None:
            self._left += 1
            if self._first_running:
                self._line.append(self._draw())
            return
        self._first_running = max(0, self._first_running - 1)
        self._population.append((trial, accuracy))
