"""AutoKeras's greedy oracle: parts of the best configuration are drawn anew."""

from __future__ import annotations

import random
from typing import Final

import numpy as np
from typing_extensions import override

from wattkeeper.sim.search.strategy import Choices, Proposal, Space, Strategy

COLLISIONS: Final = 20
"""Number of nodes, and of further draws at each, that are tried for a new configuration."""
DRAWS_AT_ROOT: Final = 1000
"""Draws of whole configurations before a space counts as exhausted."""


class Greedy(Strategy[Choices]):
    """Draws the names below a node of the tree of names anew, and keeps the others of the best one.

    As the oracle `Greedy` of AutoKeras 1 (Jin et al., JMLR 24, 2023).

    Names are paths with `/` between their parts. A node of the tree is the root, a prefix or a
    name; it is drawn with a probability that is inversely proportional to the number of names below
    it. One trial runs at a time.

    Args:
        space: Names and their choices; the first choices are the first trial.
        seed: Of the generators.
        trials: Number of trials until the search ends.
        restarts: Whether the search draws whole configurations when `COLLISIONS` nodes gave nothing
            new; as published, it ends.

    Attributes:
        node: Path of the node of the last proposal; empty for the root and the first trial.
    """

    def __init__(self, space: Space, seed: int, *, trials: int, restarts: bool = True) -> None:
        super().__init__()
        self.node = ""
        self._space = space
        self._nodes = _tree(space.names)
        leaves = 1 / np.array([len(below) for below in self._nodes.values()])
        self._probabilities = leaves / leaves.sum()
        self._rng, self._draws = np.random.RandomState(seed), seed
        self._trials, self._restarts = trials, restarts
        self._configurations: dict[Choices, None] = {}  # in order
        self._best: tuple[float, int] | None = None
        self._runs = False

    @override
    def propose(self) -> Proposal[Choices] | None:
        if self._runs or self._proposed == self._trials:
            return None
        found = self._find()
        if found is None:
            return None
        self._runs = True
        self._configurations[found] = None
        base = None if not self._proposed else self._base()
        return self._number(found, base)

    def _base(self) -> int:
        """The best trial so far; the first one if none succeeded."""
        return 0 if self._best is None else self._best[1]

    def _find(self) -> Choices | None:
        if not self._proposed:
            return tuple(choices[0] for choices in self._space.choices)
        base, names = list(self._configurations)[self._base()], list(self._nodes)
        for _ in range(COLLISIONS):
            self.node = names[int(self._rng.choice(len(names), p=self._probabilities))]
            for _ in range(1 + COLLISIONS):
                drawn = self._draw(base, self._nodes[self.node])
                if drawn not in self._configurations:
                    return drawn
        self.node = ""
        for _ in range(DRAWS_AT_ROOT if self._restarts else 0):
            drawn = self._draw(base, self._nodes[""])
            if drawn not in self._configurations:
                return drawn
        return None

    def _draw(self, base: Choices, places: frozenset[int]) -> Choices:
        drawn = list(base)
        for place, choices in enumerate(self._space.choices):
            if place in places:
                drawn[place] = random.Random(self._draws).choice(choices)
                self._draws += 1
        return tuple(drawn)

    @override
    def report(self, trial: int, accuracy: float | None) -> None:
        self._runs = False
        if accuracy is not None and (self._best is None or accuracy > self._best[0]):
            self._best = accuracy, trial


def _tree(names: tuple[str, ...]) -> dict[str, frozenset[int]]:
    """Positions of the names below each node: the root, then depth first, by first appearance."""
    below: dict[str, set[int]] = {"": set(range(len(names)))}
    children: dict[str, dict[str, None]] = {}
    for place, name in enumerate(names):
        parts, parent = name.split("/"), ""
        for end in range(1, len(parts) + 1):
            node = "/".join(parts[:end])
            children.setdefault(parent, {})[node] = None
            below.setdefault(node, set()).add(place)
            parent = node
    order: list[str] = []
    stack = [""]
    while stack:
        node = stack.pop()
        order.append(node)
        stack += reversed(children.get(node, {}))
    return {node: frozenset(below[node]) for node in order}
