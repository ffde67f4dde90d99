"""ModelKeeper's similarity of models exactly as its authors published it (NSDI '23).

Where the description leaves a choice, this is the reading under which the authors' scores come out
for all pairs of their models:

- Operators are equal if their names are; attributes such as stride or groups do not count.
- A node's shape is that of its first tensor, its weight; biases and statistics do not count. A node
  without tensors has no shape. Because of its integer division, a pair is worth 1 if operator and
  shape are equal and -1 otherwise, whatever the sizes.
- A node that takes the same predecessor twice has it once; a node without any follows position -1.
- Nodes are scored in the order in which the graph holds them, which must be topological. Which of
  these orders it is does not matter where a graph has one output: a cell depends on predecessors
  alone, and the last cell is the output's.
- Several predecessors of a child's node make branches, even if the parent's node has only one;
  only a child's node with a single predecessor may skip a parent's node.
"""

from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.matching.graph import SOURCE, Graph, Node
from wattkeeper.policies.matching.pairs import cache_by_pair, kernel


class Chains(NamedTuple):
    """A model as input of the published matcher.

    Attributes:
        kinds: Hash of operator and shape of each node, shape (nodes,).
        starts: Where each node's predecessors begin in `before`, shape (nodes + 1,).
        before: Predecessors of all nodes, -1 for a source, shape (edges,).
    """

    kinds: Ints
    starts: Ints
    before: Ints


@cache_by_pair
def asbuilt(parent: Graph, child: Graph) -> float:
    """The published raw score of a parent for a child.

    It has no fixed scale: at each join the branches are added up, so it grows exponentially with
    the child's joins. Divide by the child's score for itself to compare children; the paper divides
    by the child's number of nodes.
    """
    return raw_score(chains(parent), chains(child))


def raw_score(parent: Chains, child: Chains) -> float:
    """The published raw score of two models in the matcher's form."""
    return float(kernel("asbuilt_kernel").score(tuple(parent), tuple(child)))


def chains(graph: Graph) -> Chains:
    """The graph as input of the published matcher."""
    return graph.arrays(Chains, _make)


def _make(graph: Graph) -> Chains:
    hashes: dict[tuple[str, tuple[int, ...]], int] = {}
    kinds = [_kind(node, hashes) for node in graph.nodes]
    before = [
        [*dict.fromkeys(place for place in node.inputs if place != SOURCE)] or [SOURCE]
        for node in graph.nodes
    ]
    return Chains(
        np.array(kinds, dtype=np.int64),
        np.cumsum([0, *map(len, before)], dtype=np.int64),
        np.array([place for places in before for place in places], dtype=np.int64),
    )


def _kind(node: Node, hashes: dict[tuple[str, tuple[int, ...]], int]) -> int:
    key = (node.op, node.tensors[0].shape if node.tensors else ())
    if key not in hashes:
        digest = blake2b(repr(key).encode(), digest_size=8).digest()
        hashes[key] = int.from_bytes(digest, "little", signed=True)
    return hashes[key]
