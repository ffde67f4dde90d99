"""The parent is the most similar trained model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal

import numpy as np
from pydantic import NonNegativeFloat

from wattkeeper.policies.matching.choice import (
    Candidate,
    Rule,
    choose_bucketed,
    valid_accuracy_mask,
)
from wattkeeper.policies.matching.coverage import retained_share
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.matchers import find_matcher
from wattkeeper.policies.matching.search import ParentSearch
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Start
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.zoo_views import TrainedModel

SPARE: Final = 64
"""Number of evicted models that are remembered besides as many as there are models."""


class ModelkeeperParent(Configure):
    """See `ModelkeeperParentConfig`. All its state is derived from graphs; it learns nothing."""

    def __init__(self, config: ModelkeeperParentConfig) -> None:
        self._config = config
        self._matcher = find_matcher(config.matcher)
        self._forget()

    def _forget(self) -> None:
        self._search: ParentSearch[Any] = ParentSearch(self._matcher)
        self._place_of_digest: dict[str, int] = {}
        self._place_of_model: dict[str, int] = {}
        self._graphs: list[Graph] = []

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """Start from the most similar stored model, if there is one."""
        child = ctx.zoo.child(start.job)
        if child is None:
            return start.inherit(None)
        models = ctx.zoo.models()
        peers = [model for model in models if model.task == child.task]
        if not peers:
            return start.inherit(None)
        if len(self._place_of_model) > 2 * len(models) + SPARE:  # most of them were evicted
            self._forget()
        parent = self._parent(peers, child.graph)
        return start.inherit(parent, self._config.query_s)

    def _parent(self, peers: Sequence[TrainedModel], graph: Graph) -> str | None:
        sound = valid_accuracy_mask(np.array([model.accuracy for model in peers])).tolist()
        models = [
            model for model, is_sound in zip(peers, sound, strict=True) if is_sound and model.usable
        ]
        own = self._matcher.own(self._matcher.arrays(graph))
        if self._config.rule == "bucketed":
            return self._choose_bucketed(models, graph, own)
        return self._choose_best(models, graph, self._config.minimum * own)

    def _choose_best(
        self, models: Sequence[TrainedModel], graph: Graph, minimum: float
    ) -> str | None:
        """The most similar model; ties go to the one that loses least. Not all are scored."""
        # Of the models of one architecture only the first of the most accurate can be chosen.
        preferred: dict[int, TrainedModel] = {}
        for model in sorted(models, key=lambda model: -model.accuracy):
            preferred.setdefault(self._place(model), model)
        best = self._search.best(
            graph,
            lambda place: self._score(place, graph),
            among=np.array(list(preferred), dtype=np.int64),
            retained=lambda place: retained_share(self._graphs[place], graph),
        )
        if not best or best[0].score < minimum:
            return None
        return preferred[best[0].parent].model_id

    def _choose_bucketed(
        self, models: Sequence[TrainedModel], graph: Graph, own: float
    ) -> str | None:
        scores = [self._score(self._place(model), graph) for model in models]
        finalists = [
            (model.model_id, Candidate(score, model.accuracy))
            for model, score in zip(models, scores, strict=True)
            if score >= self._config.minimum * own
        ]
        if not finalists:
            return None
        chosen = choose_bucketed([candidate for _, candidate in finalists], own)
        return finalists[chosen][0]

    def _score(self, place: int, graph: Graph) -> float:
        return self._matcher.score_graphs(self._graphs[place], graph)

    def _place(self, model: TrainedModel) -> int:
        """Position of a model's architecture in the search; models with equal graphs share it."""
        place = self._place_of_model.get(model.model_id)
        if place is None:
            digest = model.graph.digest
            place = self._place_of_digest.setdefault(digest, len(self._graphs))
            if place == len(self._graphs):
                self._search.add(self._matcher.sketch(model.graph))
                self._graphs.append(model.graph)
            self._place_of_model[model.model_id] = place
        return place


class ModelkeeperParentConfig(PolicyConfig):
    """Starts from the most similar stored model of the same task (ModelKeeper, NSDI '23).

    A model that is clearly less accurate than its peers is not used as a parent.
    """

    sets_parent: ClassVar[bool] = True
    kind: Literal["modelkeeper"] = "modelkeeper"
    policy = ModelkeeperParent
    plain = "ModelKeeper's parents"
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
