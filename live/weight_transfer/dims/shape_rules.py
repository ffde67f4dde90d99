"""Axes of what operators without weights give: they make up, rearrange, join, cut or reduce."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from wattkeeper.live.weight_transfer.dims.dim import (
    Dim,
    concat,
    cut,
    fixed,
    free,
    pin,
    product,
    split,
    unify,
)
from wattkeeper.live.weight_transfer.dims.rules import Axes, Rule, adder, all_fixed, pin_all
from wattkeeper.live.weight_transfer.ir import Op, Ref
from wattkeeper.live.weight_transfer.op_sets import ORDERINGS, TABLES, UNIFORM, VIEWS

if TYPE_CHECKING:
    from wattkeeper.live.weight_transfer.dims.analysis import DimAnalysis

RULES: Final[dict[str, Rule]] = {}
"""By the operator's kind."""

_rule = adder(RULES)


@_rule("input", "constant", "unused", "arange")
def _given(spaces: DimAnalysis, op: Op) -> Axes:
    for name in op.tensors.values():
        spaces.tensors[name] = tuple(map(fixed, op.shape))
    return tuple(map(fixed, op.shape))


@_rule(*UNIFORM)
def _uniform(spaces: DimAnalysis, op: Op) -> Axes:
    return tuple(map(free, op.shape))


@_rule(*TABLES)
def _direct(spaces: DimAnalysis, op: Op) -> Axes:
    axes = tuple(fixed(1) if extent == 1 else free(extent) for extent in op.shape)
    spaces.hold(op.tensors["weight"], axes)
    return spaces.tensors[op.tensors["weight"]]


def broadcast(spaces: DimAnalysis, op: Op) -> Axes:
    """Axes of what a pointwise operator gives."""
    result: list[Dim] = [fixed(extent) for extent in op.shape]
    known = [False] * len(result)
    for at in op.refs:
        axes = spaces.values[at]
        for back in range(1, len(axes) + 1):
            axis = axes[-back]
            if axis.extent != result[-back].extent:
                continue
            if known[-back]:
                unify(result[-back], axis)
            result[-back], known[-back] = axis, True
    return tuple(result)


@_rule(*VIEWS)
def _view(spaces: DimAnalysis, op: Op) -> Axes:
    data = list(spaces.of(op.args["self"]))
    if op.kind == "unsqueeze":
        at = op.args["dim"] % len(op.shape)
        return (*data[:at], fixed(1), *data[at:])
    return _reshape(data, list(op.shape))


def _reshape(data: list[Dim], shape: list[int]) -> Axes:
    """Group dimensions whose extents multiply to the same, then merge and split each group."""
    result: list[Dim] = []
    while data or shape:
        taken = [data.pop(0)] if data else [fixed(1)]
        given = [shape.pop(0)] if shape else [1]
        while (left := math.prod(axis.extent for axis in taken)) != (right := math.prod(given)):
            if left < right:
                taken.append(data.pop(0))
            else:
                given.append(shape.pop(0))
        while data and data[0].extent == 1 and (not shape or shape[0] != 1):
            data.pop(0)
        result += split(product(taken), given)
    return tuple(result)


@_rule(*ORDERINGS)
def _permute(spaces: DimAnalysis, op: Op) -> Axes:
    data = spaces.of(op.args["self"])
    if op.kind == "permute":
        return tuple(data[at] for at in op.args["dims"])
    if op.kind == "movedim":
        pin_all(data)
        return tuple(map(fixed, op.shape))
    if op.kind in ("t", "numpy_T"):
        return tuple(reversed(data))
    order = list(range(len(data)))
    i, j = op.args.get("dim0", -2), op.args.get("dim1", -1)  # absent in mT
    order[i], order[j] = order[j], order[i]
    return tuple(data[at] for at in order)


@_rule("expand", "repeat")
def _expand(spaces: DimAnalysis, op: Op) -> Axes:
    data = spaces.of(op.args["self"])
    new = len(op.shape) - len(data)
    kept = zip(data, op.shape[new:], strict=True)
    return (
        *map(fixed, op.shape[:new]),
        *(axis if axis.extent == extent else fixed(extent) for axis, extent in kept),
    )


@_rule("cat")
def _cat(spaces: DimAnalysis, op: Op) -> Axes:
    parts = [spaces.of(value) for value in op.args["tensors"]]
    at = op.args["dim"] % len(op.shape)
    for other in parts[1:]:
        for dim, (x, y) in enumerate(zip(parts[0], other, strict=True)):
            if dim != at:
                unify(x, y)
    return (*parts[0][:at], concat(part[at] for part in parts), *parts[0][at + 1 :])


@_rule("chunk", "split", "split_with_sizes", "unbind", "tensor_split")
def _split(spaces: DimAnalysis, op: Op) -> Any:
    data = spaces.of(op.args["self"])
    at = op.args["dim"] % len(data)
    if op.kind == "unbind":
        pin(data[at])
        return tuple((*data[:at], *data[at + 1 :]) for _ in op.shape)
    parts = cut(data[at], [shape[at] for shape in op.shape])
    return tuple((*data[:at], part, *data[at + 1 :]) for part in parts)


@_rule("getitem")
def _getitem(spaces: DimAnalysis, op: Op) -> Any:
    return spaces.values[op.args["self"].op][op.args["index"]]


@_rule("select")
def _select(spaces: DimAnalysis, op: Op) -> Axes:
    data = spaces.of(op.args["self"])
    at = op.args["dim"] % len(data)
    pin(data[at])
    return (*data[:at], *data[at + 1 :])


@_rule("slice")
def _slice(spaces: DimAnalysis, op: Op) -> Axes:
    data = spaces.of(op.args["self"])
    at, extent = op.args["dim"] % len(data), data[op.args["dim"]].extent
    if op.shape[at] == extent:
        return data
    start = op.args["start"] or 0
    start = max(0, start + extent if start < 0 else start)
    if op.args["step"] != 1 or data[at].find().kind == "fixed":
        pin(data[at])
        part = fixed(op.shape[at])
    else:
        extents = [start, op.shape[at], extent - start - op.shape[at]]
        kept = [size for size in extents if size]
        part = cut(data[at], kept)[1 if start else 0]
    return (*data[:at], part, *data[at + 1 :])


@_rule("mean", "sum", "amax", "amin", "max", "softmax", "_softmax", "log_softmax", "argmax")
def _reduce(spaces: DimAnalysis, op: Op) -> Any:
    """Reduces or normalises along dimensions; how units stand there is checked later."""
    data = spaces.of(op.args["self"])
    dims = op.args.get("dim")
    if dims is None:
        pin_all(data)
        return all_fixed(op.shape)
    if op.shape and isinstance(op.shape[0], tuple):  # values and their places
        return tuple(_reduce(spaces, replace(op, shape=shape)) for shape in op.shape)
    reduced = {dim % len(data) for dim in ((dims,) if isinstance(dims, int) else dims)}
    if op.kind not in ("mean",):
        pin_all([data[dim] for dim in reduced])
    if len(op.shape) == len(data):
        return tuple(
            axis if axis.extent == extent else fixed(extent)
            for axis, extent in zip(data, op.shape, strict=True)
        )
    return tuple(axis for dim, axis in enumerate(data) if dim not in reduced)


@_rule(
    *(
        f"{kind}{rank}d"
        for kind in ("max_pool", "avg_pool", "adaptive_avg_pool")
        for rank in (1, 2)
    ),
    *("adaptive_max_pool1d", "adaptive_max_pool2d", "upsample_nearest2d", "upsample_bilinear2d"),
    *("max_pool2d_with_indices", "upsample_nearest1d"),
)
def _pool(spaces: DimAnalysis, op: Op) -> Any:
    data = next(iter(spaces.of(value) for value in op.args.values() if isinstance(value, Ref)))
    if op.shape and isinstance(op.shape[0], tuple):
        return tuple((*data[:2], *map(fixed, shape[2:])) for shape in op.shape)
    return (*data[:2], *map(fixed, op.shape[2:]))


@_rule("pad")
def _pad(spaces: DimAnalysis, op: Op) -> Axes:
    data = list(spaces.of(op.args["self"]))
    pads = op.args["pad"]
    for back in range(len(pads) // 2):
        before, after = pads[2 * back : 2 * back + 2]
        dim = len(data) - 1 - back
        if (before or after) and data[dim].find().kind == "fixed":
            data[dim] = fixed(op.shape[dim])
        elif before or after:
            around = (free(before), data[dim], free(after))
            data[dim] = concat(axis for axis in around if axis.extent)
    return tuple(data)
