"""Axes of what layers with weights give, and of products of computed tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from wattkeeper.live.weight_transfer.dims.dim import Dim, concat, fixed, free, product, split, unify
from wattkeeper.live.weight_transfer.dims.rules import Axes, Rule, adder, pin_all
from wattkeeper.live.weight_transfer.ir import Op, Shape, StateTensor
from wattkeeper.live.weight_transfer.op_sets import CONVOLUTIONS, TRANSPOSED, UNIFORM

if TYPE_CHECKING:
    from wattkeeper.live.weight_transfer.dims.analysis import DimAnalysis

RULES: Final[dict[str, Rule]] = {}
"""By the operator's kind."""

GATES: Final = {"lstm": 4, "gru": 3}

_rule = adder(RULES)


@_rule(*CONVOLUTIONS, *TRANSPOSED)
def _convolution(spaces: DimAnalysis, op: Op) -> Axes:
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


def _weight_shape(spaces: DimAnalysis, op: Op) -> Shape:
    weight = op.args["weight"]
    shape: Shape = (
        spaces.program.shapes[weight.name]
        if isinstance(weight, StateTensor)
        else spaces.program.ops[weight.op].shape
    )
    return shape


@_rule("linear")
def _linear(spaces: DimAnalysis, op: Op) -> Axes:
    data = spaces.of(op.args["input"])
    out = free(op.shape[-1])
    spaces.hold(op.args["weight"], (out, data[-1]))
    spaces.hold(op.args["bias"], (out,))
    return (*data[:-1], spaces.of(op.args["weight"])[0])


@_rule("embedding")
def _embedding(spaces: DimAnalysis, op: Op) -> Axes:
    rows = _weight_shape(spaces, op)[0]
    spaces.hold(op.args["weight"], (fixed(rows), free(op.shape[-1])))
    return (*spaces.of(op.args["indices"]), spaces.of(op.args["weight"])[1])


@_rule("batch_norm", "instance_norm")
def _batch_norm(spaces: DimAnalysis, op: Op) -> Axes:
    data = spaces.of(op.args["input"])
    for role in ("weight", "bias", "running_mean", "running_var"):
        spaces.hold(op.args[role], (data[1],))
    if "num_batches_tracked" in op.tensors:
        spaces.hold(op.tensors["num_batches_tracked"], ())
    return data


@_rule("layer_norm", "rms_norm")
def _layer_norm(spaces: DimAnalysis, op: Op) -> Axes:
    data = spaces.of(op.args["input"])
    normal = data[len(data) - len(op.args["normalized_shape"]) :]
    spaces.hold(op.args["weight"], normal)
    spaces.hold(op.args.get("bias"), normal)
    return data


@_rule("group_norm")
def _group_norm(spaces: DimAnalysis, op: Op) -> Axes:
    data = spaces.of(op.args["input"])
    groups = op.args["num_groups"]
    split(data[1], (groups, data[1].extent // groups))
    spaces.hold(op.args["weight"], (data[1],))
    spaces.hold(op.args["bias"], (data[1],))
    return data


@_rule("prelu")
def _prelu(spaces: DimAnalysis, op: Op) -> Axes:
    data = spaces.of(op.args["self"])
    (slopes,) = _weight_shape(spaces, op)
    spaces.hold(op.args["weight"], (fixed(1) if slopes == 1 else data[1],))
    return data


@_rule("lstm", "gru")
def _recurrent(spaces: DimAnalysis, op: Op) -> Any:
    """Gates are blocks of the same units; so are the states that go from step to step."""
    data = spaces.of(op.args["input"])
    fed, gates = data[-1], GATES[op.kind]
    outputs: list[Dim] = []
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
            pin_all((spaces.values[given], outputs))
    last = [(*map(fixed, shape[:-1]), outputs[0]) for shape in op.shape[1:]]
    return ((*data[:-1], fed), *last)


@_rule("attention")
def _attention(spaces: DimAnalysis, op: Op) -> Any:
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
def _scaled_dot_product(spaces: DimAnalysis, op: Op) -> Axes:
    query, key, value = (spaces.of(op.args[name]) for name in ("query", "key", "value"))
    unify(query[-1], key[-1])
    for q, k, v in zip(query[:-2], key[:-2], value[:-2], strict=True):
        unify(q, k)
        unify(k, v)
    spaces.contracted[len(spaces.values)] = query[-1]
    return (*query[:-1], value[-1])


@_rule("matmul", "bmm")
def _matmul(spaces: DimAnalysis, op: Op) -> Axes:
    left, right = (spaces.of(value) for value in list(op.args.values())[:2])
    if min(len(left), len(right)) < 2:
        pin_all((left, right))
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
