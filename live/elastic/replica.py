"""What an elastic training computes: the model of a node, as scripts define it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer


class Replica(Protocol):
    """A model, its optimizer and its data. All replicas of a training begin equal.

    Data and draws depend on the number of a step and of a sample only, so that a step is the same
    on any number of nodes.
    """

    def gradient(self, step: int, first: int, end: int) -> tuple[Tensor, float]:
        """Gradient and loss over the samples `first` to `end` (without it) of a step.

        Both are sums over the samples; the gradient is flat. Steps count from 0.
        """

    def apply(self, gradient: Tensor) -> None:
        """Update the model with the mean gradient over all samples of a step."""

    def state_dict(self) -> Any:
        """The state of model and optimizer: tensors and plain values."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Take a state over."""


SumOfLosses = Callable[["nn.Module", int, int, int], "Tensor"]
"""The loss of a model, summed over the samples `first` to `end` (without it) of a step."""


class ModuleReplica(Replica):
    """The replica of a torch module.

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

    @override
    def gradient(self, step: int, first: int, end: int) -> tuple[Tensor, float]:
        import torch

        loss = self._loss(self.model, step, first, end)
        parts = torch.autograd.grad(loss, self._weights, materialize_grads=True)
        return torch.cat([part.flatten() for part in parts]), float(loss.detach())

    @override
    def apply(self, gradient: Tensor) -> None:
        import torch

        sizes = [weights.numel() for weights in self._weights]
        for weights, part in zip(self._weights, torch.split(gradient, sizes), strict=True):
            weights.grad = part.view_as(weights)
        self.optimizer.step()

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    @override
    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


MakeReplica = Callable[[], Replica]
"""Makes the replica of a worker, in its process; it can be pickled."""


def microbatch_gradients(
    replica: Replica, step: int, first: int, end: int, microbatch: int
) -> list[Tensor]:
    """The gradient of each micro-batch of some samples, with its loss as the last element."""
    parts = []
    for begin in range(first, end, microbatch):
        gradient, loss = replica.gradient(step, begin, begin + microbatch)
        parts.append(gradient.new_empty(len(gradient) + 1))
        parts[-1][:-1], parts[-1][-1] = gradient, loss
    return parts


def add_up(total: Tensor | None, parts: Iterable[Tensor]) -> Tensor:
    """Add parts to a total one by one, in their order: rounding depends on nothing else."""
    for part in parts:
        total = part if total is None else total.add_(part)
    assert total is not None
    return total


def apply_total(replica: Replica, total: Tensor, batch: int) -> float:
    """Update a replica with what all micro-batches of a step add up to; the step's mean loss."""
    total /= batch
    replica.apply(total[:-1])
    return float(total[-1])


def train_alone(
    make: MakeReplica, steps: int, batch: int, microbatch: int
) -> tuple[Replica, list[float]]:
    """Train in this process, undisturbed; the replica, and the mean loss of each step.

    An elastic training on the same host has the same losses and weights to the last bit.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the workers
    try:
        replica, losses = make(), []
        for step in range(steps):
            parts = microbatch_gradients(replica, step, 0, batch, microbatch)
            losses.append(apply_total(replica, add_up(None, parts), batch))
    finally:
        torch.set_num_threads(threads)
    return replica, losses
