"""Pruning exploration of batch sizes (Zeus, NSDI '23, section 4.4 and algorithm 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ROUNDS = 2


class PruningExploration:
    """Explores batch sizes outwards from a start and prunes those that miss the target.

    A round visits the start and smaller batch sizes downwards, then larger ones upwards. One that
    misses the target is pruned together with the rest of its direction. The second and last round
    starts at the cheapest batch size that reached the target and visits only those that did.

    Attributes:
        survivors: Remaining batch sizes, ascending; final once `propose` returns None.
    """

    def __init__(self, batch_sizes: Sequence[int], start: int) -> None:
        self.survivors = sorted(batch_sizes)
        self._rounds = ROUNDS
        self._awaited: int | None = None
        self._begin_round(start)

    def _begin_round(self, start: int) -> None:
        index = self.survivors.index(start)
        self._directions = [self.survivors[index::-1], self.survivors[index + 1 :]]
        self._costs: dict[int, float] = {}
        self._rounds -= 1

    def propose(self) -> int | None:
        """The batch size to try next; None when the exploration is over.

        The same one is proposed until its result is reported.
        """
        while not any(self._directions):
            if not self._rounds or not self._costs:
                return None
            self._begin_round(min(self._costs, key=self._costs.__getitem__))
        self._awaited = next(direction[0] for direction in self._directions if direction)
        return self._awaited

    def report(self, batch_size: int, cost: float, reached: bool) -> None:
        """Record a result; a result that was not proposed, or reported before, is ignored."""
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
        """Restore an exploration from the state that `state_dict` returned."""
        exploration = cls.__new__(cls)
        exploration.survivors = list(state["survivors"])
        exploration._rounds = state["rounds"]
        exploration._awaited = state["awaited"]
        exploration._directions = [list(direction) for direction in state["directions"]]
        exploration._costs = dict(state["costs"])
        return exploration
