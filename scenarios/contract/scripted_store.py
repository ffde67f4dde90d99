"""A store of models without a world, in which a `Retain` policy is rehearsed."""

from __future__ import annotations

from typing import Final

from wattkeeper.policies.points.retain import Retention, StoredModel, StoredModels, check_retention
from wattkeeper.scenarios.contract.answers import require_allowed, require_type
from wattkeeper.scenarios.contract.breach import require
from wattkeeper.scenarios.contract.steps import Ask, Step

CAPACITY_BYTES: Final = 100
"""Room for about five models."""


class ScriptedStore:
    """A store to which models are offered, and from which they are used."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._stored: dict[str, StoredModel] = {}
        self._events = 0

    def step(self, step: Step) -> None:
        """Offer a model, or use a stored one."""
        action, number = step
        if action == "submit":
            self._offer(number)
        elif self._stored:
            self._use(list(self._stored)[number % len(self._stored)])

    def drain(self) -> None:
        """Nothing waits."""

    def _offer(self, number: int) -> None:
        self._events += 1
        accuracy = (0.9, 0.8, 0.85, 0.9, 0.2, 0.95)[number % 6]
        size_bytes = 10 + 7 * (self._events % 4) + 60 * (self._events % 29 == 0)
        new = StoredModel(
            f"{self._events}",
            f"task-{number % 2}",
            accuracy,
            size_bytes,
            self._events,
            self._events,
        )
        store = StoredModels(CAPACITY_BYTES, tuple(self._stored.values()))
        decision = self._ask("retain", store, new)
        require_type(decision, Retention, "retain")
        admit, evict = decision.admit, decision.evict
        require(type(admit) is bool, "answered admit={!r}; needed: a bool", "retain", admit)
        told = admit == (not decision.reason)
        require(told, "gives no reason for a refusal, or one for an admission", "retain")
        names = type(evict) is tuple and all(type(name) is str for name in evict)
        what = "answered evict={!r:.100}; needed: a tuple of ids of models"
        require(names, what, "retain", evict)
        require_allowed("retain", check_retention, store, new, decision)
        require(len(set(evict)) == len(evict), "evicts a model twice: {!r}", "retain", evict)
        for name in evict:
            del self._stored[name]
        if admit:
            self._stored[new.model_id] = new

    def _use(self, name: str) -> None:
        self._events += 1
        model = self._stored[name]
        self._ask("on_use", model)
        self._stored[name] = model._replace(uses=model.uses + 1, used=self._events)
