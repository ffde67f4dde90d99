"""The published replay of Varuna (EuroSys '22), in Oobleck's artifact (SOSP '23)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.papers.replays.events import EventKind
from benchmarks.papers.replays.inputs import RateTable, SpotChange, check_changes
from benchmarks.papers.replays.ledger import FinishedStep
from benchmarks.papers.replays.replay import PublishedReplay, SpotNode
from benchmarks.papers.replays.result import ReplayResult
from wattkeeper.policies.errors import InputError

CHECKPOINT_STEPS: Final = 10
"""Steps from one checkpoint to the next, and steps that a failed one loses."""


class VarunaModel(NamedTuple):
    """Constants of a model.

    Attributes:
        batch: Samples of a step.
        restart_ms: Length of a restart with its checkpoint.
        checkpoint_ms: Length of a checkpoint.
        idle_nodes: Nodes that idle by nodes; 0 for other numbers.
        restart_ms_by_nodes: Length of a restart by nodes, from the first step on; fewer or more
            nodes count as the fewest or the most. Empty: always `restart_ms`.
    """

    batch: int
    restart_ms: int
    checkpoint_ms: int
    idle_nodes: Mapping[int, int]
    restart_ms_by_nodes: Mapping[int, int] = {}


def replay_varuna(
    changes: Sequence[SpotChange],
    rates: RateTable,
    model: VarunaModel,
    *,
    free_checkpoints: bool = False,
    loses_work: bool = True,
) -> ReplayResult:
    """Replay Varuna on nodes that come and go, up to the time of the last change.

    Args:
        changes: Nodes that come and are lost.
        rates: Rates by nodes.
        model: Constants of the model.
        free_checkpoints: Whether checkpoints take no time and never fail.
        loses_work: Whether losses and failed checkpoints lose steps.

    Raises:
        InputError: If the changes cannot follow each other, or a constant cannot be.
    """
    check_changes(changes)
    _check(model)
    replay = _Varuna(changes, rates, model, free_checkpoints, loses_work)
    replay.run()
    return replay.result(
        checkpoint_ms=replay.checkpoint_total_ms,
        gpu_overhead_ms=replay.gpu_overhead_ms,
        counts_rebalance=False,
    )


def _check(model: VarunaModel) -> None:
    """Refuse restarts that are shorter than the checkpoint in them, and missing ones."""
    by_nodes = model.restart_ms_by_nodes
    for length_ms in (model.restart_ms, *by_nodes.values()):
        if not 0 <= model.checkpoint_ms <= length_ms:
            raise InputError(
                f"a restart takes {length_ms} ms, a checkpoint {model.checkpoint_ms} ms; allowed "
                "is 0 or more for the checkpoint, and as much or more for the restart"
            )
    if by_nodes and len(by_nodes) != max(by_nodes) - min(by_nodes) + 1:
        raise InputError("restarts by nodes: one for each number from the fewest is needed")


class _Varuna(PublishedReplay):
    """Each loss is fatal; every tenth step and the first after a loss end in a checkpoint."""

    def __init__(
        self,
        changes: Sequence[SpotChange],
        rates: RateTable,
        model: VarunaModel,
        free_checkpoints: bool,
        loses_work: bool,
    ) -> None:
        super().__init__(changes, model.batch, changes[-1].time_ms)
        self.queue.heapify_again()
        self._rates = rates
        self._model = model
        self._is_free = free_checkpoints
        self._loses_work = loses_work
        self._restart_ms = model.restart_ms
        self._idle = 0
        self._lost_node = False
        self._checkpoint_ms: int | None = None  # end of the last one
        self.checkpoint_total_ms = 0
        self.gpu_overhead_ms = 0.0

    def meeting_ms(self, kind: EventKind) -> int:
        return self._restart_ms - self._model.checkpoint_ms

    def look_up_step_ms(self) -> int:
        by_nodes = self._model.restart_ms_by_nodes
        if by_nodes:
            self._restart_ms = by_nodes[min(max(self.ready, min(by_nodes)), max(by_nodes))]
        self._idle = self._model.idle_nodes.get(self.ready, 0)
        return self._rates.step_ms(self.ready, self.batch)

    def lose(self, node: SpotNode) -> None:
        self.fatal += 1
        if self._loses_work:
            self._lose_steps()
        self._lost_node = True
        self.meet(EventKind.LONG_MEETING)

    def _lose_steps(self) -> None:
        """Lose the steps since the last checkpoint, nearly all of them charged twice.

        The rates behind the last interval are lost, too, where their list is the longer one.
        """
        if self._checkpoint_ms is None:
            self.ledger.lose_from(0)
            self.fallback_loss_ms += self.now_ms
            return
        place = self.ledger.place_of(self._checkpoint_ms)
        lost = self.ledger.lose_from(len(self.ledger.finished) if place is None else place)
        once = place is not None and not self._is_free
        self.fallback_loss_ms += self.step_ms * (2 * lost - once)

    def go_on(self, step: FinishedStep) -> None:
        # All nodes may be gone, or boot, while a step goes on during a meeting.
        self.gpu_overhead_ms += (step.end_ms - step.begin_ms) * self._idle / max(self.ready, 1)
        if self.ledger.steps % CHECKPOINT_STEPS == 0 or self._lost_node:
            self._write_checkpoint()
        self._lost_node = False
        self.begin_step(self.ledger.clock_ms)

    def _write_checkpoint(self) -> None:
        """Write a checkpoint; it fails if a loss stands before it in the queue's array."""
        length_ms = 0 if self._is_free else self._model.checkpoint_ms
        self.checkpoint_total_ms += length_ms
        end_ms = self.now_ms + length_ms
        self.add_span("checkpoint", self.now_ms, end_ms)
        self.ledger.clock_ms = end_ms
        self.queue.push(end_ms + length_ms, EventKind.CHECKPOINT)
        can_fail = self._loses_work and not self._is_free
        if can_fail and self.queue.is_before(EventKind.REMOVE, EventKind.CHECKPOINT):
            self.ledger.fail(CHECKPOINT_STEPS)
            self.fallback_loss_ms += CHECKPOINT_STEPS * self.step_ms
        else:
            self._checkpoint_ms = end_ms
