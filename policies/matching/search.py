"""The most similar of many models: exactly, by bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.matching.matchers import Matcher

A = TypeVar("A", bound=tuple[Ints, ...])


class ScoredParent(NamedTuple):
    """A parent that a search found.

    Attributes:
        at: Its position among the parents.
        score: Its score for the child.
    """

    at: int
    score: float


class ParentSearch(Generic[A]):
    """Finds the best parents among many without scoring them all, yet exactly.

    Attributes:
        parents: The arrays of the parents, in the order in which they were added.
        scored: Parents scored by the last search.
    """

    def __init__(self, matcher: Matcher[A], parents: Iterable[A] = ()) -> None:
        self.parents: list[A] = []
        self.scored = 0
        self._matcher = matcher
        self._holders: dict[int, tuple[list[int], list[int]]] = {}
        for parent in parents:
            self.add(parent)

    def add(self, parent: A) -> None:
        """Add a parent; its position is the number of those before it."""
        at = len(self.parents)
        self.parents.append(parent)
        kinds = self._matcher.kinds(parent)
        for kind, count in zip(kinds.kind.tolist(), kinds.nodes.tolist(), strict=True):
            places, counts = self._holders.setdefault(kind, ([], []))
            places.append(at)
            counts.append(count)

    def bounds(self, child: A) -> Floats:
        """What the score of each parent is not above, shape (parents,)."""
        kinds = self._matcher.kinds(child).kind.tolist()
        counts = np.zeros((len(kinds), len(self.parents)), dtype=np.int64)
        for row, kind in zip(counts, kinds, strict=True):
            places, there = self._holders.get(kind, ([], []))
            row[places] = there
        return self._matcher.bounds(child, counts)

    def scores(self, child: A) -> Floats:
        """The score of each parent: all are computed, shape (parents,)."""
        return np.array([self._matcher.score(parent, child) for parent in self.parents])

    def best(
        self,
        child: A,
        count: int = 1,
        among: Ints | None = None,
        score: Callable[[int], float] | None = None,
        *,
        ties: bool = False,
    ) -> list[ScoredParent]:
        """The parents with the highest scores, as if all had been scored.

        They are scored in the order of their bounds, the highest first, until no bound that is
        left can win.

        Args:
            child: The child.
            count: How many parents are wanted.
            among: Positions that are allowed; None allows all.
            score: Gives the score for the child of the parent at a position, where it may be
                known already; None computes it.
            ties: Whether all that equal the last of them are wanted too.

        Returns:
            At most `count` parents and `ties`, the best first; of equal ones, the one added first.
        """
        bounds = self.bounds(child)
        allowed = np.arange(len(bounds)) if among is None else np.unique(among)
        order = allowed[np.argsort(-bounds[allowed], kind="stable")]
        found: list[ScoredParent] = []
        self.scored = 0
        for at in order.tolist():
            if len(found) >= count and bounds[at] < found[-1].score:
                break
            surely_later = len(found) >= count and at > found[-1].at
            if surely_later and bounds[at] == found[-1].score and not ties:
                continue
            self.scored += 1
            scored = self._matcher.score(self.parents[at], child) if score is None else score(at)
            found.append(ScoredParent(at, scored))
            found.sort(key=lambda one: (-one.score, one.at))
            last = found[min(count, len(found)) - 1].score
            while len(found) > count and not (ties and found[-1].score == last):
                del found[-1]
        return found
