"""First in, first out, with EASY backfilling: `easy-backfill`."""

import math
from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import Final

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import WHOLE, Job, Key
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Select, Selection
from wattkeeper.policies.scheduling.queueing import NOTHING, Entry

# Compiled code need not look up a constant.
_pop: Final = heappop
_push: Final = heappush


class _Line:
    """Waiting jobs of one key: in order of submission, and in a heap by estimate, shortest first.

    The heap may still hold jobs that no longer wait.
    """

    __slots__ = ("jobs", "shortest")

    def __init__(self) -> None:
        self.jobs: list[Entry] = []
        self.shortest: list[tuple[float, int]] = []


class EasyBackfill(Select):
    """See `wattkeeper.policies.select.easy_backfill.EasyBackfillConfig`.

    Args:
        perfect: Whether run times are known exactly, and not estimated by users.
    """

    def __init__(self, perfect: bool) -> None:
        self._perfect = perfect
        self._lines: dict[Key, _Line] = {}
        self._waiting: set[int] = set()
        self._running: list[Entry] = []  # by expected end
        self._expected: dict[int, float] = {}

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Enqueue the job.

        Raises:
            PolicyError: If its expected run time is unknown.
        """
        estimate_s = self._estimate_s(job)
        if not estimate_s >= 0:
            column = "duration_s" if self._perfect else "estimate_s"
            advice = "" if self._perfect else ", or set `estimates: perfect`"
            raise PolicyError(
                f"easy-backfill needs to know how long jobs are expected to run, and job "
                f"{job.job_id} has {column} {estimate_s}: give it one that is not negative{advice}",
                "select",
            )
        line = self._lines.get(job.key)
        if line is None:
            line = self._lines[job.key] = _Line()
        insort(line.jobs, (job.submit_time_s, job.number, job))
        _push(line.shortest, (estimate_s, job.number))
        self._waiting.add(job.number)

    def on_end(self, ctx: Context, job: Job) -> None:
        """Remove the job from the running ones."""
        entry = (self._expected.pop(job.number), job.number)
        del self._running[bisect_left(self._running, entry)]

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """The head if it fits, else the first job that can be backfilled."""
        if not self._lines:
            return NOTHING
        now = ctx.now_s
        free = capacity.free_gpus
        first: Entry | None = None
        lines: list[_Line] = []
        for line in self._lines.values():
            entry = line.jobs[0]
            if first is None or entry < first:
                first = entry
            if entry[2].gpus <= free or entry[2].gpu_milli < WHOLE:
                lines.append(line)
        assert first is not None
        head = first[2]
        if capacity.fits(head):
            return self._start(head, now)
        if not lines:
            return NOTHING
        return self._backfill(head, lines, capacity, now)

    def _backfill(
        self, head: Job, lines: list[_Line], capacity: CapacityView, now: float
    ) -> Selection:
        """The first job that may start before the head; `lines` may have free GPUs enough."""
        shadow_s, extra = self._reservation(head, capacity, now)
        eligible: list[tuple[Entry, Job]] = []
        for line in lines:
            entry = self._first(line, shadow_s - now, extra)
            if entry is not None:
                eligible.append((entry, line.jobs[0][2]))
        eligible.sort()
        for entry, of_its_key in eligible:
            if capacity.fits(of_its_key):
                return self._start(entry[2], now)
        return NOTHING

    def _estimate_s(self, job: Job) -> float:
        return job.duration_s if self._perfect else job.estimate_s

    def _start(self, job: Job, now: float) -> Selection:
        key = job.key
        line = self._lines[key]
        del line.jobs[bisect_left(line.jobs, (job.submit_time_s, job.number))]
        if not line.jobs:
            del self._lines[key]
        self._waiting.remove(job.number)
        self._expected[job.number] = end_s = now + self._estimate_s(job)
        insort(self._running, (end_s, job.number, job))
        return Selection((job,))

    def _reservation(self, head: Job, capacity: CapacityView, now: float) -> tuple[float, float]:
        """Shadow time of the head, and the extra GPUs at that time."""
        running, few = self._running, 0
        free = float(capacity.free_gpus)
        while free < head.gpus_held:
            if few == len(running):
                return math.inf, 0.0
            free += running[few][2].gpus_held
            few += 1
        ended = [entry[2] for entry in running[:few]]
        if not capacity.fits(head, ended):
            ended = [entry[2] for entry in running]
            low, high = few + 1, len(running) + 1
            while low < high:
                middle = (low + high) // 2
                if capacity.fits(head, ended[:middle]):
                    high = middle
                else:
                    low = middle + 1
            if low > len(running):
                return math.inf, 0.0
            while few < low:
                free += running[few][2].gpus_held
                few += 1
        shadow_s = max(running[few - 1][0], now)
        while few < len(running) and running[few][0] <= shadow_s:
            free += running[few][2].gpus_held
            few += 1
        return shadow_s, free - head.gpus_held

    def _first(self, line: _Line, time_s: float, extra: float) -> Entry | None:
        """The first job of a line that ends in time or needs only extra GPUs."""
        jobs, shortest = line.jobs, line.shortest
        if jobs[0][2].gpus_held <= extra:
            return jobs[0]
        while shortest[0][1] not in self._waiting:
            _pop(shortest)
        if shortest[0][0] > time_s:
            return None
        index = 0
        while self._estimate_s(jobs[index][2]) > time_s:
            index += 1
        return jobs[index]
