"""Results of the published replays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

SpanKind = Literal["step", "lost step", "pause", "checkpoint", "stopped"]


class ReplaySpan(NamedTuple):
    """What the job does over a time; spans may overlap, as training goes on during pauses.

    Attributes:
        begin_ms: When it begins.
        end_ms: When it ends.
        kind: A step whose samples count; a step that is lost, finished or not; a pause; a
            checkpoint; or a time when the job is stopped.
        nodes: Nodes at its end that are not booting.
    """

    begin_ms: int
    end_ms: int
    kind: SpanKind
    nodes: int


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a published replay counts; None: the system does not count it.

    Attributes:
        avg_samples_per_s: From the start of the first step to the end of the last one finished.
        steps: Steps that count.
        fatal: Losses after which the job pauses.
        preemptions: Nodes lost.
        avg_instances: Nodes present, booting ones too, on average.
        effective_ms: Length of the steps begun, finished or not.
        redundant_ms: The part of their length spent on layers of other nodes.
        rebalance_ms: Pauses to rebalance.
        restart_ms: Pauses to restart.
        checkpoint_ms: Time in checkpoints.
        fallback_loss_ms: Work lost, as the artifact charges it.
        gpu_overhead_ms: Time of finished steps times the share of nodes that idle.
        spans: What the job did, by begin.
    """

    avg_samples_per_s: float
    steps: int
    fatal: int
    preemptions: int
    avg_instances: float
    effective_ms: float
    redundant_ms: float | None
    rebalance_ms: int | None
    restart_ms: int | None
    checkpoint_ms: int | None
    fallback_loss_ms: int
    gpu_overhead_ms: float | None
    spans: tuple[ReplaySpan, ...]
