"""Matchers by name: similarity of a trained model to a new one, and upper bounds of it."""

from typing import Any, Final, Protocol, TypeVar

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.matching.asbuilt import Chains, asbuilt, chains, raw_score
from wattkeeper.policies.matching.benefit import expected_saving, saving_prepared
from wattkeeper.policies.matching.bounds import Bounds, bound_asbuilt, bound_coverage, bound_saving
from wattkeeper.policies.matching.coverage import coverage, score_prepared
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.prepared import Prepared, prepare
from wattkeeper.policies.matching.sketches import (
    AsBuiltSketch,
    CoverageSketch,
    SketchTable,
    sketch_asbuilt,
    sketch_coverage,
)
from wattkeeper.policies.suggestions import did_you_mean

A = TypeVar("A", bound=tuple[Ints, ...])
S = TypeVar("S", bound=tuple[Ints, ...])


class Matcher(Protocol[A, S]):
    """Similarity of models, computed on arrays (`arrays`) that a store may cache.

    Attributes:
        layout: Class of the arrays.
        sketches: Class of the sketches, from which scores are bounded.
    """

    layout: type[A]
    sketches: type[S]

    def arrays(self, graph: Graph, /) -> A:
        """The graph in the form that this matcher takes."""

    def sketch(self, graph: Graph, /) -> S:
        """The sketch of a graph."""

    def score(self, parent: A, child: A, /) -> float:
        """Similarity of a parent to a child; larger is more similar."""

    def score_graphs(self, parent: Graph, child: Graph, /) -> float:
        """The same for graphs; computed once for each pair."""

    def own(self, child: A) -> float:
        """The child's score for itself."""

    def bounds(self, child: Graph, parents: SketchTable[S], /) -> Bounds:
        """Upper bounds of the scores of parents."""


class Coverage:
    """Share of the child that the alignment fills (see `coverage`): 0 to 1."""

    layout = Prepared
    sketches = CoverageSketch
    arrays = staticmethod(prepare)
    sketch = staticmethod(sketch_coverage)
    score = staticmethod(score_prepared)
    score_graphs = staticmethod(coverage)
    bounds = staticmethod(bound_coverage)

    def own(self, child: Prepared) -> float:
        """1, or 0 if the child has no trained elements."""
        return 1.0 if child.sizes.any() else 0.0


class Saving:
    """The work that the parent is expected to save (see `expected_saving`): a share."""

    layout = Prepared
    sketches = CoverageSketch
    arrays = staticmethod(prepare)
    sketch = staticmethod(sketch_coverage)
    score = staticmethod(saving_prepared)
    score_graphs = staticmethod(expected_saving)
    bounds = staticmethod(bound_saving)

    def own(self, child: Prepared) -> float:
        """What the child, trained before, would save."""
        return self.score(child, child)


class AsBuilt:
    """ModelKeeper's published raw score (see `asbuilt`)."""

    layout = Chains
    sketches = AsBuiltSketch
    arrays = staticmethod(chains)
    sketch = staticmethod(sketch_asbuilt)
    score = staticmethod(raw_score)
    score_graphs = staticmethod(asbuilt)
    bounds = staticmethod(bound_asbuilt)

    def own(self, child: Chains) -> float:
        """The child's raw score for itself."""
        return self.score(child, child)


MATCHERS: Final[dict[str, Matcher[Any, Any]]] = {
    "coverage": Coverage(),
    "modelkeeper-asbuilt": AsBuilt(),
    "saving": Saving(),
}
"""Matchers by name."""


def find_matcher(name: str) -> Matcher[Any, Any]:
    """The matcher of that name.

    Raises:
        PolicyError: If there is none.
    """
    if name not in MATCHERS:
        meant = did_you_mean(name, MATCHERS)
        raise PolicyError(f"no matcher is called {name!r}{meant}; there are {', '.join(MATCHERS)}")
    return MATCHERS[name]
