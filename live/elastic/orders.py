"""What the coordinator of an elastic training tells its workers, and what they answer.

Each order is answered by one `Reply`, `LeaveGroup` by none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, NamedTuple

NO_STATE: Final = -1
"""Stands for the steps of a worker that has no state of the training."""
NO_SOURCE: Final = -1
"""Stands for the rank of the source where all begin anew."""


class FormGroup(NamedTuple):
    """Connect to the workers of a group, and take the state of the training over.

    Attributes:
        port: Of the store in which the workers of a group find each other.
        group: Number of the group.
        rank: This worker's place in it.
        size: How many workers it has.
        storage: The checkpoint that all read; None: the worker `source` sends its state.
        source: Rank of that worker; `NO_SOURCE`: all begin anew.
        receivers: Ranks of the workers that it sends its state to.
    """

    port: int
    group: int
    rank: int
    size: int
    storage: Path | None
    source: int
    receivers: tuple[int, ...]


class TrainStep(NamedTuple):
    """Train a step.

    Attributes:
        first: The worker's first sample.
        end: The sample after its last one.
        microbatch: Samples whose gradient is computed at a time.
        batch: Samples of all workers.
    """

    first: int
    end: int
    microbatch: int
    batch: int


class SaveState(NamedTuple):
    """Write a checkpoint to storage.

    Attributes:
        path: The file.
    """

    path: Path


class LeaveGroup(NamedTuple):
    """Leave the group, or break off connecting to it."""


Order = FormGroup | TrainStep | SaveState | LeaveGroup


class Reply(NamedTuple):
    """The answer of a worker.

    Attributes:
        kind: `done`: the order is carried out. `broken`: another worker of the group is gone.
            `failed`: the code of the training raised an exception.
        steps: Steps after which its state is; `NO_STATE`: it has none.
        loss: Mean loss of the step.
        sent_bytes: What it sent to others to take the state over, bytes.
        text: What was raised.
    """

    kind: Literal["done", "broken", "failed"]
    steps: int
    loss: float = 0.0
    sent_bytes: int = 0
    text: str = ""
