"""Bamboo's own published replay on random nodes (NSDI '23): a chance of losing each, every hour."""

from __future__ import annotations

import random
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from benchmarks.papers.replays.bamboo import EFFECTIVE, REDUNDANT
from benchmarks.papers.replays.bamboo_alone import BambooProfile, Economy, ProfiledBamboo
from benchmarks.papers.replays.events import EventKind, ReplayEvent
from benchmarks.papers.replays.result import ReplayResult
from wattkeeper.policies.errors import InputError

HOUR_S: Final = 3600
HOUR_MS: Final = HOUR_S * 1000
HOURS: Final = 24
LONGEST_MS: Final = 10**11
"""A run that is not done after this time is given up."""


class RandomNodes(NamedTuple):
    """How nodes come and go at random.

    Attributes:
        wanted: Nodes that are asked for.
        loss_chance: Chance of a node to be lost in an hour.
        seed: Of the random numbers.
    """

    wanted: int
    loss_chance: float
    seed: int


class RemovalRun(NamedTuple):
    """A run on random nodes.

    Attributes:
        replay: What was counted.
        economy: What it gives and costs.
        interruption_h: Mean time between losses, h; 0 with fewer than two.
        lifetime_h: Mean time that nodes were present, h.
    """

    replay: ReplayResult
    economy: Economy
    interruption_h: float
    lifetime_h: float


def replay_random_nodes(profile: BambooProfile, nodes: RandomNodes, steps: int) -> RemovalRun:
    """Replay Bamboo on random nodes until so many steps are finished.

    Raises:
        InputError: If a setting is not allowed, the nodes make more pipelines than are profiled, or
            the steps are not finished within 10^11 ms.
    """
    _check(nodes, steps)
    replay = _RandomBamboo(profile, nodes, steps)
    replay.run()
    if replay.ledger.steps < steps:
        raise InputError(
            f"{replay.ledger.steps} of {steps} steps are finished after {replay.now_ms} ms; a "
            "lower chance of losses or more nodes are needed"
        )
    result = replay.result(effective_share=EFFECTIVE, redundant_share=REDUNDANT)
    return RemovalRun(result, replay.economy(), replay.interruption_h(), replay.lifetime_h())


def _check(nodes: RandomNodes, steps: int) -> None:
    if nodes.wanted < 1:
        raise InputError(f"{nodes.wanted} nodes are wanted; allowed is 1 or more")
    if not 0 <= nodes.loss_chance <= 1:
        raise InputError(f"the chance of a loss is {nodes.loss_chance:g}; allowed is 0 to 1")
    if steps < 1:
        raise InputError(f"{steps} steps are asked for; allowed is 1 or more")


class _Loss(NamedTuple):
    """A loss in an hour; losses at one time go by name.

    Attributes:
        second: When, s since the begin of the hour.
        name: Name of the node.
        number: Its number.
    """

    second: int
    name: str
    number: int


class _RandomBamboo(ProfiledBamboo):
    """Draws each hour's losses and additions at its begin, in the artifact's order."""

    def __init__(self, profile: BambooProfile, nodes: RandomNodes, steps: int) -> None:
        super().__init__((), profile, LONGEST_MS)
        self._steps = steps
        self._wanted, self._loss_chance = nodes.wanted, nodes.loss_chance
        self._random = random.Random(nodes.seed)
        self._added = 0
        self._begun_ms: dict[int, int] = {}  # when the nodes present were added
        self._lifetimes_ms: list[int] = []
        self._losses_ms: list[int] = []
        self._add_chances = [self._random.random() for _ in range(HOURS)]
        for _ in range(nodes.wanted):
            if self._random.random() < self._add_chances[0]:
                self._push_add(0)
        self.queue.push(0, EventKind.GENERATE)

    def is_over(self, next_ms: int) -> bool:
        """Whether the steps are finished."""
        return self.ledger.steps >= self._steps or super().is_over(next_ms)

    def handle(self, event: ReplayEvent) -> None:
        """Draw what happens in an hour, and note when nodes come and are lost."""
        match event.kind, event.data:
            case EventKind.GENERATE, _:
                self._draw_hour()
            case EventKind.ADD, int(number):
                self._begun_ms[number] = self.now_ms
            case EventKind.REMOVE, int(number):
                self._lifetimes_ms.append(self.now_ms - self._begun_ms.pop(number))
                self._losses_ms.append(self.now_ms)
        super().handle(event)

    def _draw_hour(self) -> None:
        """Draw losses of the nodes present, then additions up to the nodes wanted."""
        self.queue.push(self.now_ms + HOUR_MS, EventKind.GENERATE)
        losses = [loss for number in self.nodes for loss in self._draw_loss(number)]
        chance = self._add_chances[self.now_ms // (HOUR_MS) % HOURS]
        missing = self._wanted - len(self.nodes) + len(losses)
        additions = [
            self._random.randrange(HOUR_S) for _ in range(missing) if self._random.random() < chance
        ]
        self._merge(losses, sorted(additions))

    def _draw_loss(self, number: int, since_s: int = 0) -> Iterator[_Loss]:
        """Draw whether a node is lost in the hour that begins, and when; not before a second."""
        if self._random.random() < self._loss_chance:
            second = self._random.randrange(HOUR_S)
            if second >= since_s:
                yield _Loss(second, f"node{number}", number)

    def _merge(self, losses: list[_Loss], additions: list[int]) -> None:
        """Push losses and additions by time; additions are skipped while nobody is missing."""
        present = len(self.nodes)
        heapify(losses)
        for second in additions:
            while losses and losses[0].second < second:
                self._push_loss(heappop(losses))
                present -= 1
            if present < self._wanted:
                number = self._push_add(second)
                present += 1
                for loss in self._draw_loss(number, second):
                    heappush(losses, loss)
        for loss in sorted(losses):
            self._push_loss(loss)

    def _push_add(self, second: int) -> int:
        """Push the addition of a node, and return its number."""
        self._added += 1
        self.queue.push(self.now_ms + second * 1000, EventKind.ADD, self._added)
        return self._added

    def _push_loss(self, loss: _Loss) -> None:
        self.queue.push(self.now_ms + loss.second * 1000, EventKind.REMOVE, loss.number)

    def interruption_h(self) -> float:
        """Mean time between losses, h; 0 with fewer than two."""
        between = len(self._losses_ms) - 1
        if between < 1:
            return 0.0
        return (self._losses_ms[-1] - self._losses_ms[0]) / between / HOUR_MS

    def lifetime_h(self) -> float:
        """Mean time that nodes were present, h; 0 without nodes."""
        present_ms = [self.now_ms - begun_ms for begun_ms in self._begun_ms.values()]
        lifetimes_ms = [*self._lifetimes_ms, *present_ms]
        return sum(lifetimes_ms) / len(lifetimes_ms) / HOUR_MS if lifetimes_ms else 0.0
