"""Matchers by name: how similar a trained model is to a new one, and at most can be."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.matching.asbuilt import Chains, asbuilt, chains, raw_score
from wattkeeper.policies.matching.coverage import coverage, score_prepared
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.prepared import Prepared, prepare

A = TypeVar("A", bound=tuple[Ints, ...])


class Kinds(NamedTuple):
    """The kinds of nodes that a model has.

    Attributes:
        kind: Each once, ascending, shape (kinds,).
        nodes: How many nodes are of that kind, shape (kinds,).
    """

    kind: Ints
    nodes: Ints


class Matcher(Protocol[A]):
    """How similar models are, computed on their arrays (`arrays`), which a store may keep.

    Attributes:
        layout: The class of the arrays.
    """

    layout: type[A]

    def arrays(self, graph: Graph) -> A:
        """A graph as this matcher takes it."""

    def score(self, parent: A, child: A) -> float:
        """How similar a parent is to a child: the more, the better."""

    def score_graphs(self, parent: Graph, child: Graph) -> float:
        """The same of graphs; computed once a pair of them."""

    def own(self, child: A) -> float:
        """The child's score for itself."""

    def kinds(self, model: A) -> Kinds:
        """What the bound needs to know of a parent, and asks of a child."""

    def bounds(self, child: A, counts: Ints) -> Floats:
        """What no parent's score can be above.

        Args:
            child: The child.
            counts: For each kind of the child, as `kinds` has it, how many nodes each parent has,
                shape (kinds, parents).

        Returns:
            An upper bound for each parent, shape (parents,).
        """


class Coverage:
    """The share of the child that the alignment fills (see `coverage`): 0 to 1."""

    layout = Prepared

    def arrays(self, graph: Graph) -> Prepared:
        """The nodes in canonical order."""
        return prepare(graph)

    def score(self, parent: Prepared, child: Prepared) -> float:
        """The coverage of the child by the parent."""
        return score_prepared(parent, child)

    def score_graphs(self, parent: Graph, child: Graph) -> float:
        """The coverage of the child by the parent."""
        return coverage(parent, child)

    def own(self, child: Prepared) -> float:
        """1, or 0 if the child has nothing to train."""
        return 1.0 if child.sizes.any() else 0.0

    def kinds(self, model: Prepared) -> Kinds:
        """Kinds of nodes whose weights fit, but for the task's extents."""
        return Kinds(*np.unique(model.kind[model.sorts], return_counts=True))

    def bounds(self, child: Prepared, counts: Ints) -> Floats:
        """As if a parent's nodes filled the largest nodes of their kind, in whatever order."""
        nodes, sizes = child.kind[child.sorts], child.sizes
        best = np.zeros(counts.shape[1], dtype=np.int64)
        for kind, there in zip(self.kinds(child).kind, counts, strict=True):
            largest = np.sort(sizes[nodes == kind])[::-1]
            filled = np.cumsum([0, *largest])
            best += filled[np.minimum(there, len(largest))]
        total = int(sizes.sum())
        return best / total if total else np.zeros(len(best))


class AsBuilt:
    """ModelKeeper's published raw score (see `asbuilt`)."""

    layout = Chains

    def arrays(self, graph: Graph) -> Chains:
        """The nodes in the graph's order."""
        return chains(graph)

    def score(self, parent: Chains, child: Chains) -> float:
        """The raw score of the parent for the child."""
        return raw_score(parent, child)

    def score_graphs(self, parent: Graph, child: Graph) -> float:
        """The raw score of the parent for the child."""
        return asbuilt(parent, child)

    def own(self, child: Chains) -> float:
        """The child's raw score for itself."""
        return self.score(child, child)

    def kinds(self, model: Chains) -> Kinds:
        """Different operators and shapes."""
        return Kinds(*np.unique(model.kinds, return_counts=True))

    def bounds(self, child: Chains, counts: Ints) -> Floats:
        """As if a parent had a node for each of the child whose kind it has, wherever needed."""
        kinds = self.kinds(child).kind
        gain = np.where(counts > 0, 1.0, -0.25)[np.searchsorted(kinds, child.kinds)]
        best = np.zeros((len(child.kinds) + 1, counts.shape[1]))
        for at, (start, stop) in enumerate(zip(child.starts, child.starts[1:], strict=False)):
            heads = best[child.before[start:stop] + 1] + gain[at]
            # At a join, a branch that finds no row of its own adds nothing.
            best[at + 1] = heads[0] if len(heads) == 1 else np.maximum(heads, 0).sum(axis=0)
        # The sums are made in another order than the score's.
        bounds: Floats = best[-1] + 1e-9 * np.abs(best[-1])
        return bounds


MATCHERS: Final[dict[str, Matcher[Any]]] = {
    "coverage": Coverage(),
    "modelkeeper-asbuilt": AsBuilt(),
}
"""By name."""


def find_matcher(name: str) -> Matcher[Any]:
    """The matcher of that name.

    Raises:
        PolicyError: If there is none.
    """
    if name not in MATCHERS:
        raise PolicyError(f"no matcher is called {name!r}; there are {', '.join(MATCHERS)}")
    return MATCHERS[name]
