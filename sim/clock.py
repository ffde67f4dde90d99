"""Callbacks on SimPy's clock, in a fixed order at equal times.

Completions come first, then arrivals, then one scheduling pass. A callback costs one event and no
process; ordinary SimPy processes may run in the same environment.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

from simpy import Environment, Event

COMPLETION, ARRIVAL, PASS = 0, 1, 2


class _Due(Event):
    """An event that has its value from the start, as a SimPy timeout has."""

    def __init__(self, env: Environment, callback: Callable[[Event], None]) -> None:
        self.env = env
        self.callbacks = [callback]
        self._value = None
        self._ok = True
        self._defused = False


def call_in(env: Environment, delay_s: float, order: int, callback: Callable[[], None]) -> None:
    """Call back after a delay (s), among those of the same time by `order`, then first come."""
    env.schedule(_Due(env, lambda _: callback()), order, delay_s)  # type: ignore[arg-type]


def scheduled(env: Environment) -> int:
    """How many events were ever scheduled in the environment."""
    return next(copy(env._eid))
