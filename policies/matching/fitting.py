"""Which weights fit which node.

Two nodes fit if their operators and attributes are equal and their tensors pair up by role, with
equal rank and kernels that can be laid on each other: a kernel is all of a shape but its first two
extents, and those are the units that may be widened or narrowed. Square kernels have a middle in
common if both are odd or both are even, so that the larger one may have zeros around the smaller
(Network Morphism, Wei et al., ICML '16); others must be equal. Two extents are no
widths but the task's, and must be equal too: the inputs of the first nodes that mix units (channels
of an image, words of a vocabulary) and the outputs of the last ones (classes).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import crc32

from wattkeeper.policies.matching.graph import SOURCE, Graph, Node

INPUTS_FIRST: Final = frozenset({"embedding", "gather", "matmul"})
"""Operators whose weight has what comes in as its rows; in lower case."""

JOINS: Final = frozenset({"add", "sum", "cat", "concat"})
"""Operators that join a branch to its own input; in lower case."""


class Extents(NamedTuple):
    """The units at both ends of a node, told by its first tensor; 0 if it has no tensor.

    Attributes:
        inputs: Units that it takes in.
        outputs: Units that it gives out.
    """

    inputs: int
    outputs: int


def kind(node: Node) -> int:
    """Hash (64 bits) of all that must be equal for the weights of one node to fit another."""
    tensors = sorted(
        (tensor.role, len(tensor.shape), _middle(node, tensor.shape[2:]), tensor.trained)
        for tensor in node.tensors
    )
    text = repr((node.op, node.attributes, tensors)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little", signed=True)


def _middle(node: Node, kernel: tuple[int, ...]) -> tuple[int, ...]:
    """What of a kernel must be equal for it to be laid on another one."""
    square = len(set(kernel)) == 1 and node.op.lower().startswith("conv")
    return (kernel[0] % 2,) if square else kernel


def extents(node: Node) -> Extents:
    """The units at both ends of a node."""
    if not node.tensors:
        return Extents(0, 0)
    shape = node.tensors[0].shape or (1,)
    if len(shape) == 1 or ("depthwise", True) in node.attributes:
        return Extents(shape[0], shape[0])
    op = node.op.lower().replace("_", "")
    if op in INPUTS_FIRST or op.startswith("convtranspose") or ("transB", 0) in node.attributes:
        return Extents(shape[0], shape[1])
    return Extents(shape[1], shape[0])


def mixes(node: Node) -> bool:
    """Whether each unit that a node gives out depends on several that it takes in."""
    return bool(node.tensors) and len(node.tensors[0].shape) > 1


def passable(node: Node) -> bool:
    """Whether some weights make a node the identity: as many units out as in, and no stride.

    Wherever it stands; before a mean of all positions, one with a stride may do no harm either.
    """
    ends = extents(node)
    return ends.inputs == ends.outputs and not _strided(node)


def beside_identity(graph: Graph) -> list[bool]:
    """Which nodes lie in a branch that joins its own input again, by addition or concatenation.

    Such a branch can be left out as a whole: it may add nothing, or nobody need read its units.
    """
    before: list[int] = []  # as bits, each node with all before it
    beside = 0
    for at, node in enumerate(graph.nodes):
        inputs = [place for place in node.inputs if place != SOURCE]
        joined = [before[place] for place in inputs]
        whole = 1 << at
        for bits in joined:
            whole |= bits
        before.append(whole)
        if node.op.lower() in JOINS:
            for kept in inputs:
                for bits in joined:
                    if bits >> kept & 1:
                        beside |= bits & ~before[kept]
    return [bool(beside >> at & 1) for at in range(len(graph))]


def stages(graph: Graph) -> list[int]:
    """How often what a node takes in was made coarser, by a stride or by pooling."""
    after: list[int] = []
    found: list[int] = []
    for node in graph.nodes:
        stage = max((after[place] for place in node.inputs if place != SOURCE), default=0)
        found.append(stage)
        after.append(stage + coarser(node))
    return found


def coarser(node: Node) -> bool:
    """Whether a node gives out fewer positions than it takes in."""
    return _strided(node) or "pool" in node.op.lower()


def _strided(node: Node) -> bool:
    for key, value in node.attributes:
        steps = value if isinstance(value, tuple) else (value,)
        if key == "stride" and any(step != 1 for step in steps):
            return True
    return False


def neighbours(graph: Graph) -> list[tuple[int, int]]:
    """Hashes (32 bits) of the operators before and after each node."""
    after: list[list[str]] = [[] for _ in graph.nodes]
    for node in graph.nodes:
        for place in node.inputs:
            if place != SOURCE:
                after[place].append(node.op)
    before = [[graph.nodes[at].op for at in n.inputs if at != SOURCE] for n in graph.nodes]
    return [
        (crc32(" ".join(ops).encode()), crc32(" ".join(sorted(users)).encode()))
        for ops, users in zip(before, after, strict=True)
    ]


def task_ends(graph: Graph) -> tuple[list[bool], list[bool]]:
    """Which nodes take in, and which give out, what the task says and no width does.

    Returns:
        For each node, whether its inputs are the task's: no node before it mixes units; and
        whether its outputs are: it mixes units and no node after it has weights.
    """
    mixing = [mixes(node) for node in graph.nodes]
    mixed_before = [False] * len(graph)
    weighted_after = [False] * len(graph)
    for at, node in enumerate(graph.nodes):
        for before in node.inputs:
            if before != SOURCE and (mixing[before] or mixed_before[before]):
                mixed_before[at] = True
    for at in range(len(graph) - 1, -1, -1):
        if weighted_after[at] or graph.nodes[at].tensors:
            for before in graph.nodes[at].inputs:
                weighted_after[before] |= before != SOURCE
    return (
        [bool(n.tensors) and not mixed for n, mixed in zip(graph.nodes, mixed_before, strict=True)],
        [mix and not after for mix, after in zip(mixing, weighted_after, strict=True)],
    )
