"""What a torch module computes, as a list of operators that real parameter names hang on.

`torch.export` traces a copy of the module on the meta device, so no weight is copied and nothing
is computed. A module that it cannot trace is traced by `torch.fx` first.
"""

from __future__ import annotations

import copy
import logging
import operator
import types
import warnings
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, fx, nn

from wattkeeper.live.weight_transfer.op_sets import DATA, HOLDERS, POINTWISE
from wattkeeper.policies.errors import InputError

Shape = tuple[int, ...]


class Ref(NamedTuple):
    """The result of another operator, by its position."""

    op: int


class StateTensor(NamedTuple):
    """A parameter or buffer, by its name in the module's state."""

    name: str


@dataclass(frozen=True, eq=False)
class Op:
    """One operator of a program.

    Attributes:
        kind: ATen's name, without overload and without the underscore of an in-place operator.
        args: Its arguments by the names of ATen's schema; tensors are a `Ref` or `StateTensor`.
        shape: Shape of its result; a tuple of shapes if it has several results.
        pointwise: Whether an element of its result depends on the same element of its inputs only.
        tensors: Names in the module's state of what it holds, by role.
    """

    kind: str
    args: dict[str, Any]
    shape: Any
    pointwise: bool = False
    tensors: dict[str, str] = field(default_factory=dict)

    @property
    def refs(self) -> tuple[int, ...]:
        """Positions of the operators whose results it takes, in the order of its arguments."""
        return tuple(item.op for item in _flat(self.args) if isinstance(item, Ref))


@dataclass(frozen=True, eq=False)
class Program:
    """What a module computes, its operators in topological order.

    Attributes:
        name: The model's name.
        ops: Its operators.
        outputs: Positions of the operators whose results the module returns.
        shapes: Shape of every parameter and buffer, by name.
        trained: Names of the parameters.
    """

    name: str
    ops: tuple[Op, ...]
    outputs: tuple[int, ...]
    shapes: dict[str, Shape]
    trained: frozenset[str]


Inputs: TypeAlias = Sequence[Tensor] | Tensor


def program_of(module: nn.Module, example_inputs: Inputs, name: str) -> Program:
    """Trace a module in eval mode.

    Args:
        module: Any module; it is left as it is.
        example_inputs: Positional arguments of its forward; only shapes and types matter.
        name: What messages call the model.

    Raises:
        InputError: If the module cannot be traced with these inputs.
    """
    inputs = (example_inputs,) if isinstance(example_inputs, Tensor) else tuple(example_inputs)
    strange = [type(item).__name__ for item in inputs if not isinstance(item, Tensor)]
    if strange:
        raise InputError(f"found {', '.join(strange)} as example inputs; allowed: tensors")
    exported = _export(module, tuple(item.to("meta") for item in inputs), name)
    return _Reader(module, exported, name).program()


def _export(module: nn.Module, inputs: tuple[Tensor, ...], name: str) -> Any:
    try:
        return _exported(_on_meta(module), inputs)
    except Exception as first:
        try:
            return _exported(fx.symbolic_trace(_on_meta(module)), inputs)
        except Exception as second:
            shapes = ", ".join(str(list(item.shape)) for item in inputs)
            raise InputError(
                f"model {name!r} cannot be traced with inputs of shape {shapes}: torch.export "
                f"says {_line(first)!r}, torch.fx says {_line(second)!r}; pass example inputs that "
                "its forward takes, and keep control flow that depends on data out of it"
            ) from second


def _exported(module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    before = logging.root.manager.disable
    # Torch logs and prints what it also raises, and what is said here shorter.
    logging.disable(logging.ERROR)
    try:
        with (
            redirect_stderr(StringIO()),
            warnings.catch_warnings(),
            torch.enable_grad(),
            torch.device("meta"),
        ):
            warnings.simplefilter("ignore")
            return torch.export.export(module, inputs, strict=False)
    finally:
        logging.disable(before)


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _on_meta(module: nn.Module) -> nn.Module:
    memo: dict[int, Any] = {}
    # Pruning leaves tensors that are neither parameters nor buffers, which cannot be copied.
    plain = (value for part in module.modules() for value in vars(part).values())
    held = (value for value in plain if isinstance(value, Tensor))
    for tensor in (*module.parameters(), *module.buffers(), *held):
        empty = torch.empty_like(tensor, device="meta")
        # Attention takes a fused path that shows no operators unless something needs a gradient.
        if isinstance(tensor, nn.Parameter):
            empty = nn.Parameter(empty, empty.is_floating_point())
        memo[id(tensor)] = empty
    twin = copy.deepcopy(module, memo).eval()
    for part in twin.modules():
        if isinstance(part, nn.MultiheadAttention) and not _unusual(part):
            vars(part)["forward"] = types.MethodType(_attend, part)
    return twin


def _unusual(part: nn.MultiheadAttention) -> bool:
    changed = type(part).forward is not nn.MultiheadAttention.forward
    return changed or part.bias_k is not None or part.add_zero_attn


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
    """Stands in for `MultiheadAttention.forward`, so that a trace shows it as one operator."""
    held = [tensor for _, tensor in self.named_parameters()]
    masks = [mask for mask in (key_padding_mask, attn_mask) if mask is not None]
    out, weights = torch.ops.wattkeeper.attention(
        query, key, value, held, masks, self.num_heads, self.batch_first, is_causal
    )
    return out, weights if need_weights else None


def _shapes(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    held: list[Tensor],
    masks: list[Tensor],
    heads: int,
    batch_first: bool,
    is_causal: bool,
) -> tuple[Tensor, Tensor]:
    """Results of an operator that stands in traces and computes nothing."""
    time = 1 if query.dim() == 3 and batch_first else 0
    batch = query.shape[:1] if time else query.shape[1:-1]
    weights = query.new_empty((*batch, query.shape[time], key.shape[time]))
    return torch.empty_like(query), weights


torch.library.define(
    "wattkeeper::attention",
    "(Tensor query, Tensor key, Tensor value, Tensor[] held, Tensor[] masks, int heads, "
    "bool batch_first, bool is_causal) -> (Tensor, Tensor)",
)
torch.library.register_fake("wattkeeper::attention", _shapes)


def _as_it_acts(kind: str, args: dict[str, Any], node: Any) -> tuple[str, dict[str, Any]]:
    """Kind and arguments of an operator, told from those that change no value."""
    if kind in ("to", "_to_copy", "type_as"):
        before, after = node.args[0].meta["val"].dtype, node.meta["val"].dtype
        if torch.promote_types(before, after) == after:
            return "to", {"self": args["self"]}
        return "cast", {"self": args["self"], "type": str(after)}
    if kind.endswith("dropout") and args["train"]:
        return "always_dropout", args
    return kind, args


class _Reader:
    """Turns an exported graph into a program."""

    def __init__(self, module: nn.Module, exported: Any, name: str) -> None:
        self.name = name
        self.exported = exported
        self.trained = frozenset(key for key, _ in module.named_parameters())
        held = (*module.named_parameters(), *module.named_buffers())
        self.shapes = {key: tuple(tensor.shape) for key, tensor in held}
        self.first = {
            alias: key
            for tensors in (
                module.named_parameters(remove_duplicate=False),
                module.named_buffers(remove_duplicate=False),
            )
            for alias, key in _first_names(tensors)
        }
        self.ops: list[Op] = []
        self.at: dict[Any, int] = {}  # of a graph's node, its operator
        self.held: dict[Any, str] = {}  # of a placeholder, its parameter or buffer
        self.direct: dict[str, int] = {}  # of a parameter that is used as a value, its operator

    def program(self) -> Program:
        signature = {spec.arg.name: spec for spec in self.exported.graph_signature.input_specs}
        outputs: tuple[int, ...] = ()
        inputs = 0
        for node in self.exported.graph.nodes:
            if node.op == "placeholder":
                target = signature[node.name].target
                if target in self.first:
                    self.held[node] = self.first[target]
                elif target is None:
                    self._add(node, Op("input", {"index": inputs}, _shape(node.meta["val"])))
                    inputs += 1
                else:
                    self._add(node, Op("constant", {"name": target}, _shape(node.meta["val"])))
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                outputs = tuple(self.value(item).op for item in node.all_input_nodes)
        self._unused()
        return Program(self.name, tuple(self.ops), outputs, self.shapes, self.trained)

    def _add(self, node: Any, op: Op) -> None:
        self.at[node] = len(self.ops)
        self.ops.append(op)

    def _call(self, node: Any) -> None:
        if "val" not in node.meta:
            return
        if node.target is operator.getitem:
            args = {"self": self.value(node.args[0]), "index": node.args[1]}
            self._add(node, Op("getitem", args, _shape(node.meta["val"])))
            return
        schema = node.target._schema
        kind = schema.name.partition("::")[2].removesuffix("_")
        if kind == "_assert_tensor_metadata":
            return
        given = dict(zip((item.name for item in schema.arguments), node.args, strict=False))
        given |= node.kwargs
        args = {
            item.name: self._argument(given.get(item.name, item.default_value), kind, item.name)
            for item in schema.arguments
            if item.name not in ("device", "pin_memory", "layout")
        }
        kind, args = _as_it_acts(kind, args, node)
        pointwise = torch.Tag.pointwise in node.target.tags or kind in POINTWISE
        shape = _shape(node.meta["val"])
        self._add(node, Op(kind, args, shape, pointwise, self._tensors(kind, args)))

    def _argument(self, value: Any, kind: str, role: str) -> Any:
        if isinstance(value, fx.Node):
            if kind in HOLDERS and value in self.held and role not in DATA:
                return StateTensor(self.held[value])
            return self.value(value)
        if isinstance(value, list | tuple):
            return tuple(self._argument(item, kind, role) for item in value)
        return value

    def value(self, node: Any) -> Ref:
        """The result of a node; a parameter becomes an operator of its own."""
        if node in self.at:
            return Ref(self.at[node])
        name = self.held[node]
        if name not in self.direct:
            self.direct[name] = len(self.ops)
            kind = "parameter" if name in self.trained else "buffer"
            self.ops.append(Op(kind, {}, self.shapes[name], tensors={"weight": name}))
        return Ref(self.direct[name])

    def _tensors(self, kind: str, args: dict[str, Any]) -> dict[str, str]:
        listed = {"lstm": "params", "gru": "params", "attention": "held"}.get(kind)
        if listed:
            names = [item.name for item in args[listed] if isinstance(item, StateTensor)]
            inside = "out_proj." if kind == "attention" else ""
            return {_role(name, inside): name for name in names}
        held = {role: item.name for role, item in args.items() if isinstance(item, StateTensor)}
        counter = held.get("running_mean", "").removesuffix("running_mean") + "num_batches_tracked"
        if "running_mean" in held and counter in self.shapes:
            held["num_batches_tracked"] = counter
        return held

    def _unused(self) -> None:
        """What the forward pass in eval mode does not touch, so that no parameter goes missing."""
        seen = {name for op in self.ops for name in op.tensors.values()}
        for name, shape in self.shapes.items():
            if name not in seen:
                self.ops.append(Op("unused", {}, shape, tensors={"weight": name}))


def _first_names(tensors: Iterator[tuple[str, Tensor]]) -> Iterator[tuple[str, str]]:
    seen: dict[int, str] = {}
    for alias, tensor in tensors:
        yield alias, seen.setdefault(id(tensor), alias)


def _role(name: str, inside: str) -> str:
    last = name.rpartition(".")[2]
    return inside + last if inside and name.endswith(inside + last) else last


def _shape(value: Any) -> Any:
    if isinstance(value, Tensor):
        return tuple(int(extent) for extent in value.shape)
    if isinstance(value, list | tuple):
        return tuple(_shape(item) for item in value)
    return ()


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _flat(item)
    elif isinstance(value, tuple) and not isinstance(value, Ref | StateTensor):
        for item in value:
            yield from _flat(item)
    else:
        yield value
