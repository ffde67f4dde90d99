"""How much of a child a parent fills: our similarity of models."""

from __future__ import annotations

from wattkeeper.policies.zoo.graph import Graph
from wattkeeper.policies.zoo.prepared import prepared


def coverage(parent: Graph, child: Graph) -> float:
    """Share of the child's trained elements, 0 to 1, that the alignment fills from the parent.

    A tensor of a matched node is filled wholly, whether it is copied, widened or narrowed. A model
    fills itself wholly; a child that has nothing to train is not filled at all.
    """
    from wattkeeper.policies.zoo import alignment_kernel as kernel

    mine = prepared(child)
    total = int(mine.sizes.sum())
    return int(kernel.filled(tuple(prepared(parent)), tuple(mine))) / total if total else 0.0
