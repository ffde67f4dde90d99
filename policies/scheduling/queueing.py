"""Base classes of `Select` policies without preemption."""

from abc import abstractmethod
from collections import deque
from heapq import heappop, heappush
from typing import Final

from mypy_extensions import mypyc_attr

from wattkeeper.policies.points.job import WHOLE, Job, Key
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Select, Selection

NOTHING: Final = Selection()

# Compiled code need not look up a constant.
_pop: Final = heappop
_push: Final = heappush

Entry = tuple[float, int, Job]


@mypyc_attr(allow_interpreted_subclasses=True)
class InOrder(Select):
    """Strict queue: only its head may start.

    Jobs that come in the order of their ranks are kept in it, others in a heap beside them.
    """

    def __init__(self) -> None:
        self._in_order: deque[Entry] = deque()
        self._others: list[Entry] = []

    @abstractmethod
    def rank(self, ctx: Context, job: Job) -> float:
        """Position of the job in the queue, smallest first; ties by number."""
        raise NotImplementedError

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Enqueue the job."""
        entry = (self.rank(ctx, job), job.number, job)
        if not self._in_order or self._in_order[-1] < entry:
            self._in_order.append(entry)
        else:
            _push(self._others, entry)

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """The head, if it fits."""
        in_order, others = self._in_order, self._others
        if others and (not in_order or others[0] < in_order[0]):
            return Selection((_pop(others)[2],)) if capacity.fits(others[0][2]) else NOTHING
        if not in_order or not capacity.fits(in_order[0][2]):
            return NOTHING
        return Selection((in_order.popleft()[2],))


class Fifo(InOrder):
    """See `wattkeeper.policies.select.fifo.FifoConfig`."""

    def rank(self, ctx: Context, job: Job) -> float:
        """Submission time, s."""
        return job.submit_time_s


@mypyc_attr(allow_interpreted_subclasses=True)
class FirstThatFits(Select):
    """The first job in rank order that fits.

    Waiting jobs are kept in one heap for each key: the best of the heads that fit is the job that a
    scan of the whole queue would find.
    """

    def __init__(self) -> None:
        self._waiting: dict[Key, list[Entry]] = {}

    @abstractmethod
    def rank(self, ctx: Context, job: Job) -> float:
        """Position of the job in the queue, smallest first; ties by number."""
        raise NotImplementedError

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Enqueue the job."""
        entry = (self.rank(ctx, job), job.number, job)
        key = job.key
        heap = self._waiting.get(key)
        if heap is None:
            self._waiting[key] = [entry]
        else:
            _push(heap, entry)

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """The best head that fits."""
        free = capacity.free_gpus
        best: Entry | None = None
        best_key: Key | None = None
        for key, heap in self._waiting.items():
            entry = heap[0]
            job = entry[2]
            if job.gpus > free and job.gpu_milli == WHOLE:
                continue
            if (best is None or entry < best) and capacity.fits(job):
                best, best_key = entry, key
        if best is None or best_key is None:
            return NOTHING
        heap = self._waiting[best_key]
        _pop(heap)
        if not heap:
            del self._waiting[best_key]
        return Selection((best[2],))


class Fjf(FirstThatFits):
    """See `wattkeeper.policies.select.fjf.FjfConfig`."""

    def rank(self, ctx: Context, job: Job) -> float:
        """Submission time, s."""
        return job.submit_time_s


class Sjf(FirstThatFits):
    """See `wattkeeper.policies.select.sjf.SjfConfig`."""

    def rank(self, ctx: Context, job: Job) -> float:
        """Recorded run time, s."""
        return job.duration_s
