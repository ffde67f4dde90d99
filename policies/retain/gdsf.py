"""Greedy-Dual-Size-Frequency: frequency of use per size, with aging."""

from typing import Any, Literal

from wattkeeper.policies.points.retain import (
    Retain,
    Retention,
    StoredModel,
    StoredModels,
    evict_in_order,
    refuse_too_large,
)
from wattkeeper.policies.registry import PolicyConfig


class Gdsf(Retain):
    """See `GdsfConfig`."""

    def __init__(self) -> None:
        self._clock = 0.0
        self._priority: dict[str, float] = {}

    def retain(self, store: StoredModels, new: StoredModel) -> Retention:
        """Admit the model if those to be evicted have lower priorities."""
        if refusal := refuse_too_large(store, new):
            return refusal
        priorities = {model.model_id: self._of(model) for model in store.models}
        own = self._at_use(new)
        retention = evict_in_order(store, new, lambda m: (priorities[m.model_id], m.used))
        highest = max((priorities[name] for name in retention.evict), default=self._clock)
        if retention.evict and own < highest:
            return Retention(
                False, reason="its priority is lower than that of models which had to go for it"
            )
        self._clock = max(self._clock, highest)
        retained = {
            name: value for name, value in priorities.items() if name not in retention.evict
        }
        self._priority = {**retained, new.model_id: own}
        return retention

    def on_use(self, model: StoredModel) -> None:
        """Update the model's priority."""
        self._priority[model.model_id] = self._at_use(model._replace(uses=model.uses + 1))

    def _of(self, model: StoredModel) -> float:
        """The model's priority; if it is unknown, that of a use now."""
        known = self._priority.get(model.model_id)
        return self._at_use(model) if known is None else known

    def _at_use(self, model: StoredModel) -> float:
        return self._clock + (1 + model.uses) / max(model.size_bytes, 1)

    def state_dict(self) -> dict[str, Any]:
        """The clock, and each model's priority."""
        return {"clock": self._clock, "priority": dict(self._priority)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._clock, self._priority = state["clock"], dict(state["priority"])


class GdsfConfig(PolicyConfig):
    """Evicts the models with the lowest priority, set at each use: clock + uses / size.

    Greedy-Dual-Size-Frequency (L. Cherkasova, HP Labs report HPL-98-69, 1998) with cost 1 for
    every model; its addition counts as a use. The clock starts at 0 and becomes the highest
    priority that was ever evicted. A new model that would be among the evicted ones is refused, and
    then nothing changes.
    """

    kind: Literal["gdsf"] = "gdsf"
    policy = Gdsf
