"""Graphs of torch modules, with the names of their parameters."""

import math
from dataclasses import dataclass
from typing import Any, Final

from torch import nn

from wattkeeper.live.weight_transfer.dims import layer_rules, shape_rules
from wattkeeper.live.weight_transfer.dims.dim import Dim, factors
from wattkeeper.live.weight_transfer.dims.program_dims import Dims, ProgramDims, Rule, fix_shape
from wattkeeper.live.weight_transfer.program.ir import Op, Program, Shape, StateTensor
from wattkeeper.live.weight_transfer.program.op_sets import NON_NODES, SCALED, TABLES
from wattkeeper.live.weight_transfer.program.tracing import Inputs, trace_program
from wattkeeper.policies.matching.graph import SOURCE, Graph, Node, Tensor

RULES: Final[dict[str, Rule]] = layer_rules.RULES | shape_rules.RULES
"""By kind of operator."""

Layout = int | str | tuple[int | str, ...]
"""Of one dimension: its extent if it is fixed, `units`, or fixed extents and `units` in order."""


@dataclass(frozen=True, eq=False)
class TracedModule:
    """A module with its program, the dimensions of its tensors and its graph.

    `op_of_node` is the index of the operator in the program, by node of the graph.
    """

    module: nn.Module
    program: Program
    dims: ProgramDims
    graph: Graph
    op_of_node: tuple[int, ...]


def graph_of(module: nn.Module, example_inputs: Inputs, name: str) -> Graph:
    """The graph of a torch module.

    Besides stride, dilation and groups, a node's attribute `layout` lists those of a tensor's first
    two dimensions that are not free: `("weight", 0, 10)` for ten classes, `("weight", 1, ("units",
    49))` for units of 49 pixels each. A tensor that several nodes share appears at each of them,
    under one name.

    Arguments and errors are those of `trace_program`.
    """
    return trace(module, example_inputs, name).graph


def trace(module: nn.Module, example_inputs: Inputs, name: str) -> TracedModule:
    """Trace a module, and make its graph; see `graph_of`."""
    program = trace_program(module, example_inputs, name)
    return _build(module, program, analyse(program))


def free_outputs(traced: TracedModule) -> TracedModule:
    """The same module as the body of a larger one: its outputs are units as those of any layer."""
    program = traced.program
    return _build(traced.module, program, analyse(program, fixes_outputs=False))


def _build(module: nn.Module, program: Program, dims: ProgramDims) -> TracedModule:
    node_of_op: dict[int, int] = {}
    nodes: list[Node] = []
    for index, op in enumerate(program.ops):
        if op.kind in NON_NODES or (op.kind in SCALED and len(op.refs) == 1):
            continue
        inputs = tuple(_find_input_nodes(program, index, node_of_op)) or (SOURCE,)
        tensors = tuple(
            Tensor(name, role, _node_shape(op, program.shapes[name]), name in program.trained)
            for role, name in op.tensors.items()
        )
        attributes = _attributes(program, dims, op) if tensors else ()
        node_of_op[index] = len(nodes)
        kind = "embedding" if op.kind in TABLES else op.kind
        nodes.append(Node(kind, inputs, tensors, attributes))
    graph = Graph(program.name, tuple(nodes))
    return TracedModule(module, program, dims, graph, tuple(node_of_op))


def _find_input_nodes(program: Program, index: int, node_of_op: dict[int, int]) -> list[int]:
    nodes: list[int] = []
    for ref in program.ops[index].refs:
        is_node = ref in node_of_op
        nodes += [node_of_op[ref]] if is_node else _find_input_nodes(program, ref, node_of_op)
    return nodes


def _row_axis(shape: Shape) -> int:
    """The axis of rows of a parameter that is added or concatenated, such as of positions.

    Extents of 1 are ignored: `(1, channels, 1, 1)` has a single row.
    """
    last = max((axis for axis, extent in enumerate(shape) if extent > 1), default=len(shape) - 1)
    return max(last - 1, 0)


def _node_shape(op: Op, shape: Shape) -> Shape:
    if op.kind not in TABLES or not shape:
        return shape
    if math.prod(shape) == shape[0]:  # a vector, whatever extents of 1 follow
        return (1, shape[0])
    row_axis = _row_axis(shape)
    if math.prod(shape[:row_axis]) > 1:
        return shape
    return shape[row_axis : row_axis + 2]


def _attributes(program: Program, dims: ProgramDims, op: Op) -> tuple[tuple[str, Any], ...]:
    attributes: list[tuple[str, Any]] = []
    if op.kind.startswith("conv"):
        attributes += [(key, op.integers(key)) for key in ("stride", "dilation")]
        groups, weight = op.integer("groups"), op.args["weight"]
        is_depthwise = (
            isinstance(weight, StateTensor) and program.shapes[weight.name][1] == 1 < groups
        )
        attributes.append(("depthwise", True) if is_depthwise else ("groups", groups))
    if op.kind in TABLES:
        attributes.append(("table", op.kind))
    layout = []
    for role, name in op.tensors.items():
        shape = program.shapes[name]
        first = _row_axis(shape) if _node_shape(op, shape) != shape and len(shape) > 1 else 0
        for axis, dim in enumerate(dims.tensors[name][first : first + 2]):
            if (dim_layout := _layout(dim)) != "units":
                layout.append((role, axis, dim_layout))
    if layout:
        attributes.append(("layout", tuple(layout)))
    return tuple(attributes)


def _layout(dim: Dim) -> Layout:
    """What of a dimension must be equal for weights to fit."""
    layout: list[int | str] = []
    for factor in factors(dim):
        if factor.kind == "fixed":
            layout.append(factor.extent)
        elif not layout or layout[-1] != "units":
            layout.append("units")
    if "units" not in layout:
        return dim.extent
    return layout[0] if len(layout) == 1 else tuple(layout)


def analyse(program: Program, *, fixes_outputs: bool = True) -> ProgramDims:
    """The dimensions of all tensors of a program, unified operator by operator.

    With `fixes_outputs`, the units of its outputs must not change.
    """
    dims = ProgramDims(program)
    for op, is_read in zip(program.ops, program.is_read, strict=True):
        if not is_read:  # such as what only the shape is taken of
            dims.results.append([fix_shape(shape) for shape in op.shapes])
            continue
        rule = RULES.get(op.kind, shape_rules.broadcast if op.pointwise else _pin_operands)
        results = rule(dims, op)
        dims.results.append(results if isinstance(results, list) else [results])
    for index in program.outputs if fixes_outputs else ():
        dims.pin_results(index)
    for name, shape in program.shapes.items():
        dims.tensors.setdefault(name, fix_shape(shape))
    return dims


def _pin_operands(dims: ProgramDims, op: Op) -> list[Dims]:
    """Rule for an unknown operator: the units of its operands must not change."""
    for index in op.refs:
        dims.pin_results(index)
    for name in op.tensors.values():
        dims.tensors.setdefault(name, fix_shape(dims.program.shapes[name]))
    return [fix_shape(shape) for shape in op.shapes]
