"""Who held which GPUs from when to when, packed into lanes: one a GPU of a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from heapq import heappop, heappush
from typing import Final, NamedTuple

Slot = tuple[int, int, int]
"""Node, GPUs on it, and the index of a shared GPU or `ALL_OF_IT`: a slot of a placement."""

Lane = tuple[int, int, int]
"""Node, GPU on it, and which part of the GPU where jobs share it, all from 0."""

ALL_OF_IT: Final = -1


class Hold(NamedTuple):
    """A job holds the same GPUs, for one attempt or for retries one after the other.

    Attributes:
        job: Its id.
        begin: When, in whole ns.
        end: Until when.
        slots: Where.
        first: Number of the first attempt of it.
        last: Number of the last.
        preempted: Whether a preemption ended it.
    """

    job: str
    begin: int
    end: int
    slots: tuple[Slot, ...]
    first: int
    last: int
    preempted: bool


def holds(
    decisions: Iterator[tuple[int, str, str, int, str]], ended: dict[str, tuple[int, int]]
) -> list[Hold]:
    """What the journal says of starts and preemptions, in its order.

    Args:
        decisions: Time (ns), decision point, job, attempt, and choice of each decision.
        ended: When (ns) each job's last attempt ended, and its number.

    Raises:
        LookupError: If the journal is not of these jobs.
    """
    found: list[Hold | None] = []
    running: dict[str, tuple[int, int, int, tuple[Slot, ...]]] = {}
    for time, point, job, attempt, chose in decisions:
        if point == "place":
            running[job] = len(found), time, attempt, slots(chose)
            found.append(None)
        elif point == "select" and chose == "preempt":
            at, begin, first, where = running.pop(job)
            found[at] = Hold(job, begin, time, where, first, attempt, True)
    for job, (at, begin, first, where) in running.items():
        end, last = ended[job]
        found[at] = Hold(job, begin, end, where, first, last, False)
    return [hold for hold in found if hold is not None]


@cache
def slots(chose: str) -> tuple[Slot, ...]:
    """Read a placement as `wattkeeper.sim.results.tables.format_choice` writes it."""
    found = []
    for text in chose.split():
        node, _, rest = text.partition(":")
        gpus, _, gpu = rest.partition("/")
        found.append((int(node), int(gpus), int(gpu) if gpu else ALL_OF_IT))
    return tuple(found)


def lanes(ordered: Sequence[Hold]) -> list[tuple[Lane, ...]]:
    """Lanes for each hold, one for each GPU that it holds; no two overlap on a lane.

    A hold takes the lowest GPUs of its node that are free, so that they are never more than the
    node has. Jobs that share a GPU take parts of it, the lowest that are free.

    Args:
        ordered: Holds in the order of the journal.
    """
    nodes: dict[int, _Node] = {}
    releases: list[tuple[int, int, Lane, int]] = []
    found = []
    for at, hold in enumerate(ordered):
        while releases and releases[0][0] <= hold.begin:
            _, _, lane, shared = heappop(releases)
            nodes[lane[0]].release(lane, shared)
        taken = []
        for node, gpus, shared in hold.slots:
            for gpu, part in nodes.setdefault(node, _Node()).take(gpus, shared):
                taken.append((node, gpu, part))
                heappush(releases, (hold.end, at, taken[-1], shared))
        found.append(tuple(taken))
    return found


class _Free:
    """Numbers from 0, of which the lowest free one is taken."""

    def __init__(self) -> None:
        self._released: list[int] = []
        self._next = 0

    def take(self) -> int:
        if self._released:
            return heappop(self._released)
        self._next += 1
        return self._next - 1

    def release(self, number: int) -> None:
        heappush(self._released, number)

    @property
    def all_free(self) -> bool:
        return len(self._released) == self._next


class _Node:
    """The GPUs of a node, and which part of each shared one is taken."""

    def __init__(self) -> None:
        self._gpus = _Free()
        self._shared: dict[int, tuple[int, _Free]] = {}

    def take(self, gpus: int, shared: int) -> list[tuple[int, int]]:
        if shared == ALL_OF_IT:
            return [(self._gpus.take(), 0) for _ in range(gpus)]
        if shared not in self._shared:
            self._shared[shared] = self._gpus.take(), _Free()
        gpu, parts = self._shared[shared]
        return [(gpu, parts.take())]

    def release(self, lane: Lane, shared: int) -> None:
        _, gpu, part = lane
        if shared == ALL_OF_IT:
            self._gpus.release(gpu)
            return
        _, parts = self._shared[shared]
        parts.release(part)
        if parts.all_free:
            self._gpus.release(gpu)
            del self._shared[shared]
