"""The parent is the trained model that is expected to save the most work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, model_validator
from typing_extensions import override

from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.points.views import TrialKind
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.zoo_parents import ParentChoice
from wattkeeper.policies.zoo_views import TrainedModel

MOST_TRIALS: Final = 64
"""The most parents that are tried for one child."""


class RelativeParent(ParentChoice):
    """See `RelativeParentConfig`."""

    def __init__(self, config: RelativeParentConfig) -> None:
        super().__init__(config.matcher, config.query_s, config.trial_epochs)
        self._minimum, self._count = config.minimum, config.trials

    @override
    def choose(self, models: Sequence[TrainedModel], child: Graph) -> Sequence[TrainedModel]:
        best = self.index.best(models, child, self._count)
        return [each.model for each in best if each.score > self._minimum]


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
    trials: Annotated[int, Field(ge=1, le=MOST_TRIALS)] = 1
    """How many of the parents that promise most are tried; with more than one, the parent is what
    successive halving leaves of them. What the others cost is charged to the job."""
    trial_epochs: NonNegativeInt = 0
    """Epochs for which each of them is trained before the first halving; with 0, the accuracies of
    the initial weights decide. Only with `trials`."""

    @property
    @override
    def trial(self) -> TrialKind:
        if self.trials == 1:
            return "none"
        return "trained" if self.trial_epochs else "evaluated"

    @model_validator(mode="after")
    def _check_trial(self) -> Self:
        if self.trials == 1 and self.trial_epochs:
            raise ValueError("trial_epochs is of several parents: say how many (trials: 3)")
        return self
