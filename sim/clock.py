"""SimPy's clock with callbacks at absolute times, in a fixed order at equal times.

At one time callbacks come first, then arrivals, then events of ordinary SimPy processes, which may
run in the same environment, then one scheduling pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from mypy_extensions import mypyc_attr
from simpy import Environment


class Due:
    """What is called when its time comes."""

    __slots__ = ("argument", "call")

    def __init__(self, call: Callable[[Any], object], argument: Any = None) -> None:
        self.call = call
        self.argument = argument

    def cancel(self) -> None:
        """Do nothing when the time comes."""
        self.call = _nothing


def _nothing(_: object) -> None:
    pass


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """Calls back, and drives a SimPy environment.

    SimPy's own `schedule` takes a delay, and `now + (time - now)` is not always `time`, so that
    what a trace has at one time would come at two. Callbacks have a heap of bare times, which are
    compared faster than SimPy's entries.

    Attributes:
        simpy: Where ordinary SimPy processes run; its `now` is `now_s`.
        now_s: The time.
        events: How many callbacks, arrivals, SimPy events and passes there were.
        arrivals: Called at `next_arrival_s`; it sets the next one.
        next_arrival_s: Infinite if nobody else arrives.
        passes: Called at the end of a time at which somebody asked for it by `pass_is_due`, and
            once more if the pass itself, or what it let happen at once, asked again.
        pass_is_due: Whether somebody did.
    """

    def __init__(self) -> None:
        self.simpy = Environment(initial_time=0.0)
        self.now_s = 0.0
        self.events = 0
        self.arrivals: Callable[[], None]
        self.next_arrival_s = math.inf
        self.passes: Callable[[], None]
        self.pass_is_due = False
        self._times: list[float] = []
        self._due: dict[float, list[Due]] = {}

    def enter(self, time_s: float, due: Due) -> None:
        """Let something be due at a time (s), after what is due then already."""
        there = self._due.get(time_s)
        if there is None:
            self._due[time_s] = [due]
            heappush(self._times, time_s)
        else:
            there.append(due)

    def next_s(self) -> float:
        """When something is due next, s; infinite if nothing is."""
        now = self.next_arrival_s
        if self._times and self._times[0] < now:
            now = self._times[0]
        processes = self.simpy._queue
        if processes and processes[0][0] < now:
            now = processes[0][0]
        return now

    def settle(self, now_s: float) -> None:
        """Let everything happen that is due at a time (s), the next one."""
        times, simpy = self._times, self.simpy
        processes = simpy._queue
        events = 0
        self.now_s = simpy._now = now_s
        while True:
            if times and times[0] == now_s:
                heappop(times)
                for one in self._due.pop(now_s):
                    events += 1
                    one.call(one.argument)
            elif self.next_arrival_s == now_s:
                events += 1
                self.arrivals()
            elif processes and processes[0][0] == now_s:
                events += 1
                simpy.step()
            elif self.pass_is_due:
                events += 1
                self.pass_is_due = False
                self.passes()
            else:
                break
        self.events += events

    def play(self) -> None:
        """Run until nothing is left to happen."""
        while True:
            now_s = self.next_s()
            if now_s == math.inf:
                break
            self.settle(now_s)
