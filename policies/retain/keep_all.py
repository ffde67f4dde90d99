"""No eviction."""

from typing import Literal

from wattkeeper.policies.points.retain import Retain, Retention, StoredModel, StoredModels
from wattkeeper.policies.registry import PolicyConfig


class KeepAll(Retain):
    """See `KeepAllConfig`."""

    def retain(self, store: StoredModels, new: StoredModel) -> Retention:
        """Admit the model if it fits."""
        excess = store.excess_bytes(new)
        if excess <= 0:
            return Retention(True)
        return Retention(
            False,
            reason=f"{excess} bytes are missing, the capacity is {store.capacity_bytes} bytes, "
            "and keep-all evicts nothing",
        )


class KeepAllConfig(PolicyConfig):
    """Never evicts; a model that does not fit is refused."""

    kind: Literal["keep-all"] = "keep-all"
    policy = KeepAll
