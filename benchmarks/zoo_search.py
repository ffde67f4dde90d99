"""What it costs to find the best parent of a new model among many, exactly, and how that grows.

Run it from the checkout: ``.venv/bin/python -m benchmarks.zoo_search [MODELS ...]``, for example
with 100 500 2500 25000. The parents have 500 nodes on average and mostly descend from one another
by mutation, as in a search for architectures; half of the children, of 180 to 280 nodes, are
mutations of parents. Each size of the zoo adds models to the one before, and the same children are
asked for, by score and then by retained share, as the policies ask. Seconds are CPU
seconds. For some children all parents are scored too, and the answers compared.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.k_medoids import TwoStage
from tests.support.random_graphs import Spec, build, draw, lineage, mutate
from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.matching.benefit import expected_saving
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.matchers import MATCHERS, Matcher
from wattkeeper.policies.matching.prepared import Prepared, prepare
from wattkeeper.policies.matching.relation import Relation, relate_prepared
from wattkeeper.policies.matching.search import ParentSearch, ScoredParent

SIZES, NODES = (100, 500, 2500), 500
CHILDREN, COMPARED, CHILD_NODES = 40, 3, (180, 280)
CLUSTERED = 100
"""Parents that the search in two stages gets, which scores all their pairs beforehand."""
BY_RELATION: Final[dict[str, Callable[[Relation], float]]] = {
    "coverage": lambda relation: relation.coverage,
    "saving": expected_saving,
}
"""Matchers whose score follows from a relation, of which one alignment gives all."""


class Work(NamedTuple):
    """What the searches for all children among some parents cost.

    Attributes:
        models: Number of parents.
        spent_s: CPU time of each search, shape (children,).
        scored: Parents that each search scored, shape (children,).
        refined: Parents whose retained share each search computed, shape (children,).
    """

    models: int
    spent_s: list[float]
    scored: list[int]
    refined: list[int]


class Zoo:
    """Parents as arrays, and the search among them by one matcher."""

    def __init__(self, name: str, matcher: Matcher[Any, Any]) -> None:
        self.name, self.matcher = name, matcher
        self.search: ParentSearch[Any] = ParentSearch(matcher)
        self.added_s = 0.0
        self.results: list[Work] = []
        self._arrays: list[dict[Any, tuple[Any, ...]]] = []

    def add(self, parent: Graph) -> None:
        """Add a parent, of which only arrays are kept, in half their size."""
        began_s = time.process_time()
        self.matcher.arrays(parent)
        self.search.add(self.matcher.sketch(parent))
        self.added_s += time.process_time() - began_s
        kept = {self.matcher.layout: self.matcher.arrays(parent), Prepared: prepare(parent)}
        self._arrays.append(
            {layout: tuple(_halve(one) for one in each) for layout, each in kept.items()}
        )

    def arrays(self, index: int, layout: Any) -> Any:
        """The arrays of a parent in a layout."""
        return layout(*(column.astype(np.int64) for column in self._arrays[index][layout]))

    def find(self, child: Graph) -> ScoredParent:
        """The best parent of a child."""
        arrays, prepared = self.matcher.arrays(child), prepare(child)
        known: dict[int, Relation] = {}

        def relation(index: int) -> Relation:
            if index not in known:
                known[index] = relate_prepared(self.arrays(index, Prepared), prepared)
            return known[index]

        def score(index: int) -> float:
            if self.name in BY_RELATION:
                return BY_RELATION[self.name](relation(index))
            return self.matcher.score(self.arrays(index, self.matcher.layout), arrays)

        (best,) = self.search.best(child, score, retained=lambda index: relation(index).retained)
        return best

    def scan(self, child: Graph) -> ScoredParent:
        """The best parent of a child, with all scored."""
        arrays, prepared = self.matcher.arrays(child), prepare(child)
        scores = [
            self.matcher.score(self.arrays(index, self.matcher.layout), arrays)
            for index in range(len(self._arrays))
        ]
        best = max(scores)
        retained = {
            index: relate_prepared(self.arrays(index, Prepared), prepared).retained
            for index, score in enumerate(scores)
            if score == best
        }
        return ScoredParent(max(retained, key=lambda index: (retained[index], -index)), best)

    def measure(self, children: list[Graph]) -> None:
        """Search for all children, and print what that costs."""
        self.find(children[0])  # compiles
        work = Work(len(self._arrays), [], [], [])
        for child in children:
            began_s = time.process_time()
            self.find(child)
            work.spent_s.append(time.process_time() - began_s)
            work.scored.append(self.search.scored)
            work.refined.append(self.search.refined)
        self.results.append(work)
        began_s = time.process_time()
        equal = sum(self.find(child) == self.scan(child) for child in children[:COMPARED])
        scan_s = (time.process_time() - began_s) / COMPARED
        print(
            f"{self.name}, {work.models} parents: mean {np.mean(work.spent_s):.4f} s, median "
            f"{np.median(work.spent_s):.4f} s, largest {max(work.spent_s):.4f} s; scored "
            f"{np.mean(work.scored):.1f} on average, {max(work.scored)} at most, aligned for ties "
            f"{np.mean(work.refined):.1f}; all scored: {scan_s:.2f} s, the same parent for {equal} "
            f"of {COMPARED}; index {self.search.sketches.bytes / 1e6:.1f} MB, "
            f"{1e3 * self.added_s / work.models:.1f} ms a model to add",
            flush=True,
        )

    def print_growth(self) -> None:
        """Print the exponents of growth between the smallest and the largest zoo."""
        if len(self.results) < 2:
            return
        sizes = np.log([work.models for work in self.results])
        for what, values in (
            ("time", [np.mean(work.spent_s) for work in self.results]),
            ("scored parents", [np.mean(work.scored) for work in self.results]),
        ):
            print(f"{self.name}, {what}: exponent {np.polyfit(sizes, np.log(values), 1)[0]:.2f}")


def _halve(column: Ints) -> Any:
    """The column in 32 bits, if its values fit."""
    small = column.astype(np.int32)
    return small if (small == column).all() else column


def new_children(specs: list[Spec], rng: np.random.Generator) -> list[Graph]:
    """Children of the wanted size, mutations of parents and others in turn."""
    sizes = [len(build(spec)) for spec in specs]
    near = [at for at, nodes in enumerate(sizes) if CHILD_NODES[0] <= nodes <= CHILD_NODES[1]]
    found: list[Graph] = []
    while len(found) < CHILDREN:
        if len(found) % 2:
            graph = build(draw(rng, sum(CHILD_NODES) // 2))
        else:
            graph = build(mutate(specs[int(rng.choice(near))], rng))
        if CHILD_NODES[0] <= len(graph) <= CHILD_NODES[1]:
            found.append(graph)
    return found


def compare_stages(
    name: str, matcher: Matcher[Any, Any], parents: list[Graph], children: list[Graph]
) -> None:
    """Print how often the search in two stages finds the best parent."""
    arrays = [matcher.arrays(parent) for parent in parents]
    queries = [matcher.arrays(child) for child in children]
    began_s = time.process_time()
    staged = TwoStage(matcher, arrays)
    built_s = time.process_time() - began_s
    best = [max(matcher.score(parent, child) for parent in arrays) for child in queries]
    found = [(staged.best(child).score, staged.scored) for child in queries]
    print(
        f"{name}, two stages, {len(parents)} parents: {built_s:.0f} s beforehand; scored "
        f"{np.mean([count for _, count in found]):.0f} on average; the best parent for "
        f"{sum(near == exact for (near, _), exact in zip(found, best, strict=True))} of "
        f"{len(queries)}"
    )


def main() -> None:
    """Measure every matcher."""
    sizes = sorted(map(int, sys.argv[1:])) or SIZES
    rng = np.random.default_rng(1)
    specs = lineage(rng, sizes[-1], NODES)
    children = new_children(specs[: sizes[0]], rng)
    zoos = [Zoo(name, matcher) for name, matcher in MATCHERS.items()]
    done = 0
    for size in sizes:
        for spec in specs[done:size]:
            parent = build(spec)
            for zoo in zoos:
                zoo.add(parent)
        done = size
        for zoo in zoos:
            zoo.measure(children)
    for zoo in zoos:
        zoo.print_growth()
    for zoo in zoos:
        compare_stages(zoo.name, zoo.matcher, [build(one) for one in specs[:CLUSTERED]], children)


if __name__ == "__main__":
    main()
