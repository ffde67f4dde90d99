"""Which node of a trained parent each node of a child takes its weights from."""

from __future__ import annotations

import numpy as np

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.pairs import kernel
from wattkeeper.policies.matching.prepared import prepare


def align(parent: Graph, child: Graph) -> Ints:
    """The alignment of two models that keeps the most of the parent in the child.

    Nodes are matched where they fit (see `fitting`) and in canonical order, each at most once.
    A match is worth the elements that both have: those that the child takes over. Among the
    alignments that keep as many, these decide, on either side alike: few nodes left out
    without which the function changes, since they can neither be the identity nor lie beside one;
    like places in the model; like shapes and equal ones; few elements left out; and last, more
    matches of nodes without weights, and early ones.

    Returns:
        Position of the parent's node for each node of the child, or -1, shape (child nodes,).
    """
    mine, yours = prepare(child), prepare(parent)
    places = kernel("alignment_kernel").align(tuple(yours), tuple(mine))
    found = np.full(len(child), -1, dtype=np.int64)
    matched = places >= 0
    found[mine.order[matched]] = yours.order[places[matched]]
    return found
