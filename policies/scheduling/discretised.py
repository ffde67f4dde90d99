"""Multi-level queues of discretised attained service: `dlas-gpu`."""

import math
from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain

from wattkeeper.policies.points.job import WHOLE, Job, Key
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Select, Selection
from wattkeeper.policies.scheduling.queueing import NOTHING


class _Run:
    """A job and its run time: `attained_s` while it waits, since `began_s` while it runs."""

    __slots__ = ("attained_s", "began_s", "job", "key", "queue", "runs", "width")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.key = job.key
        self.width = job.gpus * job.gpu_milli
        self.queue = 0
        self.runs = False
        self.attained_s = 0.0
        self.began_s = 0.0  # as if it had run without a pause


class _Queue:
    """One level: running jobs, then waiting jobs, then running jobs that were just demoted.

    `held` is the sum of the running jobs' widths in thousandths of a GPU. Waiting jobs are grouped
    by key, each with its position in the queue; smaller positions are added at the front.
    """

    __slots__ = ("back", "demoted", "front", "held", "running", "waiting")

    def __init__(self) -> None:
        self.running: dict[int, _Run] = {}
        self.held = 0
        self.waiting: dict[Key, deque[tuple[int, _Run]]] = {}
        self.front = 0
        self.back = 0
        self.demoted: list[_Run] = []

    def append(self, run: _Run) -> None:
        self.waiting.setdefault(run.key, deque()).append((self.back, run))
        self.back += 1

    def put_in_front(self, run: _Run) -> None:
        self.front -= 1
        self.waiting.setdefault(run.key, deque()).appendleft((self.front, run))

    def hold(self, run: _Run) -> None:
        self.running[run.job.number] = run
        self.held += run.width

    def let_go(self, run: _Run) -> None:
        del self.running[run.job.number]
        self.held -= run.width

    def keep(self, left: int) -> tuple[int, list[_Run]]:
        """Grant capacity to the running jobs in order.

        Jobs before the shortest tail without which the rest fits keep their GPUs, so only that tail
        is walked.

        Returns:
            The remaining capacity, and the jobs that lost theirs, last one first.
        """
        if self.held <= left:
            return left - self.held, []
        tail: list[_Run] = []
        over = self.held - left
        for run in reversed(self.running.values()):
            tail.append(run)
            over -= run.width
            if over <= 0:
                break
        lost: list[_Run] = []
        left = -over
        while tail:
            run = tail.pop()
            if run.width <= left:
                left -= run.width
            else:
                lost.append(run)
        lost.reverse()
        for run in lost:
            self.let_go(run)
        return left, lost


class DlasGpu(Select):
    """See `wattkeeper.policies.select.dlas_gpu.DlasGpuConfig`.

    Args:
        limits_gpu_s: Attained GPU-seconds at which a job leaves each queue but the last.
    """

    def __init__(self, limits_gpu_s: tuple[int, ...]) -> None:
        self._limits = limits_gpu_s
        self._queues = [_Queue() for _ in range(len(self._limits) + 1)]
        self._runs: dict[int, _Run] = {}
        # Running jobs of queues with a limit, by queue and width: the first to begin comes first.
        self._oldest: dict[tuple[int, int], list[tuple[float, int, _Run]]] = {}
        self._passed_s = -math.inf
        self._changed = False
        self._next_demotion_s = math.inf
        self._wake_s = math.inf

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Append the job to the first queue."""
        self._runs[job.number] = run = _Run(job)
        self._queues[0].append(run)
        self._changed = True

    def on_end(self, ctx: Context, job: Job) -> None:
        """Remove the job from its queue."""
        run = self._runs.pop(job.number)
        self._queues[run.queue].let_go(run)
        run.runs = False
        self._changed = True

    def on_refuse(self, ctx: Context, job: Job) -> None:
        """Put the job at the front of its queue."""
        run = self._runs[job.number]
        queue = self._queues[run.queue]
        queue.let_go(run)
        run.runs = False
        queue.put_in_front(run)
        self._changed = True

    def wake_s(self, ctx: Context) -> float:
        """The time computed by the last scheduling pass."""
        return self._wake_s

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """One scheduling pass over the queues: all changes at this time."""
        now = ctx.now_s
        if now > self._passed_s:
            self._passed_s = now
            if now >= self._next_demotion_s:
                self._demote(now)
        elif not self._changed:
            return NOTHING
        self._changed = False
        left = capacity.gpus * WHOLE
        preempted: list[_Run] = []
        started: list[_Run] = []
        barred: set[Key] = set()
        for number, queue in enumerate(self._queues):
            left, lost = queue.keep(left)
            for run in lost:
                queue.put_in_front(run)
            preempted += lost
            if queue.waiting and left:
                left = self._grant(number, left, capacity, barred, preempted, started)
            if queue.demoted:
                left = _keep_demoted(queue, left, preempted)
        for run in preempted:
            run.runs = False
            run.attained_s = now - run.began_s
        for run in started:
            run.runs = True
            run.began_s = now - run.attained_s
            self._watch(run)
        self._look_ahead(now)
        if not preempted and not started:
            return NOTHING
        return Selection(tuple(run.job for run in started), tuple(run.job for run in preempted))

    def _grant(
        self,
        number: int,
        left: int,
        capacity: CapacityView,
        barred: set[Key],
        preempted: list[_Run],
        started: list[_Run],
    ) -> int:
        """Grant remaining capacity to the waiting jobs of a queue; return what then remains.

        The remaining capacity never grows during the pass, so the first waiting job that fits is
        the next one to start.
        """
        queue = self._queues[number]
        while True:
            best: deque[tuple[int, _Run]] | None = None
            for key, entries in queue.waiting.items():
                head = entries[0]
                if (
                    head[1].width <= left
                    and key not in barred
                    and (best is None or head[0] < best[0][0])
                ):
                    best = entries
            if best is None:
                return left
            run = best[0][1]
            if not self._has_place(number, run, capacity, preempted):
                barred.add(run.key)
                continue
            best.popleft()
            if not best:
                del queue.waiting[run.key]
            queue.hold(run)
            left -= run.width
            started.append(run)

    def _has_place(
        self, number: int, run: _Run, capacity: CapacityView, preempted: list[_Run]
    ) -> bool:
        """Whether the job fits at least if all running jobs behind it were preempted.

        The last of them are tried first: where only GPU counts matter, they suffice.
        """
        if capacity.fits(run.job):
            return True
        free = capacity.free_gpus * WHOLE + sum(other.width for other in preempted)
        without = [other.job for other in preempted]
        asked = -1
        for other in self._behind(number):
            if asked < 0 and free >= run.width:
                if capacity.fits(run.job, without):
                    return True
                asked = len(without)
            free += other.width
            without.append(other.job)
        return len(without) > asked and capacity.fits(run.job, without)

    def _behind(self, number: int) -> Iterator[_Run]:
        """Running jobs behind the waiting jobs of a queue, last one first."""
        for queue in reversed(self._queues[number + 1 :]):
            yield from chain(reversed(queue.demoted), reversed(queue.running.values()))
        yield from reversed(self._queues[number].demoted)

    def _demote(self, now: float) -> None:
        """Move jobs that reached their limit to the next queue, in order of submission."""
        demoted: list[_Run] = []
        for (number, width), heap in self._oldest.items():
            need_s = _need_s(self._limits[number], width)
            while heap and (not _is_current(heap[0], number) or heap[0][0] + need_s <= now):
                entry = heappop(heap)
                if _is_current(entry, number) and entry[2] not in demoted:
                    demoted.append(entry[2])
        for run in sorted(demoted, key=lambda run: run.job.number):
            self._queues[run.queue].let_go(run)
            run.queue += 1
            self._queues[run.queue].demoted.append(run)
            self._watch(run)

    def _watch(self, run: _Run) -> None:
        if run.queue < len(self._limits):
            heap = self._oldest.setdefault((run.queue, run.width), [])
            heappush(heap, (run.began_s, run.job.number, run))

    def _look_ahead(self, now: float) -> None:
        """Compute when the next job reaches its limit, and when to wake, which may be later."""
        demotion_s = wake_s = math.inf
        for (number, width), heap in self._oldest.items():
            while heap and not _is_current(heap[0], number):
                heappop(heap)
            if not heap:
                continue
            limit, began_s = self._limits[number], heap[0][0]
            due_s = began_s + _need_s(limit, width)
            demotion_s = min(demotion_s, due_s)
            if width > WHOLE and not width % WHOLE:
                due_s = now + (limit - math.floor(now - began_s)) // (width // WHOLE)
            if now < due_s < wake_s:
                wake_s = due_s
        self._next_demotion_s, self._wake_s = demotion_s, wake_s


def _keep_demoted(queue: _Queue, left: int, preempted: list[_Run]) -> int:
    """Grant remaining capacity to jobs that were just demoted; return what then remains."""
    for run in queue.demoted:
        if run.width <= left:
            left -= run.width
            queue.hold(run)
        else:
            queue.append(run)
            preempted.append(run)
    queue.demoted.clear()
    return left


def _need_s(limit: int, width: int) -> int:
    """Whole seconds after which a job of some width (thousandths of a GPU) reaches a limit."""
    return -(-limit * WHOLE // width)


def _is_current(entry: tuple[float, int, _Run], number: int) -> bool:
    """Whether the job has run in that queue without interruption since the entry was made."""
    began_s, _, run = entry
    return run.runs and run.queue == number and run.began_s == began_s
