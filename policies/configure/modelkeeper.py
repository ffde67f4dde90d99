"""The parent is the most similar trained model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import NonNegativeFloat

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.matching.choice import (
    Candidate,
    Rule,
    choose_best,
    choose_bucketed,
    eligible,
)
from wattkeeper.policies.matching.coverage import retained_share
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.matchers import find_matcher
from wattkeeper.policies.matching.search import ParentSearch
from wattkeeper.policies.protocols import Configuration, Configure, Context, Start
from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.policies.zoo_views import TrainedModel


class ModelkeeperParent(Configure):
    """See `ModelkeeperParentConfig`. All its state is derived from graphs; it learns nothing."""

    def __init__(self, config: ModelkeeperParentConfig) -> None:
        self._config = config
        self._matcher = find_matcher(config.matcher)
        self._search: ParentSearch[Any] = ParentSearch(self._matcher)
        self._places: dict[str, int] = {}
        self._place_of: dict[str, int] = {}
        self._graphs: list[Graph] = []

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """Start from the most similar stored model, if there is one."""
        child = ctx.zoo.child(start.job)
        if child is None:
            return start.inherit(None)
        peers = [model for model in ctx.zoo.models() if model.task == child.task]
        if not peers:
            return start.inherit(None)
        parent = self._parent(peers, child.task, child.graph)
        return start.inherit(parent, self._config.query_s)

    def _parent(self, peers: Sequence[TrainedModel], task: str, graph: Graph) -> str | None:
        arrays = self._matcher.arrays(graph)
        own = self._matcher.own(arrays)
        minimum = self._config.minimum * own
        as_similar = [Candidate(minimum, model.accuracy, task) for model in peers]
        sound = np.flatnonzero(eligible(as_similar, task, minimum)).tolist()
        models = [peers[index] for index in sound if peers[index].usable]
        places = [self._place(model) for model in models]
        scores = self._scores(graph, arrays, np.unique(np.array(places, dtype=np.int64)))
        finalists = [
            (model, scores[place])
            for model, place in zip(models, places, strict=True)
            if scores.get(place, -np.inf) >= minimum
        ]
        if not finalists:
            return None
        best_rule = self._config.rule == "best"
        candidates = [
            Candidate(
                score,
                model.accuracy,
                task,
                retained_share(model.graph, graph) if best_rule else 1.0,
            )
            for model, score in finalists
        ]
        chosen = choose_best(candidates) if best_rule else choose_bucketed(candidates, own)
        return finalists[chosen][0].model_id

    def _scores(self, graph: Graph, arrays: tuple[Ints, ...], places: Ints) -> dict[int, float]:
        """Scores for a child by place; by the rule `best` only of the best places."""

        def score(place: int) -> float:
            return self._matcher.score_graphs(self._graphs[place], graph)

        if self._config.rule == "best":
            return dict(self._search.best(arrays, 1, places, score, ties=True))
        return {place: score(place) for place in places.tolist()}

    def _place(self, model: TrainedModel) -> int:
        """Position of a model's architecture in the search; models with equal graphs share it."""
        place = self._place_of.get(model.model_id)
        if place is None:
            digest = model.graph.digest
            if digest not in self._places:
                self._search.add(self._matcher.arrays(model.graph))
                self._places[digest] = len(self._places)
                self._graphs.append(model.graph)
            place = self._place_of[model.model_id] = self._places[digest]
        return place


class ModelkeeperParentConfig(PolicyConfig):
    """Starts from the most similar stored model of the same task (ModelKeeper, NSDI '23).

    A model that is clearly less accurate than its peers is not used as a parent.
    """

    point: ClassVar[Point] = "configure"
    sets_parent: ClassVar[bool] = True
    kind: Literal["modelkeeper"] = "modelkeeper"
    policy = ModelkeeperParent
    matcher: Literal["coverage", "modelkeeper-asbuilt"] = "coverage"
    """Similarity measure: the share of the child's parameters that the parent fills, or
    ModelKeeper's published score."""
    rule: Rule = "best"
    """`best`: the most similar model, ties to the one that loses the fewest of its parameters;
    `bucketed`: the most accurate of the most similar ones, as published. The latter scores every
    stored model."""
    minimum: float = 0.01
    """Smallest similarity of a parent, relative to the child's similarity to itself."""
    query_s: NonNegativeFloat = 0.0
    """Seconds that a parent search takes while the job holds its GPUs; 0 if the zoo has no model of
    the task. ModelKeeper reports 8 s for 2,500 models."""
