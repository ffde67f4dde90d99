"""The event loop of every run: events at absolute times, in a fixed order; compiled."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import i64, mypyc_attr

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

    def __init__(self, time_s: float, priority: i64, number: i64, event: object) -> None:
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
        """Called at `EventLoop.next_arrival_s`; sets the next one."""

    @abstractmethod
    def schedule(self) -> None:
        """Called at the end of a time at which a pass was requested.

        And once more if this itself, or what it let happen at once, requested another one.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class EventLoop:
    """The time of a run, and the queue of its events.

    SimPy's `schedule` takes a delay, and `now + (time - now)` is not always `time`: jobs that a
    trace submits at one time would arrive at two. `schedule_at` takes the time. At equal times
    events happen by priority (`COMPLETION`, `ARRIVAL`, those of SimPy's processes), then in the
    order in which they were scheduled, and a scheduling pass comes last. Arrivals, which are sorted
    already, and the pass, whose time is the present one, are merged with the queue instead of
    entering it: it would take as long again to sort them.

    It is a base of `SimulationEnvironment` beside SimPy's: a compiled class cannot have a base that
    is not compiled. What every job passes through are its attributes, `schedule_at` and
    `process_next`: compiled code calls methods of a class with other subclasses by their name.

    Attributes:
        now_s: The time, s.
        heap: The queue, a binary heap.
        scheduled: Number of events that were scheduled.
        events: Number of events that were processed.
        driven: Called for arrivals and scheduling passes; set after construction.
        next_arrival_s: Time of the next arrival, s; infinite if there is none.
        pass_is_due: Whether a scheduling pass was requested.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.heap: list[_Entry] = []
        self.scheduled: i64 = 0
        self.events = 0
        self.driven: Driven
        self.next_arrival_s = NEVER
        self.pass_is_due = False

    def process_all(self) -> None:
        """Process events until there is none left, or one raises."""
        while process_next(self):
            pass

    @abstractmethod
    def process_simpy_event(self, event: Any) -> None:
        """Process an event of SimPy, whose time has come."""


def schedule_at(loop: EventLoop, time_s: float, event: object, priority: int = COMPLETION) -> None:
    """Schedule a `ScheduledEvent` or an event of SimPy at an absolute time, s."""
    loop.scheduled += 1
    _push(loop.heap, _Entry(time_s, priority, loop.scheduled, event))


def process_next(loop: EventLoop) -> bool:
    """Process the next event; False if there is none."""
    heap, next_s, event = loop.heap, loop.next_arrival_s, None
    if heap:
        first = heap[0]
        if first.time_s < next_s or (first.time_s == next_s and first.priority < ARRIVAL):
            next_s, event = first.time_s, first.event
    if loop.pass_is_due and next_s > loop.now_s:
        loop.pass_is_due = False
        loop.driven.schedule()
    elif event is None:
        if next_s == NEVER:
            return False
        loop.now_s = next_s
        loop.driven.arrive()
    else:
        _pop(heap)
        loop.now_s = next_s
        if not isinstance(event, ScheduledEvent):
            loop.process_simpy_event(event)
        elif not event.cancelled:
            event.happen()
    loop.events += 1
    return True
