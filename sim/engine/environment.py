"""The clock of every run: SimPy's environment with events at absolute times, in a fixed order."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import i64, mypyc_attr
from simpy.core import EmptySchedule, Environment, SimTime, StopSimulation
from simpy.events import NORMAL, Event, EventPriority

STOP: Final = -6
"""Priority of the end of `run(until=...)`: before anything else of its time."""

COMPLETION: Final = -5
"""Priority of ends of attempts, and of all else that the world itself schedules."""

ARRIVAL: Final = -1
"""Priority of arrivals. Between it and completions there is room for losses of nodes, their returns
and signals. Events of SimPy's processes follow arrivals: their priorities are 0 and 1."""

NEVER: Final = math.inf


class ScheduledEvent:
    """An event of the simulator itself: one call, without SimPy's callbacks and value.

    Attributes:
        cancelled: Whether nothing happens when its time comes.
    """

    cancelled = False

    @abstractmethod
    def happen(self) -> None:
        """Called at the event's time, unless it was cancelled."""

    def cancel(self) -> None:
        """Let nothing happen when its time comes; it stays in the queue until then."""
        self.cancelled = True


class Callback(ScheduledEvent):
    """Calls a function with an argument."""

    def __init__(self, call: Callable[[Any], object], argument: Any = None) -> None:
        self.call = call
        self.argument = argument

    def happen(self) -> None:
        """Call the function."""
        self.call(self.argument)


class _Entry:
    """An event in the queue; compiled code compares its numbers without making objects of them."""

    def __init__(
        self, time_s: float, priority: i64, number: i64, event: ScheduledEvent | Event
    ) -> None:
        self.time_s = time_s
        self.priority = priority
        self.number = number
        self.event = event

    def is_before(self, other: _Entry) -> bool:
        """Whether it happens before another one."""
        if self.time_s != other.time_s:
            return self.time_s < other.time_s
        if self.priority != other.priority:
            return self.priority < other.priority
        return self.number < other.number


def _push(heap: list[_Entry], entry: _Entry) -> None:
    """Add an entry to a binary heap."""
    position: i64 = len(heap)
    heap.append(entry)
    while position > 0:
        above = (position - 1) >> 1
        parent = heap[above]
        if parent.is_before(entry):
            break
        heap[position] = parent
        position = above
    heap[position] = entry


def _pop(heap: list[_Entry]) -> None:
    """Remove the first entry from a binary heap."""
    last = heap.pop()
    size: i64 = len(heap)
    if not size:
        return
    position: i64 = 0
    below: i64 = 1
    while below < size:
        child = heap[below]
        if below + 1 < size:
            other = heap[below + 1]
            if other.is_before(child):
                child = other
                below += 1
        if last.is_before(child):
            break
        heap[position] = child
        position = below
        below = 2 * position + 1
    heap[position] = last


@mypyc_attr(allow_interpreted_subclasses=True)
class Driven:
    """What the environment drives besides its queue: arrivals and scheduling passes."""

    @abstractmethod
    def arrive(self) -> None:
        """Called at `SimulationEnvironment.next_arrival_s`; sets the next one."""

    @abstractmethod
    def schedule(self) -> None:
        """Called at the end of a time at which a pass was requested.

        And once more if this itself, or what it let happen at once, requested another one.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class SimulationEnvironment(Environment):
    """A SimPy environment in which events of a run happen at absolute times.

    SimPy's `schedule` takes a delay, and `now + (time - now)` is not always `time`: jobs that a
    trace submits at one time would arrive at two. `schedule_at` takes the time. At equal times
    events happen by priority (`COMPLETION`, `ARRIVAL`, those of SimPy's processes), then in the
    order in which they were scheduled, and a scheduling pass comes last. Arrivals, which are sorted
    already, and the pass, whose time is the present one, are merged with the queue instead of
    entering it: it would take as long again to sort them.

    All events wait in one heap, those of SimPy's processes too: SimPy's own queue holds an event
    only while SimPy processes it. `_now` is SimPy's (4.1), declared for the compiler.

    Attributes:
        events: Number of events that were processed.
        driven: Called for arrivals and scheduling passes; set after construction.
        next_arrival_s: Time of the next arrival, s; infinite if there is none.
        pass_is_due: Whether a scheduling pass was requested.
    """

    _now: float

    def __init__(self) -> None:
        super().__init__(initial_time=0.0)
        self._heap: list[_Entry] = []
        self._scheduled: i64 = 0
        self.events = 0
        self.driven: Driven
        self.next_arrival_s = NEVER
        self.pass_is_due = False

    @property
    def now(self) -> float:
        """The time, s."""
        return self._now

    def schedule_at(
        self, time_s: float, event: ScheduledEvent | Event, priority: int = COMPLETION
    ) -> None:
        """Schedule an event at an absolute time, s."""
        self._scheduled += 1
        _push(self._heap, _Entry(time_s, priority, self._scheduled, event))

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: SimTime = 0) -> None:
        """Schedule an event of a SimPy process; see `simpy.Environment.schedule`."""
        self.schedule_at(self._now + delay, event, priority)

    def peek(self) -> float:
        """The time of the next event, s; infinite if there is none."""
        if self.pass_is_due:
            return self._now
        heap, next_s = self._heap, self.next_arrival_s
        if heap and heap[0].time_s < next_s:
            next_s = heap[0].time_s
        return next_s

    def step(self) -> None:
        """Process the next event.

        Raises:
            EmptySchedule: If there is none.
        """
        heap, next_s, event = self._heap, self.next_arrival_s, None
        if heap:
            first = heap[0]
            if first.time_s < next_s or (first.time_s == next_s and first.priority < ARRIVAL):
                next_s, event = first.time_s, first.event
        if self.pass_is_due and next_s > self._now:
            self.pass_is_due = False
            self.driven.schedule()
        elif event is None:
            if next_s == NEVER:
                raise EmptySchedule
            self._now = next_s
            self.driven.arrive()
        elif isinstance(event, ScheduledEvent):
            _pop(heap)
            self._now = next_s
            if not event.cancelled:
                event.happen()
        else:
            _pop(heap)
            self._now = next_s
            super().schedule(event, NORMAL, 0.0)
            super().step()
        self.events += 1

    def run(self, until: SimTime | Event | None = None) -> Any:
        """Process events; see `simpy.Environment.run`.

        Args:
            until: A time (s): stop before anything else happens then. An event: stop once it was
                processed, and return its value. None: run until nothing is left to happen.

        Raises:
            ValueError: If the time is not after the present one.
            RuntimeError: If nothing is left to happen before the event was triggered.
        """
        if until is not None:
            if not isinstance(until, Event):
                stop_s, until = float(until), Event(self)
                if stop_s <= self._now:
                    raise ValueError(
                        f"until ({stop_s}) must be after the present time, {self._now}"
                    )
                until._ok, until._value = True, None
                self.schedule_at(stop_s, until, STOP)
            elif until.processed:
                return until.value
            until.callbacks.append(StopSimulation.callback)
        try:
            while True:
                self.step()
        except StopSimulation as stop:
            return stop.args[0]
        except EmptySchedule:
            if until is not None:
                raise RuntimeError(
                    f"nothing is left to happen, but {until} was not triggered"
                ) from None
        return None
