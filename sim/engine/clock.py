"""SimPy's clock with callbacks at absolute times, in a fixed order at equal times.

At one time callbacks come first, then arrivals, then events of ordinary SimPy processes, which may
run in the same environment, then one scheduling pass.
"""

from __future__ import annotations

import math
from abc import abstractmethod

from mypy_extensions import mypyc_attr
from simpy import Environment

from wattkeeper.sim.engine.agenda import Agenda, Due


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


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """Calls back, and drives a SimPy environment.

    SimPy's own `schedule` takes a delay, and `now + (time - now)` is not always `time`, so that
    what a trace has at one time would come at two. So callbacks have an agenda of their own.

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
        self._agenda = Agenda()

    def enter(self, time_s: float, due: Due) -> None:
        """Let something be due at a time (s), after what is due then already."""
        self._agenda.enter(time_s, due)

    def next_s(self) -> float:
        """When something is due next, s; infinite if nothing is."""
        now = self.next_arrival_s
        if self._agenda.next_s < now:
            now = self._agenda.next_s
        processes = self._processes
        if processes and processes[0][0] < now:
            now = processes[0][0]
        return now

    def settle(self, now_s: float) -> None:
        """Let everything happen that is due at a time (s), the next one."""
        agenda, simpy, processes = self._agenda, self.simpy, self._processes
        events = 0
        self.now_s = simpy._now = now_s
        while True:
            if agenda.next_s == now_s:
                events += 1
                one = agenda.pop()
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
