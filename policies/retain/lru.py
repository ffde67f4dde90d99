"""The least recently used models go first."""

from __future__ import annotations

from typing import ClassVar, Literal

from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.policies.retaining import (
    Retain,
    Retention,
    StoredModel,
    StoredModels,
    evict_in_order,
)


class LruConfig(PolicyConfig):
    """Evicts the models whose last use, or addition if they have none, is the longest ago."""

    point: ClassVar[Point] = "retain"
    kind: Literal["lru"] = "lru"

    def build(self) -> Lru:
        """A new policy."""
        return Lru()


class Lru(Retain):
    """See `LruConfig`."""

    def retain(self, store: StoredModels, new: StoredModel) -> Retention:
        """Admit it, and evict the least recently used ones."""
        return evict_in_order(store, new, lambda model: model.used)
