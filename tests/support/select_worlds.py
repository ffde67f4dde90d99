"""A small world of jobs and GPUs that asks a `Select` policy alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, cast

from hypothesis import strategies as st

from wattkeeper.policies.points.job import Job, Key
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Select, Selection
from wattkeeper.policies.registry import PolicyConfig


@dataclass
class Now:
    now_s: float = 0.0


class Room(CapacityView):
    """It grows only when jobs give GPUs back."""

    @property
    def growths(self) -> int:
        return 0


@dataclass
class Pool(Room):
    """GPUs that are only counted."""

    size: int
    held: dict[int, Job] = field(default_factory=dict)
    refused: set[Key] = field(default_factory=set)

    @property
    def gpus(self) -> int:
        return self.size

    @property
    def free_gpus(self) -> int:
        return self.gpus - sum(job.gpus for job in self.held.values())

    def fits(self, job: Job, without: Collection[Job] = ()) -> bool:
        assert all(other.number in self.held for other in without)
        free = self.free_gpus + sum(other.gpus for other in without)
        return job.key not in self.refused and job.gpus <= free

    def take(self, job: Job) -> bool:
        if job.gpus > self.free_gpus:
            return False
        self.held[job.number] = job
        return True

    def leave(self, job: Job) -> None:
        del self.held[job.number]


@dataclass
class Nodes(Room):
    """Nodes of 4 GPUs: a job is on the first node that has room, or on whole nodes."""

    free: list[int]
    at: dict[int, tuple[int, ...]] = field(default_factory=dict)
    refused: set[Key] = field(default_factory=set)

    @property
    def gpus(self) -> int:
        return 4 * len(self.free)

    @property
    def free_gpus(self) -> int:
        return sum(self.free)

    def _find(self, job: Job, free: Sequence[int]) -> tuple[int, ...]:
        least = min(job.gpus, 4)
        nodes = [node for node, count in enumerate(free) if count >= least]
        number = -(-job.gpus // 4)
        return tuple(nodes[:number]) if len(nodes) >= number else ()

    def fits(self, job: Job, without: Collection[Job] = ()) -> bool:
        if job.key in self.refused:
            return False
        free = list(self.free)
        for other in without:
            for node in self.at[other.number]:
                free[node] += min(other.gpus, 4)
        return bool(self._find(job, free))

    def take(self, job: Job) -> bool:
        nodes = self._find(job, self.free)
        for node in nodes:
            self.free[node] -= min(job.gpus, 4)
        if nodes:
            self.at[job.number] = nodes
        return bool(nodes)

    def leave(self, job: Job) -> None:
        for node in self.at.pop(job.number):
            self.free[node] += min(job.gpus, 4)


@dataclass
class Ran:
    """What became of the jobs, by number; `refusals` counts jobs that were not placed."""

    first_start_s: dict[int, float] = field(default_factory=dict)
    end_s: dict[int, float] = field(default_factory=dict)
    preempts: Counter[int] = field(default_factory=Counter)
    worked_s: dict[int, float] = field(default_factory=dict)
    refusals: int = 0

    def mean_jct_s(self, jobs: Sequence[Job]) -> float:
        return sum(self.end_s[job.number] - job.submit_time_s for job in jobs) / len(jobs)


class World:
    """Completions, then arrivals, then passes until nothing changes; preempting costs nothing."""

    def __init__(self, select: Select, jobs: Iterable[Job], room: Pool | Nodes) -> None:
        self.select, self.room, self.ran = select, room, Ran()
        self.jobs = sorted(jobs, key=lambda job: (job.submit_time_s, job.number), reverse=True)
        self.left = {job.number: job.duration_s for job in self.jobs}
        self.running: dict[int, tuple[float, float, Job]] = {}  # start, end
        self.ends: list[tuple[float, int]] = []
        self.waiting: dict[int, Job] = {}
        self.now = Now()
        self.ctx = cast("Context", self.now)
        self.after_pass: Callable[[World], None] = lambda world: None

    def run(self) -> Ran:
        wake_s = math.inf
        while True:
            arrival_s = self.jobs[-1].submit_time_s if self.jobs else math.inf
            while self.ends and not self._is_current(self.ends[0]):
                heappop(self.ends)
            end_s = self.ends[0][0] if self.ends else math.inf
            self.now.now_s = now = min(arrival_s, end_s, wake_s)
            if now == math.inf:
                break
            self.room.refused.clear()
            self._events(now)
            while self._apply(self.select.select(self.ctx, self.room), now):
                pass
            self.after_pass(self)
            wake_s = self.select.wake_s(self.ctx)
            assert wake_s > now
        assert not self.running
        assert not self.waiting
        return self.ran

    def _is_current(self, entry: tuple[float, int]) -> bool:
        return entry[1] in self.running and self.running[entry[1]][1] == entry[0]

    def _events(self, now: float) -> None:
        while self.ends and self.ends[0][0] <= now:
            entry = heappop(self.ends)
            if self._is_current(entry):
                job = self._stop(entry[1], now)
                self.ran.end_s[job.number] = now
                self.select.on_end(self.ctx, job)
        while self.jobs and self.jobs[-1].submit_time_s <= now:
            job = self.jobs.pop()
            self.waiting[job.number] = job
            self.select.on_submit(self.ctx, job)

    def _apply(self, selection: Selection, now: float) -> bool:
        for job in selection.preempt:
            self.left[job.number] = self.running[job.number][1] - now
            self.waiting[job.number] = self._stop(job.number, now)
            self.ran.preempts[job.number] += 1
        for job in selection.start:
            assert job.number in self.waiting
            if not self.room.take(job):
                self.ran.refusals += 1
                self.room.refused.add(job.key)
                self.select.on_refuse(self.ctx, job)
                continue
            del self.waiting[job.number]
            end_s = now + self.left[job.number]
            self.running[job.number] = now, end_s, job
            heappush(self.ends, (end_s, job.number))
            self.ran.first_start_s.setdefault(job.number, now)
        return bool(selection.start or selection.preempt)

    def _stop(self, number: int, now: float) -> Job:
        start_s, _, job = self.running.pop(number)
        self.room.leave(job)
        self.ran.worked_s[number] = self.ran.worked_s.get(number, 0) + now - start_s
        return job


def simulate(config: PolicyConfig, jobs: Iterable[Job], room: Pool | Nodes) -> Ran:
    return World(config.build(), jobs, room).run()


def make_job(number: int, submit_s: float, duration_s: float, gpus: int = 1, **more: Any) -> Job:
    more.setdefault("estimate_s", duration_s)
    more.setdefault("recorded_start_s", submit_s + number % 7)
    name = str(number)
    return Job(name, name, 1, None, gpus, submit_s, duration_s, number=number, **more)


@st.composite
def workloads(draw: st.DrawFn, sizes: Sequence[int] = (1, 2, 4, 8)) -> list[Job]:
    """Some jobs; with sizes that are powers of 2 the times of all events are exact."""
    gpus = st.sampled_from(sizes)
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 30), st.integers(1, 60), gpus, st.sampled_from(["a", "b", None])
            ),
            min_size=1,
            max_size=25,
        )
    )
    rows.sort(key=lambda row: row[0])
    shares = st.sampled_from([0.5, 1.0, 3.0])
    return [
        make_job(number, submit_s, time_s, size, user=user, estimate_s=time_s * draw(shares))
        for number, (submit_s, time_s, size, user) in enumerate(rows)
    ]
