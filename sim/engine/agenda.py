"""What is due when: a binary heap of unboxed numbers."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from librt.vecs import append, vec
from mypy_extensions import i64


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


class Agenda:
    """Hands out what was entered, by time; at one time in the order in which it was entered.

    `heapq` would compare objects, each at a place of its own in memory. Here compiled code compares
    numbers that lie side by side: times, the order of entering, and slots of a list of what is due.
    Beyond the heap's end stand the slots that are free.

    Attributes:
        next_s: The time of what comes first, s; infinite if nothing is left.
    """

    def __init__(self) -> None:
        self.next_s = math.inf
        self._times: vec[float] = vec[float]()
        self._numbers: vec[i64] = vec[i64]()
        self._slots: vec[i64] = vec[i64]()
        self._size: i64 = 0
        self._entered: i64 = 0
        self._due: list[Due | None] = []

    def enter(self, time_s: float, due: Due) -> None:
        """Let something be due at a time, s."""
        at = self._size
        self._size = at + 1
        number = self._entered
        self._entered = number + 1
        if at == len(self._times):
            self._times = append(self._times, time_s)
            self._numbers = append(self._numbers, number)
            self._slots = append(self._slots, at)
            self._due.append(None)
        times, numbers, slots = self._times, self._numbers, self._slots
        slot = slots[at]
        self._due[slot] = due
        while at > 0:
            above = (at - 1) >> 1
            if times[above] <= time_s:
                break
            times[at], numbers[at], slots[at] = times[above], numbers[above], slots[above]
            at = above
        times[at], numbers[at], slots[at] = time_s, number, slot
        self.next_s = times[0]

    def pop(self) -> Due:
        """Take out what comes first."""
        times, numbers, slots = self._times, self._numbers, self._slots
        free = slots[0]
        size = self._size - 1
        self._size = size
        at: i64 = 0
        below: i64 = 1
        while below < size:
            if below + 1 < size and _is_before(times, numbers, below + 1, below):
                below += 1
            if not _is_before(times, numbers, below, size):
                break
            times[at], numbers[at], slots[at] = times[below], numbers[below], slots[below]
            at = below
            below = 2 * at + 1
        times[at], numbers[at], slots[at] = times[size], numbers[size], slots[size]
        slots[size] = free
        self.next_s = times[0] if size else math.inf
        first = self._due[free]
        assert first is not None
        self._due[free] = None
        return first


def _is_before(times: vec[float], numbers: vec[i64], one: i64, other: i64) -> bool:
    """Whether an entry comes before another."""
    if times[one] == times[other]:
        return numbers[one] < numbers[other]
    return times[one] < times[other]
