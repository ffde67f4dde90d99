"""What `Select` policies share that preempt running jobs for better ones."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from mypy_extensions import mypyc_attr

from wattkeeper.policies.protocols import WHOLE, CapacityView, Context, Job, Key, Select, Selection
from wattkeeper.policies.select._queueing import NOTHING

SLACK = 1e-6
"""A job whose place is behind another's by no more is not preempted for it: it may be rounding."""


class RunningJob:
    """A job, and how long it has run.

    Attributes:
        job: The job.
        key: Its demand and workload.
        gpus: GPUs that it holds, parts counted as parts.
        level: How many limits of attained service it has passed, where there are any.
        attained_s: How long it had run when it began to wait.
        began_s: While it runs: when it would have begun without a pause.
        started_s: While it runs: when it started last; NaN if it waits.
        order: Its place among the jobs that wait, or that run: smallest first.
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


Entry = tuple[float, int, RunningJob]


@mypyc_attr(allow_interpreted_subclasses=True)
class Preempting(Select):
    """The best job first; it preempts jobs of strictly lower priority if it fits then.

    Waiting jobs are tried in order, ties by number, and those that cannot start are passed over.
    For one that does not fit, running jobs behind it are preempted from the worst on until it does,
    but none that it does not need; none that started at this same time. What is best first is said
    by `waiting_order` and `running_order`. One heap for all jobs that fit together: if its head
    cannot start, nor can the others.
    """

    def __init__(self) -> None:
        self._runs: dict[int, RunningJob] = {}
        self._waiting: dict[Key, list[Entry]] = {}
        self._running: list[Entry] = []
        self._barred: set[Key] = set()
        self._passed_s = -math.inf

    @abstractmethod
    def waiting_order(self, run: RunningJob) -> float:
        """Place of a job that waits, smallest first."""
        raise NotImplementedError

    @abstractmethod
    def running_order(self, run: RunningJob) -> float:
        """Place of a job that runs; less `shift`, it compares with those of waiting ones."""
        raise NotImplementedError

    def shift(self, now_s: float) -> float:
        """How far the places of all running jobs have moved."""
        return 0.0

    def advance(self, now_s: float) -> None:
        """Bring the places of running jobs up to date, when the time has gone on."""

    def wake_s(self, ctx: Context) -> float:
        """Never."""
        return math.inf

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Queue it."""
        self._runs[job.number] = run = RunningJob(job)
        self._wait(run)

    def on_end(self, ctx: Context, job: Job) -> None:
        """Forget it."""
        self._stop(self._runs.pop(job.number), ctx.now_s)

    def on_refuse(self, ctx: Context, job: Job) -> None:
        """It waits on, and nobody like it starts before the time goes on."""
        run = self._runs[job.number]
        self._stop(run, ctx.now_s)
        self._wait(run)
        self._barred.add(run.key)

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """The best job that can start, and those that it preempts."""
        now = ctx.now_s
        if now > self._passed_s:
            self._passed_s = now
            self._barred.clear()
            self.advance(now)
        heads = sorted(heap[0] for key, heap in self._waiting.items() if key not in self._barred)
        for _, _, run in heads:
            job = run.job
            victims: list[RunningJob] = []
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

    def _victims(self, capacity: CapacityView, run: RunningJob, now: float) -> list[RunningJob]:
        """The jobs to be preempted for one that does not fit; empty if it would not fit then."""
        running, shift, job = self._running, self.shift(now), run.job
        first = bisect_right(running, run.order + SLACK, key=lambda entry: entry[0] - shift)
        worst = (running[at][2] for at in range(len(running) - 1, first - 1, -1))
        behind = (other for other in worst if other.started_s != now)
        victims: list[RunningJob] = []
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

    def _wait(self, run: RunningJob) -> None:
        run.order = self.waiting_order(run)
        heappush(self._waiting.setdefault(run.key, []), (run.order, run.job.number, run))

    def _start(self, run: RunningJob, now: float) -> None:
        heap = self._waiting[run.key]
        heappop(heap)
        if not heap:
            del self._waiting[run.key]
        run.started_s = now
        run.began_s = now - run.attained_s
        self._enter(run)

    def _enter(self, run: RunningJob) -> None:
        run.order = self.running_order(run)
        insort(self._running, (run.order, run.job.number, run))

    def _stop(self, run: RunningJob, now: float) -> None:
        self._leave(run)
        if run.started_s != now:
            run.attained_s = now - run.began_s
        run.started_s = math.nan

    def _leave(self, run: RunningJob) -> None:
        del self._running[bisect_left(self._running, (run.order, run.job.number))]

    def _reorder(self) -> None:
        """Put all in order anew, when what is best has changed."""
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
    """The place of a job hangs on its level: how many limits its attained GPU-service has passed.

    It is woken when a running job passes a limit behind which a waiting one comes before it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._borders: list[tuple[float, int, RunningJob]] = []

    @abstractmethod
    def limit_gpu_s(self, level: int) -> float:
        """Attained GPU-seconds at which a job leaves a level."""
        raise NotImplementedError

    @abstractmethod
    def order_of(self, level: int) -> float:
        """Place of the jobs of a level, smallest first."""
        raise NotImplementedError

    @abstractmethod
    def turning_level(self, level: int, orders: Sequence[float]) -> int | None:
        """The first level, from this one on, whose end puts a running job behind a waiting one.

        Args:
            level: Where it is.
            orders: Places of the waiting jobs that matter, ascending.

        Returns:
            A level whose place is not behind that of a waiting job and the next one's is; None if
            there is none.
        """
        raise NotImplementedError

    def waiting_order(self, run: RunningJob) -> float:
        """By level."""
        return self.order_of(run.level)

    def running_order(self, run: RunningJob) -> float:
        """By level."""
        return self.order_of(run.level)

    def advance(self, now_s: float) -> None:
        """Move running jobs that passed a limit."""
        while self._borders and self._borders[0][0] <= now_s:
            border_s, _, run = heappop(self._borders)
            if run.border_s == border_s:
                self._leave(run)
                self._climb(run, now_s)
                self._enter(run)

    def wake_s(self, ctx: Context) -> float:
        """When a running job passes a limit behind which a waiting one comes before it."""
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

    def _start(self, run: RunningJob, now: float) -> None:
        super()._start(run, now)
        if self._border_s(run) <= now:  # by rounding
            self._leave(run)
            self._climb(run, now)
            self._enter(run)
        else:
            self._watch(run)

    def _stop(self, run: RunningJob, now: float) -> None:
        super()._stop(run, now)
        run.border_s = math.inf

    def _climb(self, run: RunningJob, now: float) -> None:
        while self._border_s(run) <= now:
            run.level += 1
        self._watch(run)

    def _watch(self, run: RunningJob) -> None:
        run.border_s = self._border_s(run)
        if run.border_s < math.inf:
            heappush(self._borders, (run.border_s, run.job.number, run))

    def _border_s(self, run: RunningJob) -> float:
        return run.began_s + self.limit_gpu_s(run.level) / run.gpus


def _needed(capacity: CapacityView, job: Job, victims: list[RunningJob]) -> list[RunningJob]:
    """Spare those without whose GPUs the job fits too, the best ones first."""
    parts = any(one.gpu_milli < WHOLE for one in (job, *(run.job for run in victims)))
    spare = capacity.free_gpus + sum(run.job.gpus for run in victims) - job.gpus
    for index in range(len(victims) - 2, -1, -1):
        if parts or victims[index].job.gpus <= spare:
            rest = victims[:index] + victims[index + 1 :]
            if capacity.fits(job, [run.job for run in rest]):
                spare -= victims[index].job.gpus
                victims = rest
    return victims
