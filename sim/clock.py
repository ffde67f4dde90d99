"""SimPy's clock with callbacks at absolute times, in a fixed order at equal times.

Completions come first, then arrivals, then one scheduling pass. A callback costs one event and no
process; ordinary SimPy processes may run in the same environment.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush

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


class Clock(Environment):
    """A SimPy environment that also calls back.

    Attributes:
        events: How many callbacks were asked for.
    """

    def __init__(self) -> None:
        super().__init__(initial_time=0.0)
        self.events = 0

    def call_at(self, time_s: float, order: int, callback: Callable[[], None]) -> None:
        """Call back at a time (s), among those of the same time by `order`, then first come.

        The heap is SimPy's own (4.1): its `schedule` takes a delay, and `now + (time - now)` is not
        always `time`, so that what the trace has at one time would come at two.
        """
        self.events += 1
        due = _Due(self, lambda _: callback())
        heappush(self._queue, (time_s, order, next(self._eid), due))  # type: ignore[misc]
