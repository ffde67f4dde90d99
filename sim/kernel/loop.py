"""The event loop of every run: events at absolute times, in a fixed order; compiled."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import i64, mypyc_attr

from wattkeeper.sim.kernel.packed import append, vec

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

RANK_BITS: Final = 48
"""Of the rank of an event among those of its time: its number; the bits above are its priority."""


@mypyc_attr(acyclic=True)
class ScheduledEvent:
    """An event of the queue; it is scheduled once.

    Attributes:
        cancelled: Whether nothing happens when its time comes.
        time_s: Its time, s.
    """

    cancelled = False
    time_s = 0.0

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


class EventHeap:
    """Events by time, priority and the order in which they were added: a heap with four branches.

    What orders them lies in arrays of numbers, so that an event is not read before its time comes:
    of many, most are in no cache of the processor.
    """

    def __init__(self) -> None:
        self._size: i64 = 0
        self._added: i64 = 0
        self._times = vec[float]()
        self._ranks = vec[i64]()
        self._places = vec[i64]()  # in `_events`; beyond the heap, those that are free
        self._events: list[ScheduledEvent | None] = []

    @property
    def first(self) -> ScheduledEvent | None:
        """The first event; None if there is none."""
        return self._events[self._places[0]] if self._size else None

    @property
    def first_s(self) -> float:
        """Time of the first event, s; infinite if there is none."""
        return self._times[0] if self._size else NEVER

    def clear(self) -> None:
        """Remove all events."""
        self._size = 0
        self._events.clear()
        self._times, self._ranks, self._places = vec[float](), vec[i64](), vec[i64]()

    def is_before_arrivals(self) -> bool:
        """Whether the first event precedes arrivals of its time."""
        return self._ranks[0] < (ARRIVAL - STOP) << RANK_BITS

    def add(self, time_s: float, event: ScheduledEvent, priority: i64) -> None:
        """Add an event that happens at a time, s."""
        self._added += 1
        rank = ((priority - STOP) << RANK_BITS) + self._added
        position = self._size
        if position == len(self._events):
            self._times = append(self._times, 0.0)
            self._ranks = append(self._ranks, i64(0))
            self._places = append(self._places, position)
            self._events.append(None)
        times, ranks, places = self._times, self._ranks, self._places
        place = places[position]
        self._events[place] = event
        self._size = position + 1
        while position > 0:
            above = (position - 1) >> 2
            above_s = times[above]
            if above_s < time_s or (above_s == time_s and ranks[above] < rank):
                break
            times[position] = above_s
            ranks[position] = ranks[above]
            places[position] = places[above]
            position = above
        times[position] = time_s
        ranks[position] = rank
        places[position] = place

    def remove_first(self) -> None:
        """Remove the first event; there is one."""
        times, ranks, places = self._times, self._ranks, self._places
        first = places[0]
        self._events[first] = None
        size = self._size - 1
        self._size = size
        time_s, rank, place = times[size], ranks[size], places[size]
        places[size] = first
        position: i64 = 0
        below: i64 = 1
        while below < size:
            least, least_s = below, times[below]
            end = min(below + 4, size)
            other = below + 1
            while other < end:
                other_s = times[other]
                if other_s < least_s or (other_s == least_s and ranks[other] < ranks[least]):
                    least, least_s = other, other_s
                other += 1
            if time_s < least_s or (time_s == least_s and rank < ranks[least]):
                break
            times[position] = least_s
            ranks[position] = ranks[least]
            places[position] = places[least]
            position = least
            below = 4 * position + 1
        if size:
            times[position] = time_s
            ranks[position] = rank
            places[position] = place


@mypyc_attr(allow_interpreted_subclasses=True)
class LoopClient:
    """What the event loop calls for arrivals and scheduling passes, which are not in its queue."""

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
        queue: Events to come.
        events: Number of events that were processed.
        driven: Called for arrivals and scheduling passes; set after construction.
        next_arrival_s: Time of the next arrival, s; infinite if there is none.
        pass_is_due: Whether a scheduling pass was requested.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.queue = EventHeap()
        self.events = 0
        self.driven: LoopClient
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
    event.time_s = time_s
    loop.queue.add(time_s, event, priority)


def drop_cancelled(loop: EventLoop) -> None:
    """Remove cancelled events that would be next; they count as processed."""
    queue = loop.queue
    event = queue.first
    while event is not None and event.cancelled:
        queue.remove_first()
        loop.events += 1
        event = queue.first


def process_next(loop: EventLoop) -> bool:
    """Process the next event; False if there is none."""
    queue, next_s = loop.queue, loop.next_arrival_s
    event: ScheduledEvent | None = None
    first_s = queue.first_s
    if first_s < next_s or (first_s == next_s < NEVER and queue.is_before_arrivals()):
        next_s, event = first_s, queue.first
    if loop.pass_is_due and next_s > loop.now_s:
        loop.pass_is_due = False
        loop.driven.schedule()
    elif event is None:
        if next_s == NEVER:
            return False
        loop.now_s = next_s
        loop.driven.arrive()
    else:
        queue.remove_first()
        if not event.cancelled:
            loop.now_s = next_s
            event.happen()
    loop.events += 1
    return True
