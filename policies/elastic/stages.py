"""What a layer costs, and the stages of a pipeline, each some layers on some GPUs of one node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from wattkeeper.policies.errors import InputError, Problem


class LayerCost(NamedTuple):
    """Time that one micro-batch takes in a layer.

    Attributes:
        time_s: Forward and backward pass on one GPU, s.
        extra_s: All-reduces of both passes if 2, 4, 8, ... GPUs of a node share the layer, s.
    """

    time_s: float
    extra_s: tuple[float, ...] = ()

    def shared_s(self, gpus: int) -> float:
        """Time on a power of two of GPUs, s."""
        if gpus == 1:
            return self.time_s
        return self.time_s / gpus + self.extra_s[gpus.bit_length() - 2]


class TemplateStage(NamedTuple):
    """Layers that follow each other on GPUs of one node.

    Attributes:
        first: The first layer, from 0.
        end: The layer after the last one.
        gpus: Number of GPUs, a power of two.
        time_s: Forward and backward pass of one micro-batch, s.
    """

    first: int
    end: int
    gpus: int
    time_s: float


def check_layers(layers: Sequence[LayerCost], gpus_per_node: int) -> None:
    """Check costs of layers for nodes of so many GPUs.

    Raises:
        InputError: For each time that is absent, negative or not finite.
    """
    if not layers:
        raise InputError("the model has no layers; 1 or more are needed")
    if gpus_per_node < 1:
        raise InputError(f"a node has {gpus_per_node} GPUs; 1 or more are allowed")
    problems = []
    extras = gpus_per_node.bit_length() - 1
    for number, layer in enumerate(layers):
        if len(layer.extra_s) < extras:
            shared = ", ".join(str(2 ** (power + 1)) for power in range(extras))
            problems.append(
                f"layer {number} has {len(layer.extra_s)} times of all-reduces; nodes of "
                f"{gpus_per_node} GPUs need those of {shared} GPUs"
            )
        for time_s in (layer.time_s, *layer.extra_s):
            if not (math.isfinite(time_s) and time_s >= 0):
                problems.append(f"layer {number} takes {time_s} s; 0 or more is allowed")
    if problems:
        raise InputError([Problem(message) for message in problems])
