"""The decision point `Retain`: what it is shown and answers, and what its policies share.

A store of models outlives any run, and several processes share it. So a policy is given no clock
and no random stream: time is a count of what happened to the store, and what the policy learnt is
kept with the store as its state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.protocols import Policy


class StoredModel(NamedTuple):
    """A model in a store, or one that shall go there.

    Attributes:
        model_id: Unique among all that were ever in the store.
        task: What its accuracy is measured on; accuracies of one task can be compared.
        accuracy: The larger, the better.
        size_bytes: Of all its tensors.
        added: The count at its addition. Additions and uses are counted, from 1 on.
        used: The count at its last use; `added` if there was none.
        uses: How often it was used, as the parent of another one.
        shared: Name and bytes of those of its tensors that another model of the store, or the new
            one, has too: they take room once.
    """

    model_id: str
    task: str
    accuracy: float
    size_bytes: int
    added: int
    used: int
    uses: int = 0
    shared: tuple[tuple[str, int], ...] = ()


class StoredModels(NamedTuple):
    """What is in a store.

    Attributes:
        capacity_bytes: What may be in it; None if there is no bound.
        models: In the order of their addition.
    """

    capacity_bytes: int | None
    models: tuple[StoredModel, ...] = ()

    def excess_bytes(self, new: StoredModel | None, without: Collection[str] = ()) -> int:
        """What is above the capacity with a new model and without some; below 1 if it fits."""
        if self.capacity_bytes is None:
            return 0
        kept = [model for model in self.models if model.model_id not in without]
        return total_bytes([*kept, new] if new else kept) - self.capacity_bytes


class Retention(NamedTuple):
    """What becomes of a finished model, and of those that are there.

    Attributes:
        admit: Whether the new one is kept.
        evict: Those that go.
        reason: Why the new one is not kept, for the user; empty if it is.
    """

    admit: bool
    evict: tuple[str, ...] = ()
    reason: str = ""


class Retain(Policy):
    """What does a bounded store admit and evict?"""

    @abstractmethod
    def retain(self, store: StoredModels, new: StoredModel) -> Retention:
        """Asked when a finished model is to be stored.

        What it leaves fits in the capacity, if what was there did.
        """
        raise NotImplementedError

    def on_use(self, model: StoredModel) -> None:
        """A stored model became the parent of another one; the view shows it before that."""


def total_bytes(models: Iterable[StoredModel]) -> int:
    """What models take together, B: shared tensors count once."""
    total, shared = 0, dict[str, int]()
    for model in models:
        total += model.size_bytes - sum(size for _, size in model.shared)
        shared.update(model.shared)
    return total + sum(shared.values())


def check_retention(store: StoredModels, new: StoredModel, decision: Retention) -> Retention:
    """The decision, if it is allowed.

    Raises:
        PolicyError: If it evicts what is not there, or admits more than the capacity.
    """
    unknown = set(decision.evict) - {model.model_id for model in store.models}
    if unknown:
        raise PolicyError(f"{', '.join(sorted(unknown))} shall go, but is not there", "retain")
    excess = store.excess_bytes(new, decision.evict) if decision.admit else 0
    if excess > 0:
        raise PolicyError(
            f"model {new.model_id} was admitted, with which {excess} bytes are above the capacity "
            f"of {store.capacity_bytes}",
            "retain",
        )
    return decision


def refuse_too_large(store: StoredModels, new: StoredModel) -> Retention | None:
    """The refusal of a model that would not fit in an empty store; None if it would."""
    if store.capacity_bytes is None or new.size_bytes <= store.capacity_bytes:
        return None
    return Retention(
        False,
        reason=f"its {new.size_bytes} bytes are more than the store's capacity of "
        f"{store.capacity_bytes}",
    )


def evict_in_order(
    store: StoredModels, new: StoredModel, key: Callable[[StoredModel], Any]
) -> Retention:
    """Evict models, those with the smallest key first, until the new one fits."""
    if refusal := refuse_too_large(store, new):
        return refusal
    evicted: list[str] = []
    if store.excess_bytes(new) > 0:
        for model in sorted(store.models, key=key):
            evicted.append(model.model_id)
            if store.excess_bytes(new, evicted) <= 0:
                break
    return Retention(True, tuple(evicted))
