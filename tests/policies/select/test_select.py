"""Select policies in a small world of their own: laws, and what each one promises."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.select_worlds import Nodes, Pool, World, make_job, simulate, workloads
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.registry import PolicyConfig, policies
from wattkeeper.policies.scheduling.gittins import Gittins
from wattkeeper.policies.select.dlas_gpu import DlasGpuConfig
from wattkeeper.policies.select.easy_backfill import EasyBackfillConfig
from wattkeeper.policies.select.fair_share import FairShareConfig
from wattkeeper.policies.select.fifo import FifoConfig
from wattkeeper.policies.select.gittins import GittinsConfig
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


@pytest.mark.parametrize("limits", [(), (0, 1), (5, 5), (7, 3)])
@pytest.mark.parametrize("config", [DlasGpuConfig, GittinsConfig])
def test_limits_that_do_not_ascend_are_refused(
    config: type[PolicyConfig], limits: tuple[int, ...]
) -> None:
    with pytest.raises(ValidationError):
        config.model_validate({"limits_gpu_s": limits})


# --- laws that hold for every policy


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


# --- what each policy promises


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
