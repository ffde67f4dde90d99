"""Fills tensors of a child from tensors of its parent, along maps of units."""

from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from wattkeeper.live.weight_transfer.dims.dim import Dim
from wattkeeper.live.weight_transfer.dims.program_dims import Dims
from wattkeeper.live.weight_transfer.model_graph import TracedModule
from wattkeeper.live.weight_transfer.program.op_sets import (
    CONVOLUTIONS,
    INPUTS_FIRST,
    NORMS,
    TABLES,
    TRANSPOSED,
)
from wattkeeper.live.weight_transfer.unit_maps import NO_UNIT, UnitMaps, locate_units
from wattkeeper.policies.arrays import Floats, Ints

_CHANNEL_AXES: Final = 2
"""Axes of a convolution's weight before those of its kernel."""


def is_kernel_axis(kind: str, axis: int) -> bool:
    """Whether an axis of an operator's weight belongs to a convolution's kernel."""
    return axis >= _CHANNEL_AXES and kind in CONVOLUTIONS | TRANSPOSED


def input_axis(kind: str, role: str, rank: int) -> int | None:
    """The axis of a tensor that its operator sums over; None if there is none."""
    if kind in TABLES | NORMS | {"embedding", "unused"} or rank < 2:
        return None
    return 0 if kind in INPUTS_FIRST else 1


def state_tensors(traced: TracedModule) -> dict[str, Tensor]:
    """Parameters and buffers of a module by name."""
    module = traced.module
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def unsaved_buffers(module: nn.Module) -> frozenset[str]:
    """Buffers that are no part of the module's state: whoever loads that has others."""
    return frozenset(dict(module.named_buffers()).keys() - module.state_dict().keys())


def fill_tensor(
    maps: UnitMaps,
    source: Tensor,
    own: Tensor,
    dims: tuple[Dims, Dims],
    kind: str,
    role: str,
    *,
    writes_mean: bool = False,
) -> tuple[Tensor, bool]:
    """Make a tensor of the child from one of the parent.

    Args:
        maps: Maps of units.
        source: The parent's tensor.
        own: The child's tensor, whose values stay where a unit has no origin.
        dims: Dimensions of the child's and of the parent's tensor.
        kind: Kind of its operator, which decides the axis whose replicas split their weight.
        role: The tensor's role at the operator.
        writes_mean: Whether some of its outputs are the mean of all (see `UnitMaps.mixture`).

    Returns:
        The tensor in the type and on the device of `own`, and whether it is an exact copy.
    """
    summed_axis = input_axis(kind, role, len(dims[0]))
    value = source.detach().to(own.device)
    is_copy = source.shape == own.shape
    missing: list[tuple[int, npt.NDArray[np.bool_]]] = []
    for axis, (child, parent) in enumerate(zip(*dims, strict=True)):
        if is_kernel_axis(kind, axis) and child.extent != parent.extent:
            is_copy = False
            value = _resize_kernel(value, axis, child.extent)
            continue
        mixture = maps.mixture(child, parent) if writes_mean and axis != summed_axis else None
        if mixture is not None:
            is_copy = False
            matrix = torch.from_numpy(mixture).to(value.device)
            value = torch.tensordot(value.to(matrix), matrix, ([axis], [1])).movedim(-1, axis)
            continue
        units = maps.map_any(child, parent)
        if not np.array_equal(units, np.arange(parent.extent)):
            is_copy = False
            value = value.index_select(axis, torch.from_numpy(np.maximum(units, 0)).to(own.device))
            if axis != summed_axis and (units < 0).any():
                missing.append((axis, units < 0))
        rows = own.shape[0] if summed_axis == 1 else 1
        factor = _factor(maps, child, parent, units, rows, axis == summed_axis)
        if factor is not None:
            is_copy = False
            value = value * _align(factor, axis, value)
    for axis, mask in missing:
        value = torch.where(_align(mask[None], axis, value), own.detach(), value)
    return value.to(own.dtype).clone(), is_copy


def _resize_kernel(value: Tensor, axis: int, extent: int) -> Tensor:
    """Crop a kernel to its centre along an axis, or pad it with zeros."""
    padding = (extent - value.shape[axis]) // 2
    if padding < 0:
        return value.narrow(axis, -padding, extent)
    sides = [0, 0] * (value.dim() - 1 - axis) + [padding, padding]
    return torch.nn.functional.pad(value, sides)


def _factor(
    maps: UnitMaps, child: Dim, parent: Dim, units: Ints, rows: int, is_summed: bool
) -> Floats | None:
    """The factor along an axis, shape (rows or 1, units); None if it is 1."""
    amplitude = maps.amplitude(child, parent)
    if not is_summed:
        return None if amplitude is None else amplitude[None]
    known = units[units >= 0]
    is_split = len(known) < len(units) or len(np.unique(known)) < len(known)
    shares = maps.draw_shares(units, rows) if is_split else None
    if amplitude is None:
        return shares
    return (1 if shares is None else shares) / amplitude[None]


def _align(rows: Floats | npt.NDArray[np.bool_], axis: int, value: Tensor) -> Tensor:
    """Reshape values, shape (rows or 1, units), to broadcast along the first and one more axis."""
    shape = [1] * value.dim()
    shape[axis] = rows.shape[1]
    if rows.shape[0] != 1:
        shape[0] = rows.shape[0]
    return torch.from_numpy(rows).to(value.device).view(shape)


def unit_importance(traced: TracedModule, leaf: Dim) -> Floats:
    """Importance of each unit: L1 norm of the weights that write it, times that of its readers.

    The scale of norms in between is a further factor.
    """
    written, read, scale = (np.zeros(leaf.extent) for _ in range(3))
    tensors = state_tensors(traced)
    for op in traced.program.ops:
        for role, name in op.tensors.items():
            size = tensors[name].detach()
            if not size.is_floating_point():
                continue
            for axis, dim in enumerate(traced.dims.tensors[name]):
                units = locate_units(dim, leaf)
                if (units == NO_UNIT).all() or (op.kind in NORMS and role != "weight"):
                    continue
                others = [other for other in range(size.dim()) if other != axis]
                total = size.abs().double().sum(others) if others else size.abs().double()
                is_read = axis == input_axis(op.kind, role, size.dim())
                sums = scale if op.kind in NORMS else read if is_read else written
                np.add.at(sums, units[units >= 0], total.cpu().numpy()[units >= 0])
    importance = np.ones(leaf.extent)
    for sums in (written, read, scale):
        if sums.any():
            importance = importance * sums
    return importance
