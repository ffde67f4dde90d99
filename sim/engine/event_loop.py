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

DOWN: Final = -4
"""Priority of losses of nodes: after completions."""

UP: Final = -3
"""Priority of their returns: after losses."""

SIGNAL: Final = -2
"""Priority of new values of signals: after returns of nodes, before arrivals."""

ARRIVAL: Final = -1
"""Priority of arrivals. Events of SimPy's processes follow them: their priorities are 0 and 1."""

NEVER: Final = math.inf


class ScheduledEvent:
    """An event of the queue; it is scheduled once. Compiled, its place there is plain numbers.

    Attributes:
        cancelled: Whether nothing happens when its time comes.
        time_s: Its time, s.
        priority: Order of events at one time: the lowest first.
        order: Order of events at one time and priority: the first scheduled one first.
    """

    cancelled = False
    time_s = 0.0
    priority: i64 = 0
    order: i64 = 0

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


def _is_before(one: ScheduledEvent, other: ScheduledEvent) -> bool:
    if one.time_s != other.time_s:
        return one.time_s < other.time_s
    if one.priority != other.priority:
        return one.priority < other.priority
    return one.order < other.order


def _push(heap: list[ScheduledEvent], event: ScheduledEvent) -> None:
    """Add an event to a binary heap."""
    position: i64 = len(heap)
    heap.append(event)
    while position > 0:
        above = (position - 1) >> 1
        parent = heap[above]
        if _is_before(parent, event):
            break
        heap[position] = parent
        position = above
    heap[position] = event


def _pop(heap: list[ScheduledEvent]) -> None:
    """Remove the first event from a binary heap."""
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
            if _is_before(other, child):
                child = other
                below += 1
        if _is_before(last, child):
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
        self.heap: list[ScheduledEvent] = []
        self.scheduled: i64 = 0
        self.events = 0
        self.driven: Driven
        self.next_arrival_s = NEVER
        self.pass_is_due = False

    def process_all(self) -> None:
        """Process events until there is none left, or one raises."""
        while process_next(self):
            pass


def schedule_at(
    loop: EventLoop, time_s: float, event: ScheduledEvent, priority: i64 = COMPLETION
) -> None:
    """Schedule an event at an absolute time, s."""
    loop.scheduled += 1
    event.time_s = time_s
    event.priority = priority
    event.order = loop.scheduled
    _push(loop.heap, event)


def drop_cancelled(loop: EventLoop) -> None:
    """Remove cancelled events that would be next; they count as processed."""
    while loop.heap and loop.heap[0].cancelled:
        _pop(loop.heap)
        loop.events += 1


def process_next(loop: EventLoop) -> bool:
    """Process the next event; False if there is none."""
    heap, next_s = loop.heap, loop.next_arrival_s
    event: ScheduledEvent | None = None
    if heap:
        first = heap[0]
        if first.time_s < next_s or (first.time_s == next_s and first.priority < ARRIVAL):
            next_s, event = first.time_s, first
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
        if not event.cancelled:
            loop.now_s = next_s
            event.happen()
    loop.events += 1
    return True
