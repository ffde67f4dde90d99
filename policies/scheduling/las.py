"""Preemption by whole quanta of attained service: `las`."""

import math
from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import Final

from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.scheduling.preempting import ALL, Preempting, TrackedJob

# Compiled code need not look up a constant.
_left: Final = bisect_left
_right: Final = bisect_right
_number: Final = attrgetter("job.number")


class Lane:
    """The running jobs of one demand, those of most attained service first.

    Attributes:
        gpus: GPUs of a job.
        held: The same, fractions of GPUs included.
        began_s: When the jobs began, had they run without interruption, ascending.
        runs: The jobs.
        index: The first job that a search has not looked at yet.
        end: Where that search ends.
    """

    def __init__(self, gpus: int, held: float) -> None:
        self.gpus = gpus
        self.held = held
        self.began_s: list[float] = []
        self.runs: list[TrackedJob] = []
        self.index = 0
        self.end = 0

    def add(self, run: TrackedJob) -> None:
        """Add a job that starts."""
        index = _right(self.began_s, run.began_s)
        self.began_s.insert(index, run.began_s)
        self.runs.insert(index, run)

    def remove(self, run: TrackedJob) -> None:
        """Remove a job that stops."""
        index = _left(self.began_s, run.began_s)
        while self.runs[index] is not run:
            index += 1
        del self.began_s[index], self.runs[index]

    def passed(self, gpu_s: float, now_s: float) -> int:
        """How many jobs, the first ones, attained a service (GPU-seconds)."""
        began_s, took_s = self.began_s, gpu_s / self.held
        index = _right(began_s, now_s - took_s)
        while index < len(began_s) and began_s[index] + took_s <= now_s:
            index += 1
        while index > 0 and began_s[index - 1] + took_s > now_s:
            index -= 1
        return index


class Las(Preempting):
    """See `wattkeeper.policies.select.las.LasConfig`.

    The priority value is the number of whole quanta that a job attained. Running jobs are kept by
    demand: jobs of the same GPUs keep their order while they run, so nothing moves as time passes.
    """

    def __init__(self, quantum_gpu_s: float) -> None:
        super().__init__()
        self._quantum_gpu_s = quantum_gpu_s
        self._lanes: list[Lane] = []
        self._lane_of: dict[tuple[int, int], Lane] = {}
        self._turn_s = self._advanced_s = -math.inf

    def waiting_order(self, run: TrackedJob) -> float:
        """Number of whole quanta."""
        return run.level

    def running_order(self, run: TrackedJob) -> float:
        """Number of whole quanta when it was last asked for."""
        return run.level

    def advance(self, now_s: float) -> None:
        """Try those again behind which a running job fell by ending a quantum."""
        if now_s >= self._turn_s:
            for run in [*self._failed.values()]:
                gpus = self._passed_gpus(run.order, self._advanced_s, now_s)
                if gpus > 0:
                    self.give(run, gpus)
        self._turn_s = -math.inf
        self._advanced_s = now_s

    def _passed_gpus(self, order: float, since_s: float, now_s: float) -> int:
        """GPUs of the running jobs that fell behind a priority value in a while."""
        gpu_s = (order + 1) * self._quantum_gpu_s
        gpus = 0
        for lane in self._lanes:
            gpus += lane.gpus * (lane.passed(gpu_s, now_s) - lane.passed(gpu_s, since_s))
        return gpus

    def behind(self, order: float, enough: int, now: float) -> list[TrackedJob]:
        """As the base class says."""
        gpu_s = (order + 1) * self._quantum_gpu_s
        gpus = 0
        for lane in self._lanes:
            lane.index = 0
            lane.end = lane.passed(gpu_s, now)
            gpus += lane.gpus * lane.end
        self._spares = False
        self._lack_gpus = 0
        behind: list[TrackedJob] = []
        if gpus < enough < ALL:
            self._lack_gpus = enough - gpus
            return behind
        while enough > 0:
            worst = self._worst(now)
            if not worst:
                self._lack_gpus = enough
                break
            for run in worst:
                behind.append(run)
                enough -= run.job.gpus
                if enough <= 0:
                    break
        return behind

    def _worst(self, now: float) -> list[TrackedJob]:
        """The jobs of the most quanta that the search has not looked at, the last number first."""
        while True:
            most = -1
            for lane in self._lanes:
                if lane.index < lane.end:
                    most = max(most, self._climb(lane.runs[lane.index], now))
            worst: list[TrackedJob] = []
            for lane in self._lanes:
                while lane.index < lane.end:
                    run = lane.runs[lane.index]
                    if self._climb(run, now) < most:
                        break
                    lane.index += 1
                    if run.started_s == now:
                        self._spares = True
                    else:
                        worst.append(run)
            if worst or most < 0:
                break
        if len(worst) > 1:
            worst.sort(key=_number, reverse=True)
        return worst

    def wake_s(self, ctx: Context) -> float:
        """When a job of no more quanta than a waiting job first ends that one's quantum, s."""
        if not self._waiting:
            return math.inf
        now, turn_s = ctx.now_s, math.inf
        for order in {heap[0][0] for heap in self._waiting.values()}:
            gpu_s = (order + 1) * self._quantum_gpu_s
            for lane in self._lanes:
                index = lane.passed(gpu_s, now)
                if index < len(lane.began_s):
                    turn_s = min(turn_s, lane.began_s[index] + gpu_s / lane.held)
        self._turn_s = turn_s
        return turn_s

    def on_end(self, ctx: Context, job: Job) -> None:
        """Remove the job."""
        run = self._runs[job.number]
        self._climb(run, self._advanced_s)  # quanta since then are not reckoned with yet
        run.order = self.running_order(run)
        super().on_end(ctx, job)

    def _stop(self, run: TrackedJob, now: float) -> None:
        self._climb(run, now)
        super()._stop(run, now)

    def _enter(self, run: TrackedJob) -> None:
        run.order = self.running_order(run)
        attained_s = run.level * self._quantum_gpu_s / run.gpus
        while run.began_s + attained_s > run.started_s:  # by rounding
            run.began_s = math.nextafter(run.began_s, -math.inf)
        self._lane(run.job).add(run)

    def _leave(self, run: TrackedJob) -> None:
        self._lane(run.job).remove(run)

    def _lane(self, job: Job) -> Lane:
        demand = (job.gpus, job.gpu_milli)
        lane = self._lane_of.get(demand)
        if lane is None:
            lane = self._lane_of[demand] = Lane(job.gpus, job.gpus_held)
            self._lanes.append(lane)
        return lane

    def _climb(self, run: TrackedJob, now: float) -> int:
        """Count the whole quanta of a running job."""
        quantum_gpu_s, gpus = self._quantum_gpu_s, run.gpus
        level = max(run.level, int((now - run.began_s) * gpus / quantum_gpu_s) - 1)
        while run.began_s + (level + 1) * quantum_gpu_s / gpus <= now:
            level += 1
        run.level = level
        return level
