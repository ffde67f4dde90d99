"""The parent is the most similar trained model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import NonNegativeFloat
from typing_extensions import override

from wattkeeper.policies.matching.choice import Candidate, Rule, choose_bucketed
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.zoo_parents import ParentChoice
from wattkeeper.policies.zoo_views import TrainedModel


class ModelkeeperParent(ParentChoice):
    """See `ModelkeeperParentConfig`."""

    def __init__(self, config: ModelkeeperParentConfig) -> None:
        super().__init__(config.matcher, config.query_s)
        self._config = config

    @override
    def choose(self, models: Sequence[TrainedModel], child: Graph) -> Sequence[TrainedModel]:
        matcher = self.index.matcher
        own = matcher.own(matcher.arrays(child))
        least = self._config.minimum * own
        if self._config.rule == "best":
            return [best.model for best in self.index.best(models, child) if best.score >= least]
        scores = [self.index.score(model, child) for model in models]
        finalists = [
            (model, Candidate(score, model.accuracy))
            for model, score in zip(models, scores, strict=True)
            if score >= least
        ]
        if not finalists:
            return []
        return [finalists[choose_bucketed([candidate for _, candidate in finalists], own)][0]]


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
