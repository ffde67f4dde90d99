"""Initialises single layers as the identity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from wattkeeper.live.weight_transfer.program.ir import Op, Program
from wattkeeper.live.weight_transfer.program.op_sets import DENSE, INPUTS_FIRST, TRANSPARENT
from wattkeeper.live.weight_transfer.unit_maps import UnitMaps
from wattkeeper.policies.arrays import Floats, Ints


class IdentityInit(NamedTuple):
    """Tensors by name that make a layer the identity, and why the function still changes, if so."""

    values: dict[str, Tensor]
    why: str
    lost_in_eval: str = ""
    lost_in_train: str = ""


class UnitMoments(NamedTuple):
    """Means and variances of units over a batch and its positions, shapes (units,)."""

    mean: Tensor
    variance: Tensor

    def rectify(self) -> UnitMoments:
        """Moments of the rectifications of normally distributed values."""
        deviation = self.variance.sqrt().clamp_min(torch.finfo(self.mean.dtype).tiny)
        standardised = self.mean / deviation
        share = torch.special.ndtr(standardised)
        density = (-(standardised**2) / 2).exp() / math.sqrt(2 * math.pi)
        mean = self.mean * share + deviation * density
        square = (self.mean**2 + self.variance) * share + self.mean * deviation * density
        return UnitMoments(mean, (square - mean**2).clamp_min(0.0))

    def select(self, units: Ints, positions: float) -> UnitMoments:
        """Moments of the means of some units over a number of positions.

        The correlation of the positions is unknown: the variance is the geometric mean of its
        extremes.
        """
        index = torch.from_numpy(units).to(self.mean.device)
        return UnitMoments(self.mean[index], self.variance[index] / math.sqrt(positions))


def estimate_moments(
    program: Program, tensors: Mapping[str, Tensor], index: int
) -> UnitMoments | None:
    """Estimate the moments of an operator's result from the batch norms that it comes from.

    Batch norm gives each unit its mean and deviation. The input of a rectifier is taken as
    normally distributed, and summands as independent.

    Returns:
        None if the value comes from anything else.
    """

    @cache
    def estimate(index: int) -> UnitMoments | None:
        op = program.ops[index]
        if op.kind == "batch_norm" and {"weight", "bias"} <= op.tensors.keys():
            weight, bias = (tensors[op.tensors[role]].detach() for role in ("weight", "bias"))
            return UnitMoments(bias.double(), weight.double() ** 2)
        if op.kind == "add" and (len(op.refs) != 2 or op.args.get("alpha", 1) != 1):
            return None
        if op.kind not in ("relu", "add") and op.kind not in TRANSPARENT:
            return None
        inputs = [moments for ref in op.refs if (moments := estimate(ref)) is not None]
        if len(inputs) < len(op.refs):
            return None
        if op.kind == "add":
            return UnitMoments(*(torch.stack(both).sum(0) for both in zip(*inputs, strict=True)))
        return inputs[0].rectify() if op.kind == "relu" else inputs[0]

    return estimate(index)


def init_batch_norm(
    op: Op, own: Mapping[str, Tensor], moments: UnitMoments | None
) -> IdentityInit | None:
    """Give a batch norm the scale that undoes its statistics, the identity in eval mode.

    With the statistics that a batch has on average (`moments` of its input, if known), it changes
    little in train mode.
    """
    if not {"weight", "bias", "running_mean", "running_var"} <= op.tensors.keys():
        return None
    layer = {role: own[name] for role, name in op.tensors.items()}
    mean = torch.zeros_like(layer["running_mean"])
    variance = torch.ones_like(layer["running_var"])
    if moments is not None:
        mean, variance = moments.mean.to(mean), moments.variance.to(variance)
    values = {
        "weight": (variance.double() + cast(float, op.args["eps"])).sqrt().to(layer["weight"]),
        "bias": mean.to(layer["bias"]),
        "running_mean": mean,
        "running_var": variance,
    }
    return IdentityInit(
        {op.tensors[role]: value for role, value in values.items()},
        "is the identity in eval mode",
        lost_in_train=f"{op.name(0)} is an inserted batch norm, which normalises with the "
        "statistics of its batch",
    )


def init_layer_norm(op: Op, own: Mapping[str, Tensor]) -> IdentityInit | None:
    """Give a layer norm scale 1 and shift 0, the identity if all its readers normalise again.

    Its epsilon is none where values are rounded more coarsely.
    """
    if not {"weight", "bias"} <= op.tensors.keys():
        return None
    weight, bias = op.tensors["weight"], op.tensors["bias"]
    is_rounded_away = cast(float, op.args["eps"]) <= torch.finfo(own[weight].dtype).eps
    return IdentityInit(
        {weight: torch.ones_like(own[weight]), bias: torch.zeros_like(own[bias])},
        "only normalises; its readers normalise again",
        lost_in_eval=""
        if is_rounded_away
        else f"{op.name(0)} is an inserted layer norm: the function is preserved up to its eps",
    )


def init_linear(
    op: Op, own: Mapping[str, Tensor], maps: UnitMaps, outputs: Ints, inputs: Ints
) -> IdentityInit | None:
    """Give a convolution or linear layer the identity as its weight.

    With strides, each of its positions is the mean of as many of the input. `outputs` and `inputs`
    are the parent's units of each of its outputs and inputs.
    """
    shares = None if np.array_equal(outputs, inputs) else maps.draw_shares(inputs, len(outputs))
    given = own[op.tensors["weight"]]
    is_transposed = op.kind in DENSE & INPUTS_FIRST
    weight = _identity_weight(op, given.T if is_transposed else given, outputs, inputs, shares)
    if weight is None:
        return None
    values = {op.tensors["weight"]: weight.T.contiguous() if is_transposed else weight}
    if "bias" in op.tensors:
        values[op.tensors["bias"]] = torch.zeros_like(own[op.tensors["bias"]])
    return IdentityInit(values, "is the identity")


def _identity_weight(
    op: Op, own: Tensor, outputs: Ints, inputs: Ints, shares: Floats | None
) -> Tensor | None:
    """A Dirac kernel, or its equivalent between different widths; None if there is none."""
    taps = find_identity_taps(op, own.shape[2:])
    if taps is None:
        return None
    groups = op.integer("groups") if "groups" in op.args else 1
    is_depthwise = own.shape[1] == 1 < groups == len(outputs) == len(inputs)
    if groups > 1 and not is_depthwise:
        return None
    if shares is None:
        matrix = np.ones((len(outputs), 1)) if is_depthwise else np.eye(len(outputs))
    elif is_depthwise or not set(outputs) <= set(inputs):
        return None
    else:
        matrix = shares * (outputs[:, None] == inputs[None])
    weight = torch.zeros_like(own)
    tapped = weight[(slice(None), slice(None), *taps)]
    count = tapped[0, 0].numel()
    tapped.copy_(torch.from_numpy(matrix / count).reshape(*matrix.shape, *[1] * len(taps)))
    return weight


def find_identity_taps(op: Op, kernel: Sequence[int]) -> tuple[slice, ...] | None:
    """The part of a kernel that holds weights of the identity: its centre, or one stride.

    None if no kernel of this extent is the identity: an even one has no centre, and one that is
    smaller than the stride skips positions.
    """
    strides = op.integers("stride") if "stride" in op.args else (1,) * len(kernel)
    if set(strides) <= {1}:
        if any(extent % 2 == 0 for extent in kernel):
            return None
        return tuple(slice(extent // 2, extent // 2 + 1) for extent in kernel)
    if isinstance(op.args["padding"], str) or set(op.integers("dilation")) != {1}:
        return None
    pads = op.integers("padding")
    taps = tuple(slice(pad, pad + step) for pad, step in zip(pads, strides, strict=True))
    fits = all(tap.stop <= extent for tap, extent in zip(taps, kernel, strict=True))
    return taps if fits else None
