"""Measures, before an elastic training, what its steps, checkpoints and changes of shape take."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from wattkeeper.live.elastic.costs import MeasuredCosts, StepSplit
from wattkeeper.live.elastic.groups import GroupStore, Origin, SavedState, origin_of
from wattkeeper.live.elastic.orders import NO_STATE, Order, SaveState
from wattkeeper.live.elastic.workers import Workers

ROUNDS: Final = 3
"""How often each change of shape is rehearsed."""
STEPS: Final = 4
"""Steps that are trained in each round; the first one does not count."""


class PauseRehearsal:
    """Rehearses changes of shape on each number of nodes; what is trained meanwhile is dropped.

    In the middle of a step the last worker leaves the group, as if it were killed, and all form a
    group again: from the states that they hold, from the state of the others, from a checkpoint.

    Args:
        workers: The workers.
        store: Where they find each other.
        costs: Takes down what was measured.
        split: A step.
        folder: For a checkpoint.
    """

    def __init__(
        self,
        workers: Workers,
        store: GroupStore,
        costs: MeasuredCosts,
        split: StepSplit,
        folder: Path,
    ) -> None:
        self._workers, self._store, self._costs = workers, store, costs
        self._split, self._path = split, folder / "rehearsal.pt"

    def run(self, least_nodes: int, most_nodes: int) -> None:
        """Rehearse on all numbers of nodes; a round in which a worker ends is repeated."""
        for size in range(most_nodes, least_nodes - 1, -1):
            rounds = 0
            while rounds < ROUNDS:
                while len(self._workers.ready()) < size:
                    self._workers.watch()
                self._workers.lost.clear()
                rounds += self._round(self._workers.ready()[:size])
        self._path.unlink(missing_ok=True)

    def _round(self, nodes: list[int]) -> bool:
        """Rehearse once on some nodes; whether all of them lived on."""
        if not self._form(nodes, Origin(0)):
            return False
        for number in range(STEPS):
            time_s = self._time(self._split.orders(nodes))
            if time_s is None:
                return False
            if number > 0:
                self._costs.add_step(len(nodes), time_s)
        time_s = self._time({nodes[0]: SaveState(self._path)})
        if time_s is None:
            return False
        self._costs.add_write(time_s)
        kinds = [(False, False), (False, True), (True, False)]
        return all(self._change(nodes, *kind) for kind in kinds if len(nodes) > 1 or not kind[1])

    def _change(self, nodes: list[int], from_storage: bool, sends: bool) -> bool:
        """Break a group off in a step, and form it again; whether all lived on."""
        orders, last = self._split.orders(nodes), nodes[-1]
        del orders[last]
        begun_s = time.monotonic() + self._costs.step_s(len(nodes)) / 2
        self._workers.command(orders, {last: begun_s})
        states = self._workers.steps_of(nodes) | ({last: NO_STATE} if sends else {})
        origin = origin_of(states, SavedState(STEPS, self._path), from_storage)
        if not self._form(nodes, origin):
            return False
        self._costs.add_pause(len(nodes), time.monotonic() - begun_s, from_storage, sends)
        return True

    def _form(self, nodes: list[int], origin: Origin) -> bool:
        return self._workers.carry_out(self._store.orders(nodes, origin))

    def _time(self, orders: Mapping[int, Order]) -> float | None:
        """How long workers take for orders, s; None if one of them ended."""
        begun_s = time.monotonic()
        if not self._workers.carry_out(orders):
            return None
        return time.monotonic() - begun_s
