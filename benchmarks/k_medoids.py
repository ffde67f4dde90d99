"""ModelKeeper's search in two stages (NSDI '23), to compare with the exact one.

The models are clustered beforehand; a query scores the medoids, then the members of the clusters
whose medoids are nearest. What it returns need not be the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.matching.matchers import Matcher
from wattkeeper.policies.matching.search import ScoredParent

A = TypeVar("A", bound=tuple[Ints, ...])

ROUNDS = 100
"""Rounds of moving medoids, at most."""


class Clusters(NamedTuple):
    """Models in clusters.

    Attributes:
        medoids: Position of each cluster's medoid, ascending, shape (clusters,).
        cluster: Cluster of each model, shape (models,).
    """

    medoids: Ints
    cluster: Ints


class TwoStage(Generic[A]):
    """Searches clusters of parents, the nearest first.

    Attributes:
        parents: The arrays of the parents.
        clusters: How they are clustered.
        scored: Parents scored by the last search, medoids included.
    """

    def __init__(self, matcher: Matcher[A, Any], parents: Sequence[A]) -> None:
        """Cluster the parents into as many as the square root of their number; scores all pairs."""
        self.scored = 0
        self._matcher = matcher
        self.parents = parents
        self.clusters = cluster(distances(matcher, parents), max(isqrt(len(parents)), 1))

    def best(self, child: A, clusters: int = 1) -> ScoredParent:
        """The best parent in the clusters whose medoids are most similar to the child.

        Args:
            child: The child.
            clusters: How many are looked into.
        """
        medoids, member = self.clusters
        scores = {at: self._score(at, child) for at in medoids.tolist()}
        nearest = np.argsort([-score for score in scores.values()], kind="stable")[:clusters]
        for at in np.flatnonzero(np.isin(member, nearest)).tolist():
            if at not in scores:
                scores[at] = self._score(at, child)
        self.scored = len(scores)
        at = min(scores, key=lambda at: (-scores[at], at))
        return ScoredParent(at, scores[at])

    def _score(self, at: int, child: A) -> float:
        return self._matcher.score(self.parents[at], child)


def distances(matcher: Matcher[A, Any], models: Sequence[A]) -> Floats:
    """1 minus the similarity, mean of both directions, shape (models, models).

    The similarity is the score over the child's score for itself.
    """
    own = [matcher.own(child) or 1.0 for child in models]
    similarity = np.empty((len(models), len(models)))
    for at, parent in enumerate(models):
        similarity[at] = [
            matcher.score(parent, child) / mine for child, mine in zip(models, own, strict=True)
        ]
    distance: Floats = 1 - (similarity + similarity.T) / 2
    return distance


def cluster(distance: Floats, count: int) -> Clusters:
    """K-medoids by alternation (Park and Jun 2009): the same clusters for the same distances.

    Args:
        distance: Between models, symmetric, shape (models, models).
        count: How many clusters.
    """
    # They begin with the most central models.
    total = distance.sum(axis=0)
    central = (distance / np.where(total == 0, 1, total)).sum(axis=1)
    medoids = np.sort(np.argsort(central, kind="stable")[:count])
    for _ in range(ROUNDS):
        member = distance[:, medoids].argmin(axis=1)
        member[medoids] = np.arange(len(medoids))
        moved = np.sort([_medoid(distance, member == one) for one in range(len(medoids))])
        if (moved == medoids).all():
            break
        medoids = moved
    member = distance[:, medoids].argmin(axis=1)
    member[medoids] = np.arange(len(medoids))
    return Clusters(medoids, member)


def _medoid(distance: Floats, inside: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    members = np.flatnonzero(inside)
    within = distance[np.ix_(members, members)]
    return int(members[within.sum(axis=1).argmin()])
