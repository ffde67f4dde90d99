"""One layer of a small network in a process of its own, and what it sends to its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, distributed, nn

from wattkeeper.live.examples.cnn import CLASSES, SIDE

WIDTH: Final = 64
MICROBATCH: Final = 16
"""Images."""
LEARNING_RATE: Final = 0.05


def make_stage(stage: int, stages: int) -> nn.Module:
    """One layer of the network; the last stage gives scores of the classes."""
    torch.manual_seed(stage)  # equal in all replicas
    inputs = SIDE * SIDE if stage == 0 else WIDTH
    if stage == stages - 1:
        return nn.Linear(inputs, CLASSES)
    return nn.Sequential(nn.Linear(inputs, WIDTH), nn.ReLU())


class PipelineStage:
    """One layer of the network in its process, and its neighbours.

    Args:
        rank: Number of the process among those of the pipeline.
        ranks: Number of these.
        first: Number of the pipeline's first process among all.
    """

    def __init__(self, rank: int, ranks: int, first: int) -> None:
        self.rank, self.ranks, self._first = rank, ranks, first
        self.module = make_stage(rank, ranks)
        self.loss = 0.0
        self._passed: dict[int, tuple[Tensor, Tensor]] = {}
        self._sent: list[tuple[distributed.Work | None, Tensor]] = []

    def forward(self, inputs: Tensor, microbatch: int) -> Tensor:
        """The output of a microbatch, which is kept for its backward pass."""
        inputs.requires_grad_(self.rank > 0)
        outputs: Tensor = self.module(inputs)
        self._passed[microbatch] = inputs, outputs
        return outputs.detach()

    def backward(self, microbatch: int, labels: Tensor, gradient: Tensor) -> Tensor | None:
        """The gradient of a microbatch's input; `gradient`: of its output, or not needed."""
        inputs, outputs = self._passed.pop(microbatch)
        if self.rank < self.ranks - 1:
            outputs.backward(gradient)  # type: ignore[no-untyped-call]
        else:
            loss = nn.functional.cross_entropy(outputs, labels)
            loss.backward()  # type: ignore[no-untyped-call]
            self.loss += float(loss.detach())
        return inputs.grad

    def receive(self, distance: int) -> Tensor:
        """What the process so many behind this one sends next; nothing beyond the ends."""
        tensor = torch.empty(MICROBATCH, WIDTH)
        if 0 <= self.rank + distance < self.ranks:
            distributed.recv(tensor, self._first + self.rank + distance)
        return tensor

    def send(self, tensor: Tensor | None, distance: int) -> None:
        """Send to the process so many behind this one, without waiting for it."""
        if tensor is not None and 0 <= self.rank + distance < self.ranks:
            to = self._first + self.rank + distance
            self._sent.append((distributed.isend(tensor, to), tensor))

    def step(self, replicas: Sequence[int]) -> None:
        """Sum the gradients of the same stage in all replicas up, and follow them."""
        for work, _ in self._sent:
            assert work is not None
            work.wait()
        self._sent.clear()
        with torch.no_grad():
            for weights in self.module.parameters():
                assert weights.grad is not None
                if len(replicas) > 1:
                    distributed.all_reduce(weights.grad, group=self._group)
                weights.sub_(LEARNING_RATE * weights.grad)
                weights.grad = None

    def connect(self, groups: Sequence[Sequence[int]]) -> None:
        """Connect the same stages of all replicas; every process must name all groups."""
        made = [distributed.new_group(list(ranks)) for ranks in groups]
        self._group = made[self.rank]
