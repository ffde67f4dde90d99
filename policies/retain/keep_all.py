"""Nothing is evicted."""

from __future__ import annotations

from typing import ClassVar, Literal

from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.policies.retaining import Retain, Retention, StoredModel, StoredModels


class KeepAllConfig(PolicyConfig):
    """Every model is kept; where one does not fit any more, it is refused."""

    point: ClassVar[Point] = "retain"
    kind: Literal["keep-all"] = "keep-all"

    def build(self) -> KeepAll:
        """A new policy."""
        return KeepAll()


class KeepAll(Retain):
    """See `KeepAllConfig`."""

    def retain(self, store: StoredModels, new: StoredModel) -> Retention:
        """Admit it if there is room."""
        excess = store.excess_bytes(new)
        if excess <= 0:
            return Retention(True)
        return Retention(
            False,
            reason=f"{excess} bytes are missing, the capacity is {store.capacity_bytes} bytes, "
            "and keep-all evicts nothing",
        )
