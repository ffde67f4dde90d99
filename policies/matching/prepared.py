"""Models as arrays, the input of the alignment."""

from math import prod
from typing import NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.matching.fitting import (
    Extents,
    beside_identity,
    extents,
    kind,
    neighbours,
    passable,
    stages,
    task_ends,
)
from wattkeeper.policies.matching.graph import SOURCE, Graph, Node


class Prepared(NamedTuple):
    """A model as arrays: its nodes in canonical order, with properties stored once per sort.

    Nodes that differ in nothing but their position are of one *sort*.

    Attributes:
        order: Positions of the graph's nodes in canonical order, shape (nodes,).
        sorts: Sort of each node in that order, shape (nodes,).
        kind: Hash of what must be equal for weights to fit, shape (sorts,).
        inputs: Input units, shape (sorts,).
        outputs: Output units, shape (sorts,).
        task_inputs: 1 if the inputs are fixed by the task, else 0, shape (sorts,).
        task_outputs: 1 if the outputs are fixed by the task, else 0, shape (sorts,).
        passable: 1 if a node of the sort can be the identity, else 0, shape (sorts,).
        beside: 1 if it lies beside an identity, else 0, shape (sorts,).
        before: Hash of the operators before it, shape (sorts,).
        after: Hash of the operators after it, shape (sorts,).
        stage: How often its input was downsampled, shape (sorts,).
        size: Trained elements, shape (sorts,).
        starts: Where each sort's trained tensors begin in the next three, shape (sorts + 1,).
        first: First extents of these tensors, shape (tensors,).
        second: Second extents, shape (tensors,).
        kernel: Elements of their kernels, shape (tensors,).
    """

    order: Ints
    sorts: Ints
    kind: Ints
    inputs: Ints
    outputs: Ints
    task_inputs: Ints
    task_outputs: Ints
    passable: Ints
    beside: Ints
    before: Ints
    after: Ints
    stage: Ints
    size: Ints
    starts: Ints
    first: Ints
    second: Ints
    kernel: Ints

    @property
    def sizes(self) -> Ints:
        """Trained elements by node in canonical order, shape (nodes,)."""
        sizes: Ints = self.size[self.sorts]
        return sizes


class _Trait(NamedTuple):
    kind: int
    extents: Extents
    passable: bool
    trained: tuple[tuple[int, ...], ...]


class _Sort(NamedTuple):
    trait: _Trait
    task_inputs: bool
    task_outputs: bool
    beside: bool
    before: int
    after: int
    stage: int


def prepare(graph: Graph) -> Prepared:
    """The graph as arrays."""
    return graph.arrays(Prepared, _prepare_uncached)


def canonical_order(graph: Graph) -> list[int]:
    """Order the nodes so that every branch is contiguous, independent of the order of execution.

    Depth-first from the outputs; at a join, the branch with the most weighted nodes on its longest
    path comes first, then the order of arguments. So the body of a residual block precedes its
    shortcut, and query, key and value are in the order of the attention's arguments, in every
    model.

    Returns:
        Positions of the nodes, each after all its predecessors.
    """
    before = [[index for index in node.inputs if index != SOURCE] for node in graph.nodes]
    depth = [0] * len(before)
    last = [True] * len(before)
    for index, (node, places) in enumerate(zip(graph.nodes, before, strict=True)):
        depth[index] = max([depth[place] for place in places], default=0) + bool(node.tensors)
        for place in places:
            last[place] = False
    order: list[int] = []
    visited = [False] * len(before)
    stack = [index for index in range(len(before) - 1, -1, -1) if last[index]]
    while stack:
        index = stack.pop()
        if index < 0:  # all before it are done
            order.append(~index)
        elif not visited[index]:
            visited[index] = True
            stack.append(~index)
            before[index].reverse()  # what comes first goes on the stack last
            before[index].sort(key=depth.__getitem__)
            stack += before[index]
    return order


def _prepare_uncached(graph: Graph) -> Prepared:
    order = canonical_order(graph)
    first, last = task_ends(graph)
    beside, around, stage = beside_identity(graph), neighbours(graph), stages(graph)
    repeated = _repeated(graph, order)
    traits: dict[tuple[object, ...], _Trait] = {}
    sort_numbers: dict[_Sort, int] = {}
    sorts = np.empty(len(order), dtype=np.int64)
    for place, index in enumerate(order):
        node, twice = graph.nodes[index], repeated.get(index, frozenset())
        key = (twice, node.op, node.attributes, *[tensor[1:] for tensor in node.tensors])
        trait = traits.get(key)
        if trait is None:
            trait = traits[key] = _trait(node, twice)
        sort = _Sort(trait, first[index], last[index], beside[index], *around[index], stage[index])
        sorts[place] = sort_numbers.setdefault(sort, len(sort_numbers))
    return _arrays(np.array(order, dtype=np.int64), sorts, list(sort_numbers))


def _repeated(graph: Graph, order: list[int]) -> dict[int, frozenset[str]]:
    """Roles of the tensors that a node shares with an earlier one, by node; they count once."""
    names = [tensor.name for node in graph.nodes for tensor in node.tensors if tensor.name]
    if len(names) == len(set(names)):
        return {}
    held: set[str] = set()
    repeated = {}
    for index in order:
        tensors = graph.nodes[index].tensors
        repeated[index] = frozenset(tensor.role for tensor in tensors if tensor.name in held)
        held.update(tensor.name for tensor in tensors if tensor.name)
    return repeated


def _trait(node: Node, repeated: frozenset[str]) -> _Trait:
    trained = sorted(
        (tensor.role, (*tensor.shape, 1, 1)[:2], prod(tensor.shape[2:]))
        for tensor in node.tensors
        if tensor.trained and tensor.role not in repeated
    )
    shapes = tuple((*ends, kernel) for _, ends, kernel in trained)
    return _Trait(kind(node), extents(node), passable(node), shapes)


def _arrays(order: Ints, sorts: Ints, distinct: list[_Sort]) -> Prepared:
    shapes = _columns([shape for sort in distinct for shape in sort.trait.trained], 3)
    starts = np.cumsum([0, *(len(sort.trait.trained) for sort in distinct)], dtype=np.int64)
    total = np.cumsum([0, *shapes.prod(axis=0)], dtype=np.int64)
    kinds, inputs, outputs, task_inputs, task_outputs, *place = _columns(
        [
            (
                sort.trait.kind,
                *sort.trait.extents,
                sort.task_inputs,
                sort.task_outputs,
                sort.trait.passable,
                sort.beside,
                sort.before,
                sort.after,
                sort.stage,
            )
            for sort in distinct
        ],
        10,
    )
    return Prepared(
        order=order,
        sorts=sorts,
        kind=kinds,
        inputs=inputs,
        outputs=outputs,
        task_inputs=task_inputs,
        task_outputs=task_outputs,
        passable=place[0],
        beside=place[1],
        before=place[2],
        after=place[3],
        stage=place[4],
        size=np.diff(total[starts]),
        starts=starts,
        first=shapes[0],
        second=shapes[1],
        kernel=shapes[2],
    )


def _columns(rows: list[tuple[int, ...]], width: int) -> Ints:
    return np.array(rows, dtype=np.int64).reshape(-1, width).T.copy()
