"""The parent is the most similar trained model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import NonNegativeFloat

from wattkeeper.policies.matching.choice import Candidate, Rule, choose_bucketed
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.matchers import find_matcher
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Start
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.zoo_parents import ParentIndex, candidates
from wattkeeper.policies.zoo_views import TrainedModel


class ModelkeeperParent(Configure):
    """See `ModelkeeperParentConfig`. All its state is derived from graphs; it learns nothing."""

    def __init__(self, config: ModelkeeperParentConfig) -> None:
        self._config = config
        self._index = ParentIndex(find_matcher(config.matcher))

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """Start from the most similar stored model, if there is one."""
        child = ctx.zoo.child(start.job)
        if child is None:
            return start.inherit(None)
        models = ctx.zoo.models()
        if not any(model.task == child.task for model in models):
            return start.inherit(None)
        self._index.forget_evicted(models)
        parent = self._parent(candidates(child, models), child.graph)
        return start.inherit(parent, self._config.query_s)

    def _parent(self, models: Sequence[TrainedModel], graph: Graph) -> str | None:
        matcher = self._index.matcher
        own = matcher.own(matcher.arrays(graph))
        if self._config.rule == "bucketed":
            return self._choose_bucketed(models, graph, own)
        best = self._index.best(models, graph)
        if best is None or best.score < self._config.minimum * own:
            return None
        return best.model.model_id

    def _choose_bucketed(
        self, models: Sequence[TrainedModel], graph: Graph, own: float
    ) -> str | None:
        scores = [self._index.score(model, graph) for model in models]
        finalists = [
            (model.model_id, Candidate(score, model.accuracy))
            for model, score in zip(models, scores, strict=True)
            if score >= self._config.minimum * own
        ]
        if not finalists:
            return None
        chosen = choose_bucketed([candidate for _, candidate in finalists], own)
        return finalists[chosen][0]


class ModelkeeperParentConfig(PolicyConfig):
    """Starts from the most similar stored model of the same task (ModelKeeper, NSDI '23).

    A model that is clearly less accurate than its peers is not used as a parent.
    """

    sets_parent: ClassVar[bool] = True
    kind: Literal["modelkeeper"] = "modelkeeper"
    policy = ModelkeeperParent
    plain = "ModelKeeper's parents"
    matcher: Literal["modelkeeper-asbuilt", "coverage"] = "modelkeeper-asbuilt"
    """Similarity measure: ModelKeeper's published score, or the share of the child's parameters
    that the parent fills. The published score compares shapes only for equality."""
    rule: Rule = "best"
    """`best`: the most similar model, ties to the one that loses the fewest of its parameters;
    `bucketed`: the most accurate of the most similar ones, as published. The latter scores every
    stored model."""
    minimum: float = 0.01
    """Smallest similarity of a parent, relative to the child's similarity to itself."""
    query_s: NonNegativeFloat = 0.0
    """Seconds that a parent search takes while the job holds its GPUs; 0 if the zoo has no model of
    the task. ModelKeeper reports 8 s for 2,500 models."""
