"""Matchers by name: similarity of a trained model to a new one, and upper bounds of it."""

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
    """The kinds of nodes of a model.

    Attributes:
        kind: Distinct kinds, ascending, shape (kinds,).
        nodes: Number of nodes of each kind, shape (kinds,).
    """

    kind: Ints
    nodes: Ints


class Matcher(Protocol[A]):
    """Similarity of models, computed on arrays (`arrays`) that a store may cache.

    Attributes:
        layout: Class of the arrays.
    """

    layout: type[A]

    def arrays(self, graph: Graph, /) -> A:
        """The graph in the form that this matcher takes."""

    def score(self, parent: A, child: A, /) -> float:
        """Similarity of a parent to a child; larger is more similar."""

    def score_graphs(self, parent: Graph, child: Graph, /) -> float:
        """The same for graphs; computed once for each pair."""

    def own(self, child: A) -> float:
        """The child's score for itself."""

    def kinds(self, model: A) -> Kinds:
        """The node kinds of a model, from which `bounds` computes."""

    def bounds(self, child: A, counts: Ints) -> Floats:
        """Upper bounds of the scores of parents.

        Args:
            child: The child.
            counts: For each kind of the child, as `kinds` has it, the number of nodes of each
                parent, shape (kinds, parents).

        Returns:
            An upper bound for each parent, shape (parents,).
        """


class Coverage:
    """Share of the child that the alignment fills (see `coverage`): 0 to 1."""

    layout = Prepared
    arrays = staticmethod(prepare)
    score = staticmethod(score_prepared)
    score_graphs = staticmethod(coverage)

    def own(self, child: Prepared) -> float:
        """1, or 0 if the child has no trained elements."""
        return 1.0 if child.sizes.any() else 0.0

    def kinds(self, model: Prepared) -> Kinds:
        """Kinds of nodes whose weights fit, apart from the extents fixed by the task."""
        return Kinds(*np.unique(model.kind[model.sorts], return_counts=True))

    def bounds(self, child: Prepared, counts: Ints) -> Floats:
        """The bound if a parent's nodes filled the largest nodes of their kind, in any order."""
        nodes, sizes = child.kind[child.sorts], child.sizes
        best = np.zeros(counts.shape[1], dtype=np.int64)
        for kind, available in zip(self.kinds(child).kind, counts, strict=True):
            largest = np.sort(sizes[nodes == kind])[::-1]
            filled = np.cumsum([0, *largest])
            best += filled[np.minimum(available, len(largest))]
        total = int(sizes.sum())
        return best / total if total else np.zeros(len(best))


class AsBuilt:
    """ModelKeeper's published raw score (see `asbuilt`)."""

    layout = Chains
    arrays = staticmethod(chains)
    score = staticmethod(raw_score)
    score_graphs = staticmethod(asbuilt)

    def own(self, child: Chains) -> float:
        """The child's raw score for itself."""
        return self.score(child, child)

    def kinds(self, model: Chains) -> Kinds:
        """Distinct operators with their shapes."""
        return Kinds(*np.unique(model.kinds, return_counts=True))

    def bounds(self, child: Chains, counts: Ints) -> Floats:
        """The bound if a parent had a node of the right kind wherever the child has one."""
        kinds = self.kinds(child).kind
        gain = np.where(counts > 0, 1.0, -0.25)[np.searchsorted(kinds, child.kinds)]
        best = np.zeros((len(child.kinds) + 1, counts.shape[1]))
        for node, (start, stop) in enumerate(zip(child.starts, child.starts[1:], strict=False)):
            heads = best[child.before[start:stop] + 1] + gain[node]
            # At a join, a branch that finds no row of its own adds nothing.
            best[node + 1] = heads[0] if len(heads) == 1 else np.maximum(heads, 0).sum(axis=0)
        # The sums are made in another order than the score's.
        bounds: Floats = best[-1] + 1e-9 * np.abs(best[-1])
        return bounds


MATCHERS: Final[dict[str, Matcher[Any]]] = {
    "coverage": Coverage(),
    "modelkeeper-asbuilt": AsBuilt(),
}
"""Matchers by name."""


def find_matcher(name: str) -> Matcher[Any]:
    """The matcher of that name.

    Raises:
        PolicyError: If there is none.
    """
    if name not in MATCHERS:
        raise PolicyError(f"no matcher is called {name!r}; there are {', '.join(MATCHERS)}")
    return MATCHERS[name]
