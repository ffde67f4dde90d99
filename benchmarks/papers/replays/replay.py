"""What the published replays have in common: nodes, meetings and steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import ClassVar, Final, cast

from benchmarks.papers.replays.events import EventKind, EventQueue, ReplayEvent
from benchmarks.papers.replays.inputs import SpotChange
from benchmarks.papers.replays.ledger import FinishedStep, NodeCounts, StepLedger
from benchmarks.papers.replays.result import ReplayResult, ReplaySpan, SpanKind
from wattkeeper.policies.errors import InputError

BOOT_MS: Final = 45_000
PLACES: Final = 12
"""Stages of a pipeline, one a node, in the replays of Oobleck's artifact."""


class JobStatus(Enum):
    """What the job does; steps under way go on during a meeting."""

    STOPPED = "stopped"
    MEETING = "meeting"
    RUNNING = "running"


class SpotNode:
    """A node.

    Attributes:
        is_booting: Whether it boots.
        is_gone: Whether it was lost.
        places: Places that it holds, (pipeline, stage).
    """

    __slots__ = ("is_booting", "is_gone", "places")

    def __init__(self) -> None:
        self.is_booting = True
        self.is_gone = False
        self.places: list[tuple[int, int]] = []


class PublishedReplay(ABC):
    """A replay; the systems differ by its abstract methods.

    Args:
        changes: Nodes that come and are lost, checked.
        batch: Samples of a step.
        end_ms: When the run ends: before the first event at this time or after it.
        stages: Stages of a pipeline.
    """

    long_meetings_rebalance: ClassVar[bool] = False
    """Whether long meetings count as pauses to rebalance; else to restart."""

    def __init__(
        self, changes: Sequence[SpotChange], batch: int, end_ms: int, stages: int = PLACES
    ) -> None:
        if batch < 1:
            raise InputError(f"a step has {batch} samples; allowed is 1 or more")
        self.queue = EventQueue()
        self._push(changes)
        self.batch, self.end_ms, self.stages = batch, end_ms, stages
        self.now_ms = 0
        self.nodes: dict[int, SpotNode] = {}  # by the row of their add
        self.ready = 0
        self.counts = NodeCounts()
        self.ledger = StepLedger()
        self.status = JobStatus.STOPPED
        self.version = 0
        self.pipelines = 0
        self.waiting = 0  # nodes lost while they wait are counted, too
        self.step_ms = 0
        self.fatal = self.preemptions = self.fallback_loss_ms = self.begun_total_ms = 0
        self.pauses_ms = {EventKind.LONG_MEETING: 0, EventKind.SHORT_MEETING: 0}
        self._list: list[SpotNode] = []
        self._stopped_ms = changes[0].time_ms if changes else 0
        self._step_begun_ms: int | None = None
        self._spans: list[ReplaySpan] = []

    def _push(self, changes: Iterable[SpotChange]) -> None:
        """Push changes; a node that comes back under its name is another one."""
        rows: dict[str, int] = {}
        for row, change in enumerate(changes):
            if change.what == "add":
                rows[change.name] = row
                self.queue.push(change.time_ms, EventKind.ADD, row)
            else:
                self.queue.push(change.time_ms, EventKind.REMOVE, rows[change.name])

    @abstractmethod
    def meeting_ms(self, kind: EventKind) -> int:
        """Length of a meeting, ms."""

    @abstractmethod
    def look_up_step_ms(self) -> int:
        """Length of a step with the nodes that are ready, ms."""

    @abstractmethod
    def lose(self, node: SpotNode) -> None:
        """React to the loss of a node."""

    def go_on(self, step: FinishedStep) -> None:
        """Begin what follows a finished step: the next one."""
        self.begin_step(self.now_ms)

    def end_step(self) -> None:
        """React to the end of the step under way: it is finished."""
        self.finish_step()

    def assign(self, listed: Sequence[SpotNode]) -> None:
        """Give the places of the pipelines to the first nodes of a list; the others wait."""
        places = self.pipelines * self.stages
        for index, node in enumerate(listed):
            node.places = [divmod(index, self.stages)] if index < places else []
        self.waiting = len(listed) - places

    def is_over(self, next_ms: int) -> bool:
        """Whether the run ends before an event."""
        return next_ms >= self.end_ms

    def run(self) -> None:
        """Run to the end."""
        while (next_ms := self.queue.next_ms()) is not None and not self.is_over(next_ms):
            event = self.queue.pop()
            self.now_ms = event.time_ms
            self.handle(event)
            self.counts.note(self.now_ms, len(self.nodes))
        if self.status is JobStatus.STOPPED:
            self.add_span("stopped", self._stopped_ms, max(self.now_ms, self.end_ms))

    def handle(self, event: ReplayEvent) -> None:
        """React to an event."""
        match event.kind:
            case EventKind.ADD:
                self._add(cast(int, event.data))
            case EventKind.REMOVE:
                self._remove(cast(int, event.data))
            case EventKind.READY:
                self._get_ready(cast(SpotNode, event.data))
            case EventKind.LONG_MEETING | EventKind.SHORT_MEETING:
                self._end_meeting(event.kind, cast(int, event.data))
            case EventKind.STEP if event.data == self.version:
                self.end_step()

    def _add(self, number: int) -> None:
        node = self.nodes[number] = SpotNode()
        self.queue.push(self.now_ms + BOOT_MS, EventKind.READY, node)

    def _remove(self, number: int) -> None:
        node = self.nodes.pop(number)
        node.is_gone = True
        self.ready -= not node.is_booting
        self.preemptions += 1
        self.lose(node)

    def _get_ready(self, node: SpotNode) -> None:
        if node.is_gone:
            return
        node.is_booting = False
        self.ready += 1
        match self.status:
            case JobStatus.STOPPED:
                self.meet(EventKind.LONG_MEETING)
            case JobStatus.MEETING:
                self._list.append(node)
            case JobStatus.RUNNING:
                self.waiting += 1

    def meet(self, kind: EventKind) -> None:
        """Begin a meeting of all nodes that are not booting; one under way is not cancelled."""
        if self.status is JobStatus.STOPPED:
            self.add_span("stopped", self._stopped_ms, self.now_ms)
        self.status = JobStatus.MEETING
        self._list = [node for node in self.nodes.values() if not node.is_booting]
        length_ms = self.meeting_ms(kind)
        self.pauses_ms[kind] += length_ms
        self.queue.push(self.now_ms + length_ms, kind, self.now_ms)

    def _end_meeting(self, kind: EventKind, begun_ms: int) -> None:
        """End a meeting; the first of several under way leaves an empty list to the others."""
        self.add_span("pause", begun_ms, self.now_ms)
        if any(node.is_gone for node in self._list):
            self.meet(kind)
            return
        listed, self._list = self._list, []
        self._drop_step()
        self.version += 1
        self.pipelines = len(listed) // self.stages
        self.assign(listed)
        if self.pipelines == 0:
            if self.status is not JobStatus.STOPPED:
                self._stopped_ms = self.now_ms
            self.status = JobStatus.STOPPED
            return
        self.status = JobStatus.RUNNING
        self.step_ms = self.look_up_step_ms()
        self.ledger.start(self.now_ms)
        self.begin_step(self.now_ms)

    def begin_step(self, at_ms: int) -> None:
        """Begin a step."""
        self.begun_total_ms += self.step_ms
        self._step_begun_ms = at_ms
        self.queue.push(at_ms + self.step_ms, EventKind.STEP, self.version)

    def finish_step(self) -> None:
        """Finish the step under way."""
        begun_ms, self._step_begun_ms = cast(int, self._step_begun_ms), None
        self.go_on(self.ledger.finish(self.now_ms, begun_ms, self.ready, self.batch))

    def _drop_step(self) -> None:
        """Lose the step under way."""
        if self._step_begun_ms is not None:
            self.add_span("lost step", self._step_begun_ms, self.now_ms)
            self._step_begun_ms = None

    def add_span(self, kind: SpanKind, begin_ms: int, end_ms: int) -> None:
        """Note a span, unless it is empty."""
        if begin_ms < end_ms:
            self._spans.append(ReplaySpan(begin_ms, end_ms, kind, self.ready))

    def spans(self) -> tuple[ReplaySpan, ...]:
        """All spans, by begin."""
        steps = [
            ReplaySpan(step.begun_ms, step.end_ms, "step" if rate else "lost step", step.nodes)
            for step, rate in zip(self.ledger.finished, self.ledger.rates, strict=False)
        ]
        return tuple(sorted([*self._spans, *steps]))

    def mean_instances(self) -> float:
        """Mean number of nodes present, up to the last finished step or else to the run's end."""
        finished = self.ledger.finished
        return self.counts.published_mean(finished[-1].end_ms if finished else self.end_ms)

    def result(
        self,
        *,
        effective_share: float = 1.0,
        redundant_share: float | None = None,
        checkpoint_ms: int | None = None,
        gpu_overhead_ms: float | None = None,
        counts_rebalance: bool = True,
    ) -> ReplayResult:
        """What was counted; shares are those of steps begun."""
        long_ms, short_ms = self.pauses_ms.values()
        if self.long_meetings_rebalance:
            long_ms, short_ms = 0, long_ms + short_ms
        redundant_ms = None if redundant_share is None else redundant_share * self.begun_total_ms
        return ReplayResult(
            avg_samples_per_s=self.ledger.mean_rate(),
            steps=self.ledger.steps,
            fatal=self.fatal,
            preemptions=self.preemptions,
            avg_instances=self.mean_instances(),
            effective_ms=effective_share * self.begun_total_ms,
            redundant_ms=redundant_ms,
            rebalance_ms=short_ms if counts_rebalance else None,
            restart_ms=long_ms,
            checkpoint_ms=checkpoint_ms,
            fallback_loss_ms=self.fallback_loss_ms,
            gpu_overhead_ms=gpu_overhead_ms,
            spans=self.spans(),
        )
