"""Base class of preemptive `Select` policies, and shortest remaining time first: `srtf`."""

import math
from abc import abstractmethod
from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush

from mypy_extensions import mypyc_attr

from wattkeeper.policies.protocols import WHOLE, CapacityView, Context, Job, Key, Select, Selection
from wattkeeper.policies.select._queueing import NOTHING

SLACK = 1e-6
"""Order difference up to which a running job is not preempted: it may be a rounding error."""


class TrackedJob:
    """A waiting or running job and its attained service.

    Attributes:
        job: The job.
        key: Its demand and workload.
        gpus: Allocated GPUs, fractions included.
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
        "level",
        "order",
        "started_s",
    )

    def __init__(self, job: Job) -> None:
        self.job = job
        self.key = job.key
        self.gpus = job.gpus_held
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
    `CapacityView.growths`. So the time of a pass grows with what changed, not with what waits.
    """

    def __init__(self) -> None:
        self._runs: dict[int, TrackedJob] = {}
        self._waiting: dict[Key, list[Entry]] = {}
        # Each key of a waiting job is in one of these; of one that failed, with its head's order.
        self._untried: dict[Key, None] = {}
        self._failed: dict[Key, float] = {}
        self._failed_now: list[Key] = []  # those that may have another answer once time advances
        self._running: list[Entry] = []
        self._passed_s = -math.inf
        self._refused_s = -math.inf
        self._growths = 0
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

    def retry_between(self, order: float, behind: float) -> None:
        """Try the waiting jobs again behind which a running job fell.

        Args:
            order: What its priority value was.
            behind: What it is.
        """
        for key in [
            key for key, failed in self._failed.items() if order - SLACK <= failed < behind
        ]:
            self._retry(key)

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
        self._retry_behind(run.order - self.shift(ctx.now_s) - 2 * SLACK)
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
                self._retry_behind(order)
            return Selection((job,), tuple([victim.job for victim in victims]))
        return NOTHING

    def _victims(self, capacity: CapacityView, run: TrackedJob, now: float) -> list[TrackedJob]:
        """The jobs to preempt for a job that does not fit; empty if preemption does not help."""
        self.update(now)
        running, job, order = self._running, run.job, run.order
        self._spares = False
        victims: list[TrackedJob] = []
        gpus = capacity.free_gpus
        enough = False
        index = self._last_behind(order, len(running) - 1, now)
        while index >= 0 and not enough:
            other = running[index][2]
            victims.append(other)
            gpus += other.job.gpus
            enough = gpus >= job.gpus or job.gpu_milli < WHOLE
            index = self._last_behind(order, index - 1, now)
        if not enough:
            return []
        few = len(victims)
        if not _fits_without(capacity, job, victims):
            while index >= 0:
                victims.append(running[index][2])
                index = self._last_behind(order, index - 1, now)
            if len(victims) == few or not _fits_without(capacity, job, victims):
                return []

            def suffice(number: int) -> bool:
                return _fits_without(capacity, job, victims[:number])

            few += 1 + bisect_left(range(few + 1, len(victims)), True, key=suffice)
        return _needed(capacity, job, victims[:few])

    def _last_behind(self, order: float, index: int, now: float) -> int:
        """Index of the last running job up to an index that a waiting one may preempt; -1: none."""
        running, shift = self._running, self.shift(now)
        while index >= 0:
            entry = running[index]
            if entry[0] - shift <= order + SLACK:
                return -1
            if entry[2].started_s != now:
                return index
            self._spares = True
            index -= 1
        return -1

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
        self._failed[run.key] = run.order
        if self._spares or now == self._refused_s:
            self._failed_now.append(run.key)

    def _retry(self, key: Key) -> None:
        if self._failed.pop(key, None) is not None:
            self._untried[key] = None

    def _retry_behind(self, order: float) -> None:
        """Try those of worse order again: GPUs that they could not get were given back."""
        for key in [key for key, failed in self._failed.items() if failed > order]:
            self._retry(key)

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
