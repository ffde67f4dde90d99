"""What it costs to find the best parent of a new model among many, exactly.

Run it from the checkout: ``.venv/bin/python -m benchmarks.zoo_search [MODELS]``. The parents have
500 nodes on average and mostly descend from one another by mutation, as in a search for
architectures; half of the children, of 180 to 280 nodes, are mutations of parents. Seconds are CPU
seconds after loading. For some children all parents are scored too, and the answers compared.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from benchmarks.k_medoids import TwoStage
from tests.support.random_graphs import Spec, build, draw, lineage, mutate
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.matchers import MATCHERS, Matcher
from wattkeeper.policies.matching.search import ParentSearch

MODELS, NODES = 2500, 500
CHILDREN, COMPARED, CHILD_NODES = 40, 5, (180, 280)
CLUSTERED = 100
"""Parents that the search in two stages gets, which scores all their pairs beforehand."""


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


def measure(name: str, matcher: Matcher[Any], parents: list[Graph], children: list[Graph]) -> None:
    """Print what one matcher's searches cost."""
    began = time.process_time()
    arrays = [matcher.arrays(parent) for parent in parents]
    made_s = time.process_time() - began
    queries = [matcher.arrays(child) for child in children]
    matcher.score(arrays[0], queries[0])  # compiles
    search = ParentSearch(matcher, arrays)
    spent_s, scored = [], []
    for child in queries:
        began = time.process_time()
        search.best(child)
        spent_s.append(time.process_time() - began)
        scored.append(search.scored)
    print(f"{name}: {1e3 * made_s / len(parents):.1f} ms a model to make its arrays")
    print(
        f"  exact search: mean {np.mean(spent_s):.4f} s, median {np.median(spent_s):.4f} s, "
        f"largest {max(spent_s):.4f} s; scored {np.mean(scored):.0f} of {len(parents)} on average"
    )
    cells = sum(len(parent) for parent in parents) * sum(len(one) for one in children[:COMPARED])
    began, equal = time.process_time(), 0
    for child in queries[:COMPARED]:
        scores = search.scores(child)
        equal += search.best(child) == [(int(scores.argmax()), scores.max())]
    took_s = time.process_time() - began
    print(
        f"  all scored: {took_s / COMPARED:.2f} s a child, {1e6 * took_s / cells:.4f} microseconds "
        f"a cell; the same best parent for {equal} of {COMPARED}"
    )
    began = time.process_time()
    staged, few = TwoStage(matcher, arrays[:CLUSTERED]), ParentSearch(matcher, arrays[:CLUSTERED])
    built_s = time.process_time() - began
    found = [(staged.best(child), few.best(child)[0], staged.scored) for child in queries]
    print(
        f"  two stages, {len(staged.parents)} parents: {built_s:.0f} s beforehand; scored "
        f"{np.mean([count for _, _, count in found]):.0f} on average; the best parent for "
        f"{sum(near.score == best.score for near, best, _ in found)} of {len(queries)}"
    )


def main() -> None:
    """Measure every matcher."""
    rng = np.random.default_rng(1)
    specs = lineage(rng, int(sys.argv[1]) if len(sys.argv) > 1 else MODELS, NODES)
    parents, children = [build(spec) for spec in specs], new_children(specs, rng)
    print(
        f"{len(parents)} parents of {np.mean([len(one) for one in parents]):.0f} nodes, "
        f"{len(children)} children of {np.mean([len(one) for one in children]):.0f}"
    )
    for name, matcher in MATCHERS.items():
        measure(name, matcher, parents, children)


if __name__ == "__main__":
    main()
