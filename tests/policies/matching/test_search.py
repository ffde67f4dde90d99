"""The exact search against scoring every parent, and the published one in two stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.k_medoids import TwoStage, cluster, distances
from tests.support.random_graphs import build, draw, lineage, mutate
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.matching.matchers import MATCHERS, Matcher, find_matcher
from wattkeeper.policies.matching.search import ParentSearch

CHILDREN, PARENTS, NODES = 200, 120, 60

every_matcher = pytest.mark.parametrize("name", MATCHERS)


def zoo(matcher: Matcher[Any], parents: int = PARENTS) -> tuple[list[Any], list[Any]]:
    """Arrays of parents and of children: half of these are mutations of parents."""
    rng = np.random.default_rng(7)
    specs = lineage(rng, parents, NODES)
    children = [
        mutate(specs[int(rng.integers(parents))], rng) if at % 2 else draw(rng, NODES)
        for at in range(CHILDREN)
    ]
    return [matcher.arrays(build(one)) for one in specs], [
        matcher.arrays(build(one)) for one in children
    ]


@every_matcher
def test_the_search_finds_what_scoring_all_finds(name: str) -> None:
    matcher = find_matcher(name)
    parents, children = zoo(matcher)
    search = ParentSearch(matcher, parents)
    scored = 0
    for child in children:
        scores = search.scores(child)
        assert (scores <= search.bounds(child)).all()
        ranked = sorted(range(PARENTS), key=lambda at: (-scores[at], at))
        assert [*search.best(child, 3)] == [(at, scores[at]) for at in ranked[:3]]
        (found,) = search.best(child)
        assert found == (ranked[0], scores[ranked[0]])
        scored += search.scored
    assert scored < CHILDREN * PARENTS / 3


@every_matcher
def test_only_allowed_parents_are_found(name: str) -> None:
    matcher = find_matcher(name)
    parents, children = zoo(matcher, 20)
    search = ParentSearch(matcher, parents)
    odd = np.arange(1, 20, 2)
    for child in children[:20]:
        (found,) = search.best(child, among=odd)
        assert found.parent == odd[search.scores(child)[odd].argmax()]
    assert search.best(children[0], among=odd[:0]) == []
    assert len(search.best(children[0], 50)) == 20


def test_parents_that_come_later_are_found() -> None:
    matcher = find_matcher("coverage")
    parents, children = zoo(matcher, 10)
    search = ParentSearch(matcher)
    assert search.best(children[0]) == []
    for parent in parents:
        search.add(parent)
    search.add(children[0])
    assert search.best(children[0]) == [(10, 1.0)]


def test_an_unknown_matcher_is_refused() -> None:
    with pytest.raises(PolicyError, match="no matcher is called 'coverag'; there are coverage, "):
        find_matcher("coverag")


@every_matcher
def test_two_stages_over_all_clusters_find_the_exact_best(name: str) -> None:
    matcher = find_matcher(name)
    parents, children = zoo(matcher, 30)
    search, staged = ParentSearch(matcher, parents), TwoStage(matcher, parents)
    assert len(staged.clusters.medoids) == 5
    for child in children[:20]:
        (exact,) = search.best(child)
        assert staged.best(child, 5) == exact
        assert staged.best(child).score <= exact.score
        assert staged.scored < len(parents)


def test_separated_models_form_separate_clusters() -> None:
    points = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.2, 9.0, 9.1, 9.2])
    found = cluster(np.abs(points[:, None] - points), 3)
    assert found.medoids.tolist() == [1, 4, 7]
    assert found.cluster.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_distances_are_symmetric_and_zero_to_oneself() -> None:
    matcher = find_matcher("coverage")
    distance = distances(matcher, zoo(matcher, 8)[0])
    assert (distance == distance.T).all()
    assert (np.diag(distance) == 0).all()
