"""Alignment of two models: from which parent node each child node takes its weights."""

import numpy as np

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.pairs import kernel
from wattkeeper.policies.matching.prepared import prepare


def align(parent: Graph, child: Graph) -> Ints:
    """Align two models so that the child takes over as much of the parent as possible.

    Nodes are matched where their weights fit (see `fitting`) and in canonical order, each at most
    once. The value of a match is the number of elements that both have. Ties between alignments are
    broken, for both models alike, by: few unmatched nodes whose omission changes the function (they
    are neither the identity nor beside one); similar positions in the model; similar and equal
    shapes; few unmatched elements; and last, more matches of nodes without weights, and early ones.

    Returns:
        Position of the parent's node for each node of the child, or -1, shape (child nodes,).
    """
    mine, yours = prepare(child), prepare(parent)
    places = kernel("alignment_kernel").align(tuple(yours), tuple(mine))
    matches = np.full(len(child), -1, dtype=np.int64)
    matched = places >= 0
    matches[mine.order[matched]] = yours.order[places[matched]]
    return matches
