"""SimPy's clock with callbacks at absolute times, in a fixed order at equal times.

At one time callbacks come first, then arrivals, then events of ordinary SimPy processes, which may
run in the same environment, then one scheduling pass.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from mypy_extensions import mypyc_attr
from simpy import Environment


class Due:
    """What happens when its time comes.

    Attributes:
        cancelled: Whether nothing happens instead.
    """

    cancelled = False

    @abstractmethod
    def happen(self) -> None:
        """Its time has come."""

    def cancel(self) -> None:
        """Let nothing happen when the time comes."""
        self.cancelled = True


class Callback(Due):
    """A call with an argument."""

    def __init__(self, call: Callable[[Any], object], argument: Any = None) -> None:
        self.call = call
        self.argument = argument

    def happen(self) -> None:
        """Call."""
        self.call(self.argument)


@mypyc_attr(allow_interpreted_subclasses=True)
class Driven:
    """What the clock drives besides what is entered."""

    @abstractmethod
    def arrive(self) -> None:
        """Called at `Clock.next_arrival_s`; sets the next one."""

    @abstractmethod
    def schedule(self) -> None:
        """Called at the end of a time at which `Clock.pass_is_due` was set.

        And once more if this itself, or what it let happen at once, set it again.
        """


# Compiled code need not look up a constant.
_pop: Final = heappop
_push: Final = heappush


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """Calls back, and drives a SimPy environment.

    SimPy's own `schedule` takes a delay, and `now + (time - now)` is not always `time`, so that
    what a trace has at one time would come at two. Callbacks have a heap of bare times, which are
    compared faster than SimPy's entries.

    Args:
        simpy: Where ordinary SimPy processes shall run; a new environment if None.

    Attributes:
        simpy: Where ordinary SimPy processes run, always the same; its `now` is `now_s`.
        now_s: The time.
        events: How many callbacks, arrivals, SimPy events and passes there were.
        driven: Whose arrivals and passes these are; set after construction.
        next_arrival_s: Infinite if nobody else arrives.
        pass_is_due: Whether somebody asked for a scheduling pass.
    """

    def __init__(self, simpy: Environment | None = None) -> None:
        self.simpy = Environment(initial_time=0.0) if simpy is None else simpy
        self._processes = self.simpy._queue
        self.now_s = 0.0
        self.events = 0
        self.driven: Driven
        self.next_arrival_s = math.inf
        self.pass_is_due = False
        self._times: list[float] = []
        self._due: dict[float, list[Due]] = {}

    def enter(self, time_s: float, due: Due) -> None:
        """Let something be due at a time (s), after what is due then already."""
        there = self._due.get(time_s)
        if there is None:
            self._due[time_s] = [due]
            _push(self._times, time_s)
        else:
            there.append(due)

    def next_s(self) -> float:
        """When something is due next, s; infinite if nothing is."""
        now = self.next_arrival_s
        if self._times and self._times[0] < now:
            now = self._times[0]
        processes = self._processes
        if processes and processes[0][0] < now:
            now = processes[0][0]
        return now

    def settle(self, now_s: float) -> None:
        """Let everything happen that is due at a time (s), the next one."""
        times, simpy, processes = self._times, self.simpy, self._processes
        events = 0
        self.now_s = simpy._now = now_s
        while True:
            if times and times[0] == now_s:
                _pop(times)
                for one in self._due.pop(now_s):
                    events += 1
                    if not one.cancelled:
                        one.happen()
            elif self.next_arrival_s == now_s:
                events += 1
                self.driven.arrive()
            elif processes and processes[0][0] == now_s:
                events += 1
                simpy.step()
            elif self.pass_is_due:
                events += 1
                self.pass_is_due = False
                self.driven.schedule()
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
