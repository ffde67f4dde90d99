"""ModelKeeper's retention: a knapsack over recent usefulness."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.points.retain import (
    Retain,
    Retention,
    StoredModel,
    StoredModels,
    refuse_too_large,
)
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.retain._knapsack import cheapest_cover

DECAY: Final = 0.99
DEVIATIONS: Final = 3.0


class ModelkeeperRetention(Retain):
    """See `ModelkeeperRetentionConfig`."""

    def __init__(self) -> None:
        self._value: dict[str, float] = {}

    def retain(self, store: StoredModels, new: StoredModel) -> Retention:
        """Admit the model unless its accuracy is an outlier or the knapsack leaves it out."""
        if refusal := refuse_too_large(store, new) or _outlier(store.models, new):
            return refusal
        value = {model.model_id: DECAY * self._of(model) for model in store.models}
        value[new.model_id] = 1.0
        left_out = _left_out(store, new, value)
        evicted = tuple(m.model_id for m in store.models if m.model_id in left_out)
        if new.model_id in left_out:
            return Retention(
                False, evicted, "the models that are there are worth more than it for their size"
            )
        self._value = {name: worth for name, worth in value.items() if name not in left_out}
        return Retention(True, evicted)

    def on_use(self, model: StoredModel) -> None:
        """Raise its value by 1."""
        self._value[model.model_id] = self._of(model) + 1.0

    def _of(self, model: StoredModel) -> float:
        """The model's value; if it is unknown, the one without decay."""
        known = self._value.get(model.model_id)
        return 1.0 + model.uses if known is None else known

    def state_dict(self) -> dict[str, Any]:
        """Value by model."""
        return {"value": dict(self._value)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._value = dict(state["value"])


class ModelkeeperRetentionConfig(PolicyConfig):
    """Keeps the models with the largest total value that fit in the capacity.

    ModelKeeper (F. Lai et al., NSDI '23), as published: a model's value is 1 at its addition,
    grows by 1 each time it becomes a parent, and is multiplied by 0.99 at each addition of another
    model. Above the capacity a 0-1 knapsack chooses, the new model included. A model whose accuracy
    is more than three standard deviations below the mean of its task is refused; if all models of a
    task have the same accuracy, none is. Sizes are counted in bytes, not rounded to MB.
    """

    kind: Literal["modelkeeper"] = "modelkeeper"
    policy = ModelkeeperRetention


def _outlier(models: Sequence[StoredModel], new: StoredModel) -> Retention | None:
    peers = np.array([model.accuracy for model in models if model.task == new.task])
    if not len(peers) or peers.min() == peers.max():
        return None
    mean, deviation = float(peers.mean()), float(peers.std())
    if new.accuracy >= mean - DEVIATIONS * deviation:
        return None
    return Retention(
        False,
        reason=f"its accuracy {new.accuracy:g} is more than {DEVIATIONS:g} standard deviations "
        f"({deviation:.3g}) below the mean of its task, {mean:.3g}",
    )


def _left_out(store: StoredModels, new: StoredModel, value: dict[str, float]) -> set[str]:
    """The models that the knapsack leaves out; none of them is superfluous.

    Bytes shared by several models are divided among those still included. Where nothing is
    shared, this equals what a model frees, and the result is optimal. Otherwise it is an estimate:
    hence the loop, the pass that restores superfluous evictions, and the check whether the new
    model alone suffices.
    """

    def excess_bytes(left_out: set[str]) -> int:
        return store.excess_bytes(None if new.model_id in left_out else new, left_out)

    left_out: set[str] = set()
    while (excess := excess_bytes(left_out)) > 0:
        kept = [model for model in (*store.models, new) if model.model_id not in left_out]
        sizes = _shares(kept)
        need = min(excess, int(sizes.sum()))
        values = np.array([value[model.model_id] for model in kept])
        left_out |= {kept[index].model_id for index in cheapest_cover(values, sizes, need)}
    for name in sorted(left_out, key=lambda name: (-value[name], name)):
        if excess_bytes(left_out - {name}) <= 0:
            left_out.remove(name)
    alone = {new.model_id}
    fits_alone = excess_bytes(alone) <= 0
    return alone if fits_alone and sum(map(value.__getitem__, left_out)) > 1.0 else left_out


def _shares(models: Sequence[StoredModel]) -> Ints:
    """Bytes of each model; a shared tensor is divided by the number of models that have it."""
    holders = Counter(name for model in models for name, _ in model.shared)
    return np.array(
        [
            max(1, model.size_bytes - sum(size - size // holders[n] for n, size in model.shared))
            for model in models
        ],
        dtype=np.int64,
    )
