"""First in, first out, with EASY backfilling."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from heapq import heappop, heappush
from itertools import accumulate
from typing import ClassVar, Literal

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.protocols import WHOLE, CapacityView, Context, Job, Key, Select, Selection
from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.policies.select._queueing import NOTHING, Entry


class _Line:
    """Waiting jobs of one key: in order of submission, and in a heap by estimate, shortest first.

    The heap may still hold jobs that no longer wait.
    """

    __slots__ = ("jobs", "shortest")

    def __init__(self) -> None:
        self.jobs: list[Entry] = []
        self.shortest: list[tuple[float, int]] = []


class EasyBackfill(Select):
    """See `EasyBackfillConfig`."""

    def __init__(self, config: EasyBackfillConfig) -> None:
        self._perfect = config.estimates == "perfect"
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
        line = self._lines.setdefault(job.key, _Line())
        insort(line.jobs, (job.submit_time_s, job.number, job))
        heappush(line.shortest, (estimate_s, job.number))
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
        head = min(line.jobs[0] for line in self._lines.values())[2]
        if capacity.fits(head):
            return self._start(head, now)
        free = capacity.free_gpus
        heads = ((line.jobs[0][2], line) for line in self._lines.values())
        lines = [
            line
            for job, line in heads
            if (job.gpus <= free or job.gpu_milli < WHOLE) and capacity.fits(job)
        ]
        if not lines:
            return NOTHING
        shadow_s, extra = self._reservation(head, capacity, now)
        candidates = [self._first(line, shadow_s - now, extra) for line in lines]
        eligible = [entry for entry in candidates if entry is not None]
        return self._start(min(eligible)[2], now) if eligible else NOTHING

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
        running = self._running
        held = (job.gpus_held for _, _, job in running)
        free = list(accumulate(held, initial=float(capacity.free_gpus)))
        few = bisect_left(free, head.gpus_held)
        jobs = [job for _, _, job in running]

        def enough(number: int) -> bool:
            return capacity.fits(head, jobs[:number])

        if few <= len(running) and not enough(few):
            few += 1 + bisect_left(range(few + 1, len(running) + 1), True, key=enough)
        if few > len(running):
            return math.inf, 0.0
        shadow_s = running[few - 1][0]
        while few < len(running) and running[few][0] <= max(shadow_s, now):
            few += 1
        return max(shadow_s, now), free[few] - head.gpus_held

    def _first(self, line: _Line, time_s: float, extra: float) -> Entry | None:
        """The first job of a line that ends in time or needs only extra GPUs."""
        if line.jobs[0][2].gpus_held <= extra:
            return line.jobs[0]
        while line.shortest[0][1] not in self._waiting:
            heappop(line.shortest)
        if line.shortest[0][0] > time_s:
            return None
        return next(entry for entry in line.jobs if self._estimate_s(entry[2]) <= time_s)


class EasyBackfillConfig(PolicyConfig):
    """First in, first out; later jobs may start earlier if that does not delay the head.

    EASY (Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS
    12(6), 2001). If the head of the queue does not fit, it gets a reservation at the shadow time:
    when enough running jobs are expected to have ended. GPUs that are then free beyond its demand
    are extra. Every other job, in order of submission, starts if it fits now and is either expected
    to end by the shadow time or asks for no more than the extra GPUs. The reservation is computed
    anew at every scheduling pass. A job is expected to end its estimated run time after its start;
    a job that exceeds its estimate is expected to end now. (Real systems often kill it; here it
    continues, and the head may start after its first reservation.)

    Where GPUs are on nodes, the shadow time is when the head could be placed. Extra GPUs are only
    counted, fractions included, so that a long backfilled job may still occupy the head's place.
    """

    point: ClassVar[Point] = "select"
    kind: Literal["easy-backfill"] = "easy-backfill"
    policy = EasyBackfill
    estimates: Literal["user", "perfect"] = "user"
    """Expected run time of a job: the user's estimate (`estimate_s`) or the exact one
    (`duration_s`). A job without it is refused."""

    @property
    def needed_columns(self) -> Mapping[str, str]:
        """The column of the expected run time."""
        if self.estimates == "perfect":
            return {"duration_s": "choose a policy that does not need it"}
        advice = (
            "import the log with --partitions or --default-estimate, leave them out "
            "(workload.unusable=drop), or set `estimates: perfect`"
        )
        return {"estimate_s": advice}
