"""Fills tensors of a child from tensors of its parent, along maps of units."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from wattkeeper.live.weight_transfer.dims.dim import Dim
from wattkeeper.live.weight_transfer.dims.rules import Axes
from wattkeeper.live.weight_transfer.model_graph import TracedModule
from wattkeeper.live.weight_transfer.op_sets import CONVOLUTIONS, NORMS, TABLES, TRANSPOSED
from wattkeeper.live.weight_transfer.unit_maps import NOBODY, UnitMaps, spread
from wattkeeper.policies.arrays import Floats, Ints

_UNITS: Final = 2
"""Dimensions of a convolution's weight that are units."""


def in_kernel(kind: str, dim: int) -> bool:
    """Whether a dimension of an operator's weight belongs to its kernel."""
    return dim >= _UNITS and kind in CONVOLUTIONS | TRANSPOSED


def read_dim(kind: str, role: str, dims: int) -> int | None:
    """The dimension of a tensor that its operator sums over, if any."""
    if kind in TABLES | NORMS | {"embedding", "unused"} or dims < 2:
        return None
    return 0 if kind in TRANSPOSED else 1


def state(traced: TracedModule) -> dict[str, Tensor]:
    """Parameters and buffers of a module by name."""
    module = traced.module
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def filled(
    maps: UnitMaps,
    source: Tensor,
    own: Tensor,
    axes: tuple[Axes, Axes],
    kind: str,
    role: str,
    *,
    mixes: bool = False,
) -> tuple[Tensor, bool]:
    """A tensor of the child made of one of the parent.

    Args:
        maps: Which units become which.
        source: The parent's tensor.
        own: The child's, which gives what has no unit in the parent.
        axes: Dimensions of the child's and of the parent's tensor.
        kind: Of its operator; where that sums, weights are split among replicas.
        role: What it is to the operator.
        mixes: Whether it gives some units the mean of all others (see `UnitMaps.mixture`).

    Returns:
        The tensor, in the type and on the device of `own`, and whether it is a plain copy.
    """
    reads = read_dim(kind, role, len(axes[0]))
    value = source.detach().to(own.device)
    plain = source.shape == own.shape
    unfilled: list[tuple[int, npt.NDArray[np.bool_]]] = []
    for dim, (mine, theirs) in enumerate(zip(*axes, strict=True)):
        if in_kernel(kind, dim) and mine.extent != theirs.extent:
            plain = False
            value = _middle(value, dim, mine.extent)
            continue
        mixture = maps.mixture(mine, theirs) if mixes and dim != reads else None
        if mixture is not None:
            plain = False
            matrix = torch.from_numpy(mixture).to(value.device)
            value = torch.tensordot(value.to(matrix), matrix, ([dim], [1])).movedim(-1, dim)
            continue
        units = maps.forced(mine, theirs)
        if not np.array_equal(units, np.arange(theirs.extent)):
            plain = False
            value = value.index_select(dim, torch.from_numpy(np.maximum(units, 0)).to(own.device))
            if dim != reads and (units < 0).any():
                unfilled.append((dim, units < 0))
        factor = _factor(maps, mine, theirs, units, own.shape[0] if reads == 1 else 1, dim == reads)
        if factor is not None:
            plain = False
            value = value * _broadcast(factor, dim, value)
    for dim, nobody in unfilled:
        value = _along(dim, nobody, value, own)
    return value.to(own.dtype).clone(), plain


def _middle(value: Tensor, dim: int, extent: int) -> Tensor:
    """A kernel's middle along a dimension, or the kernel with zeros around it."""
    more = (extent - value.shape[dim]) // 2
    if more < 0:
        return value.narrow(dim, -more, extent)
    sides = [0, 0] * (value.dim() - 1 - dim) + [more, more]
    return torch.nn.functional.pad(value, sides)


def _along(dim: int, nobody: npt.NDArray[np.bool_], value: Tensor, own: Tensor) -> Tensor:
    shape = [1] * value.dim()
    shape[dim] = -1
    return torch.where(torch.from_numpy(nobody).to(own.device).view(shape), own.detach(), value)


def _factor(
    maps: UnitMaps, mine: Dim, theirs: Dim, units: Ints, rows: int, reads: bool
) -> Floats | None:
    """What to multiply by along a dimension, shape (rows or 1, units); None if by nothing."""
    amplitude = maps.amplitude(mine, theirs)
    if not reads:
        return None if amplitude is None else amplitude[None]
    known = units[units >= 0]
    split = len(known) < len(units) or len(np.unique(known)) < len(known)
    factor = maps.shares(units, rows) if split else None
    if amplitude is None:
        return factor
    return (1 if factor is None else factor) / amplitude[None]


def _broadcast(factor: Floats, dim: int, value: Tensor) -> Tensor:
    shape = [1] * value.dim()
    shape[dim] = factor.shape[1]
    if factor.shape[0] != 1:
        shape[0] = factor.shape[0]
    return torch.from_numpy(factor).to(value.device).view(shape)


def importance(traced: TracedModule, leaf: Dim) -> Floats:
    """How much each unit matters: L1 norm of what it reads, times that of what reads it.

    The scale of norms on the way is a factor, too.
    """
    taken, given, scale = (np.zeros(leaf.extent) for _ in range(3))
    tensors = state(traced)
    for op in traced.program.ops:
        for role, name in op.tensors.items():
            for dim, axis in enumerate(traced.spaces.tensors[name]):
                units = _holds(axis, leaf)
                if units is None or not tensors[name].is_floating_point():
                    continue
                if op.kind in NORMS:
                    total = scale if role == "weight" else None
                else:
                    reads = dim == read_dim(op.kind, role, tensors[name].dim())
                    total = given if reads else taken
                if total is not None:
                    others = [at for at in range(tensors[name].dim()) if at != dim]
                    size = tensors[name].detach().abs().double()
                    size = size.sum(others) if others else size
                    np.add.at(total, units[units >= 0], size.cpu().numpy()[units >= 0])
    result = np.ones(leaf.extent)
    for part in (taken, given, scale):
        if part.any():
            result = result * part
    return result


def _holds(axis: Dim, leaf: Dim) -> Ints | None:
    units = spread(axis, leaf)
    return units if (units != NOBODY).any() else None
