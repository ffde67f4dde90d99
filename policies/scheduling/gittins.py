"""Preemption by queues of attained service, in the order of their indices: `gittins`."""

import math
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any, Final

from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.scheduling.preempting import Preempting, TrackedJob

# Compiled code need not look up a constant.
_pop: Final = heappop
_push: Final = heappush


class Gittins(Preempting):
    """See `wattkeeper.policies.select.gittins.GittinsConfig`.

    The priority value is the position of a job's queue; the number of its limits that the job's
    attained GPU-service passed is the job's level. The policy wakes when a running job passes a
    limit that puts it behind a waiting job.

    The state is the number of jobs that completed in each queue, and their GPU-seconds.
    """

    def __init__(self, limits_gpu_s: tuple[float, ...]) -> None:
        super().__init__()
        self._limits = [*limits_gpu_s, math.inf]
        self._ended = [0] * len(self._limits)
        self._ended_gpu_s = [0.0] * len(self._limits)
        self._places = list(range(len(self._limits)))
        self._learnt = False
        self._borders: list[tuple[float, int, int, TrackedJob]] = []
        self._watches = 0
        self._moved_s = self._turn_s = -math.inf

    def waiting_order(self, run: TrackedJob) -> float:
        """Position of its queue."""
        return self._places[run.level]

    def running_order(self, run: TrackedJob) -> float:
        """Position of its queue."""
        return self._places[run.level]

    def on_end(self, ctx: Context, job: Job) -> None:
        """Learn the job's service."""
        run = self._runs[job.number]
        super().on_end(ctx, job)
        gpu_s = run.attained_s * run.gpus
        level = next(level for level, limit in enumerate(self._limits) if gpu_s < limit)
        self._ended[level] += 1
        self._ended_gpu_s[level] += gpu_s
        self._learnt = True

    def advance(self, now_s: float) -> None:
        """Reorder the queues if jobs completed; try jobs again that a running one fell behind."""
        if self._learnt:
            self._learnt = False
            places = self._order()
            if places != self._places:
                self._places = places
                self._reorder()
        turned = now_s >= self._turn_s
        self._turn_s = -math.inf
        if turned:
            self._move_on(now_s, True)

    def update(self, now_s: float) -> None:
        """Move running jobs that passed limits to their new level."""
        if self._moved_s < now_s:
            self._move_on(now_s, False)

    def wake_s(self, ctx: Context) -> float:
        """When a running job first passes a limit that puts it behind a waiting job."""
        if not self._waiting:
            return math.inf
        now, orders = ctx.now_s, sorted({heap[0][0] for heap in self._waiting.values()})
        self._turn_s = self._first_turn_s(orders)
        if self._turn_s <= now:  # of a job that is not at its present level yet
            self.update(now)
            self._turn_s = self._first_turn_s(orders)
        return self._turn_s

    def state_dict(self) -> dict[str, Any]:
        """Number of jobs that completed in each queue, and their GPU-seconds."""
        return {"ended": list(self._ended), "ended_gpu_s": list(self._ended_gpu_s)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned; the next `select` reorders the queues."""
        self._ended = list(state["ended"])
        self._ended_gpu_s = list(state["ended_gpu_s"])
        self._learnt = True

    def _first_turn_s(self, orders: Sequence[float]) -> float:
        """When a job first leaves a queue for one that is behind a waiting job, s."""
        turn_s = math.inf
        level, limit_gpu_s = -1, math.inf
        for entry in self._running:  # those of one queue follow each other
            run = entry[2]
            if run.level != level:
                level = run.level
                limit_gpu_s = self._turning_limit_gpu_s(level, orders)
            passes_s = run.began_s + limit_gpu_s / run.gpus
            if passes_s < turn_s:
                turn_s = passes_s
        return turn_s

    def _turning_limit_gpu_s(self, level: int, orders: Sequence[float]) -> float:
        """Limit of the first queue that is not behind some waiting job while the next one is."""
        for queue in range(level, len(self._limits) - 1):
            place, after = self._places[queue], self._places[queue + 1]
            for order in orders:
                if place <= order < after:
                    return self._limits[queue]
        return math.inf

    def _move_on(self, now_s: float, turned: bool) -> None:
        self._moved_s = now_s
        while self._borders and self._borders[0][0] <= now_s:
            border_s, _, _, run = _pop(self._borders)
            if run.border_s == border_s:
                order = run.order
                self._leave(run)
                self._climb(run, now_s)
                self._enter(run)
                if turned:
                    self.retry_between(order, run.order, run.job.gpus)

    def _start(self, run: TrackedJob, now: float) -> None:
        super()._start(run, now)
        if self._border_s(run) <= now:  # by rounding
            self._leave(run)
            self._climb(run, now)
            self._enter(run)
        else:
            self._watch(run)

    def _stop(self, run: TrackedJob, now: float) -> None:
        while self._border_s(run) <= now:
            run.level += 1
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
            _push(self._borders, (run.border_s, run.job.number, self._watches, run))

    def _border_s(self, run: TrackedJob) -> float:
        return run.began_s + self._limits[run.level] / run.gpus

    def _order(self) -> list[int]:
        best = sorted(range(len(self._limits)), key=lambda level: (-self._index(level), level))
        places = [0] * len(best)
        for place, level in enumerate(best):
            places[level] = place
        return places

    def _index(self, level: int) -> float:
        """Gittins index of a queue, 1/GPU-seconds."""
        lower = self._limits[level - 1] if level else 0.0
        beyond = sum(self._ended[level:])
        index, ended, spent_gpu_s = 0.0, 0, 0.0
        for other in range(level, len(self._limits)):
            ended += self._ended[other]
            spent_gpu_s += self._ended_gpu_s[other] - lower * self._ended[other]
            cost_gpu_s = spent_gpu_s
            if ended < beyond:
                cost_gpu_s += (self._limits[other] - lower) * (beyond - ended)
            if ended:
                index = max(index, ended / cost_gpu_s if cost_gpu_s > 0 else math.inf)
            if ended == beyond:
                break
        return index
