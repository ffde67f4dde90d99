"""Base class of preemptive `Select` policies, and shortest remaining time first: `srtf`."""

import math
import sys
from abc import abstractmethod
from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import mypyc_attr

from wattkeeper.policies.points.job import WHOLE, Job, Key
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Select, Selection
from wattkeeper.policies.scheduling.queueing import NOTHING

SLACK = 1e-6
"""Order difference up to which a running job is not preempted: it may be a rounding error."""

ALL: Final = sys.maxsize
"""More GPUs than any cluster has."""


class TrackedJob:
    """A waiting or running job and its attained service.

    Attributes:
        job: The job.
        key: Its demand and workload.
        gpus: Allocated GPUs, fractions included.
        lack_gpus: While it waits and could not start: how many more GPUs must be free, or held by
            running jobs of lower priority, before it may; 0 if GPUs are not what it lacks.
        level: Number of passed limits of attained service, in policies that have limits.
        attained_s: Attained run time when the job began to wait.
        began_s: While it runs: its start time, had it run without interruption.
        started_s: While it runs: time of its last start; NaN while it waits.
        order: Priority value among the waiting, or the running, jobs: smallest first.
        border_s: While it runs: when it passes its next limit.
    """

    __slots__ = (
        "attained_s",
        "began_s",
        "border_s",
        "gpus",
        "job",
        "key",
        "lack_gpus",
        "level",
        "order",
        "started_s",
    )

    def __init__(self, job: Job) -> None:
        self.job = job
        self.key = job.key
        self.gpus = job.gpus_held
        self.lack_gpus = 0
        self.level = 0
        self.attained_s = 0.0
        self.began_s = 0.0
        self.started_s = math.nan
        self.order = 0.0
        self.border_s = math.inf


Entry = tuple[float, int, TrackedJob]


@mypyc_attr(allow_interpreted_subclasses=True)
class Preempting(Select):
    """Priority scheduling with preemption of jobs of strictly lower priority.

    Waiting jobs are tried in priority order, ties by number; jobs that cannot start are skipped.
    For a job that does not fit, running jobs of lower priority are preempted, the lowest first,
    until it fits, but none that is not necessary, and none that started at this same time.
    `waiting_order` and `running_order` define the priority. Waiting jobs are kept in one heap for
    each key: if the head of a heap cannot start, neither can the others.

    A head that could not start is tried again only when that may have changed: what is free or held
    by running jobs of lower priority, all that it could get, grows only when another running job
    gives its GPUs back, when a running job falls behind (`retry_between`), and with
    `CapacityView.growths`; and where GPUs were too few, by as many as were lacking. So the time of
    a pass grows with what changed, not with what waits.
    """

    def __init__(self) -> None:
        self._runs: dict[int, TrackedJob] = {}
        self._waiting: dict[Key, list[Entry]] = {}
        # Each key of a waiting job is in one of these; of one that failed, with its head.
        self._untried: dict[Key, None] = {}
        self._failed: dict[Key, TrackedJob] = {}
        self._failed_now: list[Key] = []  # those that may have another answer once time advances
        self._running: list[Entry] = []
        self._passed_s = -math.inf
        self._refused_s = -math.inf
        self._growths = 0
        self._lack_gpus = 0
        self._spares = False

    @abstractmethod
    def waiting_order(self, run: TrackedJob) -> float:
        """Priority value of a waiting job, smallest first."""
        raise NotImplementedError

    @abstractmethod
    def running_order(self, run: TrackedJob) -> float:
        """Priority value of a running job; minus `shift`, comparable to those of waiting jobs."""
        raise NotImplementedError

    def shift(self, now_s: float) -> float:
        """Offset of the priority values of running jobs at a time; it never decreases."""
        return 0.0

    def advance(self, now_s: float) -> None:
        """Called when the time has advanced.

        It calls `retry_between` for a running job that may have fallen behind a waiting one, or
        `retry_all`.
        """

    def update(self, now_s: float) -> None:
        """Update the priority values of running jobs; called before they are compared."""

    def retry_all(self) -> None:
        """Try all waiting jobs in the next `select`, also those that could not start before."""
        self._untried = dict.fromkeys(self._waiting)
        self._failed.clear()

    def retry_between(self, order: float, behind: float, gpus: int) -> None:
        """Try the waiting jobs again behind which a running job fell, unless they lack more GPUs.

        Args:
            order: What its priority value was.
            behind: What it is.
            gpus: Its GPUs.
        """
        least = order - SLACK
        for run in [run for run in self._failed.values() if least <= run.order < behind]:
            self.give(run, gpus)

    def give(self, run: TrackedJob, gpus: int) -> None:
        """Try a job again that could not start, unless it lacks more than these GPUs."""
        run.lack_gpus -= gpus
        if run.lack_gpus <= 0:
            self._retry(run.key)

    def wake_s(self, ctx: Context) -> float:
        """Never."""
        return math.inf

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Enqueue the job."""
        self._runs[job.number] = run = TrackedJob(job)
        self._wait(run)

    def on_end(self, ctx: Context, job: Job) -> None:
        """Remove the job."""
        run = self._runs.pop(job.number)
        # Twice the slack, lest rounding hides a job that could not have its GPUs before.
        self.retry_between(run.order - self.shift(ctx.now_s) - SLACK, math.inf, job.gpus)
        self._stop(run, ctx.now_s)

    def on_refuse(self, ctx: Context, job: Job) -> None:
        """Enqueue the job again."""
        run = self._runs[job.number]
        self._stop(run, ctx.now_s)
        self._wait(run)
        self.retry_all()
        self._refused_s = ctx.now_s

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """The best job that can start, and the jobs that it preempts."""
        now = ctx.now_s
        if now > self._passed_s:
            self._passed_s = now
            for key in self._failed_now:
                self._retry(key)
            self._failed_now.clear()
            self.advance(now)
        growths = capacity.growths
        if growths != self._growths:
            self._growths = growths
            self.retry_all()
        heads = [self._waiting[key][0] for key in self._untried]
        heads.sort()
        for order, _, run in heads:
            job = run.job
            victims: list[TrackedJob] = []
            if not capacity.fits(job):
                victims = self._victims(capacity, run, now)
                if not victims:
                    self._fail(run, now)
                    continue
            for victim in victims:
                self._stop(victim, now)
            self._start(run, now)
            for victim in victims:
                self._wait(victim)
            if victims:
                given = sum([victim.job.gpus for victim in victims])
                if job.gpu_milli == WHOLE:
                    given = max(given - job.gpus, 0)
                self.retry_between(order, math.inf, given)
            return Selection((job,), tuple([victim.job for victim in victims]))
        return NOTHING

    def _victims(self, capacity: CapacityView, run: TrackedJob, now: float) -> list[TrackedJob]:
        """The jobs to preempt for a job that does not fit; empty if preemption does not help."""
        self.update(now)
        job, order = run.job, run.order
        missing = job.gpus - capacity.free_gpus if job.gpu_milli == WHOLE else 0
        victims = self.behind(order, max(missing, 1), now)
        if self._lack_gpus > 0:
            if missing <= 0:  # of GPUs, but not where it could have them
                self._lack_gpus = 0
            return []
        few = len(victims)
        if not _fits_without(capacity, job, victims):
            victims = self.behind(order, ALL, now)
            self._lack_gpus = 0
            if len(victims) == few or not _fits_without(capacity, job, victims):
                return []

            def suffice(number: int) -> bool:
                return _fits_without(capacity, job, victims[:number])

            few += 1 + bisect_left(range(few + 1, len(victims)), True, key=suffice)
        return _needed(capacity, job, victims[:few])

    def behind(self, order: float, enough: int, now: float) -> list[TrackedJob]:
        """The running jobs that a waiting one may preempt, the worst first; none that started now.

        `_lack_gpus` becomes how many GPUs they have less than enough, 0 if not so; and `_spares`,
        whether jobs that started now are left out.

        Args:
            order: Priority value of the waiting job.
            enough: GPUs after which the rest of the jobs need not be looked at.
            now: The time, s.
        """
        running, least, shift = self._running, order + SLACK, self.shift(now)
        self._spares = False
        behind: list[TrackedJob] = []
        index = len(running) - 1
        while index >= 0 and enough > 0:
            entry = running[index]
            if entry[0] - shift <= least:
                break
            run = entry[2]
            if run.started_s == now:
                self._spares = True
            else:
                behind.append(run)
                enough -= run.job.gpus
            index -= 1
        self._lack_gpus = max(enough, 0)
        return behind

    def _wait(self, run: TrackedJob) -> None:
        run.order = self.waiting_order(run)
        key = run.key
        heap = self._waiting.setdefault(key, [])
        heappush(heap, (run.order, run.job.number, run))
        if len(heap) == 1:
            self._untried[key] = None
        elif heap[0][2] is run:
            self._retry(key)

    def _fail(self, run: TrackedJob, now: float) -> None:
        """Note that the head of a key cannot start."""
        del self._untried[run.key]
        self._failed[run.key] = run
        run.lack_gpus = self._lack_gpus
        if self._spares or now == self._refused_s:
            self._failed_now.append(run.key)

    def _retry(self, key: Key) -> None:
        if self._failed.pop(key, None) is not None:
            self._untried[key] = None

    def _start(self, run: TrackedJob, now: float) -> None:
        heap = self._waiting[run.key]
        heappop(heap)
        if not heap:
            del self._waiting[run.key], self._untried[run.key]
        run.started_s = now
        run.began_s = now - run.attained_s
        self._enter(run)

    def _enter(self, run: TrackedJob) -> None:
        run.order = self.running_order(run)
        insort(self._running, (run.order, run.job.number, run))

    def _stop(self, run: TrackedJob, now: float) -> None:
        self._leave(run)
        if run.started_s != now:
            run.attained_s = now - run.began_s
        run.started_s = math.nan

    def _leave(self, run: TrackedJob) -> None:
        del self._running[bisect_left(self._running, (run.order, run.job.number))]

    def _reorder(self) -> None:
        """Recompute all priority values after the priority function changed."""
        entries = [entry for heap in self._waiting.values() for entry in heap]
        self._waiting.clear()
        for _, number, run in entries:
            run.order = self.waiting_order(run)
            self._waiting.setdefault(run.key, []).append((run.order, number, run))
        for heap in self._waiting.values():
            heapify(heap)
        for _, _, run in self._running:
            run.order = self.running_order(run)
        self._running = sorted((run.order, number, run) for _, number, run in self._running)
        self.retry_all()


class Srtf(Preempting):
    """See `wattkeeper.policies.select.srtf.SrtfConfig`."""

    def waiting_order(self, run: TrackedJob) -> float:
        """Remaining time, s."""
        return run.job.duration_s - run.attained_s

    def running_order(self, run: TrackedJob) -> float:
        """Expected end, s."""
        return run.began_s + run.job.duration_s

    def shift(self, now_s: float) -> float:
        """The current time: an end minus it is a remaining time."""
        return now_s


def _fits_without(capacity: CapacityView, job: Job, victims: list[TrackedJob]) -> bool:
    return capacity.fits(job, [victim.job for victim in victims])


def _needed(capacity: CapacityView, job: Job, victims: list[TrackedJob]) -> list[TrackedJob]:
    """Drop victims without whose GPUs the job fits as well, those of highest priority first."""
    if len(victims) == 1:
        return victims
    parts = any(other.gpu_milli < WHOLE for other in (job, *(run.job for run in victims)))
    spare = capacity.free_gpus + sum(run.job.gpus for run in victims) - job.gpus
    for index in range(len(victims) - 2, -1, -1):
        if parts or victims[index].job.gpus <= spare:
            rest = victims[:index] + victims[index + 1 :]
            if _fits_without(capacity, job, rest):
                spare -= victims[index].job.gpus
                victims = rest
    return victims
