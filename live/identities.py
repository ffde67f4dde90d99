"""Makes single layers pass their input on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wattkeeper.live.program import Op
from wattkeeper.live.units import Floats, Ints, UnitMaps


class Passed(NamedTuple):
    """How a layer was made to pass its input on.

    Attributes:
        values: Its tensors by name.
        why: What they do.
        lost_in_eval: What of the function is lost all the same; empty if nothing is.
        lost_in_train: The same for train mode alone.
    """

    values: dict[str, Tensor]
    why: str
    lost_in_eval: str = ""
    lost_in_train: str = ""


def pass_batch_norm(op: Op, own: Mapping[str, Tensor]) -> Passed | None:
    """Batch norm passes its input in eval mode if its scale undoes its statistics."""
    if not {"weight", "bias", "running_mean", "running_var"} <= op.tensors.keys():
        return None
    mine = {role: own[name] for role, name in op.tensors.items()}
    ones = torch.ones_like(mine["running_var"])
    made = {
        "weight": (ones.double() + op.args["eps"]).sqrt().to(mine["weight"].dtype),
        "bias": torch.zeros_like(mine["bias"]),
        "running_mean": torch.zeros_like(mine["running_mean"]),
        "running_var": ones,
    }
    return Passed(
        {op.tensors[role]: value for role, value in made.items()},
        "passes its input through in eval mode",
        lost_in_train=f"{_layer(op)} is an inserted batch norm, which takes its batch's mean",
    )


def pass_layer_norm(op: Op, own: Mapping[str, Tensor]) -> Passed | None:
    """A layer norm without scale changes nothing if all that reads it normalises again."""
    if not {"weight", "bias"} <= op.tensors.keys():
        return None
    weight, bias = op.tensors["weight"], op.tensors["bias"]
    return Passed(
        {weight: torch.ones_like(own[weight]), bias: torch.zeros_like(own[bias])},
        "normalises only, since what reads it normalises again",
        lost_in_eval=f"{_layer(op)} is an inserted layer norm: the function is kept up to its eps "
        "alone",
    )


def _layer(op: Op) -> str:
    return op.tensors["weight"].rpartition(".")[0]


def pass_linear(
    op: Op, own: Mapping[str, Tensor], maps: UnitMaps, out: Ints, taken: Ints
) -> Passed | None:
    """A convolution or linear layer passes its input if its weight is the identity.

    Args:
        op: The layer, without a stride; as many positions come out as go in.
        own: The child's tensors by name.
        maps: Which units become which.
        out: The parent's unit of each of its outputs.
        taken: The parent's unit of each of its inputs.
    """
    shares = None if np.array_equal(out, taken) else maps.shares(taken, len(out))
    weight = _identity(op, own[op.tensors["weight"]], out, taken, shares)
    if weight is None:
        return None
    values = {op.tensors["weight"]: weight}
    if "bias" in op.tensors:
        values[op.tensors["bias"]] = torch.zeros_like(own[op.tensors["bias"]])
    return Passed(values, "passes its input through")


def _identity(op: Op, own: Tensor, out: Ints, taken: Ints, shares: Floats | None) -> Tensor | None:
    """A weight that passes its input through: Dirac's, or its like between unequal widths.

    Args:
        op: A convolution or linear layer.
        own: Its weight.
        out: The parent's unit of each of its outputs.
        taken: The parent's unit of each of its inputs.
        shares: How each output takes from replicated inputs; unused where both sides are equal.

    Returns:
        None if no weight of that shape does so.
    """
    kernel = own.shape[2:]
    if any(extent % 2 == 0 for extent in kernel):
        return None
    groups = op.args.get("groups", 1)
    depthwise = own.shape[1] == 1 < groups == len(out) == len(taken)
    if groups > 1 and not depthwise:
        return None
    if not np.array_equal(out, taken):
        if depthwise or shares is None or not set(out) <= set(taken):
            return None
        matrix = shares * (out[:, None] == taken[None])
    else:
        matrix = np.ones((len(out), 1)) if depthwise else np.eye(len(out))
    weight = torch.zeros_like(own)
    middle = weight
    for extent in reversed(kernel):
        middle = middle[..., extent // 2]
    middle.copy_(torch.from_numpy(matrix))
    return weight
