"""Traces torch modules to programs.

A copy of the module on the meta device is run, so no weight is copied and nothing is computed, and
its operators are captured (`capture`). A module of which they do not show all is traced by
`torch.export`, which takes about five times as long, and if that cannot trace it, by `torch.fx`
first.
"""

import copy
import logging
import operator
import types
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from io import StringIO
from typing import Final, TypeAlias, cast

import torch
from torch import Tensor, fx, nn

from wattkeeper.live.weight_transfer.program.capture import TracedGraph, capture
from wattkeeper.live.weight_transfer.program.ir import Op, Program, Ref, Shape, StateTensor
from wattkeeper.live.weight_transfer.program.op_sets import DATA, HOLDERS, POINTWISE
from wattkeeper.policies.errors import InputError, cut_message

OF_DEVICES: Final = frozenset({"device", "pin_memory", "layout", "cudnn_enable", "cudnn_enabled"})
"""Arguments that say how to compute, not what."""

ADDED: Final = {"weight": "mat2", "bias": "self"}
"""By role in a layer, the argument of `addmm`."""

Inputs: TypeAlias = Sequence[Tensor] | Tensor


def trace_program(module: nn.Module, example_inputs: Inputs, name: str) -> Program:
    """Trace a module in eval mode.

    Args:
        module: Any module; it is not changed.
        example_inputs: Positional arguments of its forward; only shapes and types matter.
        name: The model's name in messages.

    Raises:
        InputError: If the module cannot be traced with these inputs.
    """
    inputs = (example_inputs,) if isinstance(example_inputs, Tensor) else tuple(example_inputs)
    wrong = [type(item).__name__ for item in inputs if not isinstance(item, Tensor)]
    if wrong:
        raise InputError(f"found {', '.join(wrong)} as example inputs; allowed: tensors")
    traced = _trace(module, tuple(item.to("meta") for item in inputs), name)
    return _ProgramReader(module, traced, name).read()


def _trace(module: nn.Module, inputs: tuple[Tensor, ...], name: str) -> TracedGraph:
    with suppress(Exception):  # of which `torch.export` tells more
        return capture(copy_to_meta(module), inputs)
    try:
        return _export(copy_to_meta(module), inputs)
    except Exception as export_error:
        try:
            return _export(fx.symbolic_trace(copy_to_meta(module)), inputs)
        except Exception as fx_error:
            shapes = ", ".join(str(list(item.shape)) for item in inputs)
            raise InputError(
                f"model {name!r} cannot be traced with inputs of shape {shapes}: torch.export "
                f"says {_first_line(export_error)!r}, torch.fx says {_first_line(fx_error)!r}; "
                "pass example inputs that its forward takes, and remove control flow that depends "
                "on data"
            ) from fx_error


def _export(module: nn.Module, inputs: tuple[Tensor, ...]) -> TracedGraph:
    """Export without torch's log and warnings, which repeat what its exception says."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            redirect_stderr(StringIO()),
            warnings.catch_warnings(),
            torch.enable_grad(),
            torch.device("meta"),
        ):
            warnings.simplefilter("ignore")
            exported = torch.export.export(module, inputs, strict=False)
    finally:
        logging.disable(before)
    specs = exported.graph_signature.input_specs
    return TracedGraph(exported.graph, {spec.arg.name: spec.target for spec in specs})


def _first_line(error: Exception) -> str:
    return cut_message((str(error).strip().splitlines() or [type(error).__name__])[0], 200)


def copy_to_meta(module: nn.Module) -> nn.Module:
    """Copy a module in eval mode to the meta device, its attention as one operator."""
    memo: dict[int, object] = {}
    # Pruning leaves tensors that are neither parameters nor buffers, which cannot be copied.
    attributes = (value for part in module.modules() for value in vars(part).values())
    others = (value for value in attributes if isinstance(value, Tensor))
    for tensor in (*module.parameters(), *module.buffers(), *others):
        empty = torch.empty_like(tensor, device="meta")
        # Attention takes a fused path that shows no operators unless something needs a gradient.
        if isinstance(tensor, nn.Parameter):
            empty = nn.Parameter(empty, empty.is_floating_point())
        memo[id(tensor)] = empty
    meta = copy.deepcopy(module, memo).eval()
    for part in meta.modules():
        if isinstance(part, nn.MultiheadAttention):
            is_overridden = type(part).forward is not nn.MultiheadAttention.forward
            if not (is_overridden or part.bias_k is not None or part.add_zero_attn):
                vars(part)["forward"] = types.MethodType(_attend, part)
    return meta


def _attend(
    self: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Replaces `MultiheadAttention.forward`, so that a trace shows it as one operator."""
    held = [tensor for _, tensor in self.named_parameters()]
    masks = [mask for mask in (key_padding_mask, attn_mask) if mask is not None]
    out, weights = torch.ops.wattkeeper.attention(
        query, key, value, held, masks, self.num_heads, self.batch_first, is_causal
    )
    return out, weights if need_weights else None


def _attention_results(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    held: list[Tensor],
    masks: list[Tensor],
    heads: int,
    batch_first: bool,
    is_causal: bool,
) -> tuple[Tensor, Tensor]:
    """Empty results in the shapes of `wattkeeper::attention`, which only appears in traces."""
    time = 1 if query.dim() == 3 and batch_first else 0
    batch = query.shape[:1] if time else query.shape[1:-1]
    weights = query.new_empty((*batch, query.shape[time], key.shape[time]))
    return torch.empty_like(query), weights


torch.library.define(
    "wattkeeper::attention",
    "(Tensor query, Tensor key, Tensor value, Tensor[] held, Tensor[] masks, int heads, "
    "bool batch_first, bool is_causal) -> (Tensor, Tensor)",
)
torch.library.register_fake("wattkeeper::attention", _attention_results)


class _ProgramReader:
    """Converts a traced graph to a program."""

    def __init__(self, module: nn.Module, traced: TracedGraph, name: str) -> None:
        self.name = name
        self.traced = traced
        self.trained = frozenset(key for key, _ in module.named_parameters())
        state = (*module.named_parameters(), *module.named_buffers())
        self.shapes = {key: tuple(tensor.shape) for key, tensor in state}
        self.first_names = _first_names(
            module.named_parameters(remove_duplicate=False)
        ) | _first_names(module.named_buffers(remove_duplicate=False))
        self.ops: list[Op] = []
        self.op_of_node: dict[fx.Node, int] = {}
        self.tensor_of_node: dict[fx.Node, str] = {}
        self.op_of_tensor: dict[str, int] = {}  # of parameters that are used as values

    def read(self) -> Program:
        outputs: tuple[int, ...] = ()
        for node in self.traced.graph.nodes:
            if node.op == "placeholder":
                self._read_placeholder(node, self.traced.targets[node.name])
            elif node.op == "call_function":
                self._read_call(node)
            elif node.op == "output":
                outputs = tuple(self._refer(item).op for item in node.all_input_nodes)
        self._add_unused()
        return Program(self.name, tuple(self.ops), outputs, self.shapes, self.trained)

    def _add(self, node: fx.Node, op: Op) -> None:
        self.op_of_node[node] = len(self.ops)
        self.ops.append(op)

    def _read_placeholder(self, node: fx.Node, target: str | None) -> None:
        if target in self.first_names:
            self.tensor_of_node[node] = self.first_names[target]
        elif target is None:
            index = sum(op.kind == "input" for op in self.ops)
            self._add(node, Op("input", {"index": index}, _shapes(node)))
        else:
            self._add(node, Op("constant", {"name": target}, _shapes(node)))

    def _read_call(self, node: fx.Node) -> None:
        if "val" not in node.meta:
            return
        if node.target is operator.getitem:
            args: dict[str, object] = {"self": self._refer(node.all_input_nodes[0])}
            self._add(node, Op("getitem", args | {"index": node.args[1]}, _shapes(node)))
            return
        assert isinstance(node.target, torch._ops.OpOverload)
        schema = node.target._schema
        kind = schema.name.partition("::")[2].removesuffix("_")
        if kind == "_assert_tensor_metadata":
            return
        given = dict(zip((item.name for item in schema.arguments), node.args, strict=False))
        given |= node.kwargs
        if kind == "addmm" and (held := self._held_by_addmm(given)):
            layer: dict[str, object] = {"input": self._refer(cast(fx.Node, given["mat1"]))}
            layer |= {role: StateTensor(name) for role, name in held.items()}
            self._add(node, Op("transposed_linear", layer, _shapes(node), tensors=held))
            return
        args = {
            item.name: self._read_argument(
                given.get(item.name, item.default_value), kind, item.name
            )
            for item in schema.arguments
            if item.name not in OF_DEVICES
        }
        kind, args = _simplify(kind, args, node)
        pointwise = torch.Tag.pointwise in node.target.tags or kind in POINTWISE
        self._add(node, Op(kind, args, _shapes(node), pointwise, self._held_tensors(kind, args)))

    def _held_by_addmm(self, given: Mapping[str, object]) -> dict[str, str]:
        """The weight and bias of a product that is added, if both are parameters; else empty.

        A bias that is no vector of the outputs, and so is spread over them or over rows, is none.
        """
        nodes = {role: cast(fx.Node, given[name]) for role, name in ADDED.items()}
        is_scaled = (given.get("beta", 1), given.get("alpha", 1)) != (1, 1)
        if is_scaled or any(node not in self.tensor_of_node for node in nodes.values()):
            return {}
        held = {role: self.tensor_of_node[node] for role, node in nodes.items()}
        is_bias = self.shapes[held["bias"]] == self.shapes[held["weight"]][1:]
        return held if is_bias else {}

    def _read_argument(self, value: object, kind: str, role: str) -> object:
        if isinstance(value, fx.Node):
            if kind in HOLDERS and value in self.tensor_of_node and role not in DATA:
                return StateTensor(self.tensor_of_node[value])
            return self._refer(value)
        if isinstance(value, list | tuple):
            return tuple(self._read_argument(item, kind, role) for item in value)
        return value

    def _refer(self, node: fx.Node) -> Ref:
        """The result of a node; a parameter that is used as a value becomes an operator."""
        if node in self.op_of_node:
            return Ref(self.op_of_node[node])
        name = self.tensor_of_node[node]
        if name not in self.op_of_tensor:
            self.op_of_tensor[name] = len(self.ops)
            kind = "parameter" if name in self.trained else "buffer"
            self.ops.append(Op(kind, {}, (self.shapes[name],), tensors={"weight": name}))
        return Ref(self.op_of_tensor[name])

    def _held_tensors(self, kind: str, args: dict[str, object]) -> dict[str, str]:
        listed = args.get({"lstm": "params", "gru": "params", "attention": "held"}.get(kind, ""))
        if isinstance(listed, tuple):
            names = [item.name for item in listed if isinstance(item, StateTensor)]
            prefix = "out_proj." if kind == "attention" else ""
            return {_role(name, prefix): name for name in names}
        held = {role: item.name for role, item in args.items() if isinstance(item, StateTensor)}
        counter = held.get("running_mean", "").removesuffix("running_mean") + "num_batches_tracked"
        if "running_mean" in held and counter in self.shapes:
            held["num_batches_tracked"] = counter
        return held

    def _add_unused(self) -> None:
        """Add operators for tensors that the forward pass in eval mode does not read."""
        read = {name for op in self.ops for name in op.tensors.values()}
        for name, shape in self.shapes.items():
            if name not in read:
                self.ops.append(Op("unused", {}, (shape,), tensors={"weight": name}))


def _simplify(kind: str, args: dict[str, object], node: fx.Node) -> tuple[str, dict[str, object]]:
    """Tell casts from conversions that change no value, and dropout that is always on."""
    if kind in ("to", "_to_copy", "type_as"):
        before, after = node.all_input_nodes[0].meta["val"].dtype, node.meta["val"].dtype
        if torch.promote_types(before, after) == after:
            return "to", {"self": args["self"]}
        return "cast", {"self": args["self"], "type": str(after)}
    if kind.endswith("dropout") and args["train"]:
        return "always_dropout", args
    return kind, args


def _first_names(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, str]:
    """The first name of every tensor, by each of its names."""
    seen: dict[int, str] = {}
    return {alias: seen.setdefault(id(tensor), alias) for alias, tensor in tensors}


def _role(name: str, prefix: str) -> str:
    last = name.rpartition(".")[2]
    return prefix + last if prefix and name.endswith(prefix + last) else last


def _shapes(node: fx.Node) -> tuple[Shape, ...]:
    value = node.meta["val"]
    results = value if isinstance(value, list | tuple) else [value]
    return tuple(
        tuple(int(extent) for extent in item.shape) if isinstance(item, Tensor) else ()
        for item in results
    )
