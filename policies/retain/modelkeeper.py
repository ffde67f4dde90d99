"""ModelKeeper's retention: models that were useful of late, the most that fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal

import numpy as np

from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.policies.retain._knapsack import cheapest_cover
from wattkeeper.policies.retaining import (
    Retain,
    Retention,
    StoredModel,
    StoredModels,
    refuse_too_large,
)

DECAY: Final = 0.99
DEVIATIONS: Final = 3.0


class ModelkeeperRetentionConfig(PolicyConfig):
    """Keeps the models of the largest total value that fit in the capacity.

    ModelKeeper (F. Lai et al., NSDI '23), as published: a model's value is 1 at its addition,
    grows by 1 each time it becomes a parent, and is multiplied by 0.99 at each addition of another
    one. Over the capacity a 0-1 knapsack chooses, the new model included. A model whose accuracy
    lies more than three standard deviations below the mean of its task is refused; a task in which
    all have the same accuracy refuses none. Sizes are counted in bytes, not rounded to MB.
    """

    point: ClassVar[Point] = "retain"
    kind: Literal["modelkeeper"] = "modelkeeper"

    def build(self) -> ModelkeeperRetention:
        """A new policy."""
        return ModelkeeperRetention()


class ModelkeeperRetention(Retain):
    """See `ModelkeeperRetentionConfig`."""

    def __init__(self) -> None:
        self._value: dict[str, float] = {}

    def retain(self, store: StoredModels, new: StoredModel) -> Retention:
        """Admit it unless its accuracy is an outlier or the knapsack is worth more without it."""
        if refusal := refuse_too_large(store, new) or _outlier(store.models, new):
            return refusal
        value = {model.model_id: DECAY * self._of(model) for model in store.models}
        value[new.model_id] = 1.0
        gone = _left_out(store, new, value)
        evicted = tuple(m.model_id for m in store.models if m.model_id in gone)
        if new.model_id in gone:
            return Retention(
                False, evicted, "the models that are there are worth more than it for their size"
            )
        self._value = {name: worth for name, worth in value.items() if name not in gone}
        return Retention(True, evicted)

    def on_use(self, model: StoredModel) -> None:
        """Raise its value by 1."""
        self._value[model.model_id] = self._of(model) + 1.0

    def _of(self, model: StoredModel) -> float:
        """Its value; where it came before this policy did, without decay."""
        known = self._value.get(model.model_id)
        return 1.0 + model.uses if known is None else known

    def state_dict(self) -> dict[str, Any]:
        """Each model's value."""
        return {"value": dict(self._value)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._value = dict(state["value"])


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
    """What the knapsack leaves out; nothing of it can be spared.

    Bytes that several models share are divided among those that are still in. Where nothing is
    shared, this is what a model frees, and the answer the optimum. Else it is a guess: hence the
    loop, and at its end the look back and at the new model alone.
    """

    def fits(gone: set[str]) -> bool:
        return store.excess_bytes(None if new.model_id in gone else new, gone) <= 0

    gone: set[str] = set()
    while not fits(gone):
        kept = [model for model in (*store.models, new) if model.model_id not in gone]
        sizes = _shares(kept)
        need = min(store.excess_bytes(None if new.model_id in gone else new, gone), sizes.sum())
        values = np.array([value[model.model_id] for model in kept])
        gone |= {kept[at].model_id for at in cheapest_cover(values, sizes, int(need))}
    for name in sorted(gone, key=lambda name: (-value[name], name)):
        if fits(gone - {name}):
            gone.remove(name)
    alone = {new.model_id}
    return alone if fits(alone) and sum(map(value.__getitem__, gone)) > 1.0 else gone


def _shares(models: Sequence[StoredModel]) -> Ints:
    """Bytes of each, those of a shared tensor divided by the number of models that have it."""
    holders = Counter(name for model in models for name, _ in model.shared)
    return np.array(
        [
            max(1, model.size_bytes - sum(size - size // holders[n] for n, size in model.shared))
            for model in models
        ],
        dtype=np.int64,
    )
