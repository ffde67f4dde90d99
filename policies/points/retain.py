"""The decision point `Retain`: its views and decisions, and helpers of its policies.

A store of models outlives any run and is shared by several processes. A policy therefore has no
clock and no random stream: time is a count of events of the store, and the policy's state is saved
with the store.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from wattkeeper.policies.errors import PolicyError, cut_message
from wattkeeper.policies.points.policy import Policy


class StoredModel(NamedTuple):
    """A model in a store, or one to be added.

    Attributes:
        model_id: Unique over the lifetime of the store.
        task: Task and data set of its accuracy; accuracies of one task can be compared.
        accuracy: Larger is better.
        size_bytes: Size of all its tensors.
        added: Event count at its addition. Additions and uses are counted, from 1.
        used: Event count at its last use; `added` if it was not used.
        uses: How often it was used as a parent.
        shared: Name and bytes of its tensors that other models of the store, or the new one, also
            have: they are stored once.
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
    """The content of a store.

    Attributes:
        capacity_bytes: Capacity; None if unbounded.
        models: In order of addition.
    """

    capacity_bytes: int | None
    models: tuple[StoredModel, ...] = ()

    def excess_bytes(self, new: StoredModel | None, without: Collection[str] = ()) -> int:
        """Bytes above the capacity with a new model and without some others; at most 0: it fits."""
        if self.capacity_bytes is None:
            return 0
        kept = [model for model in self.models if model.model_id not in without]
        return total_bytes([*kept, new] if new else kept) - self.capacity_bytes


class Retention(NamedTuple):
    """The decision on a new model.

    Attributes:
        admit: Whether the new model is stored.
        evict: Ids of the models to evict.
        reason: Why the new model is refused, for the user; empty if it is admitted.
    """

    admit: bool
    evict: tuple[str, ...] = ()
    reason: str = ""


class Retain(Policy):
    """Which models does a bounded store admit and evict?"""

    @abstractmethod
    def retain(self, store: StoredModels, new: StoredModel) -> Retention:
        """Decide on a new model. Asked before it is stored.

        What remains must fit in the capacity, if the previous content did.
        """
        raise NotImplementedError

    def on_use(self, model: StoredModel) -> None:
        """Called when a stored model is used as a parent; the view is the one before this use."""


def total_bytes(models: Iterable[StoredModel]) -> int:
    """Bytes of several models together, shared tensors counted once."""
    total, shared = 0, dict[str, int]()
    for model in models:
        total += model.size_bytes - sum(size for _, size in model.shared)
        shared.update(model.shared)
    return total + sum(shared.values())


def check_retention(store: StoredModels, new: StoredModel, decision: Retention) -> Retention:
    """Return the decision if it is valid.

    Raises:
        PolicyError: If it evicts a model that is not stored, or admits more than the capacity.
        TypeError: If it is no decision.
    """
    if not isinstance(decision, Retention) or not isinstance(decision.evict, tuple):
        raise TypeError(
            f"must be a Retention with a tuple, found {cut_message(repr(decision), 100)}"
        )
    unknown = set(decision.evict) - {model.model_id for model in store.models}
    if unknown:
        raise PolicyError(f"evicts {', '.join(sorted(unknown))}, which is not stored", "retain")
    excess = store.excess_bytes(new, decision.evict) if decision.admit else 0
    if excess > 0:
        raise PolicyError(
            f"model {new.model_id} was admitted, with which {excess} bytes are above the capacity "
            f"of {store.capacity_bytes}",
            "retain",
        )
    return decision


def refuse_too_large(store: StoredModels, new: StoredModel) -> Retention | None:
    """Refuse a model that would not fit in the empty store; None if it would."""
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
    """Evict models in ascending order of a key until the new one fits."""
    if refusal := refuse_too_large(store, new):
        return refusal
    evicted: list[str] = []
    if store.excess_bytes(new) > 0:
        for model in sorted(store.models, key=key):
            evicted.append(model.model_id)
            if store.excess_bytes(new, evicted) <= 0:
                break
    return Retention(True, tuple(evicted))
