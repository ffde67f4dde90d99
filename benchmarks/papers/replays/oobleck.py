"""The published replay of Oobleck (SOSP '23)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.papers.replays.events import EventKind
from benchmarks.papers.replays.inputs import RateTable, SpotChange, check_changes, check_length
from benchmarks.papers.replays.replay import PublishedReplay, SpotNode
from benchmarks.papers.replays.result import ReplayResult


class OobleckModel(NamedTuple):
    """Constants of a model.

    Attributes:
        batch: Samples of a step.
        pause_ms: Length of a pause.
    """

    batch: int
    pause_ms: int


def replay_oobleck(
    changes: Sequence[SpotChange], rates: RateTable, model: OobleckModel
) -> ReplayResult:
    """Replay Oobleck on nodes that come and go, up to the time of the last change.

    Raises:
        InputError: If the changes cannot follow each other, or a constant cannot be.
    """
    check_changes(changes)
    check_length("a pause", model.pause_ms)
    replay = _Oobleck(changes, rates, model)
    replay.run()
    return replay.result()


class _Oobleck(PublishedReplay):
    """Each loss, whichever node, is fatal; nodes that came wait for the next loss."""

    long_meetings_rebalance = True

    def __init__(
        self, changes: Sequence[SpotChange], rates: RateTable, model: OobleckModel
    ) -> None:
        super().__init__(changes, model.batch, changes[-1].time_ms)
        self.queue.heapify_again()
        self._rates = rates
        self._model = model

    def meeting_ms(self, kind: EventKind) -> int:
        return self._model.pause_ms

    def look_up_step_ms(self) -> int:
        return self._rates.step_ms(self.ready, self.batch)

    def lose(self, node: SpotNode) -> None:
        self.fatal += 1
        self.fallback_loss_ms += self.step_ms
        self.meet(EventKind.LONG_MEETING)
