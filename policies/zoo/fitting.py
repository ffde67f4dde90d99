"""Which weights fit which node, and models as arrays that the alignment runs over.

Two nodes fit if their operators and attributes are equal and their tensors pair up by role, with
equal rank and equal kernels: a kernel is all of a shape but its first two extents, and those are
the units that may be widened or narrowed. Two extents are no widths but the task's, and must be
equal too: the inputs of the first nodes that mix units (channels of an image, words of a
vocabulary) and the outputs of the last ones (classes).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from wattkeeper.policies.zoo.graph import SOURCE, Graph, Ints, Node, Tensor

Flags = npt.NDArray[np.bool_]


class Extents(NamedTuple):
    """The sizes of a node that its weights have at either end, 0 for a node without tensors.

    Attributes:
        inputs: Units that it takes in.
        outputs: Units that it gives out.
    """

    inputs: int
    outputs: int


class Prepared(NamedTuple):
    """A model as arrays: its nodes in canonical order, and each different node once.

    Nodes that nothing tells apart but their place share a *sort*.

    Attributes:
        order: Positions of the graph's nodes in canonical order, shape (nodes,).
        sorts: Sort of each node in that order, shape (nodes,).
        kind: Hash of what must be equal for weights to fit, shape (sorts,).
        inputs: Units taken in, shape (sorts,).
        outputs: Units given out, shape (sorts,).
        task_inputs: 1 if the inputs are the task's, else 0, shape (sorts,).
        task_outputs: 1 if the outputs are the task's, else 0, shape (sorts,).
        passable: 1 if a node of the sort can be the identity, else 0, shape (sorts,).
        size: Trained elements, shape (sorts,).
        starts: Where each sort's trained tensors begin in the next three, shape (sorts + 1,).
        first: Their first extents, shape (tensors,).
        second: Their second extents, shape (tensors,).
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


class _Sort(NamedTuple):
    kind: int
    extents: Extents
    task_inputs: bool
    task_outputs: bool
    passable: bool
    trained: tuple[tuple[int, ...], ...]


_prepared: WeakKeyDictionary[Graph, Prepared] = WeakKeyDictionary()


def prepared(graph: Graph) -> Prepared:
    """The graph as arrays; made once for each graph object."""
    found = _prepared.get(graph)
    if found is None:
        found = _prepared[graph] = _prepare(graph)
    return found


def kind(node: Node) -> int:
    """Hash (64 bits) of all that must be equal for the weights of one node to fit another."""
    tensors = sorted(
        (tensor.role, len(tensor.shape), tensor.shape[2:], tensor.trained)
        for tensor in node.tensors
    )
    text = repr((node.op, node.attributes, tensors)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little", signed=True)


def extents(node: Node) -> Extents:
    """The units at both ends of a node, told by its first tensor."""
    if not node.tensors or not node.tensors[0].shape:
        return Extents(0, 0)
    shape = node.tensors[0].shape
    if len(shape) == 1 or ("depthwise", True) in node.attributes:
        return Extents(shape[0], shape[0])
    if node.op.lower() == "embedding":  # its rows are what comes in
        return Extents(shape[0], shape[1])
    return Extents(shape[1], shape[0])


def task_ends(graph: Graph) -> tuple[Flags, Flags]:
    """Which nodes take in, and which give out, what the task says and no width does.

    Returns:
        For each node, whether its inputs are the task's: no node before it mixes units; and
        whether its outputs are: it mixes units and no node after it has weights. Both (nodes,).
    """
    mixes = np.array([_mixes(node) for node in graph.nodes], dtype=bool)
    weighted = np.array([bool(node.tensors) for node in graph.nodes], dtype=bool)
    mixed_before = np.zeros(len(graph), dtype=bool)
    weighted_after = np.zeros(len(graph), dtype=bool)
    for at, node in enumerate(graph.nodes):
        mixed_before[at] = any(
            mixed_before[before] or mixes[before] for before in node.inputs if before != SOURCE
        )
    for at in range(len(graph) - 1, -1, -1):
        for before in graph.nodes[at].inputs:
            if before != SOURCE:
                weighted_after[before] |= weighted_after[at] or weighted[at]
    return weighted & ~mixed_before, mixes & ~weighted_after


def canonical_order(graph: Graph) -> Ints:
    """The nodes so that every branch is in one piece, whatever order the program ran them in.

    Depth-first from the outputs; at a join, the branch with the most weighted nodes on its longest
    path comes first, then the order of arguments. So the body of a residual block comes before its
    shortcut, and query, key and value as the attention takes them, in every model.

    Returns:
        Positions of the nodes, each after all its predecessors, shape (nodes,).
    """
    nodes = graph.nodes
    depth = [0] * len(nodes)
    final = [True] * len(nodes)
    for at, node in enumerate(nodes):
        before = [place for place in node.inputs if place != SOURCE]
        depth[at] = max((depth[place] for place in before), default=0) + bool(node.tensors)
        for place in before:
            final[place] = False
    order: list[int] = []
    done = [False] * len(nodes)
    stack = [at for at in range(len(nodes) - 1, -1, -1) if final[at]]
    while stack:
        at = stack[-1]
        missing = [place for place in nodes[at].inputs if place != SOURCE and not done[place]]
        if done[at] or not missing:
            stack.pop()
            if not done[at]:
                done[at] = True
                order.append(at)
        else:
            missing.reverse()  # what comes first goes on the stack last
            stack.extend(sorted(missing, key=depth.__getitem__))
    return np.array(order, dtype=np.int64)


def _prepare(graph: Graph) -> Prepared:
    order = canonical_order(graph)
    first, last = task_ends(graph)
    kinds: dict[tuple[object, ...], int] = {}
    met: dict[_Sort, int] = {}
    sorts = np.empty(len(order), dtype=np.int64)
    held: set[str] = set()
    for place, at in enumerate(order.tolist()):
        node = graph.nodes[at]
        key = (node.op, node.attributes, *(tensor[1:] for tensor in node.tensors))
        if key not in kinds:
            kinds[key] = kind(node)
        sort = _Sort(
            kinds[key],
            extents(node),
            bool(first[at]),
            bool(last[at]),
            _passable(node),
            tuple(_extents_of(tensor) for tensor in _own(node, held)),
        )
        sorts[place] = met.setdefault(sort, len(met))
    return _arrays(order, sorts, list(met))


def _arrays(order: Ints, sorts: Ints, met: list[_Sort]) -> Prepared:
    shapes = _columns([shape for sort in met for shape in sort.trained], 3)
    starts = np.cumsum([0, *(len(sort.trained) for sort in met)], dtype=np.int64)
    total = np.cumsum([0, *shapes.prod(axis=0)], dtype=np.int64)
    kind, inputs, outputs, task_inputs, task_outputs, passable = _columns(
        [(s.kind, *s.extents, s.task_inputs, s.task_outputs, s.passable) for s in met], 6
    )
    return Prepared(
        order=order,
        sorts=sorts,
        kind=kind,
        inputs=inputs,
        outputs=outputs,
        task_inputs=task_inputs,
        task_outputs=task_outputs,
        passable=passable,
        size=np.diff(total[starts]),
        starts=starts,
        first=shapes[0],
        second=shapes[1],
        kernel=shapes[2],
    )


def _columns(rows: list[tuple[int, ...]], width: int) -> Ints:
    return np.array(rows, dtype=np.int64).reshape(-1, width).T.copy()


def _own(node: Node, held: set[str]) -> list[Tensor]:
    # A tensor that several nodes share counts where it comes first.
    own = [tensor for tensor in node.tensors if tensor.trained and tensor.name not in held]
    held.update(tensor.name for tensor in own if tensor.name)
    return own


def _extents_of(tensor: Tensor) -> tuple[int, ...]:
    first, second = (*tensor.shape, 1, 1)[:2]
    return first, second, Tensor("", "", tensor.shape[2:]).size


def _mixes(node: Node) -> bool:
    return bool(node.tensors) and len(node.tensors[0].shape) > 1


def _passable(node: Node) -> bool:
    if any(key == "stride" and {*np.ravel(value)} != {1} for key, value in node.attributes):
        return False
    ends = extents(node)
    return ends.inputs == ends.outputs
