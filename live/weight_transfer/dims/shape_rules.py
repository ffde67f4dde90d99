"""Rules for operators without weights, which create, rearrange, join, split or reduce tensors."""

import math
from typing import Final

from wattkeeper.live.weight_transfer.dims.dim import (
    Dim,
    concat,
    fixed,
    free,
    pin,
    product,
    split_concat,
    split_product,
    unify,
)
from wattkeeper.live.weight_transfer.dims.program_dims import (
    Dims,
    ProgramDims,
    Rule,
    fix_shape,
    pin_all,
)
from wattkeeper.live.weight_transfer.program.ir import Op, Ref, Shape
from wattkeeper.live.weight_transfer.program.op_sets import ORDERINGS, TABLES, UNIFORM, VIEWS


def _fixed(dims: ProgramDims, op: Op) -> Dims:
    for name in op.tensors.values():
        dims.tensors[name] = fix_shape(op.shape)
    return fix_shape(op.shape)


def _table(dims: ProgramDims, op: Op) -> Dims:
    units = tuple(fixed(1) if extent == 1 else free(extent) for extent in op.shape)
    dims.assign(op.tensors["weight"], units)
    return dims.tensors[op.tensors["weight"]]


def broadcast(dims: ProgramDims, op: Op) -> Dims:
    """Rule for pointwise operators."""
    result = list(fix_shape(op.shape))
    known = [False] * len(result)
    for index in op.refs:
        operand = dims.of(Ref(index))
        for back in range(1, len(operand) + 1):
            dim = operand[-back]
            if dim.extent != result[-back].extent:
                continue
            if known[-back]:
                unify(result[-back], dim)
            result[-back], known[-back] = dim, True
    return tuple(result)


def _view(dims: ProgramDims, op: Op) -> Dims:
    data = list(dims.of(op.args["self"]))
    if op.kind == "unsqueeze":
        axis = op.integer("dim") % len(op.shape)
        return (*data[:axis], fixed(1), *data[axis:])
    return _reshape(data, list(op.shape))


def _reshape(data: list[Dim], shape: list[int]) -> Dims:
    """Group dimensions whose extents have the same product, then merge and split each group."""
    result: list[Dim] = []
    while data or shape:
        old = [data.pop(0)] if data else [fixed(1)]
        new = [shape.pop(0)] if shape else [1]
        while (left := math.prod(dim.extent for dim in old)) != (right := math.prod(new)):
            if left < right:
                old.append(data.pop(0))
            else:
                new.append(shape.pop(0))
        while data and data[0].extent == 1 and (not shape or shape[0] != 1):
            data.pop(0)
        result += split_product(product(old), new)
    return tuple(result)


def _permute(dims: ProgramDims, op: Op) -> Dims:
    data = dims.of(op.args["self"])
    if op.kind == "permute":
        return tuple(data[axis] for axis in op.integers("dims"))
    if op.kind == "movedim":
        pin_all(data)
        return fix_shape(op.shape)
    if op.kind in ("t", "numpy_T"):
        return tuple(reversed(data))
    swapped = list(data)
    i, j = (op.integer("dim0"), op.integer("dim1")) if "dim0" in op.args else (-2, -1)  # mT
    swapped[i], swapped[j] = swapped[j], swapped[i]
    return tuple(swapped)


def _expand(dims: ProgramDims, op: Op) -> Dims:
    data = dims.of(op.args["self"])
    new_axes = len(op.shape) - len(data)
    pin_all(
        dim for dim, extent in zip(data, op.shape[new_axes:], strict=True) if dim.extent != extent
    )
    return (*fix_shape(op.shape[:new_axes]), *_resize(data, op.shape[new_axes:]))


def _resize(data: Dims, shape: Shape) -> Dims:
    """Dimensions whose extent stays are kept, others become fixed."""
    return tuple(
        dim if dim.extent == extent else fixed(extent)
        for dim, extent in zip(data, shape, strict=True)
    )


def _cat(dims: ProgramDims, op: Op) -> Dims:
    tensors = op.args["tensors"]
    assert isinstance(tensors, tuple)
    first, *others = (dims.of(value) for value in tensors)
    cat_axis = op.integer("dim") % len(op.shape)
    for other in others:
        for axis, (x, y) in enumerate(zip(first, other, strict=True)):
            if axis != cat_axis:
                unify(x, y)
    joined = concat(part[cat_axis] for part in (first, *others))
    return (*first[:cat_axis], joined, *first[cat_axis + 1 :])


def _stack(dims: ProgramDims, op: Op) -> Dims:
    tensors = op.args["tensors"]
    assert isinstance(tensors, tuple)
    first, *others = (dims.of(value) for value in tensors)
    for other in others:
        for x, y in zip(first, other, strict=True):
            unify(x, y)
    axis = op.integer("dim") % len(op.shape)
    return (*first[:axis], fixed(len(tensors)), *first[axis:])


def _split(dims: ProgramDims, op: Op) -> list[Dims]:
    data = dims.of(op.args["self"])
    axis = op.integer("dim") % len(data)
    if op.kind == "unbind":
        pin(data[axis])
        return [(*data[:axis], *data[axis + 1 :]) for _ in op.shapes]
    parts = split_concat(data[axis], [shape[axis] for shape in op.shapes])
    return [(*data[:axis], part, *data[axis + 1 :]) for part in parts]


def _select(dims: ProgramDims, op: Op) -> Dims:
    data = dims.of(op.args["self"])
    axis = op.integer("dim") % len(data)
    pin(data[axis])
    return (*data[:axis], *data[axis + 1 :])


def _index(dims: ProgramDims, op: Op) -> Dims:
    """Elements at the places that other tensors say, along neighbouring axes."""
    data = dims.of(op.args["self"])
    indices = op.args["indices"]
    assert isinstance(indices, tuple)
    axes = [axis for axis, index in enumerate(indices) if isinstance(index, Ref)]
    for axis in axes:
        pin(data[axis])
        pin_all(dims.of(indices[axis]))
    if axes != list(range(axes[0], axes[-1] + 1)) or _is_mask(dims, op, indices, axes):
        pin_all(data)
        return fix_shape(op.shape)
    after = data[axes[-1] + 1 :]
    found = op.shape[axes[0] : len(op.shape) - len(after)]
    return (*data[: axes[0]], *fix_shape(found), *after)


def _is_mask(dims: ProgramDims, op: Op, indices: tuple[object, ...], axes: list[int]) -> bool:
    """Whether an index may be a mask, which takes as many axes as it has itself."""
    rank = max(len(dims.of(indices[axis])) for axis in axes)
    return len(op.shape) != len(dims.of(op.args["self"])) - len(axes) + rank


def _roll(dims: ProgramDims, op: Op) -> Dims:
    data = dims.of(op.args["self"])
    axes = op.integers("dims")
    pin_all(data if not axes else [data[axis] for axis in axes])
    return data


def _slice(dims: ProgramDims, op: Op) -> Dims:
    data = dims.of(op.args["self"])
    axis = op.integer("dim") % len(data)
    extent, kept = data[axis].extent, op.shape[axis]
    if kept == extent:
        return data
    start = op.integer("start") if op.args["start"] else 0
    start = max(0, start + extent if start < 0 else start)
    if op.args["step"] != 1 or data[axis].find().kind == "fixed":
        pin(data[axis])
        part = fixed(kept)
    else:
        extents = [size for size in (start, kept, extent - start - kept) if size]
        part = split_concat(data[axis], extents)[1 if start else 0]
    return (*data[:axis], part, *data[axis + 1 :])


def _reduce(dims: ProgramDims, op: Op) -> list[Dims]:
    """Reductions and softmax; whether the mean over units is preserved is checked later."""
    data = dims.of(op.args["self"])
    if op.args.get("dim") is None:
        pin_all(data)
        return [fix_shape(shape) for shape in op.shapes]
    reduced = {axis % len(data) for axis in op.integers("dim")}
    if op.kind != "mean":
        pin_all(data[axis] for axis in reduced)
    if len(op.shape) == len(data):
        return [_resize(data, shape) for shape in op.shapes]
    kept = tuple(dim for axis, dim in enumerate(data) if axis not in reduced)
    return [kept] * len(op.shapes)


def _pool(dims: ProgramDims, op: Op) -> list[Dims]:
    data = dims.of(Ref(op.refs[0]))
    channels = data[:2]
    pin_all(data[2:])
    return [(*channels, *fix_shape(shape[2:])) for shape in op.shapes]


def _pad(dims: ProgramDims, op: Op) -> Dims:
    data = list(dims.of(op.args["self"]))
    pads = op.integers("pad")
    for back in range(len(pads) // 2):
        before, after = pads[2 * back : 2 * back + 2]
        axis = len(data) - 1 - back
        if (before or after) and data[axis].find().kind == "fixed":
            data[axis] = fixed(op.shape[axis])
        elif before or after:
            parts = (free(before), data[axis], free(after))
            data[axis] = concat(dim for dim in parts if dim.extent)
    return tuple(data)


RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(("input", "constant", "unused", "arange"), _fixed),
    **dict.fromkeys(UNIFORM, lambda dims, op: tuple(map(free, op.shape))),
    **dict.fromkeys(TABLES, _table),
    **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys(ORDERINGS, _permute),
    **dict.fromkeys(("expand", "expand_as", "repeat"), _expand),
    "cat": _cat,
    "stack": _stack,
    "getitem": lambda dims, op: dims.results[op.refs[0]][op.integer("index")],
    "select": _select,
    "slice": _slice,
    "index": _index,
    "roll": _roll,
    "pad": _pad,
    **dict.fromkeys(("chunk", "split", "split_with_sizes", "unbind", "tensor_split"), _split),
    **dict.fromkeys(
        (
            *("mean", "sum", "amax", "amin", "max", "softmax", "_softmax", "log_softmax"),
            *("argmax", "linalg_vector_norm"),
        ),
        _reduce,
    ),
    **dict.fromkeys(
        (
            *("max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d", "max_pool2d_with_indices"),
            *("adaptive_avg_pool1d", "adaptive_avg_pool2d"),
            *("adaptive_max_pool1d", "adaptive_max_pool2d"),
            *("upsample_nearest1d", "upsample_nearest2d", "upsample_bilinear2d"),
        ),
        _pool,
    ),
}
"""By kind of operator."""
