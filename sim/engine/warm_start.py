"""What a parent is worth: a model of warm-started training, its parameters shipped as data.

From a parent with coverage c, the share of the child's parameters that its weights fill, training
is shorter by the share ``scale * c ** exponent``, and ends at ``shift * c`` more accuracy. All
trainings differ by noise of a standard deviation of ``noise``. `warm_start.json` holds the
parameters, how they were fitted, with what error, and to what; results call all of it modelled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from wattkeeper.policies.zoo_views import ChildModel, TrainedModel
    from wattkeeper.sim.engine.zoo import ModelOfJob

_FIXED = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class SavedShare(BaseModel):
    """The share of the training that a parent saves: ``scale * coverage ** exponent``."""

    model_config = _FIXED

    scale: Annotated[float, Field(ge=0, lt=1)]
    exponent: Annotated[float, Field(gt=0)]


class AccuracyChange(BaseModel):
    """What a parent with coverage 1 adds to the accuracy, and the deviation of all accuracies."""

    model_config = _FIXED

    shift: float
    noise: Annotated[float, Field(ge=0)]


class WarmStartModel(BaseModel):
    """The model's parameters and where they are from."""

    model_config = _FIXED

    placeholder: bool = False
    saved: SavedShare
    accuracy: AccuracyChange
    fit: dict[str, Any]
    error: dict[str, Any]
    source: str

    def share_left(self, coverage: float) -> float:
        """The share of the training that is left to do; coverage is 0 to 1."""
        return 1.0 - self.saved.scale * math.pow(coverage, self.saved.exponent)

    def work(self, child: ChildModel, parent: TrainedModel, coverage: float) -> float:
        """See `wattkeeper.sim.engine.zoo.Benefit`."""
        return self.share_left(coverage)

    def accuracy_of(
        self,
        model: ModelOfJob,
        parent: TrainedModel | None,
        coverage: float,
        draw: Callable[[], float],
    ) -> float:
        """See `wattkeeper.sim.engine.zoo.Benefit`."""
        return model.accuracy + self.accuracy.shift * coverage + self.accuracy.noise * draw()


def shipped() -> WarmStartModel:
    """The parameters that come with wattkeeper."""
    text = (files("wattkeeper.sim.engine") / "warm_start.json").read_text(encoding="utf-8")
    return WarmStartModel.model_validate_json(text)
