"""Least recently used."""

from typing import Literal

from wattkeeper.policies.points.retain import (
    Retain,
    Retention,
    StoredModel,
    StoredModels,
    evict_in_order,
)
from wattkeeper.policies.registry import PolicyConfig


class Lru(Retain):
    """See `LruConfig`."""

    def retain(self, store: StoredModels, new: StoredModel) -> Retention:
        """Admit the model, and evict the least recently used ones."""
        return evict_in_order(store, new, lambda model: model.used)


class LruConfig(PolicyConfig):
    """Evicts the least recently used models; the addition of a model counts as a use."""

    kind: Literal["lru"] = "lru"
    policy = Lru
