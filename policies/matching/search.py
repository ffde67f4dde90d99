"""Exact search for the most similar of many models, pruned by upper bounds."""

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.matching.matchers import Matcher

A = TypeVar("A", bound=tuple[Ints, ...])


class ScoredParent(NamedTuple):
    """A parent found by a search.

    Attributes:
        parent: Its index among the parents.
        score: Its score for the child.
    """

    parent: int
    score: float


class ParentSearch(Generic[A]):
    """Finds the best parents exactly without scoring all of them.

    Attributes:
        parents: Arrays of the parents, in order of addition.
        scored: Number of parents scored by the last search.
    """

    def __init__(self, matcher: Matcher[A], parents: Iterable[A] = ()) -> None:
        self.parents: list[A] = []
        self.scored = 0
        self._matcher = matcher
        self._holders: dict[int, tuple[list[int], list[int]]] = {}
        for parent in parents:
            self.add(parent)

    def add(self, parent: A) -> None:
        """Add a parent; its index is the number of parents before it."""
        index = len(self.parents)
        self.parents.append(parent)
        kinds = self._matcher.kinds(parent)
        for kind, count in zip(kinds.kind.tolist(), kinds.nodes.tolist(), strict=True):
            places, counts = self._holders.setdefault(kind, ([], []))
            places.append(index)
            counts.append(count)

    def bounds(self, child: A) -> Floats:
        """Upper bound of each parent's score, shape (parents,)."""
        kinds = self._matcher.kinds(child).kind.tolist()
        counts = np.zeros((len(kinds), len(self.parents)), dtype=np.int64)
        for row, kind in zip(counts, kinds, strict=True):
            places, counts_there = self._holders.get(kind, ([], []))
            row[places] = counts_there
        return self._matcher.bounds(child, counts)

    def scores(self, child: A) -> Floats:
        """Score of each parent, without pruning, shape (parents,)."""
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

        Parents are scored in descending order of their bounds, until no remaining bound can win.

        Args:
            child: The child.
            count: Number of parents to return.
            among: Indices of the allowed parents; None allows all.
            score: Returns the score of the parent at an index for the child, where the caller may
                have it already; None computes it.
            ties: Whether to also return all parents that tie with the last one.

        Returns:
            At most `count` parents and `ties`, in descending order; ties in order of addition.
        """

        def compute(index: int) -> float:
            return self._matcher.score(self.parents[index], child)

        score = score or compute
        bounds = self.bounds(child)
        allowed = np.arange(len(bounds)) if among is None else np.unique(among)
        order = allowed[np.argsort(-bounds[allowed], kind="stable")]
        ranked: list[ScoredParent] = []
        self.scored = 0
        for index in order.tolist():
            if len(ranked) >= count and bounds[index] < ranked[-1].score:
                break
            surely_later = len(ranked) >= count and index > ranked[-1].parent
            if surely_later and bounds[index] == ranked[-1].score and not ties:
                continue
            self.scored += 1
            ranked.append(ScoredParent(index, score(index)))
            ranked.sort(key=lambda scored: (-scored.score, scored.parent))
            last = ranked[min(count, len(ranked)) - 1].score
            while len(ranked) > count and not (ties and ranked[-1].score == last):
                del ranked[-1]
        return ranked
