"""Base classes of preemptive `Select` policies."""

import math
from abc import abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
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
    """

    def __init__(self) -> None:
        self._runs: dict[int, TrackedJob] = {}
        self._waiting: dict[Key, list[Entry]] = {}
        self._running: list[Entry] = []
        self._passed_s = -math.inf

    @abstractmethod
    def waiting_order(self, run: TrackedJob) -> float:
        """Priority value of a waiting job, smallest first."""
        raise NotImplementedError

    @abstractmethod
    def running_order(self, run: TrackedJob) -> float:
        """Priority value of a running job; minus `shift`, comparable to those of waiting jobs."""
        raise NotImplementedError

    def shift(self, now_s: float) -> float:
        """Offset of the priority values of running jobs at a time."""
        return 0.0

    def advance(self, now_s: float) -> None:
        """Update the priority values of running jobs when the time has advanced."""

    def wake_s(self, ctx: Context) -> float:
        """Never."""
        return math.inf

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Enqueue the job."""
        self._runs[job.number] = run = TrackedJob(job)
        self._wait(run)

    def on_end(self, ctx: Context, job: Job) -> None:
        """Remove the job."""
        self._stop(self._runs.pop(job.number), ctx.now_s)

    def on_refuse(self, ctx: Context, job: Job) -> None:
        """Enqueue the job again."""
        run = self._runs[job.number]
        self._stop(run, ctx.now_s)
        self._wait(run)

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """The best job that can start, and the jobs that it preempts."""
        now = ctx.now_s
        if now > self._passed_s:
            self._passed_s = now
            self.advance(now)
        heads = sorted(heap[0] for heap in self._waiting.values())
        for _, _, run in heads:
            job = run.job
            victims: list[TrackedJob] = []
            if not capacity.fits(job):
                victims = self._victims(capacity, run, now)
                if not victims:
                    continue
            for victim in victims:
                self._stop(victim, now)
            self._start(run, now)
            for victim in victims:
                self._wait(victim)
            return Selection((job,), tuple(victim.job for victim in victims))
        return NOTHING

    def _victims(self, capacity: CapacityView, run: TrackedJob, now: float) -> list[TrackedJob]:
        """The jobs to preempt for a job that does not fit; empty if preemption does not help."""
        running, shift, job = self._running, self.shift(now), run.job
        first = bisect_right(running, run.order + SLACK, key=lambda entry: entry[0] - shift)
        worst = (running[index][2] for index in range(len(running) - 1, first - 1, -1))
        behind = (other for other in worst if other.started_s != now)
        victims: list[TrackedJob] = []
        gpus = capacity.free_gpus
        for other in behind:
            victims.append(other)
            gpus += other.job.gpus
            if gpus >= job.gpus or job.gpu_milli < WHOLE:
                break
        else:
            return []

        def enough(number: int) -> bool:
            return capacity.fits(job, [other.job for other in victims[:number]])

        few = len(victims)
        if not enough(few):
            victims.extend(behind)
            if len(victims) == few or not enough(len(victims)):
                return []
            few += 1 + bisect_left(range(few + 1, len(victims)), True, key=enough)
        return _needed(capacity, job, victims[:few])

    def _wait(self, run: TrackedJob) -> None:
        run.order = self.waiting_order(run)
        heappush(self._waiting.setdefault(run.key, []), (run.order, run.job.number, run))

    def _start(self, run: TrackedJob, now: float) -> None:
        heap = self._waiting[run.key]
        heappop(heap)
        if not heap:
            del self._waiting[run.key]
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


@mypyc_attr(allow_interpreted_subclasses=True)
class Levelled(Preempting):
    """Priority by level: the number of limits that a job's attained GPU-service has passed.

    The policy wakes when a running job passes a limit that puts it behind a waiting job.
    """

    def __init__(self) -> None:
        super().__init__()
        self._borders: list[tuple[float, int, int, TrackedJob]] = []
        self._watches = 0

    @abstractmethod
    def limit_gpu_s(self, level: int) -> float:
        """Attained GPU-seconds at which a job leaves a level."""
        raise NotImplementedError

    @abstractmethod
    def order_of(self, level: int) -> float:
        """Priority value of the jobs of a level, smallest first."""
        raise NotImplementedError

    @abstractmethod
    def turning_level(self, level: int, orders: Sequence[float]) -> int | None:
        """The first level from `level` on whose end puts a running job behind a waiting job.

        Args:
            level: Level of the running job.
            orders: Priority values of the waiting jobs, ascending.

        Returns:
            A level that is not behind some waiting job while the next level is; None if there is
            none.
        """
        raise NotImplementedError

    def waiting_order(self, run: TrackedJob) -> float:
        """By level."""
        return self.order_of(run.level)

    def running_order(self, run: TrackedJob) -> float:
        """By level."""
        return self.order_of(run.level)

    def advance(self, now_s: float) -> None:
        """Move running jobs that passed a limit to their new level."""
        while self._borders and self._borders[0][0] <= now_s:
            border_s, _, _, run = heappop(self._borders)
            if run.border_s == border_s:
                self._leave(run)
                self._climb(run, now_s)
                self._enter(run)

    def wake_s(self, ctx: Context) -> float:
        """When a running job first passes a limit that puts it behind a waiting job."""
        if not self._waiting:
            return math.inf
        orders = sorted({heap[0][0] for heap in self._waiting.values()})
        turning: dict[int, float] = {}
        wake_s = math.inf
        for _, _, run in self._running:
            limit_gpu_s = turning.get(run.level)
            if limit_gpu_s is None:
                level = self.turning_level(run.level, orders)
                limit_gpu_s = math.inf if level is None else self.limit_gpu_s(level)
                turning[run.level] = limit_gpu_s
            passes_s = run.began_s + limit_gpu_s / run.gpus
            if passes_s < wake_s:
                wake_s = passes_s
        return wake_s

    def _start(self, run: TrackedJob, now: float) -> None:
        super()._start(run, now)
        if self._border_s(run) <= now:  # by rounding
            self._leave(run)
            self._climb(run, now)
            self._enter(run)
        else:
            self._watch(run)

    def _stop(self, run: TrackedJob, now: float) -> None:
        super()._stop(run, now)
        run.border_s = math.inf

    def _climb(self, run: TrackedJob, now: float) -> None:
        while self._border_s(run) <= now:
            run.level += 1
        self._watch(run)

    def _watch(self, run: TrackedJob) -> None:
        run.border_s = self._border_s(run)
        if run.border_s < math.inf:
            self._watches += 1  # a job that lost its node at once has two equal borders
            heappush(self._borders, (run.border_s, run.job.number, self._watches, run))

    def _border_s(self, run: TrackedJob) -> float:
        return run.began_s + self.limit_gpu_s(run.level) / run.gpus


def _needed(capacity: CapacityView, job: Job, victims: list[TrackedJob]) -> list[TrackedJob]:
    """Drop victims without whose GPUs the job fits as well, those of highest priority first."""
    parts = any(other.gpu_milli < WHOLE for other in (job, *(run.job for run in victims)))
    spare = capacity.free_gpus + sum(run.job.gpus for run in victims) - job.gpus
    for index in range(len(victims) - 2, -1, -1):
        if parts or victims[index].job.gpus <= spare:
            rest = victims[:index] + victims[index + 1 :]
            if capacity.fits(job, [run.job for run in rest]):
                spare -= victims[index].job.gpus
                victims = rest
    return victims
