"""Moves aligned layers to where the child reads what they read in the parent.

An alignment may choose any of several equal layers. In a block whose layers read all values before
them, the last of them looks most like the parent's last one, but reads more.
"""

from collections.abc import Mapping
from functools import cache

from wattkeeper.live.weight_transfer.model_graph import TracedModule
from wattkeeper.live.weight_transfer.program.ir import Program
from wattkeeper.policies.matching.graph import Node


def follow_layers(
    parent: TracedModule, child: TracedModule, origins: Mapping[int, int]
) -> dict[int, int]:
    """Move the parent's layers to equal layers of the child that follow the same layers.

    Args:
        parent: The parent.
        child: The child.
        origins: By operator of the child, the parent's operator that it takes its weights from.

    Returns:
        The new origins; the same ones if no layer can be moved.
    """
    place_of = {origin: index for index, origin in origins.items()}
    nodes = dict(zip(child.op_of_node, child.graph.nodes, strict=True))
    before, parent_before = _layers_before(child.program), _layers_before(parent.program)
    for origin in sorted(place_of):
        expected = [place_of.get(layer, -1) for layer in parent_before[origin]]
        place = place_of[origin]
        if -1 in expected or before[place] == expected:
            continue
        taken = {*place_of.values()}
        equal = (
            index
            for index, node in nodes.items()
            if index not in taken
            and before[index] == expected
            and _shape(node) == _shape(nodes[place])
        )
        place_of[origin] = next(equal, place)
    return {index: origin for origin, index in sorted(place_of.items(), key=lambda item: item[1])}


def _shape(node: Node) -> tuple[object, ...]:
    return node.op, node.attributes, [tensor[1:] for tensor in node.tensors]


def _layers_before(program: Program) -> list[list[int]]:
    """By operator, the operators with weights whose results reach it without another between."""

    @cache
    def layers(index: int) -> tuple[int, ...]:
        return (index,) if program.ops[index].tensors else read(index)

    def read(index: int) -> tuple[int, ...]:
        return tuple(
            dict.fromkeys(layer for ref in program.ops[index].refs for layer in layers(ref))
        )

    return [list(read(index)) for index in range(len(program.ops))]
