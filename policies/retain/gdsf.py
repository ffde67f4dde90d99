"""Greedy-Dual-Size-Frequency: often used for its size, and not long ago."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.policies.retaining import (
    Retain,
    Retention,
    StoredModel,
    StoredModels,
    evict_in_order,
    refuse_too_large,
)


class GdsfConfig(PolicyConfig):
    """Evicts the models of the lowest priority, which is set at each use: clock + uses / size.

    Greedy-Dual-Size-Frequency (L. Cherkasova, HP Labs report HPL-98-69, 1998) with a cost of 1 for
    every model; its addition counts as a use. The clock starts at 0 and becomes the highest
    priority that was ever evicted. A new model that would be among those evicted is refused, and
    then nothing changes.
    """

    point: ClassVar[Point] = "retain"
    kind: Literal["gdsf"] = "gdsf"

    def build(self) -> Gdsf:
        """A new policy."""
        return Gdsf()


class Gdsf(Retain):
    """See `GdsfConfig`."""

    def __init__(self) -> None:
        self._clock = 0.0
        self._priority: dict[str, float] = {}

    def retain(self, store: StoredModels, new: StoredModel) -> Retention:
        """Admit it if those that had to go have lower priorities than it."""
        if refusal := refuse_too_large(store, new):
            return refusal
        known = {model.model_id: self._of(model) for model in store.models}
        own = self._at_use(new)
        retention = evict_in_order(store, new, lambda m: (known[m.model_id], m.used))
        highest = max((known[name] for name in retention.evict), default=self._clock)
        if retention.evict and own < highest:
            return Retention(
                False, reason="its priority is lower than that of models which had to go for it"
            )
        self._clock = max(self._clock, highest)
        kept = {name: value for name, value in known.items() if name not in retention.evict}
        self._priority = {**kept, new.model_id: own}
        return retention

    def on_use(self, model: StoredModel) -> None:
        """Set its priority anew."""
        self._priority[model.model_id] = self._at_use(model._replace(uses=model.uses + 1))

    def _of(self, model: StoredModel) -> float:
        """Its priority; that of a use now if it came before this policy did."""
        known = self._priority.get(model.model_id)
        return self._at_use(model) if known is None else known

    def _at_use(self, model: StoredModel) -> float:
        return self._clock + (1 + model.uses) / max(model.size_bytes, 1)

    def state_dict(self) -> dict[str, Any]:
        """The clock, and each model's priority."""
        return {"clock": self._clock, "priority": dict(self._priority)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._clock, self._priority = state["clock"], dict(state["priority"])
