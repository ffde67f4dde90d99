"""What an elastic training leaves behind: its shapes, losses and decisions, and its state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wattkeeper.live.elastic.replica import Replica
from wattkeeper.live.session.checkpoint import restore


@dataclass
class ShapeRecord:
    """A shape of a training; `wattkeeper.live.elastic.tables.LIVE_SHAPES` says what it records.

    Samples of steps that were committed and undone all the same, since no worker was left that had
    their state, are subtracted from `samples` where that is noticed.
    """

    job_id: str
    attempt: int
    time_s: float
    moment: str
    nodes: int
    samples_per_s: float
    until_s: float = math.nan
    pause_s: float = 0.0
    steps_s: float = 0.0
    write_s: float = 0.0
    lost_s: float = 0.0
    samples: float = 0.0
    lost_samples: float = 0.0
    from_storage: bool = False
    copied_bytes: float = math.nan
    predicted_pause_s: float = math.nan

    @property
    def is_predicted(self) -> bool:
        """Whether the whole pause can be compared with what the policy expected."""
        return not math.isnan(self.predicted_pause_s)


class NodeLoss(NamedTuple):
    """A node whose worker ended while it was part of the training.

    Attributes:
        time_s: When, s since the training began.
        node: Its number.
        announced: Whether it said so early enough to write a checkpoint.
        lost_steps: Finished steps that were lost with it; those of nodes that are lost at one
            moment stand at the first one.
    """

    time_s: float
    node: int
    announced: bool
    lost_steps: int


class ReplanDecision(NamedTuple):
    """A decision of `Replan` as the journal of a simulation has it.

    Attributes:
        time_s: When, s since the training began.
        saw: What it was shown.
        chose: What it answered.
    """

    time_s: float
    saw: str
    chose: str


class ElasticResults(NamedTuple):
    """What came of an elastic training.

    Attributes:
        losses: Mean loss of each step; NaN where the nodes that knew it were lost.
        shapes: Its shapes, in order of time.
        lost: The nodes that it lost.
        decisions: What the policy decided.
        lost_steps: Finished steps that were lost, and trained again.
        state: File with its state after the last step.
    """

    losses: tuple[float, ...]
    shapes: tuple[ShapeRecord, ...]
    lost: tuple[NodeLoss, ...]
    decisions: tuple[ReplanDecision, ...]
    lost_steps: int
    state: Path

    def restore(self, replica: Replica) -> None:
        """Give a replica the trained state."""
        restore(self.state, {"replica": replica})
