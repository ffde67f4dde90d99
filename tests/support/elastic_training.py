"""Elastic trainings whose workers can be killed from outside, at a time or at a place."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wattkeeper.live.elastic.module_replica import ModuleReplica

WIDTH, CLASSES = 32, 4
BATCH, MICROBATCH = 32, 4


def sum_of_losses(model: nn.Module, step: int, first: int, end: int) -> Tensor:
    """The loss of some samples, which follow from their numbers."""
    inputs = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))[first:end]
    labels = inputs[:, :CLASSES].argmax(1)
    return nn.functional.cross_entropy(model(inputs), labels, reduction="sum")


class FragileReplica(ModuleReplica):
    """A small network with momentum, whose process can be told to end itself at a place.

    Args:
        folder: Where it notes its process (`pid-*`), and finds its orders: a file `kill at PLACE N`
            ends, with SIGKILL, the process that removes it, and while there is a file
            `hold at PLACE`, all wait. Places are `make`, `step N`, `save` and `load` of a state.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        torch.manual_seed(7)
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        super().__init__(model, optimizer, sum_of_losses)
        (folder / f"pid-{os.getpid()}").touch()
        self._at("make")

    def gradient(self, step: int, first: int, end: int) -> tuple[Tensor, float]:
        """See `ModuleReplica`."""
        self._at(f"step {step}")
        return super().gradient(step, first, end)

    def state_dict(self) -> dict[str, Any]:
        """See `ModuleReplica`."""
        self._at("save")
        return super().state_dict()

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """See `ModuleReplica`."""
        self._at("load")
        super().load_state_dict(state)

    def _at(self, place: str) -> None:
        while (self._folder / f"hold at {place}").exists():
            time.sleep(0.005)
        for order in sorted(self._folder.glob(f"kill at {place} *")):
            try:
                order.unlink()
            except FileNotFoundError:  # another process took it
                continue
            os.kill(os.getpid(), signal.SIGKILL)


def fragile(folder: Path) -> partial[FragileReplica]:
    """What makes the replica."""
    return partial(FragileReplica, folder)
