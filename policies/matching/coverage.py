"""How much of a child a parent fills, our similarity of models, and how much of itself it keeps."""

from __future__ import annotations

from math import prod

from wattkeeper.policies.matching.alignment import align
from wattkeeper.policies.matching.graph import Graph, Node
from wattkeeper.policies.matching.pairs import cache_by_pair, kernel
from wattkeeper.policies.matching.prepared import Prepared, prepare


@cache_by_pair
def coverage(parent: Graph, child: Graph) -> float:
    """Share of the child's trained elements, 0 to 1, that the alignment fills from the parent.

    A tensor of a matched node is filled wholly, whether it is copied, widened or narrowed. A model
    fills itself wholly; a child that has nothing to train is not filled at all.
    """
    return score_prepared(prepare(parent), prepare(child))


def score_prepared(parent: Prepared, child: Prepared) -> float:
    """The coverage of a prepared child by a prepared parent."""
    total = int(child.sizes.sum())
    count_filled = kernel("alignment_kernel").count_filled
    return int(count_filled(tuple(parent), tuple(child))) / total if total else 0.0


@cache_by_pair
def retained_share(parent: Graph, child: Graph) -> float:
    """Share of the parent's trained elements, 0 to 1, that the child takes over.

    A narrower child takes a part of a tensor, one without a node nothing of it; a wider one takes
    all. A parent that has nothing to train keeps nothing.
    """
    taken = sum(
        _common(parent.nodes[at], node)
        for at, node in zip(align(parent, child).tolist(), child.nodes, strict=True)
        if at >= 0
    )
    total = int(parent.parameters.sum())
    return taken / total if total else 0.0


def _common(theirs: Node, mine: Node) -> int:
    shapes = {tensor.role: tensor.shape for tensor in theirs.tensors if tensor.trained}
    return sum(
        prod(map(min, tensor.shape, shapes[tensor.role]))
        for tensor in mine.tensors
        if tensor.role in shapes
    )
