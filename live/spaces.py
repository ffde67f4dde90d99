"""Which dimensions of a program's tensors are the same units."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from wattkeeper.live.axes import Axis, concat, cut, fixed, free, pin, product, split, unify
from wattkeeper.live.kinds import CONVOLUTIONS, ORDERINGS, TABLES, TRANSPOSED, UNIFORM, VIEWS
from wattkeeper.live.program import Held, Op, Program, Ref, Shape

Axes = tuple[Axis, ...]

Rule = Callable[["Spaces", Op], Any]

RULES: dict[str, Rule] = {}

GATES: Final = {"lstm": 4, "gru": 3}


class Spaces:
    """Axes of everything in a program.

    Attributes:
        program: What was analysed.
        values: Axes of each operator's result; a tuple of them where it has several results.
        tensors: Axes of each parameter and buffer, by name.
        contracted: Of each operator that multiplies two computed tensors, the axis it sums over.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.values: list[Any] = []
        self.tensors: dict[str, Axes] = {}
        self.contracted: dict[int, Axis] = {}
        for op in program.ops:
            self.values.append(self._result(op))
        for at in program.outputs:
            _pin_all(self.values[at])
        for name, shape in program.shapes.items():
            self.tensors.setdefault(name, tuple(map(fixed, shape)))

    def of(self, value: Any) -> Axes:
        """Axes of an argument."""
        axes: Axes = self.values[value.op] if isinstance(value, Ref) else self.tensors[value.name]
        return axes

    def hold(self, value: Any, axes: Sequence[Axis]) -> None:
        """Say what the dimensions of a parameter are; of nothing for an absent one."""
        if isinstance(value, str):
            value = Held(value)
        if value is None:
            return
        if isinstance(value, Held) and value.name not in self.tensors:
            self.tensors[value.name] = tuple(axes)
        else:
            for mine, theirs in zip(self.of(value), axes, strict=True):
                unify(mine, theirs)

    def _result(self, op: Op) -> Any:
        rule = RULES.get(op.kind)
        if rule is not None:
            return rule(self, op)
        if op.pointwise:
            return _broadcast(self, op)
        for at in op.refs:
            _pin_all(self.values[at])
        for name in op.tensors.values():
            self.tensors.setdefault(name, tuple(map(fixed, self.program.shapes[name])))
        return _all_fixed(op.shape)


def _pin_all(axes: Any) -> None:
    if isinstance(axes, Axis):
        pin(axes)
    else:
        for item in axes:
            _pin_all(item)


def _all_fixed(shape: Any) -> Any:
    if isinstance(shape, int):
        return fixed(shape)
    return tuple(map(_all_fixed, shape))


def _rule(*kinds: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return register


@_rule("input", "constant", "unused", "arange")
def _given(spaces: Spaces, op: Op) -> Axes:
    for name in op.tensors.values():
        spaces.tensors[name] = tuple(map(fixed, op.shape))
    return tuple(map(fixed, op.shape))


@_rule(*UNIFORM)
def _uniform(spaces: Spaces, op: Op) -> Axes:
    return tuple(map(free, op.shape))


@_rule(*TABLES)
def _direct(spaces: Spaces, op: Op) -> Axes:
    axes = tuple(fixed(1) if extent == 1 else free(extent) for extent in op.shape)
    spaces.hold(op.tensors["weight"], axes)
    return spaces.tensors[op.tensors["weight"]]


def _broadcast(spaces: Spaces, op: Op) -> Axes:
    result: list[Axis] = [fixed(extent) for extent in op.shape]
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


@_rule(*CONVOLUTIONS, *TRANSPOSED)
def _convolution(spaces: Spaces, op: Op) -> Axes:
    data = spaces.of(op.args["input"])
    batched = len(data) == len(op.shape) == _rank(op)
    channel = 1 if batched else 0
    transposed = op.kind in TRANSPOSED
    groups = op.args["groups"]
    given, taken = data[channel], op.shape[channel]
    if groups == 1:
        inside, out = given, free(taken)
        rows = out
        out_rows = out
    else:
        group, inside = split(given, (groups, given.extent // groups))
        rows = free(taken // groups) if taken > groups else fixed(1)
        out = product((group, rows))
        out_rows = out
    kernel = tuple(map(fixed, _weight_shape(spaces, op)[2:]))
    dims = (given, rows) if transposed else (out_rows, inside)
    spaces.hold(op.args["weight"], (*dims, *kernel))
    spaces.hold(op.args["bias"], (out,))
    batch = data[:channel]
    return (*batch, out, *map(fixed, op.shape[channel + 1 :]))


def _rank(op: Op) -> int:
    return int(op.kind[-2]) + 2


def _weight_shape(spaces: Spaces, op: Op) -> Shape:
    weight = op.args["weight"]
    shape: Shape = (
        spaces.program.shapes[weight.name]
        if isinstance(weight, Held)
        else spaces.program.ops[weight.op].shape
    )
    return shape


@_rule("linear")
def _linear(spaces: Spaces, op: Op) -> Axes:
    data = spaces.of(op.args["input"])
    out = free(op.shape[-1])
    spaces.hold(op.args["weight"], (out, data[-1]))
    spaces.hold(op.args["bias"], (out,))
    return (*data[:-1], spaces.of(op.args["weight"])[0])


@_rule("embedding")
def _embedding(spaces: Spaces, op: Op) -> Axes:
    rows = _weight_shape(spaces, op)[0]
    spaces.hold(op.args["weight"], (fixed(rows), free(op.shape[-1])))
    return (*spaces.of(op.args["indices"]), spaces.of(op.args["weight"])[1])


@_rule("batch_norm", "instance_norm")
def _batch_norm(spaces: Spaces, op: Op) -> Axes:
    data = spaces.of(op.args["input"])
    for role in ("weight", "bias", "running_mean", "running_var"):
        spaces.hold(op.args[role], (data[1],))
    if "num_batches_tracked" in op.tensors:
        spaces.hold(op.tensors["num_batches_tracked"], ())
    return data


@_rule("layer_norm", "rms_norm")
def _layer_norm(spaces: Spaces, op: Op) -> Axes:
    data = spaces.of(op.args["input"])
    normal = data[len(data) - len(op.args["normalized_shape"]) :]
    spaces.hold(op.args["weight"], normal)
    spaces.hold(op.args.get("bias"), normal)
    return data


@_rule("group_norm")
def _group_norm(spaces: Spaces, op: Op) -> Axes:
    data = spaces.of(op.args["input"])
    groups = op.args["num_groups"]
    split(data[1], (groups, data[1].extent // groups))
    spaces.hold(op.args["weight"], (data[1],))
    spaces.hold(op.args["bias"], (data[1],))
    return data


@_rule("prelu")
def _prelu(spaces: Spaces, op: Op) -> Axes:
    data = spaces.of(op.args["self"])
    (slopes,) = _weight_shape(spaces, op)
    spaces.hold(op.args["weight"], (fixed(1) if slopes == 1 else data[1],))
    return data


@_rule("lstm", "gru")
def _recurrent(spaces: Spaces, op: Op) -> Any:
    """Gates are blocks of the same units; so are the states that go from step to step."""
    data = spaces.of(op.args["input"])
    fed, gates = data[-1], GATES[op.kind]
    outputs: list[Axis] = []
    for layer in range(op.args["num_layers"]):
        outputs = []
        for suffix in ("", "_reverse") if op.args["bidirectional"] else ("",):
            at = f"_l{layer}{suffix}"
            wide, hidden = spaces.program.shapes[op.tensors["weight_hh" + at]]
            units = free(wide // gates)
            projected = "weight_hr" + at in op.tensors
            state = free(hidden) if projected else units
            rows = product((fixed(gates), units))
            spaces.hold(op.tensors["weight_ih" + at], (rows, fed))
            spaces.hold(op.tensors["weight_hh" + at], (rows, state))
            for role in ("bias_ih" + at, "bias_hh" + at):
                spaces.hold(op.tensors.get(role), (rows,))
            if projected:
                spaces.hold(op.tensors["weight_hr" + at], (state, units))
            outputs.append(state)
        fed = concat(outputs)
    for given in op.refs[1:]:
        if spaces.program.ops[given].kind not in UNIFORM:
            _pin_all((spaces.values[given], outputs))
    last = [(*map(fixed, shape[:-1]), outputs[0]) for shape in op.shape[1:]]
    return ((*data[:-1], fed), *last)


@_rule("attention")
def _attention(spaces: Spaces, op: Op) -> Any:
    query, key, value = (spaces.of(op.args[name])[-1] for name in ("query", "key", "value"))
    heads = op.args["heads"]
    each = query.extent // heads
    head, match, carried = free(heads), free(each), free(each)
    asked, told = product((head, match)), product((head, carried))
    if "in_proj_weight" in op.tensors:
        unify(query, key)
        unify(key, value)
        spaces.hold(op.tensors["in_proj_weight"], (concat((asked, asked, told)), query))
    else:
        spaces.hold(op.tensors["q_proj_weight"], (asked, query))
        spaces.hold(op.tensors["k_proj_weight"], (asked, key))
        spaces.hold(op.tensors["v_proj_weight"], (told, value))
    spaces.hold(op.tensors.get("in_proj_bias"), (concat((asked, asked, told)),))
    out = free(query.extent)
    spaces.hold(op.tensors["out_proj.weight"], (out, told))
    spaces.hold(op.tensors.get("out_proj.bias"), (out,))
    spaces.contracted[len(spaces.values)] = match
    result = (*spaces.of(op.args["query"])[:-1], out)
    return (result, tuple(map(fixed, op.shape[1])))


@_rule("scaled_dot_product_attention")
def _scaled_dot_product(spaces: Spaces, op: Op) -> Axes:
    query, key, value = (spaces.of(op.args[name]) for name in ("query", "key", "value"))
    unify(query[-1], key[-1])
    for q, k, v in zip(query[:-2], key[:-2], value[:-2], strict=True):
        unify(q, k)
        unify(k, v)
    spaces.contracted[len(spaces.values)] = query[-1]
    return (*query[:-1], value[-1])


@_rule("matmul", "bmm")
def _matmul(spaces: Spaces, op: Op) -> Axes:
    left, right = (spaces.of(value) for value in list(op.args.values())[:2])
    if min(len(left), len(right)) < 2:
        _pin_all((left, right))
        return tuple(map(fixed, op.shape))
    unify(left[-1], right[-2])
    result = [*left[:-2], left[-2], right[-1]]
    if len(left) == len(right):
        for at, (x, y) in enumerate(zip(left[:-2], right[:-2], strict=True)):
            if x.extent == y.extent:
                unify(x, y)
            elif x.extent == 1:
                result[at] = y
    elif len(left) < len(right):
        result = [*right[: len(right) - len(left)], *result]
    spaces.contracted[len(spaces.values)] = left[-1]
    return tuple(result)


@_rule(*VIEWS)
def _view(spaces: Spaces, op: Op) -> Axes:
    data = list(spaces.of(op.args["self"]))
    if op.kind == "unsqueeze":
        at = op.args["dim"] % len(op.shape)
        return (*data[:at], fixed(1), *data[at:])
    return _reshape(data, list(op.shape))


def _reshape(data: list[Axis], shape: list[int]) -> Axes:
    """Group dimensions whose extents multiply to the same, then merge and split each group."""
    result: list[Axis] = []
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
def _permute(spaces: Spaces, op: Op) -> Axes:
    data = spaces.of(op.args["self"])
    if op.kind == "permute":
        return tuple(data[at] for at in op.args["dims"])
    if op.kind == "movedim":
        _pin_all(data)
        return tuple(map(fixed, op.shape))
    order = list(range(len(data)))
    i, j = (0, len(data) - 1) if op.kind == "t" else (op.args["dim0"], op.args["dim1"])
    order[i], order[j] = order[j], order[i]
    return tuple(data[at] for at in order)


@_rule("expand", "repeat")
def _expand(spaces: Spaces, op: Op) -> Axes:
    data = spaces.of(op.args["self"])
    new = len(op.shape) - len(data)
    kept = zip(data, op.shape[new:], strict=True)
    return (
        *map(fixed, op.shape[:new]),
        *(axis if axis.extent == extent else fixed(extent) for axis, extent in kept),
    )


@_rule("cat")
def _cat(spaces: Spaces, op: Op) -> Axes:
    parts = [spaces.of(value) for value in op.args["tensors"]]
    at = op.args["dim"] % len(op.shape)
    for other in parts[1:]:
        for dim, (x, y) in enumerate(zip(parts[0], other, strict=True)):
            if dim != at:
                unify(x, y)
    return (*parts[0][:at], concat(part[at] for part in parts), *parts[0][at + 1 :])


@_rule("chunk", "split", "split_with_sizes", "unbind", "tensor_split")
def _split(spaces: Spaces, op: Op) -> Any:
    data = spaces.of(op.args["self"])
    at = op.args["dim"] % len(data)
    if op.kind == "unbind":
        pin(data[at])
        return tuple((*data[:at], *data[at + 1 :]) for _ in op.shape)
    parts = cut(data[at], [shape[at] for shape in op.shape])
    return tuple((*data[:at], part, *data[at + 1 :]) for part in parts)


@_rule("getitem")
def _getitem(spaces: Spaces, op: Op) -> Any:
    return spaces.values[op.args["self"].op][op.args["index"]]


@_rule("select")
def _select(spaces: Spaces, op: Op) -> Axes:
    data = spaces.of(op.args["self"])
    at = op.args["dim"] % len(data)
    pin(data[at])
    return (*data[:at], *data[at + 1 :])


@_rule("slice")
def _slice(spaces: Spaces, op: Op) -> Axes:
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
def _reduce(spaces: Spaces, op: Op) -> Any:
    """Reduces or normalises along dimensions; how units stand there is checked later."""
    data = spaces.of(op.args["self"])
    dims = op.args.get("dim")
    if dims is None or (op.shape and isinstance(op.shape[0], tuple)):
        _pin_all(data)
        return _all_fixed(op.shape)
    reduced = {dim % len(data) for dim in ((dims,) if isinstance(dims, int) else dims)}
    if op.kind not in ("mean",):
        _pin_all([data[dim] for dim in reduced])
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
def _pool(spaces: Spaces, op: Op) -> Any:
    data = next(iter(spaces.of(value) for value in op.args.values() if isinstance(value, Ref)))
    if op.shape and isinstance(op.shape[0], tuple):
        return tuple((*data[:2], *map(fixed, shape[2:])) for shape in op.shape)
    return (*data[:2], *map(fixed, op.shape[2:]))


@_rule("pad")
def _pad(spaces: Spaces, op: Op) -> Axes:
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
