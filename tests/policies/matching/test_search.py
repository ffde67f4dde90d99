"""The exact search against scoring every parent, and the published one in two stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.k_medoids import TwoStage, cluster, distances
from tests.support.random_graphs import build, draw, lineage, mutate
from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.matching.graph import Graph, Node, Tensor
from wattkeeper.policies.matching.matchers import MATCHERS, find_matcher
from wattkeeper.policies.matching.relation import retained_share
from wattkeeper.policies.matching.search import ParentSearch, ScoredParent

CHILDREN, PARENTS, NODES = 60, 120, 60

every_matcher = pytest.mark.parametrize("name", MATCHERS)


class Zoo:
    """Parents, the search among them, and the scores that it computed.

    Attributes:
        scored: Index of each parent that was scored, in order.
    """

    def __init__(self, name: str, parents: Sequence[Graph] = ()) -> None:
        self.matcher = find_matcher(name)
        self.parents: list[Graph] = []
        self.search: ParentSearch[Any] = ParentSearch(self.matcher)
        self.scored: list[int] = []
        for parent in parents:
            self.add(parent)

    def add(self, parent: Graph) -> None:
        self.parents.append(parent)
        self.search.add(self.matcher.sketch(parent))

    def arrays(self, graph: Graph) -> Any:
        return self.matcher.arrays(graph)

    def score(self, at: int, child: Graph) -> float:
        return self.matcher.score_graphs(self.parents[at], child)

    def scores(self, child: Graph) -> list[float]:
        return [self.score(at, child) for at in range(len(self.parents))]

    def best(
        self, child: Graph, count: int = 1, among: Ints | None = None, retained: bool = False
    ) -> list[ScoredParent]:
        self.scored = []

        def score(at: int) -> float:
            self.scored.append(at)
            return self.score(at, child)

        def share(at: int) -> float:
            return retained_share(self.parents[at], child)

        found = self.search.best(child, score, count, among, share if retained else None)
        assert self.search.scored == len(self.scored)
        return found

    def check_bounds(self, child: Graph) -> None:
        """No bound is below what it bounds."""
        bounds = self.search.bounds(child)
        assert (self.scores(child) <= bounds.score).all()
        shares = [retained_share(parent, child) for parent in self.parents]
        assert (shares <= bounds.retained).all()
        for least in (0.0, 0.5):
            closer = bounds.tighten(np.arange(len(self.parents)), least)
            for score, share, *limit in zip(
                self.scores(child), shares, bounds.score, closer.retained, strict=True
            ):
                assert (score, share) <= tuple(limit)


def drawn(name: str, parents: int = PARENTS) -> tuple[Zoo, list[Graph]]:
    """A zoo, and children of which half are mutations of parents."""
    rng = np.random.default_rng(7)
    specs = lineage(rng, parents, NODES)
    children = [
        mutate(specs[int(rng.integers(parents))], rng) if at % 2 else draw(rng, NODES)
        for at in range(CHILDREN)
    ]
    return Zoo(name, [build(one) for one in specs]), [build(one) for one in children]


@every_matcher
def test_the_search_finds_what_scoring_all_finds(name: str) -> None:
    zoo, children = drawn(name)
    scored = 0
    for child in children:
        scores = zoo.scores(child)
        zoo.check_bounds(child)
        ranked = sorted(range(PARENTS), key=lambda at: (-scores[at], at))
        assert zoo.best(child, 3) == [(at, scores[at]) for at in ranked[:3]]
        (found,) = zoo.best(child)
        assert found == (ranked[0], scores[ranked[0]])
        scored += len(zoo.scored)
    assert scored < CHILDREN * PARENTS / 3


WIDTHS = st.sampled_from([2, 3, 4])


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Small graphs of few kinds of nodes, joined at random, so that many models tie."""
    nodes = []
    for at in range(draw(st.integers(0, 9))):
        before = draw(st.lists(st.integers(max(at - 3, -1), at - 1), min_size=1, max_size=3))
        op = draw(st.sampled_from(["conv2d", "linear", "relu", "add", "max_pool2d"]))
        stride = draw(st.sampled_from([1, 1, 2]))
        if op in ("conv2d", "linear"):
            shape = (draw(WIDTHS), draw(WIDTHS), *([3, 3] if op == "conv2d" else []))
            weight = Tensor(draw(st.sampled_from(["", "tied"])), "weight", shape)
            nodes.append(Node(op, tuple(before), (weight,), (("stride", stride),)))
        else:
            nodes.append(Node(op, tuple(before)))
    return Graph("", tuple(nodes))


@every_matcher
@given(st.lists(graphs(), min_size=1, max_size=12), st.lists(graphs(), max_size=2), st.data())
def test_any_zoo_is_searched_as_if_all_were_scored(
    name: str, parents: list[Graph], children: list[Graph], data: st.DataObject
) -> None:
    """The same parents with the same scores, in the order of preference among equal ones."""
    zoo = Zoo(name, parents)
    for child in [*children, parents[0]]:
        zoo.check_bounds(child)
        among = data.draw(st.permutations(range(len(parents))))
        among = among[: data.draw(st.integers(0, len(among)))]
        count, retained = data.draw(st.integers(1, 3)), data.draw(st.booleans())
        scores = zoo.scores(child)
        shares = [retained_share(parent, child) if retained else 0.0 for parent in parents]
        ranked = sorted(among, key=lambda at: (-scores[at], -shares[at], among.index(at)))
        found = zoo.best(child, count, np.array(among, dtype=np.int64), retained)
        assert found == [(at, scores[at]) for at in ranked[:count]]


def test_a_parent_that_could_fill_all_but_retains_more_otherwise_is_found() -> None:
    """Both could fill the whole child, but share more with it if they fill less, equally much."""

    def net(*widths: int) -> Graph:
        shapes = [("stem", (8, 3)), *(("linear", (w, w)) for w in widths), ("head", (4, 8))]
        return Graph(
            "",
            tuple(
                Node(op, (at - 1,), (Tensor("", "weight", shape),))
                for at, (op, shape) in enumerate(shapes)
            ),
        )

    child, zoo = net(8, 4), Zoo("coverage", [net(4, 8), net(1, 8)])
    assert zoo.scores(child) == [120 / 136, 120 / 136]
    assert [retained_share(parent, child) for parent in zoo.parents] == [120 / 136, 120 / 121]
    zoo.check_bounds(child)
    assert zoo.best(child, retained=True) == [(1, 120 / 136)]


def test_parents_that_come_later_are_found() -> None:
    grown, children = drawn("coverage", 90)
    zoo = Zoo("coverage")
    assert zoo.best(children[0]) == []
    for parent in grown.parents:
        zoo.add(parent)
        assert len(zoo.search.sketches) == len(zoo.parents)
    assert zoo.best(children[0]) == grown.best(children[0])
    zoo.add(children[0])
    assert zoo.score(90, children[0]) == 1


def test_a_parent_with_tied_weights_is_found_for_a_child_without() -> None:
    """Its tied layer has no elements of its own, but is matched, so that the parent is kept."""

    def model(hidden: int, last: str) -> Graph:
        shapes = {"e": (100, 16), "a": (hidden, 16), "b": (16, hidden), last: (100, 16)}
        kinds = ("embedding", "linear", "linear", "linear")
        nodes = [
            Node(kind, (at - 1,), (Tensor(name, "weight", shape),))
            for at, (kind, (name, shape)) in enumerate(
                zip(kinds, [*shapes.items(), ("e", (100, 16))], strict=False)
            )
        ]
        return Graph(f"{hidden}{last}", tuple(nodes))

    tied, narrow, child = model(24, "e"), model(20, "d"), model(24, "d")
    zoo = Zoo("saving", [narrow, tied])
    scores = zoo.scores(child)
    assert scores[1] > scores[0]
    assert zoo.best(child)[0].parent == 1


def test_an_unknown_matcher_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"no matcher is called 'coverag' .*; there are coverage"):
        find_matcher("coverag")


@every_matcher
def test_two_stages_over_all_clusters_find_the_exact_best(name: str) -> None:
    zoo, children = drawn(name, 30)
    staged = TwoStage(zoo.matcher, [zoo.arrays(parent) for parent in zoo.parents])
    assert len(staged.clusters.medoids) == 5
    for child in children[:20]:
        (exact,) = zoo.best(child)
        assert staged.best(zoo.arrays(child), 5) == exact
        assert staged.best(zoo.arrays(child)).score <= exact.score
        assert staged.scored < len(zoo.parents)


def test_separated_models_form_separate_clusters() -> None:
    points = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.2, 9.0, 9.1, 9.2])
    found = cluster(np.abs(points[:, None] - points), 3)
    assert found.medoids.tolist() == [1, 4, 7]
    assert found.cluster.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_distances_are_symmetric_and_zero_to_oneself() -> None:
    zoo, _ = drawn("coverage", 8)
    distance = distances(zoo.matcher, [zoo.arrays(parent) for parent in zoo.parents])
    assert (distance == distance.T).all()
    assert (np.diag(distance) == 0).all()
