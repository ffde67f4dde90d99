"""Rules for layers with weights and for products of computed tensors."""

from typing import Final

from wattkeeper.live.weight_transfer.dims.dim import (
    Dim,
    concat,
    fixed,
    free,
    product,
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
from wattkeeper.live.weight_transfer.program.ir import Op, Ref, Shape, StateTensor
from wattkeeper.live.weight_transfer.program.op_sets import (
    CONVOLUTIONS,
    DENSE,
    INPUTS_FIRST,
    TRANSPOSED,
    UNIFORM,
)

GATES: Final = {"lstm": 4, "gru": 3}


def _convolution(dims: ProgramDims, op: Op) -> Dims:
    data = dims.of(op.args["input"])
    channel_axis = 1 if len(data) == len(op.shape) == int(op.kind[-2]) + 2 else 0
    groups = op.integer("groups")
    inputs, out_channels = data[channel_axis], op.shape[channel_axis]
    if groups == 1:
        group_inputs, group_outputs = inputs, free(out_channels)
        outputs = group_outputs
    else:
        group, group_inputs = split_product(inputs, (groups, inputs.extent // groups))
        group_outputs = free(out_channels // groups) if out_channels > groups else fixed(1)
        outputs = product((group, group_outputs))
    units = (inputs, group_outputs) if op.kind in TRANSPOSED else (outputs, group_inputs)
    dims.assign(op.args["weight"], (*units, *fix_shape(_weight_shape(dims, op)[2:])))
    dims.assign(op.args["bias"], (outputs,))
    pin_all(data[channel_axis + 1 :])
    return (*data[:channel_axis], outputs, *fix_shape(op.shape[channel_axis + 1 :]))


def _weight_shape(dims: ProgramDims, op: Op) -> Shape:
    weight = op.args["weight"]
    if isinstance(weight, StateTensor):
        return dims.program.shapes[weight.name]
    assert isinstance(weight, Ref)
    return dims.program.ops[weight.op].shape


def _linear(dims: ProgramDims, op: Op) -> Dims:
    data = dims.of(op.args["input"])
    outputs = free(op.shape[-1])
    is_transposed = op.kind in INPUTS_FIRST
    dims.assign(op.args["weight"], (data[-1], outputs) if is_transposed else (outputs, data[-1]))
    dims.assign(op.args["bias"], (outputs,))
    return (*data[:-1], dims.of(op.args["weight"])[int(is_transposed)])


def _embedding(dims: ProgramDims, op: Op) -> Dims:
    rows = _weight_shape(dims, op)[0]
    dims.assign(op.args["weight"], (fixed(rows), free(op.shape[-1])))
    return (*dims.of(op.args["indices"]), dims.of(op.args["weight"])[1])


def _batch_norm(dims: ProgramDims, op: Op) -> Dims:
    data = dims.of(op.args["input"])
    for role in ("weight", "bias", "running_mean", "running_var"):
        dims.assign(op.args[role], (data[1],))
    pin_all((data[0], *data[2:]))
    dims.assign(op.tensors.get("num_batches_tracked"), ())
    return data


def _layer_norm(dims: ProgramDims, op: Op) -> Dims:
    data = dims.of(op.args["input"])
    normalized = data[len(data) - len(op.integers("normalized_shape")) :]
    dims.assign(op.args["weight"], normalized)
    dims.assign(op.args.get("bias"), normalized)
    return data


def _group_norm(dims: ProgramDims, op: Op) -> Dims:
    data = dims.of(op.args["input"])
    groups = op.integer("num_groups")
    split_product(data[1], (groups, data[1].extent // groups))
    pin_all(data[2:])
    dims.assign(op.args["weight"], (data[1],))
    dims.assign(op.args["bias"], (data[1],))
    return data


def _prelu(dims: ProgramDims, op: Op) -> Dims:
    data = dims.of(op.args["self"])
    (slopes,) = _weight_shape(dims, op)
    dims.assign(op.args["weight"], (fixed(1) if slopes == 1 else data[1],))
    return data


def _recurrent(dims: ProgramDims, op: Op) -> list[Dims]:
    """The rows of a gate are the units of the state that is passed from step to step."""
    data = dims.of(op.args["input"])
    pin_all(data[:-1])
    inputs, gates = data[-1], GATES[op.kind]
    outputs: list[Dim] = []
    for layer in range(op.integer("num_layers")):
        outputs = []
        for direction in ("", "_reverse") if op.args["bidirectional"] else ("",):
            suffix = f"_l{layer}{direction}"
            gate_rows, state_extent = dims.program.shapes[op.tensors["weight_hh" + suffix]]
            units = free(gate_rows // gates)
            projection = op.tensors.get("weight_hr" + suffix)
            state = free(state_extent) if projection else units
            rows = product((fixed(gates), units))
            dims.assign(op.tensors["weight_ih" + suffix], (rows, inputs))
            dims.assign(op.tensors["weight_hh" + suffix], (rows, state))
            for role in ("bias_ih" + suffix, "bias_hh" + suffix):
                dims.assign(op.tensors.get(role), (rows,))
            dims.assign(projection, (state, units))
            outputs.append(state)
        inputs = concat(outputs)
    for index in op.refs[1:]:  # initial states
        if dims.program.ops[index].kind not in UNIFORM:
            dims.pin_results(index)
            pin_all(outputs)
    states = [(*fix_shape(shape[:-1]), outputs[0]) for shape in op.shapes[1:]]
    return [(*data[:-1], inputs), *states]


def _attention(dims: ProgramDims, op: Op) -> list[Dims]:
    for name in ("key", "value"):
        pin_all(dims.of(op.args[name])[:-1])
    query, key, value = (dims.of(op.args[name])[-1] for name in ("query", "key", "value"))
    heads = op.integer("heads")
    head_extent = query.extent // heads
    head, key_units, value_units = free(heads), free(head_extent), free(head_extent)
    key_rows, value_rows = product((head, key_units)), product((head, value_units))
    if "in_proj_weight" in op.tensors:
        unify(query, key)
        unify(key, value)
        rows = concat((key_rows, key_rows, value_rows))
        dims.assign(op.tensors["in_proj_weight"], (rows, query))
    else:
        dims.assign(op.tensors["q_proj_weight"], (key_rows, query))
        dims.assign(op.tensors["k_proj_weight"], (key_rows, key))
        dims.assign(op.tensors["v_proj_weight"], (value_rows, value))
    dims.assign(op.tensors.get("in_proj_bias"), (concat((key_rows, key_rows, value_rows)),))
    outputs = free(query.extent)
    dims.assign(op.tensors["out_proj.weight"], (outputs, value_rows))
    dims.assign(op.tensors.get("out_proj.bias"), (outputs,))
    dims.contracted[len(dims.results)] = key_units
    return [(*dims.of(op.args["query"])[:-1], outputs), fix_shape(op.shapes[1])]


def _scaled_dot_product(dims: ProgramDims, op: Op) -> Dims:
    query, key, value = (dims.of(op.args[name]) for name in ("query", "key", "value"))
    unify(query[-1], key[-1])
    pin_all((key[-2], value[-2]))
    for q, k, v in zip(query[:-2], key[:-2], value[:-2], strict=True):
        unify(q, k)
        unify(k, v)
    dims.contracted[len(dims.results)] = query[-1]
    return (*query[:-1], value[-1])


def _matmul(dims: ProgramDims, op: Op) -> Dims:
    left, right = (dims.of(value) for value in list(op.args.values())[:2])
    if min(len(left), len(right)) < 2:
        pin_all((*left, *right))
        return fix_shape(op.shape)
    unify(left[-1], right[-2])
    result = [*left[:-1], right[-1]]
    if len(left) == len(right):
        for axis, (x, y) in enumerate(zip(left[:-2], right[:-2], strict=True)):
            if x.extent == y.extent:
                unify(x, y)
            elif x.extent == 1:
                result[axis] = y
    elif len(left) < len(right):
        result = [*right[: len(right) - len(left)], *result]
    dims.contracted[len(dims.results)] = left[-1]
    return tuple(result)


RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(CONVOLUTIONS | TRANSPOSED, _convolution),
    **dict.fromkeys(DENSE, _linear),
    "embedding": _embedding,
    "batch_norm": _batch_norm,
    "instance_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _layer_norm,
    "group_norm": _group_norm,
    "prelu": _prelu,
    "scaled_dot_product_attention": _scaled_dot_product,
    "matmul": _matmul,
    "bmm": _matmul,
    "lstm": _recurrent,
    "gru": _recurrent,
    "attention": _attention,
}
"""By kind of operator."""
