"""Nodes that come and go without a world, on which a `Replan` policy is rehearsed."""

from __future__ import annotations

from typing import Final

from wattkeeper.policies.points.replan import (
    ElasticTask,
    ElasticView,
    ReplanMoment,
    Reshape,
    Shape,
    check_reshape,
)
from wattkeeper.scenarios.contract.answers import is_plain, require_allowed, require_type
from wattkeeper.scenarios.contract.breach import require
from wattkeeper.scenarios.contract.steps import Ask, Step

TASK: Final = ElasticTask(
    "gpt",
    3,
    (0.0, 0.0, 0.0, 0.0, *(5.0 * n**0.9 for n in range(4, 13))),
    64.0,
    2.0,
    tuple(20.0 + n for n in range(13)),
    3.0,
)
"""It holds 3 nodes at least, trains on 4 to 12, and writes a checkpoint in 2 s."""


class ScriptedNodes:
    """The nodes of one elastic job."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._held: list[int] = []
        self._spare: list[int] = []
        self._shape: Shape | None = None
        self._came = 0

    def step(self, step: Step) -> None:
        """A node comes, or is lost."""
        action, number = step
        if action == "submit":
            self._gain()
        elif self._held:
            self._lose(number % len(self._held))

    def drain(self) -> None:
        """Nothing waits."""

    def _gain(self) -> None:
        """A node comes, and is taken up if the policy wants it, or too few are there."""
        self._came += 1
        self._spare.append(self._came)
        if len(self._held) + len(self._spare) > TASK.most_nodes:
            self._spare.pop()
        elif len(self._held) < TASK.least_nodes:
            self._take_up()
            if len(self._held) >= TASK.least_nodes:
                self._replan("start")
        elif self._replan("gained") is not None:
            self._take_up()
            self._replan("boundary")

    def _lose(self, index: int) -> None:
        del self._held[index]
        self._take_up()
        if len(self._held) >= TASK.least_nodes:
            self._replan("lost")

    def _take_up(self) -> None:
        self._held, self._spare = self._held + self._spare, []

    def _replan(self, moment: ReplanMoment) -> Reshape | None:
        held = tuple(sorted(self._held))
        spare = len(self._spare) if moment == "gained" else 0
        mean_s = 3600.0 * (1 + self._came % 7)
        view = ElasticView("a", TASK, moment, held, spare, self._shape, mean_s)
        answer: Reshape | None = self._ask("replan", view)
        if answer is None:
            require(moment == "gained", "answered None at the moment {!r}", "replan", moment)
            return None
        require_type(answer, Reshape, "replan")
        require_type(answer.shape, Shape, "replan")
        numbers = (answer.pause_s, answer.shape.rate, answer.shape.write_s)
        plain = all(map(is_plain, numbers))
        require(plain, "has a number that is not plain: {!r}", "replan", answer)
        require_allowed("replan", check_reshape, answer, view)
        if moment != "gained":
            self._shape = answer.shape
        return answer
