"""The replica of a torch module."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

SumOfLosses = Callable[["nn.Module", int, int, int], "Tensor"]
"""The loss of a model, summed over the samples `first` to `end` (without it) of a step."""


class ModuleReplica:
    """See `wattkeeper.live.elastic.replica.Replica`.

    All workers make equal models: seed torch before. What a forward pass changes in a model, such
    as the statistics of batch normalisation, is not shared by workers.

    Args:
        model: The model, on the CPU.
        optimizer: Of its parameters.
        loss: Its loss over some samples of a step.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, loss: SumOfLosses) -> None:
        self.model, self.optimizer, self._loss = model, optimizer, loss
        self._weights = [each for each in model.parameters() if each.requires_grad]

    def gradient(self, step: int, first: int, end: int) -> tuple[Tensor, float]:
        """See `wattkeeper.live.elastic.replica.Replica`."""
        import torch

        loss = self._loss(self.model, step, first, end)
        parts = torch.autograd.grad(loss, self._weights, materialize_grads=True)
        return torch.cat([part.flatten() for part in parts]), float(loss.detach())

    def apply(self, gradient: Tensor) -> None:
        """See `wattkeeper.live.elastic.replica.Replica`."""
        import torch

        sizes = [weights.numel() for weights in self._weights]
        for weights, part in zip(self._weights, torch.split(gradient, sizes), strict=True):
            weights.grad = part.view_as(weights)
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """The states of model and optimizer."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Take their states over."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
