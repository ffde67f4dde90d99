"""The parent is the trained model that is expected to save the most work."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import NonNegativeFloat

from wattkeeper.policies.matching.benefit import saving_by_accuracy
from wattkeeper.policies.matching.matchers import find_matcher
from wattkeeper.policies.points.configure import Configure
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Configuration, Start
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.zoo_parents import ParentIndex, candidates


class RelativeParent(Configure):
    """See `RelativeParentConfig`. All its state is derived from graphs; it learns nothing."""

    def __init__(self, config: RelativeParentConfig) -> None:
        self._config = config
        self._index = ParentIndex(find_matcher(config.matcher))

    def configure(self, ctx: Context, start: Start) -> Configuration:
        """Start from the stored model of which the most is expected, if it is worth it."""
        child = ctx.zoo.child(start.job)
        if child is None:
            return start.inherit(None)
        models = ctx.zoo.models()
        if not any(model.task == child.task for model in models):
            return start.inherit(None)
        self._index.forget_evicted(models)
        able = candidates(child, models)
        highest = max((model.accuracy for model in able), default=0.0)
        best = self._index.best(
            able, child.graph, lambda model: saving_by_accuracy(model.accuracy, highest)
        )
        if best is not None and best.score <= self._config.minimum:
            best = None
        return start.inherit(best.model.model_id if best else None, self._config.query_s)


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
