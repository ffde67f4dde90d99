"""Exact search for the most similar of many models, pruned by upper bounds."""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.matching.bounds import Bounds
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.matchers import Matcher
from wattkeeper.policies.matching.sketches import SketchTable

S = TypeVar("S", bound=tuple[Ints, ...])

Key = tuple[float, float, int]
"""What parents are ordered by, ascending: negative score, negative retained share, preference."""

BLOCK: Final = 64
"""Number of parents that are tightened first."""


class ScoredParent(NamedTuple):
    """A parent found by a search.

    Attributes:
        parent: Its index among the parents.
        score: Its score for the child.
    """

    parent: int
    score: float


class ParentSearch(Generic[S]):
    """Finds the best parents exactly without scoring all of them.

    It holds a sketch of each parent, a few kB.

    Attributes:
        sketches: The parents' sketches, in order of addition.
        scored: Number of parents scored by the last search.
        refined: Number of parents whose retained share the last search computed.
    """

    def __init__(self, matcher: Matcher[Any, S], parents: Iterable[S] = ()) -> None:
        self.sketches: SketchTable[S] = SketchTable(matcher.sketches)
        self.scored = 0
        self.refined = 0
        self._matcher = matcher
        for parent in parents:
            self.add(parent)

    def add(self, parent: S) -> None:
        """Add a parent by its sketch; its index is the number of parents before it."""
        self.sketches.add(parent)

    def bounds(self, child: Graph) -> Bounds:
        """Upper bounds of the parents' scores and retained shares."""
        return self._matcher.bounds(child, self.sketches)

    def best(
        self,
        child: Graph,
        score: Callable[[int], float],
        count: int = 1,
        among: Ints | None = None,
        retained: Callable[[int], float] | None = None,
        bonus: Floats | None = None,
    ) -> list[ScoredParent]:
        """The parents with the highest scores, as if all had been scored.

        Parents are scored in descending order of their bounds, until no remaining bound can win.

        Args:
            child: The child.
            score: Returns the score of the parent at an index.
            count: Number of parents to return.
            among: Distinct indices of the allowed parents, of equal ones the preferred first; None
                allows all, and prefers those that were added first.
            retained: Returns the retained share of the parent at an index, which decides between
                equal scores; None leaves it out.
            bonus: What is added to the score of each allowed parent; None: nothing.

        Returns:
            At most `count` parents, the best first.
        """
        bounds = self.bounds(child)
        places = np.arange(len(self.sketches)) if among is None else among
        added = np.zeros(len(places)) if bonus is None else bonus
        queue = _Queue(bounds, places, added, by_share=retained is not None)
        self.scored = self.refined = 0
        ranked: list[Key] = []
        for limit in queue:
            if len(ranked) == count and limit > ranked[-1]:
                break
            rank = limit[2]
            place = int(places[rank])
            self.scored += 1
            # A tightened bound holds for the bounded score alone.
            key = (
                -score(place) - added[rank],
                0.0 if retained is None else -float(bounds.retained[place]),
                rank,
            )
            if len(ranked) == count and key > ranked[-1]:
                continue
            if retained is not None:
                self.refined += 1
                key = key[0], -retained(place), rank
            insort(ranked, key)
            del ranked[count:]
        return [ScoredParent(int(places[rank]), -negative) for negative, _, rank in ranked]


class _Queue:
    """Parents in order of their bounds; each is tightened before it is handed out.

    They are tightened in growing blocks, as far as their first bounds come before the best of the
    tightened ones, and no further than needed to see that they come after it.
    """

    def __init__(self, bounds: Bounds, places: Ints, bonus: Floats, *, by_share: bool) -> None:
        self._bounds, self._places = bounds, places
        self._scores = -bounds.score[places] - bonus
        self._shares = -bounds.retained[places] if by_share else np.zeros(len(places))
        self._by_share = by_share
        self._order = np.lexsort((self._shares, self._scores))
        self._tightened: list[tuple[Key, bool]] = []
        self._done = 0

    def __iter__(self) -> Iterator[Key]:
        order, heap = self._order, self._tightened
        while heap or self._done < len(order):
            if self._done < len(order) and (not heap or self._key(order[self._done]) < heap[0][0]):
                ranks = order[self._done : max(2 * self._done, BLOCK)]
                self._done += len(ranks)
                is_tied = bool(heap) and heap[0][0][0] == self._scores[ranks[0]]
                self._tighten(ranks, -heap[0][0][1] if is_tied else 0.0)
                continue
            key, is_final = heappop(heap)
            if is_final:
                yield key
            else:
                self._tighten(np.array([key[2]]), 0.0)

    def _key(self, rank: int) -> Key:
        return float(self._scores[rank]), float(self._shares[rank]), int(rank)

    def _tighten(self, ranks: Ints, least: float) -> None:
        is_final = np.ones(len(ranks), dtype=bool)
        if self._by_share:
            closer, is_final = self._bounds.tighten(self._places[ranks], least)
            self._shares[ranks] = -closer
        for rank, final in zip(ranks.tolist(), is_final.tolist(), strict=True):
            heappush(self._tightened, (self._key(rank), final))
