"""Random search, and a random tree of mutations."""

from __future__ import annotations

import random
from collections.abc import Sequence

from typing_extensions import override

from wattkeeper.sim.search.architectures import Architecture, CandidateNetwork
from wattkeeper.sim.search.strategy import Choices, Proposal, Space, Strategy


class RandomSearch(Strategy[Choices]):
    """Draws each choice independently; what was proposed before is skipped.

    Args:
        space: Names and their choices.
        seed: Of the generator.
        trials: Number of trials until the search ends.
    """

    def __init__(self, space: Space, seed: int, *, trials: int) -> None:
        super().__init__()
        self._space, self._rng = space, random.Random(seed)
        self._trials = min(trials, space.size)
        self._known: set[Choices] = set()

    @override
    def propose(self) -> Proposal[Choices] | None:
        if self._proposed == self._trials:
            return None
        while True:
            drawn = tuple(self._rng.choice(choices) for choices in self._space.choices)
            if drawn not in self._known:
                self._known.add(drawn)
                return self._number(drawn)

    @override
    def report(self, trial: int, accuracy: float | None) -> None:
        pass


class DrawnTree(Strategy[Architecture]):
    """Networks that were drawn before the search, whatever the accuracies.

    Args:
        candidates: The networks in order; see `draw_candidates`.
    """

    def __init__(self, candidates: Sequence[CandidateNetwork]) -> None:
        super().__init__()
        self._candidates = candidates
        self._trial_of_name = {each.name: trial for trial, each in enumerate(candidates)}

    @override
    def propose(self) -> Proposal[Architecture] | None:
        if self._proposed == len(self._candidates):
            return None
        candidate = self._candidates[self._proposed]
        origin = candidate.mutated_from
        return self._number(
            candidate.architecture, None if origin is None else self._trial_of_name[origin]
        )

    @override
    def report(self, trial: int, accuracy: float | None) -> None:
        pass
