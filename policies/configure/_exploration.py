"""Pruning exploration of batch sizes (Zeus, NSDI '23, section 4.4 and algorithm 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ROUNDS = 2


class PruningExploration:
    """Visits batch sizes outwards from a start and drops those that miss the target.

    A round visits the start and the smaller batch sizes downwards, then the larger ones upwards;
    one that misses the target is dropped with the rest of its direction. The next round starts at
    the cheapest that reached it and visits only those that did. There are two rounds.

    Attributes:
        survivors: Batch sizes that are left, ascending; final once `propose` gives None.
    """

    def __init__(self, batch_sizes: Sequence[int], start: int) -> None:
        self.survivors = sorted(batch_sizes)
        self._rounds = ROUNDS
        self._awaited: int | None = None
        self._begin_round(start)

    def _begin_round(self, start: int) -> None:
        at = self.survivors.index(start)
        self._directions = [self.survivors[at::-1], self.survivors[at + 1 :]]
        self._costs: dict[int, float] = {}
        self._rounds -= 1

    def propose(self) -> int | None:
        """The batch size to try now; None when the exploration is over.

        The same one is proposed until its result is reported.
        """
        while not any(self._directions):
            if not self._rounds or not self._costs:
                return None
            self._begin_round(min(self._costs, key=self._costs.__getitem__))
        self._awaited = next(direction[0] for direction in self._directions if direction)
        return self._awaited

    def report(self, batch_size: int, cost: float, reached: bool) -> None:
        """Take a result; one that was not proposed, or came before, is ignored."""
        if batch_size != self._awaited:
            return
        self._awaited = None
        direction = next(direction for direction in self._directions if direction)
        if reached:
            self._costs[direction.pop(0)] = cost
        else:
            direction.clear()
        if not any(self._directions) and self._costs:
            self.survivors = sorted(self._costs)

    def state_dict(self) -> dict[str, Any]:
        """The state as JSON values."""
        return {
            "survivors": self.survivors,
            "rounds": self._rounds,
            "awaited": self._awaited,
            "directions": [list(direction) for direction in self._directions],
            "costs": [[batch_size, cost] for batch_size, cost in self._costs.items()],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> PruningExploration:
        """An exploration that goes on where `state_dict` was taken."""
        exploration = cls.__new__(cls)
        exploration.survivors = list(state["survivors"])
        exploration._rounds = state["rounds"]
        exploration._awaited = state["awaited"]
        exploration._directions = [list(direction) for direction in state["directions"]]
        exploration._costs = dict(state["costs"])
        return exploration
