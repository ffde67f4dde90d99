"""Graphs of torch modules, with the names of their parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import nn

from wattkeeper.live.weight_transfer.dims.analysis import DimAnalysis
from wattkeeper.live.weight_transfer.dims.dim import Dim, factors
from wattkeeper.live.weight_transfer.ir import Inputs, Op, Program, StateTensor, program_of
from wattkeeper.live.weight_transfer.op_sets import SCALED, SILENT, TABLES
from wattkeeper.policies.matching.graph import SOURCE, Graph, Node, Tensor


@dataclass(frozen=True, eq=False)
class TracedModule:
    """A module with its graph and what the graph was made from.

    Attributes:
        module: The module itself.
        program: What it computes.
        spaces: Which dimensions of its tensors are the same units.
        graph: Its graph.
        positions: Of each node of the graph, its operator in the program.
    """

    module: nn.Module
    program: Program
    spaces: DimAnalysis
    graph: Graph
    positions: tuple[int, ...]


def graph_of(module: nn.Module, example_inputs: Inputs, name: str) -> Graph:
    """The graph of a torch module.

    Besides stride, dilation and groups, a node's attribute `layout` says which of its first two
    dimensions are no units that could be widened: `("weight", 0, 10)` for ten classes,
    `("weight", 1, ("units", 49))` for units of 49 pixels each. A tensor that several nodes share
    stands at each of them, under one name.

    Args:
        module: Any module; it is left as it is.
        example_inputs: Positional arguments of its forward; only shapes and types matter.
        name: The model's name.

    Raises:
        InputError: If the module cannot be traced with these inputs.
    """
    return traced(module, example_inputs, name).graph


def traced(module: nn.Module, example_inputs: Inputs, name: str) -> TracedModule:
    """Trace a module and make its graph; see `graph_of`."""
    program = program_of(module, example_inputs, name)
    spaces = DimAnalysis(program)
    kept: dict[int, int] = {}
    nodes: list[Node] = []
    positions: list[int] = []
    for at, op in enumerate(program.ops):
        if op.kind in SILENT or (op.kind in SCALED and len(op.refs) == 1):
            continue
        inputs = tuple(_feeds(program, at, kept)) or (SOURCE,)
        tensors = _tensors(program, op)
        attributes = _attributes(program, spaces, op) if tensors else ()
        kept[at] = len(nodes)
        name = "embedding" if op.kind in TABLES else op.kind
        nodes.append(Node(name, inputs, tensors, attributes))
        positions.append(at)
    return TracedModule(
        module, program, spaces, Graph(program.name, tuple(nodes)), tuple(positions)
    )


def _feeds(program: Program, at: int, kept: dict[int, int]) -> list[int]:
    feeds: list[int] = []
    for ref in program.ops[at].refs:
        feeds += [kept[ref]] if ref in kept else _feeds(program, ref, kept)
    return feeds


def _tensors(program: Program, op: Op) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(name, role, _shown(op, program.shapes[name]), name in program.trained)
        for role, name in op.tensors.items()
    )


def _rows(shape: tuple[int, ...]) -> int:
    """A parameter that is added or joined is a table, such as of positions: its dimension of rows.

    Extents of 1 around it say nothing; what is left of `(1, positions, units)` or of
    `(1, channels, 1, 1)` is a table of positions, or one of a single row.
    """
    last = max((dim for dim, extent in enumerate(shape) if extent > 1), default=len(shape) - 1)
    return max(last - 1, 0)


def _shown(op: Op, shape: tuple[int, ...]) -> tuple[int, ...]:
    if op.kind not in TABLES or not shape:
        return shape
    rows = _rows(shape)
    if math.prod(shape[:rows]) > 1:
        return shape
    return (1, *shape) if len(shape) == 1 else shape[rows : rows + 2]


def _attributes(program: Program, spaces: DimAnalysis, op: Op) -> tuple[tuple[str, Any], ...]:
    attributes: list[tuple[str, Any]] = []
    if op.kind.startswith("conv"):
        for key in ("stride", "dilation"):
            attributes.append((key, tuple(op.args[key])))
        groups = op.args["groups"]
        weight = op.args["weight"]
        depthwise = isinstance(weight, StateTensor) and program.shapes[weight.name][1] == 1 < groups
        attributes.append(("depthwise", True) if depthwise else ("groups", groups))
    if op.kind in TABLES:
        attributes.append(("table", op.kind))
    layout = []
    for role, name in op.tensors.items():
        shape = program.shapes[name]
        first = _rows(shape) if _shown(op, shape) != shape and len(shape) > 1 else 0
        for dim, axis in enumerate(spaces.tensors[name][first : first + 2]):
            if (sign := _sign(axis)) != "units":
                layout.append((role, dim, sign))
    if layout:
        attributes.append(("layout", tuple(layout)))
    return tuple(attributes)


def _sign(axis: Dim) -> Any:
    """What of an axis must be equal for weights to fit."""
    signs: list[Any] = []
    for factor in factors(axis):
        if factor.kind == "fixed":
            signs.append(factor.extent)
        elif not signs or signs[-1] != "units":
            signs.append("units")
    if "units" not in signs:
        return math.prod(signs)
    return signs[0] if len(signs) == 1 else tuple(signs)
