"""Coverage, the default similarity of models, and the retained share of a parent."""

from math import prod

from wattkeeper.policies.matching.alignment import align
from wattkeeper.policies.matching.graph import Graph, Node
from wattkeeper.policies.matching.pairs import cache_by_pair, kernel
from wattkeeper.policies.matching.prepared import Prepared, prepare


@cache_by_pair
def coverage(parent: Graph, child: Graph) -> float:
    """Share of the child's trained elements, 0 to 1, that the alignment fills from the parent.

    The tensors of a matched node are filled completely, whether copied, widened or narrowed. A
    model fills itself completely; the coverage of a child without trained elements is 0.
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

    A narrower child takes a part of a tensor, an unmatched node contributes nothing, a wider child
    takes all. The share of a parent without trained elements is 0.
    """
    taken_over = sum(
        _common(parent.nodes[index], node)
        for index, node in zip(align(parent, child).tolist(), child.nodes, strict=True)
        if index >= 0
    )
    total = int(parent.parameters.sum())
    return taken_over / total if total else 0.0


def _common(parent_node: Node, child_node: Node) -> int:
    shapes = {tensor.role: tensor.shape for tensor in parent_node.tensors if tensor.trained}
    return sum(
        prod(map(min, tensor.shape, shapes[tensor.role]))
        for tensor in child_node.tensors
        if tensor.role in shapes
    )
