"""Least frequently used."""

from typing import Literal

from wattkeeper.policies.points.retain import (
    Retain,
    Retention,
    StoredModel,
    StoredModels,
    evict_in_order,
)
from wattkeeper.policies.registry import PolicyConfig


class Lfu(Retain):
    """See `LfuConfig`."""

    def retain(self, store: StoredModels, new: StoredModel) -> Retention:
        """Admit the model, and evict the least frequently used ones."""
        return evict_in_order(store, new, lambda model: (model.uses, model.used))


class LfuConfig(PolicyConfig):
    """Evicts the least frequently used models; ties go to the least recently used."""

    kind: Literal["lfu"] = "lfu"
    policy = Lfu
