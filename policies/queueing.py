"""Queues of waiting jobs that `Select` policies share."""

from __future__ import annotations

import math
from abc import abstractmethod
from heapq import heappop, heappush

from mypy_extensions import mypyc_attr

from wattkeeper.policies.protocols import WHOLE, Context, Job, Key, Room, Selection
from wattkeeper.policies.registry import Policy

NOTHING = Selection()

Entry = tuple[float, int, Job]


@mypyc_attr(allow_interpreted_subclasses=True)
class Queueing(Policy):
    """A `Select` policy that never preempts, and never has to be woken."""

    def ended(self, ctx: Context, job: Job) -> None:
        """Nothing to do."""

    def refused(self, ctx: Context, job: Job) -> None:
        """Cannot happen: it starts nothing that does not fit."""
        raise AssertionError(job.job_id)

    def wake_s(self, ctx: Context) -> float:
        """Never."""
        return math.inf


@mypyc_attr(allow_interpreted_subclasses=True)
class InOrder(Queueing):
    """Strict order of rank: only the head of the queue may start."""

    def __init__(self) -> None:
        self._waiting: list[Entry] = []

    @abstractmethod
    def rank(self, ctx: Context, job: Job) -> float:
        """The job's place in the queue, smallest first; ties by number."""

    def submitted(self, ctx: Context, job: Job) -> None:
        """Queue it."""
        heappush(self._waiting, (self.rank(ctx, job), job.number, job))

    def select(self, ctx: Context, room: Room) -> Selection:
        """The head, if it fits."""
        if not self._waiting or not room.fits(self._waiting[0][2]):
            return NOTHING
        return Selection((heappop(self._waiting)[2],))


@mypyc_attr(allow_interpreted_subclasses=True)
class FirstThatFits(Queueing):
    """The first in order of rank among those that fit.

    One heap for all jobs that fit together: the best head among the heaps that fit is the job that
    a scan of the whole queue would find.
    """

    def __init__(self) -> None:
        self._waiting: dict[Key, list[Entry]] = {}

    @abstractmethod
    def rank(self, ctx: Context, job: Job) -> float:
        """The job's place in the queue, smallest first; ties by number."""

    def submitted(self, ctx: Context, job: Job) -> None:
        """Queue it."""
        entry = (self.rank(ctx, job), job.number, job)
        key = job.key
        heap = self._waiting.get(key)
        if heap is None:
            self._waiting[key] = [entry]
        else:
            heappush(heap, entry)

    def select(self, ctx: Context, room: Room) -> Selection:
        """The best of the heads that fit."""
        free = room.free_gpus
        best: Entry | None = None
        found: Key | None = None
        for key, heap in self._waiting.items():
            entry = heap[0]
            job = entry[2]
            if job.gpus > free and job.gpu_milli == WHOLE:
                continue
            if (best is None or entry < best) and room.fits(job):
                best, found = entry, key
        if best is None or found is None:
            return NOTHING
        heap = self._waiting[found]
        heappop(heap)
        if not heap:
            del self._waiting[found]
        return Selection((best[2],))
