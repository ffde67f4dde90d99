"""Matchers by name: similarity of a trained model to a new one, and upper bounds of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.matching.asbuilt import Chains, asbuilt, chains, raw_score
from wattkeeper.policies.matching.benefit import expected_saving, saving_by_accuracy
from wattkeeper.policies.matching.bounds import Bounds, bound_asbuilt, bound_coverage, bound_saving
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.prepared import Prepared, prepare
from wattkeeper.policies.matching.relation import coverage, relate, relate_prepared
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


@dataclass(frozen=True)
class Matcher(Generic[A, S]):
    """Similarity of models, computed on arrays that a store may cache.

    Attributes:
        layout: Class of the arrays.
        sketches: Class of the sketches, from which scores are bounded.
        arrays: Returns a graph in the form that this matcher takes.
        sketch: Returns the sketch of a graph.
        score: Returns the similarity of a parent to a child; larger is more similar.
        score_graphs: Returns the same for graphs; computed once for each pair.
        bounds: Returns upper bounds of the scores of parents.
        by_accuracy: Returns what the accuracy of a parent, and the best one of its task, add to its
            score.
    """

    layout: type[A]
    sketches: type[S]
    arrays: Callable[[Graph], A]
    sketch: Callable[[Graph], S]
    score: Callable[[A, A], float]
    score_graphs: Callable[[Graph, Graph], float]
    bounds: Callable[[Graph, SketchTable[S]], Bounds]
    by_accuracy: Callable[[float, float], float] = lambda accuracy, best: 0.0

    def own(self, child: A) -> float:
        """The child's score for itself."""
        return self.score(child, child)


MATCHERS: Final[dict[str, Matcher[Any, Any]]] = {
    "coverage": Matcher(
        Prepared,
        CoverageSketch,
        prepare,
        sketch_coverage,
        lambda parent, child: relate_prepared(parent, child).coverage,
        coverage,
        bound_coverage,
    ),
    "modelkeeper-asbuilt": Matcher(
        Chains, AsBuiltSketch, chains, sketch_asbuilt, raw_score, asbuilt, bound_asbuilt
    ),
    "saving": Matcher(
        Prepared,
        CoverageSketch,
        prepare,
        sketch_coverage,
        lambda parent, child: expected_saving(relate_prepared(parent, child)),
        lambda parent, child: expected_saving(relate(parent, child)),
        bound_saving,
        saving_by_accuracy,
    ),
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
