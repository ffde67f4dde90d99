"""Select policies in a small world of their own: against published outputs, slow rules, laws."""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.protocols import CapacityView, Context, Job, Select, Selection
from wattkeeper.policies.registry import PolicyConfig, policies
from wattkeeper.policies.select.dlas_gpu import DlasGpuConfig
from wattkeeper.policies.select.easy_backfill import EasyBackfillConfig
from wattkeeper.policies.select.fair_share import FairShareConfig
from wattkeeper.policies.select.fifo import FifoConfig
from wattkeeper.policies.select.gittins import Gittins, GittinsConfig
from wattkeeper.policies.select.las import LasConfig
from wattkeeper.policies.select.sjf import SjfConfig
from wattkeeper.policies.select.srtf import SrtfConfig

CONFIGS: tuple[PolicyConfig, ...] = (
    DlasGpuConfig(limits_gpu_s=(10, 40)),
    SrtfConfig(),
    LasConfig(quantum_gpu_s=8),
    GittinsConfig(limits_gpu_s=(4, 8, 16, 32)),
    EasyBackfillConfig(),
    EasyBackfillConfig(estimates="perfect"),
    FairShareConfig(half_life_s=20),
)


@dataclass
class Now:
    now_s: float = 0.0


@dataclass
class Pool(CapacityView):
    """GPUs that are only counted."""

    size: int
    held: dict[int, Job] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        return self.size

    @property
    def free_gpus(self) -> int:
        return self.gpus - sum(job.gpus for job in self.held.values())

    def fits(self, job: Job, without: Collection[Job] = ()) -> bool:
        assert all(other.number in self.held for other in without)
        return job.gpus <= self.free_gpus + sum(other.gpus for other in without)

    def take(self, job: Job) -> bool:
        if job.gpus > self.free_gpus:
            return False
        self.held[job.number] = job
        return True

    def leave(self, job: Job) -> None:
        del self.held[job.number]


@dataclass
class Nodes(CapacityView):
    """Nodes of 4 GPUs: a job is on the first node that has room, or on whole nodes."""

    free: list[int]
    at: dict[int, tuple[int, ...]] = field(default_factory=dict)

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


# The published rule of dlas-gpu, step by step


def dlas_gpu_by_definition(jobs: Sequence[Job], gpus: int, limits: tuple[int, ...]) -> Ran:
    ran, queues = Ran(), [list[Job]() for _ in range(len(limits) + 1)]
    place: dict[int, int] = {}
    executed: Counter[int] = Counter()
    running: set[int] = set()
    coming = sorted(jobs, key=lambda job: (job.submit_time_s, job.number))
    last_s, wake_s = 0.0, math.inf
    while coming or any(queues):
        ends = [
            last_s + job.duration_s - executed[job.number]
            for queue in queues
            for job in queue
            if job.number in running
        ]
        now = min([wake_s, *ends, *(job.submit_time_s for job in coming[:1])])
        for number in running:
            executed[number] += int(now - last_s)
        last_s = now
        for queue in queues:
            for job in [job for job in queue if job.number in running]:
                if executed[job.number] >= job.duration_s:
                    queue.remove(job)
                    running.remove(job.number)
                    ran.end_s[job.number] = now
        while coming and coming[0].submit_time_s <= now:
            place[coming[0].number] = 0
            queues[0].append(coming.pop(0))
        for job in jobs:
            at = place.get(job.number, 0)
            limit = limits[at] if at < len(limits) else math.inf
            if job.number in running and executed[job.number] * job.gpus >= limit:
                queues[at].remove(job)
                queues[at + 1].append(job)
                place[job.number] += 1
        left, granted = gpus, set[int]()
        for queue in queues:
            for job in queue:
                if job.gpus <= left:
                    left -= job.gpus
                    granted.add(job.number)
                    ran.first_start_s.setdefault(job.number, now)
        for number in running - granted:
            ran.preempts[number] += 1
        running = granted
        for queue in queues:
            queue.sort(key=lambda job: job.number not in granted)
        wakes = [
            now + (limit - executed[job.number]) // job.gpus
            for limit, queue in zip(limits, queues, strict=False)
            for job in queue
            if job.number in running
        ]
        wake_s = min((wake for wake in wakes if wake > now), default=math.inf)
    return ran


@given(
    workloads(sizes=(1, 2, 3, 5, 8)),
    st.integers(8, 14),
    st.sampled_from([(10, 40), (3, 5), (30, 300)]),
)
@settings(max_examples=300)
def test_dlas_gpu_is_the_published_rule(
    jobs: list[Job], gpus: int, limits: tuple[int, ...]
) -> None:
    fast = simulate(DlasGpuConfig(limits_gpu_s=limits), jobs, Pool(gpus))
    slow = dlas_gpu_by_definition(jobs, gpus, limits)
    assert fast.end_s == slow.end_s
    assert fast.first_start_s == slow.first_start_s
    assert +fast.preempts == +slow.preempts


def read_slice(path: Path) -> list[Job]:
    with path.open(newline="") as file:
        return [
            make_job(number, int(row["submit_time"]), int(row["duration"]), int(row["num_gpus"]))
            for number, row in enumerate(csv.DictReader(file))
        ]


def test_dlas_gpu_agrees_with_every_published_job(shared: Path) -> None:
    jobs = read_slice(shared / "data/philly/slices/philly_1k.csv")
    ran = simulate(DlasGpuConfig(), jobs, Pool(256))
    published = shared / "reference/schedulers/philly_1k.g256.dlas-gpu.csv.gz"
    with gzip.open(published, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(jobs) == 1000
    for row in rows:
        number = int(row["job_id"])
        assert ran.first_start_s[number] == float(row["start_time"]), number
        assert ran.end_s[number] == float(row["finish_time"]), number
        assert ran.preempts[number] == int(row["preempts"]), number


def test_dlas_gpu_agrees_with_the_published_means(shared: Path) -> None:
    jobs = read_slice(shared / "data/philly/slices/philly_10k.csv")
    jct_s = simulate(DlasGpuConfig(), jobs, Pool(512)).mean_jct_s(jobs)
    assert round(jct_s, 2) == 11_078.56
    assert round(jct_s - sum(job.duration_s for job in jobs) / len(jobs), 2) == 587.18


@pytest.mark.parametrize("limits", [(), (0, 1), (5, 5), (7, 3)])
@pytest.mark.parametrize("config", [DlasGpuConfig, GittinsConfig])
def test_limits_that_do_not_ascend_are_refused(
    config: type[PolicyConfig], limits: tuple[int, ...]
) -> None:
    with pytest.raises(ValidationError):
        config.model_validate({"limits_gpu_s": limits})


# What holds for all


def check_conserving(world: World) -> None:
    """No GPUs idle that a waiting job could use."""
    assert not any(world.room.fits(job) for job in world.waiting.values())


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
@pytest.mark.parametrize("nodes", [False, True], ids=["pool", "nodes"])
@given(jobs=workloads())
def test_every_job_completes_its_work(config: PolicyConfig, nodes: bool, jobs: list[Job]) -> None:
    world = World(config.build(), jobs, Nodes([4, 4, 4]) if nodes else Pool(10))
    if not nodes and not isinstance(config, EasyBackfillConfig):
        world.after_pass = check_conserving
    ran = world.run()
    assert ran.worked_s == {job.number: job.duration_s for job in jobs}
    assert not nodes or isinstance(config, DlasGpuConfig) or not ran.refusals
    state = world.select.state_dict()
    assert json.loads(json.dumps(state)) == state
    again = World(config.build(), jobs, Nodes([4, 4, 4]) if nodes else Pool(10))
    assert again.run() == ran
    assert again.select.state_dict() == state
    other = config.build()
    other.load_state_dict(json.loads(json.dumps(state)))
    assert other.state_dict() == state


def test_rounding_errors_preempt_no_job() -> None:
    jobs = [make_job(0, 1.5482807541640164, 31), make_job(1, 1.5482807541640164, 31)]
    ran = simulate(SrtfConfig(), [*jobs, make_job(2, 2, 1, 4)], Pool(5))
    assert +ran.preempts == {1: 1}


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
@given(st.data())
def test_jobs_with_fractional_times_complete(config: PolicyConfig, data: st.DataObject) -> None:
    times = st.floats(0.001, 50)
    rows = data.draw(st.lists(st.tuples(times, times, st.integers(1, 4)), min_size=1, max_size=15))
    jobs = [make_job(number, *row) for number, row in enumerate(sorted(rows))]
    ran = simulate(config, jobs, Pool(5))
    for job in jobs:
        assert ran.worked_s[job.number] == pytest.approx(job.duration_s, abs=1e-9)


class Stubborn(Pool):
    """Does not take a job that others ran beside a moment ago: placing may fail."""

    def take(self, job: Job) -> bool:
        return (not self.held or job.number % 3 > 0) and super().take(job)


@pytest.mark.parametrize("config", CONFIGS[:4], ids=repr)
@given(jobs=workloads())
def test_a_refused_job_waits_on(config: PolicyConfig, jobs: list[Job]) -> None:
    ran = simulate(config, jobs, Stubborn(10))
    assert ran.worked_s == {job.number: job.duration_s for job in jobs}


# Each one's own


@given(workloads(sizes=[1]))
def test_srtf_minimises_the_mean_completion_time_on_one_gpu(jobs: list[Job]) -> None:
    best = simulate(SrtfConfig(), jobs, Pool(1)).mean_jct_s(jobs)
    others = (FifoConfig(), SjfConfig(), LasConfig(quantum_gpu_s=8), DlasGpuConfig())
    assert all(best <= simulate(other, jobs, Pool(1)).mean_jct_s(jobs) + 1e-9 for other in others)


@given(workloads())
def test_srtf_keeps_no_job_waiting_behind_longer_ones(jobs: list[Job]) -> None:
    def check(world: World) -> None:
        now = world.now.now_s
        for job in world.waiting.values():
            longer = [
                other
                for start_s, end_s, other in world.running.values()
                if end_s - now > world.left[job.number] and start_s < now
            ]
            assert not world.room.fits(job, longer)

    world = World(SrtfConfig().build(), jobs, Pool(10))
    world.after_pass = check
    world.run()


def test_srtf_preempts_no_more_than_it_needs() -> None:
    jobs = [make_job(0, 0, 100, 1), make_job(1, 0, 90, 4), make_job(2, 0, 80, 1)]
    ran = simulate(SrtfConfig(), [*jobs, make_job(3, 10, 5, 4)], Pool(6))
    assert +ran.preempts == {1: 1}
    assert ran.end_s == {0: 100, 1: 95, 2: 80, 3: 15}


@given(workloads())
def test_las_keeps_no_job_waiting_behind_those_with_more_quanta(jobs: list[Job]) -> None:
    def attained(world: World, job: Job) -> float:
        running = world.running.get(job.number)
        since_s = world.now.now_s - running[0] if running else 0.0
        return (world.ran.worked_s.get(job.number, 0.0) + since_s) * job.gpus // 8

    def check(world: World) -> None:
        for job in world.waiting.values():
            more = [
                other
                for start_s, _, other in world.running.values()
                if attained(world, other) > attained(world, job) and start_s < world.now.now_s
            ]
            assert not world.room.fits(job, more)

    world = World(LasConfig(quantum_gpu_s=8).build(), jobs, Pool(10))
    world.after_pass = check
    world.run()


def test_las_alternates_by_the_quantum() -> None:
    ran = simulate(LasConfig(quantum_gpu_s=10), [make_job(0, 0, 25), make_job(1, 0, 25)], Pool(1))
    assert ran.end_s == {0: 45, 1: 50}
    assert ran.preempts == {0: 1, 1: 1}


@given(st.lists(st.integers(1, 100), min_size=1, max_size=30))
def test_gittins_indices_are_the_defined_ones(services: list[int]) -> None:
    limits = (5.0, 10.0, 20.0, 40.0)
    policy: Gittins = GittinsConfig(limits_gpu_s=limits).build()
    jobs = [make_job(number, 0, time_s) for number, time_s in enumerate(services)]
    World(policy, jobs, Pool(len(jobs))).run()
    for level, lower in enumerate((0.0, *limits)):
        beyond = [service for service in services if service >= lower]
        index = 0.0
        for upper in (*limits[level:], math.inf):
            ends = sum(service < upper for service in beyond)
            cost = sum(min(service, upper) - lower for service in beyond)
            if ends:
                index = max(index, ends / cost if cost else math.inf)
        assert policy._index(level) == pytest.approx(index)


def test_gittins_prefers_jobs_about_to_complete() -> None:
    """Jobs run 1 s or 100 s: new ones come first, then one that ran 90 s, then one that ran 2."""
    history = [make_job(number, 0, 1 if number % 2 else 100) for number in range(20)]
    config = GittinsConfig(limits_gpu_s=(2, 90))
    policy = config.build()
    World(policy, history, Pool(20)).run()
    learnt = config.build()
    learnt.load_state_dict(policy.state_dict())
    jobs = [make_job(0, 0, 100), make_job(1, 95, 100)]
    ran = World(learnt, jobs, Pool(1)).run()
    assert ran.end_s == {0: 102, 1: 200}
    assert simulate(LasConfig(quantum_gpu_s=90), jobs, Pool(1)).end_s == {1: 195, 0: 200}


class SlowEasy:
    """EASY as it is told, over a plain list."""

    def __init__(self, perfect: bool) -> None:
        self.perfect = perfect
        self.queue: list[Job] = []
        self.expected: dict[int, tuple[float, int]] = {}
        self.reserved_s: dict[int, float] = {}

    def estimate_s(self, job: Job) -> float:
        return job.duration_s if self.perfect else job.estimate_s

    def on_submit(self, ctx: Context, job: Job) -> None:
        self.queue.append(job)

    def on_end(self, ctx: Context, job: Job) -> None:
        del self.expected[job.number]

    def wake_s(self, ctx: Context) -> float:
        return math.inf

    def select(self, ctx: Context, room: Pool) -> Selection:
        now = ctx.now_s
        if not self.queue:
            return Selection()
        head, free = self.queue[0], room.free_gpus
        if head.gpus <= free:
            return self.start(head, now)
        shadow_s, extra = math.inf, 0
        for time_s in sorted({max(now, end_s) for end_s, _ in self.expected.values()}):
            then = free + sum(g for end_s, g in self.expected.values() if end_s <= time_s)
            if then >= head.gpus:
                shadow_s, extra = time_s, then - head.gpus
                break
        self.reserved_s.setdefault(head.number, shadow_s)
        for job in self.queue[1:]:
            ends = self.estimate_s(job) <= shadow_s - now
            if job.gpus <= free and (ends or job.gpus <= extra):
                return self.start(job, now)
        return Selection()

    def start(self, job: Job, now: float) -> Selection:
        self.queue.remove(job)
        self.expected[job.number] = now + self.estimate_s(job), job.gpus
        return Selection((job,))


@pytest.mark.parametrize("estimates", ["user", "perfect"])
@given(jobs=workloads())
def test_easy_backfill_follows_its_rule(estimates: str, jobs: list[Job]) -> None:
    slow = SlowEasy(estimates == "perfect")
    config = EasyBackfillConfig.model_validate({"estimates": estimates})
    ran = simulate(config, jobs, Pool(10))
    assert World(cast("Select", slow), jobs, Pool(10)).run() == ran
    if estimates == "perfect":
        assert all(ran.first_start_s[number] <= at for number, at in slow.reserved_s.items())


def test_easy_backfill_uses_the_gap_and_the_extra_gpus() -> None:
    jobs = [
        make_job(0, 0, 100, 4),
        make_job(1, 1, 50, 6),  # the head: waits for 0, and leaves 2 GPUs
        make_job(2, 2, 99, 4),  # too long, too large
        make_job(3, 3, 97, 2),  # ends in time
        make_job(4, 4, 500, 2),  # extra
        make_job(5, 5, 500, 1),  # extra, but taken
    ]
    ran = simulate(EasyBackfillConfig(), jobs, Pool(8))
    assert ran.first_start_s == {0: 0, 1: 100, 3: 3, 4: 4, 2: 150, 5: 150}


@pytest.mark.parametrize("estimates", ["user", "perfect"])
def test_easy_backfill_names_a_job_without_estimate(estimates: str) -> None:
    policy = EasyBackfillConfig.model_validate({"estimates": estimates}).build()
    job = make_job(7, 0, math.nan, estimate_s=math.nan)
    with pytest.raises(PolicyError, match="job 7") as found:
        policy.on_submit(cast("Context", Now()), job)
    assert found.value.point == "select"


def test_fair_share_serves_the_user_with_the_least_decayed_usage() -> None:
    jobs = [make_job(0, 0, 100, user="a"), make_job(1, 100, 60, user="b")]
    jobs += [make_job(2, 150, 10, user="a"), make_job(3, 155, 10, user="b")]
    # By 160 s a used 100 s, b 60 s later; with a short half-life only the latter counts.
    assert simulate(FairShareConfig(half_life_s=1e6), jobs, Pool(1)).first_start_s[3] == 160
    assert simulate(FairShareConfig(half_life_s=10), jobs, Pool(1)).first_start_s[2] == 160


def test_fair_share_skips_jobs_that_do_not_fit() -> None:
    jobs = [make_job(0, 0, 100, 2, user="a"), make_job(1, 1, 10, 4, user="b")]
    jobs += [make_job(2, 2, 10, 1, user="b"), make_job(3, 3, 10, 1)]
    ran = simulate(FairShareConfig(), jobs, Pool(4))
    assert ran.first_start_s == {0: 0, 2: 2, 3: 3, 1: 100}


def test_fair_share_counts_decayed_gpu_seconds() -> None:
    policy = FairShareConfig(half_life_s=100).build()
    World(policy, [make_job(0, 0, 100, 2, user="a"), make_job(1, 100, 0.5)], Pool(4)).run()
    users = policy.state_dict()["users"]
    assert [name for name, _, _ in users] == ["a", None]
    assert users[0][1:] == pytest.approx([2 * 100 / math.log(2) / 2, 100])


def test_all_are_registered() -> None:
    assert {config.kind for config in CONFIGS} <= set(policies("select"))
