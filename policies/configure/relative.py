"""The parent is the trained model that is expected to save the most work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import NonNegativeFloat
from typing_extensions import override

from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.zoo_parents import ParentChoice
from wattkeeper.policies.zoo_views import TrainedModel


class RelativeParent(ParentChoice):
    """See `RelativeParentConfig`."""

    def __init__(self, config: RelativeParentConfig) -> None:
        super().__init__(config.matcher, config.query_s)
        self._minimum = config.minimum

    @override
    def choose(self, models: Sequence[TrainedModel], child: Graph) -> TrainedModel | None:
        best = self.index.best(models, child)
        return best.model if best and best.score > self._minimum else None


class RelativeParentConfig(PolicyConfig):
    """Starts from the stored model of the same task that is expected to save the most work.

    The expectation counts whether the child can keep the parent's function, how much of the parent
    it has no place for, how many of the layers of both are equal, and the parent's accuracy. It is
    fitted to real trainings (`wattkeeper.policies.matching.benefit`). A model that is clearly less
    accurate than its peers is not used as a parent.
    """

    sets_parent: ClassVar[bool] = True
    kind: Literal["relative"] = "relative"
    policy = RelativeParent
    plain = "the parent that saves the most"
    matcher: ClassVar[str] = "saving"
    minimum: float = 0.0
    """The expected share of the work above which a parent is used; below it, training starts from
    scratch."""
    query_s: NonNegativeFloat = 0.0
    """Seconds that a parent search takes while the job holds its GPUs; 0 if the zoo has no model of
    the task."""
