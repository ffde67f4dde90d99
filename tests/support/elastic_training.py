"""Elastic trainings whose workers can be killed from outside, at a time or at a place."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

WIDTH, CLASSES = 32, 4
BATCH, MICROBATCH = 32, 4


class SmallReplica:
    """A small network with momentum, on data that follow from the numbers of step and sample.

    Args:
        folder: Where it notes its process, and looks for orders to end it.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        generator = torch.Generator().manual_seed(7)
        self.model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
        with torch.no_grad():
            for weights in self.model.parameters():
                weights.copy_(0.2 * torch.randn(weights.shape, generator=generator))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        self._at("make")

    def gradient(self, step: int, first: int, end: int) -> tuple[Tensor, float]:
        """Gradient and loss of some samples."""
        self._at(f"step {step}")
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(BATCH, WIDTH, generator=generator)[first:end]
        labels = inputs[:, :CLASSES].argmax(1)
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(inputs), labels, reduction="sum")
        loss.backward()
        parts = [weights.grad.flatten() for weights in self.model.parameters()
                 if weights.grad is not None]  # fmt: skip
        return torch.cat(parts), float(loss.detach())

    def apply(self, gradient: Tensor) -> None:
        """A step of the optimizer."""
        begin = 0
        for weights in self.model.parameters():
            weights.grad = gradient[begin : begin + weights.numel()].view_as(weights).clone()
            begin += weights.numel()
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """Model and momentum."""
        self._at("save")
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Take model and momentum over."""
        self._at("load")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def _at(self, place: str) -> None:
        """Note the process and end it, if that was ordered for this place; once for each order."""
        if self._folder is None:
            return
        (self._folder / f"pid-{os.getpid()}").touch()
        orders = sorted(self._folder.glob(f"kill at {place}*"))
        if orders:
            try:
                orders[0].unlink()
            except FileNotFoundError:
                return
            os.kill(os.getpid(), signal.SIGKILL)


def small(folder: Path | None = None) -> partial[SmallReplica]:
    """What makes the replica."""
    return partial(SmallReplica, folder)
