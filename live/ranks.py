"""The processes of one training, as torchrun starts them: that of rank 0 decides for all."""

from __future__ import annotations

import os
import sys
from typing import TypeVar

from wattkeeper.live.guide import Ended, Epoch, Orders
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.protocols import Measurement

T = TypeVar("T")


def leads() -> bool:
    """Whether this process measures, reports, and decides."""
    return os.environ.get("RANK", "0") == "0"


def several() -> bool:
    """Whether the training has other processes."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


def agreed(value: T) -> T:
    """What the process of rank 0 says; all processes of a training call it at the same point.

    Raises:
        InputError: If there are several, and torch has not connected them.
    """
    if not several():
        return value
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_initialized():
        raise InputError(
            "this is one of several processes of a training, and they are not connected: call "
            "torch.distributed.init_process_group() before the session begins"
        )
    box = [value]
    torch.distributed.broadcast_object_list(box, src=0)
    return box[0]


class Following:
    """The guide of a process that follows that of rank 0; see `wattkeeper.live.guide.Guide`."""

    def begin(self) -> Orders:
        """Orders that those of rank 0 replace."""
        return Orders("", 1, 1, 1, 1, 1)

    def profiled(self, found: tuple[Measurement, ...]) -> float:
        """Never asked: it measures nothing."""
        return 0.0

    def epoch(self, report: Epoch) -> bool:
        """Go on as long as the others do."""
        return True

    def alive(self) -> bool:
        """Go on as long as the others do."""
        return True

    def ended(self, outcome: Ended) -> None:
        """Store nothing: that of rank 0 does."""
