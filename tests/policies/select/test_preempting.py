"""Preemptive `Select` policies against a slow scan of all jobs: the same decisions at each call."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.select_worlds import Nodes, Pool, World, make_job, workloads
from wattkeeper.policies.points.job import Job, Key
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Select, Selection
from wattkeeper.policies.scheduling.preempting import SLACK
from wattkeeper.policies.select.gittins import GittinsConfig
from wattkeeper.policies.select.las import LasConfig
from wattkeeper.policies.select.srtf import SrtfConfig

LIMITS = (4.0, 8.0, 16.0, 32.0)


class Scanned:
    """A job as the scan sees it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.attained_s = 0.0
        self.began_s = self.started_s = math.nan
        self.level = 0

    def attained_at(self, now: float) -> float:
        return self.attained_s if math.isnan(self.started_s) else now - self.began_s


class Scan(Select):
    """Tries every waiting job in order, and asks for each prefix of the jobs behind it."""

    def __init__(self) -> None:
        self.waits: dict[int, Scanned] = {}
        self.runs: dict[int, Scanned] = {}

    @abstractmethod
    def order(self, scanned: Scanned, now: float) -> float:
        """Priority, smallest first."""

    def on_submit(self, ctx: Context, job: Job) -> None:
        self.waits[job.number] = Scanned(job)

    def on_end(self, ctx: Context, job: Job) -> None:
        del self.runs[job.number]

    def on_refuse(self, ctx: Context, job: Job) -> None:
        self.stop(self.runs[job.number], ctx.now_s)

    def stop(self, scanned: Scanned, now: float) -> None:
        del self.runs[scanned.job.number]
        self.waits[scanned.job.number] = scanned
        if scanned.started_s != now:
            scanned.attained_s = now - scanned.began_s
        scanned.started_s = math.nan

    def in_order(self, jobs: Iterable[Scanned], now: float) -> list[Scanned]:
        return sorted(jobs, key=lambda scanned: (self.order(scanned, now), scanned.job.number))

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        now = ctx.now_s
        failed: set[Key] = set()
        for scanned in self.in_order(self.waits.values(), now):
            job = scanned.job
            if job.key in failed:
                continue
            victims = self.victims(scanned, capacity, now)
            if victims is None:
                failed.add(job.key)
                continue
            for victim in victims:
                self.stop(victim, now)
            del self.waits[job.number]
            self.runs[job.number] = scanned
            scanned.started_s, scanned.began_s = now, now - scanned.attained_s
            return Selection((job,), tuple(victim.job for victim in victims))
        return Selection()

    def victims(self, scanned: Scanned, capacity: CapacityView, now: float) -> list[Scanned] | None:
        job, own = scanned.job, self.order(scanned, now)
        behind = [
            other
            for other in reversed(self.in_order(self.runs.values(), now))
            if self.order(other, now) > own + SLACK and other.started_s != now
        ]

        def fits(victims: Sequence[Scanned]) -> bool:
            return capacity.fits(job, [victim.job for victim in victims])

        for number in range(len(behind) + 1):
            victims = behind[:number]
            if fits(victims):
                for other in reversed(victims):
                    rest = [victim for victim in victims if victim is not other]
                    if other is not victims[-1] and fits(rest):
                        victims = rest
                return victims
        return None


class ScanRemaining(Scan):
    def order(self, scanned: Scanned, now: float) -> float:
        return scanned.job.duration_s - scanned.attained_at(now)


class ScanLevels(Scan):
    """Levels by limits of attained service; wakes when an order first changes for the worse."""

    def limit(self, level: int) -> float:
        return (level + 1) * 8.0

    def place(self, level: int) -> float:
        return level

    def level_at(self, scanned: Scanned, now: float) -> int:
        runs = not math.isnan(scanned.started_s)
        while runs and scanned.began_s + self.limit(scanned.level) / scanned.job.gpus <= now:
            scanned.level += 1
        return scanned.level

    def order(self, scanned: Scanned, now: float) -> float:
        return self.place(self.level_at(scanned, now))

    def wake_s(self, ctx: Context) -> float:
        heads: dict[Key, Scanned] = {}
        for scanned in reversed(self.in_order(self.waits.values(), ctx.now_s)):
            heads[scanned.job.key] = scanned
        orders = [self.order(head, ctx.now_s) for head in heads.values()]
        times = [math.inf]
        for scanned in self.runs.values():
            level = self.level_at(scanned, ctx.now_s)
            while level < 200 and self.limit(level) < math.inf:
                if any(self.place(level) <= order < self.place(level + 1) for order in orders):
                    times.append(scanned.began_s + self.limit(level) / scanned.job.gpus)
                    break
                level += 1
        return min(times)


class ScanIndex(ScanLevels):
    """Gittins index of each level by its definition, from the service of all completed jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.services: list[float] = []
        self.known: list[float] = []
        self.ranks = self.rank()

    def limit(self, level: int) -> float:
        return (*LIMITS, math.inf)[level]

    def place(self, level: int) -> float:
        return self.ranks[level]

    def rank(self) -> list[int]:
        levels = range(len(LIMITS) + 1)
        best = sorted(levels, key=lambda level: (-self.index(level), level))
        return [best.index(level) for level in levels]

    def index(self, level: int) -> float:
        lower = self.limit(level - 1) if level else 0.0
        left = [service for service in self.known if service >= lower]
        indices = [0.0]
        for upper in (self.limit(other) for other in range(level, len(LIMITS) + 1)):
            ended = sum(service < upper for service in left)
            spent = sum(min(service, upper) - lower for service in left)
            if ended:
                indices.append(ended / spent if spent else math.inf)
        return max(indices)

    def on_end(self, ctx: Context, job: Job) -> None:
        self.services.append(self.runs[job.number].attained_at(ctx.now_s) * job.gpus)
        super().on_end(ctx, job)

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        if self.known != self.services:
            self.known = list(self.services)
            self.ranks = self.rank()
        return super().select(ctx, capacity)


class Traced(World):
    """Keeps what was decided, and when; asks at a wake time only if the policy has one."""

    def __init__(self, select: Select, jobs: Iterable[Job], room: Pool | Nodes) -> None:
        super().__init__(select, jobs, room)
        self.decided: list[tuple[float, tuple[int, ...], tuple[int, ...]]] = []

    def _apply(self, selection: Selection, now: float) -> bool:
        started = tuple(job.number for job in selection.start)
        preempted = tuple(job.number for job in selection.preempt)
        self.decided.append((now, started, preempted))
        return super()._apply(selection, now)


PAIRS = (
    (SrtfConfig(), ScanRemaining),
    (LasConfig(quantum_gpu_s=8), ScanLevels),
    (GittinsConfig(limits_gpu_s=LIMITS), ScanIndex),
)


def check_equal(
    config: SrtfConfig | LasConfig | GittinsConfig,
    scan: Scan,
    jobs: list[Job],
    rooms: Sequence[Pool | Nodes],
) -> None:
    fast, slow = (
        Traced(select, jobs, room)
        for select, room in zip((config.build(), scan), rooms, strict=True)
    )
    assert fast.run() == slow.run()
    assert fast.decided == slow.decided


@pytest.mark.parametrize(("config", "scan"), PAIRS, ids=["srtf", "las", "gittins"])
@given(jobs=workloads())
def test_decisions_in_a_pool_equal_those_of_a_scan(
    config: SrtfConfig | LasConfig | GittinsConfig, scan: type[Scan], jobs: list[Job]
) -> None:
    check_equal(config, scan(), jobs, (Pool(10), Pool(10)))


@pytest.mark.parametrize(("config", "scan"), PAIRS, ids=["srtf", "las", "gittins"])
@given(jobs=workloads())
def test_decisions_on_nodes_equal_those_of_a_scan(
    config: SrtfConfig | LasConfig | GittinsConfig, scan: type[Scan], jobs: list[Job]
) -> None:
    check_equal(config, scan(), jobs, (Nodes([4, 4, 4]), Nodes([4, 4, 4])))


@pytest.mark.parametrize(("config", "scan"), PAIRS, ids=["srtf", "las", "gittins"])
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 90), st.sampled_from([1, 4, 8])),
        min_size=20,
        max_size=40,
    )
)
def test_decisions_under_overload_equal_those_of_a_scan(
    config: SrtfConfig | LasConfig | GittinsConfig,
    scan: type[Scan],
    rows: list[tuple[int, int, int]],
) -> None:
    submits = [0]
    for between_s, _, _ in rows:
        submits.append(submits[-1] + between_s)
    jobs = [
        make_job(number, submit_s, duration_s, gpus)
        for number, ((submit_s, _), (_, duration_s, gpus)) in enumerate(
            zip(pairwise(submits), rows, strict=True)
        )
    ]
    check_equal(config, scan(), jobs, (Nodes([4, 4, 4]), Nodes([4, 4, 4])))
