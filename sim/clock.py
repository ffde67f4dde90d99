"""SimPy's clock with callbacks at absolute times, in a fixed order at equal times.

At one time completions come first, then arrivals, then one scheduling pass. A callback costs one
entry of SimPy's heap and no process; ordinary SimPy processes may run in the same environment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from simpy import Environment

COMPLETION, ARRIVAL, PASS = 0, 1, 2


class Due:
    """An entry of the heap that calls back; SimPy itself can step over it as over an event."""

    __slots__ = ("argument", "call")

    _ok = True
    _defused = True

    def __init__(self, call: Callable[[Any], object], argument: Any) -> None:
        self.call = call
        self.argument = argument

    @property
    def callbacks(self) -> list[Callable[[object], object]]:
        """As SimPy looks them up; a list that is kept would be a cycle of references an event."""
        return [lambda _: self.call(self.argument)]

    @callbacks.setter
    def callbacks(self, value: None) -> None:
        pass

    def cancel(self) -> None:
        """Do nothing when the time comes."""
        self.call = _nothing


def _nothing(_: object) -> None:
    pass


class Clock(Environment):
    """A SimPy environment that also calls back.

    Attributes:
        now_s: The time, as a plain attribute; SimPy's `now` is the same.
        events: How many callbacks, arrivals and passes there were.
        arrivals: Called at `next_arrival_s`; it sets the next one.
        next_arrival_s: Infinite if nobody else arrives.
        passes: Called at the end of a time at which somebody asked for it by `pass_is_due`.
        pass_is_due: Whether somebody did.
    """

    def __init__(self) -> None:
        super().__init__(initial_time=0.0)
        self.now_s = 0.0
        self.events = 0
        self.arrivals: Callable[[], None]
        self.next_arrival_s = math.inf
        self.passes: Callable[[], None]
        self.pass_is_due = False

    def call_at(
        self, time_s: float, order: int, callback: Callable[[Any], object], argument: Any = None
    ) -> Due:
        """Call back at a time (s), among those of the same time by `order`, then first come."""
        due = Due(callback, argument)
        self.enter(time_s, order, due)
        return due

    def enter(self, time_s: float, order: int, due: Due) -> None:
        """Let something be due at a time (s).

        The heap is SimPy's own (4.1): its `schedule` takes a delay, and `now + (time - now)` is not
        always `time`, so that what the trace has at one time would come at two.
        """
        heappush(self._queue, (time_s, order, next(self._eid), due))  # type: ignore[misc]

    def play(self) -> None:
        """Run until nothing is left to happen.

        Arrivals are merged from their sorted column, and passes follow from the events of their
        time: neither takes an entry of the heap.
        """
        heap: Any = self._queue
        events = 0
        while True:
            now = self.next_arrival_s
            if heap and heap[0][0] < now:
                now = heap[0][0]
            elif now == math.inf:
                break
            self._now = self.now_s = now
            while heap:
                time_s, order, _, due = heap[0]
                if time_s != now or order >= PASS:
                    break
                events += 1
                if order != COMPLETION and self.next_arrival_s == now:
                    self.arrivals()
                elif isinstance(due, Due):
                    heappop(heap)
                    due.call(due.argument)
                else:
                    self.step()
            if self.next_arrival_s == now:
                events += 1
                self.arrivals()
            if self.pass_is_due:
                events += 1
                self.pass_is_due = False
                self.passes()
            elif heap and heap[0][0] == now and heap[0][1] >= PASS:
                events += 1
                self.step()
        self.events += events
