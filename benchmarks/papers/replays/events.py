"""The queue of events of the published replays, with the order of equal events."""

from __future__ import annotations

from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Final

KINDS: Final = 16
"""More than there are kinds of events: the time counts before the kind."""


class EventKind(IntEnum):
    """Kinds of events, in their order at one time."""

    ADD = 0
    REMOVE = 1
    GENERATE = 2
    READY = 3
    LONG_MEETING = 4
    SHORT_MEETING = 5
    STEP = 6
    CHECKPOINT = 7


class ReplayEvent:
    """An event.

    Attributes:
        time_ms: When.
        kind: What.
        data: What it is about; by its kind.
    """

    __slots__ = ("_order", "data", "kind", "time_ms")

    def __init__(self, time_ms: int, kind: EventKind, data: object = None) -> None:
        self.time_ms = time_ms
        self.kind = kind
        self.data = data
        self._order = time_ms * KINDS + kind

    def __lt__(self, other: ReplayEvent) -> bool:
        return self._order < other._order


class EventQueue:
    """A binary heap that compares time and kind alone.

    Equal events come in the order that the heap happens to yield, as in the public artifacts.
    """

    def __init__(self) -> None:
        self._heap: list[ReplayEvent] = []

    def push(self, time_ms: int, kind: EventKind, data: object = None) -> None:
        """Add an event."""
        heappush(self._heap, ReplayEvent(time_ms, kind, data))

    def pop(self) -> ReplayEvent:
        """Remove and return the next event."""
        return heappop(self._heap)

    def next_ms(self) -> int | None:
        """Time of the next event; None: there is none."""
        return self._heap[0].time_ms if self._heap else None

    def heapify_again(self) -> None:
        """Make the heap a heap once more, which reorders equal events."""
        heapify(self._heap)

    def is_before(self, kind: EventKind, other: EventKind) -> bool:
        """Whether the first event of a kind stands before that of another, in the heap's array."""
        for event in self._heap:
            if event.kind in (kind, other):
                return event.kind == kind
        return False
