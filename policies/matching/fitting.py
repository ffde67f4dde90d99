"""Which weights fit which node.

The weights of two nodes fit if their operators and attributes are equal and their tensors pair up
by role, with equal rank and compatible kernels. The kernel is the shape without its first two
extents; those two are the units, which may be widened or narrowed. Square kernels that are both odd
or both even have a common centre, so that the larger one can be zero-padded from the smaller
(Network Morphism, Wei et al., ICML '16); other kernels must be equal. Two extents are fixed by the
task and must be equal too: the inputs of the first nodes that mix units (channels of an image,
words of a vocabulary) and the outputs of the last ones (classes).
"""

from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import crc32

from wattkeeper.policies.matching.graph import SOURCE, Graph, Node

INPUTS_FIRST: Final = frozenset({"embedding", "gather", "matmul", "transposedlinear"})
"""Operators whose weight has the inputs as rows; lower case, without underscores."""

JOINS: Final = frozenset({"add", "sum", "cat", "concat"})
"""Operators that can join a branch to its own input; lower case."""


class Extents(NamedTuple):
    """Input and output units of a node, by its first tensor; 0 if it has none.

    Attributes:
        inputs: Number of input units.
        outputs: Number of output units.
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
    """The part of a kernel's shape that must be equal for kernels to be compatible."""
    square = len(set(kernel)) == 1 and node.op.lower().startswith("conv")
    return (kernel[0] % 2,) if square else kernel


def extents(node: Node) -> Extents:
    """Input and output units of a node."""
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
    """Whether each output unit of a node depends on several input units."""
    return bool(node.tensors) and len(node.tensors[0].shape) > 1


def passable(node: Node) -> bool:
    """Whether some weights make a node the identity: as many output as input units, and no stride.

    Independent of position; before a global mean, a strided node may be harmless as well.
    """
    ends = extents(node)
    return ends.inputs == ends.outputs and not _strided(node)


def beside_identity(graph: Graph) -> list[bool]:
    """Which nodes lie in a branch that is joined to its own input, by addition or concatenation.

    Such a branch can be omitted as a whole: it can add zero, or its units can remain unread.
    """
    before: list[int] = []  # as bits, each node with all before it
    beside = 0
    for index, node in enumerate(graph.nodes):
        inputs = [place for place in node.inputs if place != SOURCE]
        joined = [before[place] for place in inputs]
        whole = 1 << index
        for bits in joined:
            whole |= bits
        before.append(whole)
        if node.op.lower() in JOINS:
            for source in inputs:
                for bits in joined:
                    if bits >> source & 1:
                        beside |= bits & ~before[source]
    return [bool(beside >> index & 1) for index in range(len(graph))]


def stages(graph: Graph) -> list[int]:
    """How often the input of each node was downsampled, by a stride or by pooling."""
    after: list[int] = []
    stage_of_node: list[int] = []
    for node in graph.nodes:
        stage = max((after[place] for place in node.inputs if place != SOURCE), default=0)
        stage_of_node.append(stage)
        after.append(stage + coarser(node))
    return stage_of_node


def coarser(node: Node) -> bool:
    """Whether a node downsamples: it has fewer output than input positions."""
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
    before = [[graph.nodes[place].op for place in n.inputs if place != SOURCE] for n in graph.nodes]
    return [
        (crc32(" ".join(ops).encode()), crc32(" ".join(sorted(users)).encode()))
        for ops, users in zip(before, after, strict=True)
    ]


def task_ends(graph: Graph) -> tuple[list[bool], list[bool]]:
    """Which nodes have inputs, and which have outputs, whose number is fixed by the task.

    Returns:
        For each node, whether its inputs are the task's: no node before it mixes units; and
        whether its outputs are: it mixes units and no node after it has weights.
    """
    mixing = [mixes(node) for node in graph.nodes]
    mixed_before = [False] * len(graph)
    weighted_after = [False] * len(graph)
    for index, node in enumerate(graph.nodes):
        for before in node.inputs:
            if before != SOURCE and (mixing[before] or mixed_before[before]):
                mixed_before[index] = True
    for index in range(len(graph) - 1, -1, -1):
        if weighted_after[index] or graph.nodes[index].tensors:
            for before in graph.nodes[index].inputs:
                weighted_after[before] |= before != SOURCE
    return (
        [bool(n.tensors) and not mixed for n, mixed in zip(graph.nodes, mixed_before, strict=True)],
        [mix and not after for mix, after in zip(mixing, weighted_after, strict=True)],
    )
