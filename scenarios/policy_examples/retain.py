"""A retention rule for a bounded zoo: use that fades.

A model that was a parent lately, and often, stays. Each use counts 1, and all counts fade whenever
a model is added.
"""

from typing import Any, Literal

from pydantic import Field

from wattkeeper.policies.points.retain import (
    Retain,
    Retention,
    StoredModel,
    StoredModels,
    evict_in_order,
)
from wattkeeper.policies.registry import PolicyConfig


class Fading(Retain):
    """See `FadingConfig`."""

    def __init__(self, config: "FadingConfig") -> None:
        self.config = config
        # The state: the faded number of uses by model.
        self.uses: dict[str, float] = {}

    def on_use(self, model: StoredModel) -> None:
        """A stored model becomes a parent."""
        self.uses[model.model_id] = self.uses.get(model.model_id, 0.0) + 1

    def retain(self, store: StoredModels, new: StoredModel) -> Retention:
        """Admit a new model, and evict the least used ones until it fits."""
        # Time is the count of events of the store: there is no clock and no random stream here.
        kept = {model.model_id for model in store.models}
        self.uses = {
            name: self.config.fade * uses for name, uses in self.uses.items() if name in kept
        }
        # Ties go to the model that was added first.
        return evict_in_order(
            store, new, lambda model: (self.uses.get(model.model_id, 0.0), model.added)
        )

    def state_dict(self) -> dict[str, Any]:
        """The counts, as a copy."""
        return dict(self.uses)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state, which stays as it is."""
        self.uses = dict(state)


class FadingConfig(PolicyConfig):
    """Evicts the model with the fewest uses as a parent, where older uses count less."""

    kind: Literal["fading"] = "fading"
    policy = Fading
    fade: float = Field(default=0.9, gt=0, le=1)
    """Factor on all counts with each new model; 1: they do not fade."""
