"""Makes single layers pass their input on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wattkeeper.live.weight_transfer.ir import Op, Program
from wattkeeper.live.weight_transfer.op_sets import TRANSPARENT
from wattkeeper.live.weight_transfer.unit_maps import UnitMaps
from wattkeeper.policies.arrays import Floats, Ints


class IdentityInit(NamedTuple):
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


class Moments(NamedTuple):
    """Means and variances of units over a batch and its positions, shapes (units,)."""

    mean: Tensor
    variance: Tensor

    def rectified(self) -> Moments:
        """After a rectifier, of what is normally distributed."""
        deviation = self.variance.sqrt().clamp_min(torch.finfo(self.mean.dtype).tiny)
        at = self.mean / deviation
        share = torch.special.ndtr(at)
        density = (-(at**2) / 2).exp() / math.sqrt(2 * math.pi)
        mean = self.mean * share + deviation * density
        square = (self.mean**2 + self.variance) * share + self.mean * deviation * density
        return Moments(mean, (square - mean**2).clamp_min(0.0))

    def of(self, units: Ints, positions: float) -> Moments:
        """Of some of the units, or of their means over so many positions.

        These deviate less, the less so the more alike the positions are, which nobody knows: the
        variance is the geometric mean of both extremes.
        """
        index = torch.from_numpy(units).to(self.mean.device)
        return Moments(self.mean[index], self.variance[index] / math.sqrt(positions))


def moments(program: Program, tensors: Mapping[str, Tensor], at: int) -> Moments | None:
    """What a batch has on average in the units of a value, by the batch norms that it comes from.

    Batch norm gives each unit its mean and deviation. A rectifier is taken to be fed by a normal
    distribution, and summands to be independent.

    Args:
        program: What a trained module computes.
        tensors: Its parameters and buffers by name.
        at: The operator whose value it is.

    Returns:
        None if the value comes from anything else.
    """

    @cache
    def of(at: int) -> Moments | None:
        op = program.ops[at]
        if op.kind == "batch_norm" and {"weight", "bias"} <= op.tensors.keys():
            weight, bias = (tensors[op.tensors[role]].detach() for role in ("weight", "bias"))
            return Moments(bias.double(), weight.double() ** 2)
        if op.kind == "add" and (len(op.refs) != 2 or op.args.get("alpha", 1) != 1):
            return None
        if op.kind not in ("relu", "add") and op.kind not in TRANSPARENT:
            return None
        known = []
        for ref in op.refs:
            part = of(ref)
            if part is None:
                return None
            known.append(part)
        if op.kind == "add":
            mean, variance = (torch.stack(both).sum(0) for both in zip(*known, strict=True))
            return Moments(mean, variance)
        return known[0].rectified() if op.kind == "relu" else known[0]

    return of(at)


def pass_batch_norm(
    op: Op, own: Mapping[str, Tensor], given: Moments | None
) -> IdentityInit | None:
    """Batch norm passes its input in eval mode if its scale undoes its statistics.

    If these are what a batch has on average, it changes little in train mode.

    Args:
        op: The layer.
        own: The child's tensors by name.
        given: Of the units that it is given, if they are known.
    """
    if not {"weight", "bias", "running_mean", "running_var"} <= op.tensors.keys():
        return None
    mine = {role: own[name] for role, name in op.tensors.items()}
    mean = torch.zeros_like(mine["running_mean"])
    variance = torch.ones_like(mine["running_var"])
    if given is not None:
        mean, variance = given.mean.to(mean), given.variance.to(variance)
    made = {
        "weight": (variance.double() + op.args["eps"]).sqrt().to(mine["weight"]),
        "bias": mean.to(mine["bias"]),
        "running_mean": mean,
        "running_var": variance,
    }
    return IdentityInit(
        {op.tensors[role]: value for role, value in made.items()},
        "passes its input through in eval mode",
        lost_in_train=f"{_layer(op)} is an inserted batch norm, which takes its batch's mean",
    )


def pass_layer_norm(op: Op, own: Mapping[str, Tensor]) -> IdentityInit | None:
    """A layer norm without scale changes nothing if all that reads it normalises again."""
    if not {"weight", "bias"} <= op.tensors.keys():
        return None
    weight, bias = op.tensors["weight"], op.tensors["bias"]
    return IdentityInit(
        {weight: torch.ones_like(own[weight]), bias: torch.zeros_like(own[bias])},
        "normalises only, since what reads it normalises again",
        lost_in_eval=f"{_layer(op)} is an inserted layer norm: the function is kept up to its eps "
        "alone",
    )


def _layer(op: Op) -> str:
    return op.tensors["weight"].rpartition(".")[0]


def pass_linear(
    op: Op, own: Mapping[str, Tensor], maps: UnitMaps, out: Ints, taken: Ints
) -> IdentityInit | None:
    """A convolution or linear layer passes its input if its weight is the identity.

    Args:
        op: The layer; as many positions come out as go in, or with strides the means of as many.
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
    return IdentityInit(values, "passes its input through")


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
    taps = taps_of(op, own.shape[2:])
    if taps is None:
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
    tapped = weight[(slice(None), slice(None), *taps)]
    count = tapped[0, 0].numel()
    tapped.copy_(torch.from_numpy(matrix / count).reshape(*matrix.shape, *[1] * len(taps)))
    return weight


def taps_of(op: Op, kernel: Sequence[int]) -> tuple[slice, ...] | None:
    """Where a kernel has weight if it passes its input: in the middle, or all over its stride.

    None if it cannot: an even kernel has no middle, and a small one leaves out positions.
    """
    strides = op.args.get("stride", [1] * len(kernel))
    if set(strides) <= {1}:
        if any(extent % 2 == 0 for extent in kernel):
            return None
        return tuple(slice(extent // 2, extent // 2 + 1) for extent in kernel)
    pads = op.args["padding"]
    if isinstance(pads, str) or set(op.args["dilation"]) != {1}:
        return None
    taps = [slice(pad, pad + step) for pad, step in zip(pads, strides, strict=True)]
    if any(tap.stop > extent for tap, extent in zip(taps, kernel, strict=True)):
        return None
    return tuple(taps)
