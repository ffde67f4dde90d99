"""The published replay of Bamboo (NSDI '23)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from benchmarks.papers.replays.events import EventKind
from benchmarks.papers.replays.inputs import RateTable, SpotChange, check_changes, check_length
from benchmarks.papers.replays.ledger import FinishedStep
from benchmarks.papers.replays.replay import PLACES, JobStatus, PublishedReplay, SpotNode
from benchmarks.papers.replays.result import ReplayResult
from wattkeeper.policies.replan.bamboo import REDUNDANT_SHARE

RESTART_MS: Final = 30_000
EFFECTIVE, REDUNDANT = 0.1971, REDUNDANT_SHARE
"""Shares of a step: a node's own layers, and those of the next stage."""
SLOWER: Final = 1.5
"""Length of steps from a loss to the next meeting, relative to those before."""
MOST_DOUBLED: Final = 0.05
"""Share of places on nodes with two, over those with one, above which the job rebalances."""


class BambooModel(NamedTuple):
    """Constants of a model.

    Attributes:
        batch: Samples of a step.
        rebalance_ms: Length of a pause to rebalance.
    """

    batch: int
    rebalance_ms: int


def replay_bamboo(
    changes: Sequence[SpotChange], rates: RateTable, model: BambooModel
) -> ReplayResult:
    """Replay Bamboo on nodes that come and go, up to the time of the last change.

    Raises:
        InputError: If the changes cannot follow each other, or a constant cannot be.
    """
    check_changes(changes)
    check_length("a pause", model.rebalance_ms)
    replay = _RatedBamboo(changes, rates, model)
    replay.run()
    return replay.result(effective_share=EFFECTIVE, redundant_share=REDUNDANT)


class BambooReplay(PublishedReplay):
    """Each node also holds the layers of the next stage, and takes its place when it is lost."""

    def __init__(
        self, changes: Sequence[SpotChange], model: BambooModel, end_ms: int, stages: int = PLACES
    ) -> None:
        super().__init__(changes, model.batch, end_ms, stages)
        self._model = model
        self._doubled = 0  # nodes with two places
        self._is_slow = False
        self._lost_ms: int | None = None  # loss for which the step under way is not yet extended

    def meeting_ms(self, kind: EventKind) -> int:
        """Length of a restart or of a pause to rebalance."""
        return RESTART_MS if kind == EventKind.LONG_MEETING else self._model.rebalance_ms

    def assign(self, listed: Sequence[SpotNode]) -> None:
        """Give places, and forget losses before."""
        super().assign(listed)
        self._is_slow, self._lost_ms = False, None
        self._count_doubled()

    def lose(self, node: SpotNode) -> None:
        """Restart after a fatal loss; after another one, steps are slower."""
        self.fallback_loss_ms += self.step_ms
        if self._is_fatal(node):
            self.fatal += 1
            self.meet(EventKind.LONG_MEETING)
        elif self.status is JobStatus.RUNNING and not self._is_slow:
            self._is_slow, self._lost_ms = True, self.now_ms
            self.step_ms = int(SLOWER * self.step_ms)
        self._count_doubled()

    def _is_fatal(self, node: SpotNode) -> bool:
        """Whether nobody can take the places of a lost node; else its guard has taken it."""
        if len(node.places) != 1:
            return len(node.places) > 1
        pipeline, stage = node.places[0]
        guard = self._holder(pipeline, (stage or self._stages_in_use()) - 1)
        if guard is None:
            return False
        if len(guard.places) > 1:
            return True
        guard.places.append((pipeline, stage))
        return False

    def _stages_in_use(self) -> int:
        """Stages of the pipelines; none after a meeting without a pipeline: no ring is closed."""
        return self.stages if self.pipelines else 0

    def _holder(self, pipeline: int, stage: int) -> SpotNode | None:
        holders = (node for node in self.nodes.values() if (pipeline, stage) in node.places)
        return next(holders, None)

    def _count_doubled(self) -> None:
        self._doubled = sum(len(node.places) > 1 for node in self.nodes.values())

    def end_step(self) -> None:
        """Extend the step once if a node was lost in it, else finish it."""
        if self._lost_ms is None:
            self.finish_step()
            return
        more_ms = int((SLOWER - 1) * (self.now_ms - self._lost_ms))
        self._lost_ms = None
        self.queue.push(self.now_ms + more_ms, EventKind.STEP, self.version)

    def go_on(self, step: FinishedStep) -> None:
        """Rebalance if that pays, else begin the next step."""
        if self._should_rebalance():
            self.meet(EventKind.SHORT_MEETING)
        else:
            self.begin_step(self.now_ms)

    def _should_rebalance(self) -> bool:
        """Whether nodes that wait can help, or too many have two places."""
        doubled, busy = self._doubled, self.pipelines * self.stages - self._doubled
        if doubled and (doubled <= self.waiting or 2 * doubled / busy > MOST_DOUBLED):
            return True
        return (busy + self.waiting) // self.stages > self.pipelines


class _RatedBamboo(BambooReplay):
    """Bamboo in Oobleck's artifact (SOSP '23), with rates by nodes."""

    def __init__(self, changes: Sequence[SpotChange], rates: RateTable, model: BambooModel) -> None:
        super().__init__(changes, model, changes[-1].time_ms)
        self.queue.heapify_again()
        self._rates = rates

    def look_up_step_ms(self) -> int:
        return self._rates.step_ms(self.ready, self.batch)
