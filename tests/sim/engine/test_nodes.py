"""What holds GPUs without training, what a power cap forbids, and parts of GPUs."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from simpy import Event

from tests.support.worlds import (
    OTHER_GPU,
    Setting,
    attempts,
    build_world,
    by_job,
    chosen,
    run_world,
    settings_of_worlds,
    spec,
    starts,
    steady,
    stub,
    timeline_of,
)
from wattkeeper.policies.errors import InputError, PolicyError
from wattkeeper.policies.points.job import NEW, Job, Placement
from wattkeeper.policies.points.place import ClusterView
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.views import Knobs
from wattkeeper.policies.profile import Curve
from wattkeeper.policies.registry import Point
from wattkeeper.policies.scheduling.queueing import InOrder
from wattkeeper.policies.tune.fixed_power import FixedPowerConfig
from wattkeeper.scenarios.contract.scripted import GPU, NEVER, job
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec, GpuPower, NodeGroup
from wattkeeper.sim.engine.world import World


def plain(name: str, submit_s: float, duration_s: float, gpus: int = 1, milli: int = 1000) -> Job:
    """A job without a workload."""
    one = job(name, submit_s, duration_s=duration_s, gpus=gpus)
    return one.replace(workload=None, gpu_milli=milli)


# --- maintenance


@pytest.mark.parametrize("sleep_after_s", [None, 2.0])
def test_no_job_starts_on_a_closed_node(sleep_after_s: float | None) -> None:
    """A job that runs on it goes on; the GPUs that it leaves are not given to the next one."""
    hardware = replace(spec(nodes=1, gpus_per_node=2), sleep_after_s=sleep_after_s)
    world = build_world([plain("a", 0.0, 10.0), plain("b", 6.0, 10.0)], cluster=hardware)
    free: list[int] = []

    def maintain() -> Generator[Event, Any, None]:
        yield world.env.timeout(5.0)
        world.close_node(0)
        free.append(world.cluster.free_gpus)
        yield world.env.timeout(25.0)
        free.append(world.cluster.free_gpus)
        world.reopen_node(0)
        free.append(world.cluster.free_gpus)

    world.env.process(maintain())
    world.run()
    assert free == [0, 0, 2]
    assert starts(world) == {"a": 0.0, "b": 30.0}
    assert [row.finish_time_s for row in attempts(world)] == [10.0, 40.0]


def test_a_node_is_closed_once_at_a_time() -> None:
    world = build_world([plain("a", 0.0, 10.0)], cluster=spec(nodes=2, gpus_per_node=2))
    world.close_node(1)
    with pytest.raises(InputError, match="node 1 is closed"):
        world.close_node(1)
    world.reopen_node(1)
    assert world.cluster.free_gpus == 4
    with pytest.raises(InputError, match="node 1 is open"):
        world.reopen_node(1)


# --- a power cap


@given(setting=settings_of_worlds())
def test_power_stays_below_the_cap(setting: Setting) -> None:
    cap_w = setting.cluster.power_cap_w
    if cap_w is None:
        cap_w = math.inf
    assert timeline_of(setting.run()).power_w.max() / setting.cluster.pue <= cap_w + 1e-5


@pytest.mark.parametrize(("cap_w", "starts_s"), [(539.9, 10.0), (540.0, 0.0)])
def test_a_job_waits_for_power(cap_w: float, starts_s: float) -> None:
    """Two GPUs that draw 250 W when busy, and two idle ones that draw 20 W."""
    cluster = replace(spec(gpus_per_node=4), power_cap_w=cap_w)
    jobs = [job(name).replace(workload=None) for name in ("a", "b")]
    assert starts(run_world(jobs, {}, cluster)) == {"a": 0.0, "b": starts_s}


def test_a_cap_leaves_the_gpu_types_that_it_allows() -> None:
    """The node that best-fit prefers draws too much; a job that fits elsewhere goes there."""
    groups = NodeGroup("thirsty", 1, 1), NodeGroup("frugal", 1, 2)
    power = {"thirsty": GpuPower(10.0, 500.0), "frugal": GpuPower(10.0, 100.0)}
    cluster = ClusterSpec(groups, power, power_cap_w=130.0)
    jobs = [job().replace(workload=None)]
    world = run_world(jobs, {}, cluster, chosen(place="best-fit"))
    assert [row.gpu_type for row in attempts(world)] == ["frugal"]


def test_a_retry_waits_on_its_gpus_for_power() -> None:
    """The failed attempt drew little; what it left, another job took before the retry."""
    curve = Curve(32, (100.0, 250.0), (4.0, 2.0), (100.0, 200.0), (NEVER,))
    known = steady()._replace(curves={32: curve}, max_epochs=1)
    limits = iter([100.0, 250.0])
    tune = stub("tune", tune=lambda ctx, running: Knobs(next(limits)))
    jobs = [job("a"), job("b", 1.0, duration_s=10.0).replace(workload=None)]
    cluster = replace(spec(gpus_per_node=2, idle_power_w=20.0), power_cap_w=400.0)
    world = run_world(jobs, by_job(known), cluster, chosen(tune=tune), max_attempts=2)
    first, other, again = sorted(attempts(world), key=lambda row: row.finish_time_s)
    assert (first.job_id, first.start_time_s, first.finish_time_s) == ("a", 0.0, 4.0)
    assert (other.job_id, other.start_time_s, other.finish_time_s) == ("b", 1.0, 11.0)
    assert (again.attempt, again.start_time_s, again.finish_time_s) == (2, 4.0, 13.0)
    assert again.overhead_s == 7.0
    assert again.energy_j == pytest.approx(7.0 * 20.0 + 2.0 * 200.0)
    assert timeline_of(world).power_w.max() <= 400.0


def test_a_power_limit_lets_others_start() -> None:
    """`a` may draw 200 W, chose a limit at which it draws 100 W, and leaves the rest to `b`."""
    curve = Curve(32, (100.0, 250.0), (4.0, 2.0), (100.0, 200.0), (5.0,))
    known = steady()._replace(curves={32: curve})
    cluster = replace(spec(gpus_per_node=2, idle_power_w=20.0), power_cap_w=350.0)
    jobs = [job("a"), plain("b", 0.0, 10.0)]
    low = chosen(tune=FixedPowerConfig(power_limit_w=100.0))
    assert starts(run_world(jobs, by_job(known), cluster, low)) == {"a": 0.0, "b": 0.0}
    assert starts(run_world(jobs, by_job(known), cluster)) == {"a": 0.0, "b": 10.0}


# --- what holds GPUs without training


def overheads(world: World) -> dict[str, tuple[float, float]]:
    """When each job ended, and how long it held GPUs without training."""
    return {row.job_id: (row.finish_time_s, row.overhead_s) for row in attempts(world)}


def test_all_jobs_that_start_on_a_waking_node_wait() -> None:
    cluster = replace(spec(gpus_per_node=3), sleep_after_s=0.0, wake_s=30.0)
    jobs = [plain("a", 100.0, 10.0), plain("b", 100.0, 10.0), plain("c", 105.0, 10.0)]
    expected = {"a": (140.0, 30.0), "b": (140.0, 30.0), "c": (140.0, 25.0)}
    assert overheads(run_world(jobs, {}, cluster)) == expected


def test_a_job_is_restored_however_often_that_was_interrupted() -> None:
    """It trains for 20 s, is restored for 5 of 10 s, and for 10 s, and trains for 80 s."""
    jobs = [plain("long", 0.0, 100.0), plain("s", 20.0, 5.0), plain("t", 30.0, 5.0)]
    world = run_world(jobs, {}, replace(spec(), restore_s=10.0), chosen(select="srtf"))
    assert overheads(world) == {"s": (25.0, 0.0), "t": (35.0, 0.0), "long": (125.0, 15.0)}


def test_a_preempting_job_waits_for_the_checkpoint() -> None:
    jobs = [plain("long", 0.0, 100.0), plain("s", 20.0, 5.0)]
    world = run_world(jobs, {}, replace(spec(), checkpoint_s=7.0), chosen(select="srtf"))
    assert overheads(world) == {"s": (32.0, 7.0), "long": (112.0, 0.0)}


def test_a_node_sleeps_once_it_has_saved() -> None:
    """`long` gives up two nodes; one is needed for `s`, the other one has nothing to do."""
    power = {GPU: GpuPower(20.0, 250.0, 5.0)}
    cluster = ClusterSpec((NodeGroup(GPU, 2, 1),), power, sleep_after_s=0.0, checkpoint_s=60.0)
    jobs = [plain("long", 0.0, 100.0, gpus=2), plain("s", 10.0, 5.0)]
    line = timeline_of(run_world(jobs, {}, cluster, chosen(select="srtf")))
    power_w = dict(zip(line.time_s.tolist(), line.power_w.tolist(), strict=True))
    assert power_w == {0.0: 500.0, 10.0: 40.0, 70.0: 255.0, 75.0: 500.0, 165.0: 10.0}


def test_a_retry_starts_when_a_preemption_leaves_power() -> None:
    curve = Curve(32, (100.0, 250.0), (4.0, 2.0), (100.0, 200.0), (NEVER,))
    known = steady()._replace(curves={32: curve}, max_epochs=1)
    limits = iter([100.0, 250.0])
    tune = stub("tune", tune=lambda ctx, running: Knobs(next(limits)))
    cluster = replace(spec(gpus_per_node=2, idle_power_w=20.0), power_cap_w=400.0)
    jobs = [job("a", duration_s=8.0), plain("b", 1.0, 50.0), plain("part", 4.0, 20.0, milli=500)]
    policy_set = chosen(tune=tune, select="srtf")
    world = run_world(jobs, by_job(known), cluster, policy_set, max_attempts=2)
    (again,) = (row for row in attempts(world) if row.attempt == 2)
    assert (again.start_time_s, again.overhead_s) == (4.0, 0.0)


def test_a_policy_of_another_decision_point_is_refused() -> None:
    select = stub("select", select=lambda *_: None)
    object.__setattr__(select, "point", "place")
    with pytest.raises(
        PolicyError, match=r"'stub' builds a Stub, .*policies\.points\.place\.Place$"
    ):
        run_world([plain("x", 0.0, 10.0)], {}, None, chosen(place=select))


@pytest.mark.parametrize("point", ["configure", "tune", "select", "place"])
def test_a_policy_without_its_method_is_refused(point: Point) -> None:
    with pytest.raises(PolicyError, match=f"'stub' builds a Stub without the method '{point}'"):
        run_world([plain("x", 0.0, 10.0)], {}, None, chosen(**{point: stub(point)}))


def test_a_preempted_job_resumes_on_the_same_type() -> None:
    """Also if `Place` does not care."""

    def place(_: object, job: Job, cluster: ClusterView) -> Placement:
        free = np.flatnonzero(cluster.free)
        return ((int(free[-1]), 1, NEW),) if len(free) else ()

    groups = NodeGroup(GPU, 1, 1), NodeGroup(OTHER_GPU, 1, 1)
    power = {GPU: GpuPower(0.0, 300.0), OTHER_GPU: GpuPower(0.0, 100.0)}
    short = plain("short", 2.0, 20.0).replace(gpu_type=GPU)
    jobs = [plain("x", 0.0, 10.0), plain("long", 1.0, 100.0), short]
    policy_set = chosen(select="srtf", place=stub("place", place=place))
    with pytest.raises(PolicyError, match=f"job long .* {GPU}, "):
        run_world(jobs, {}, ClusterSpec(groups, power), policy_set)


@pytest.mark.parametrize("late_s", [0.0, -5.0, math.nan])
def test_select_is_woken_in_the_future_only(late_s: float) -> None:
    class Late(InOrder):
        def rank(self, ctx: Context, job: Job) -> float:
            return job.submit_time_s

        def wake_s(self, ctx: Context) -> float:
            return float(ctx.now_s + late_s)

    late = Late()
    names = ("on_submit", "on_end", "select", "on_refuse", "wake_s")
    select = stub("select", **{name: getattr(late, name) for name in names})
    with pytest.raises(PolicyError, match="wants to be woken at"):
        run_world([plain("a", 0.0, 10.0)], {}, None, chosen(select=select))


def test_power_beyond_what_can_be_counted() -> None:
    known = steady()._replace(curves={32: Curve(32, (250.0,), (2.0,), (2.2e9,), (5.0,))})
    with pytest.raises(InputError, match=r"GPUs draw more than 1.07 GW"):
        run_world([job()], by_job(known))


# --- parts of GPUs


def started(select: str, gpus: int, *jobs: Job) -> dict[str, tuple[float, int]]:
    """When each job started on one node, and how often it was preempted."""
    world = run_world(jobs, {}, spec(gpus_per_node=gpus), chosen(select=select))
    return {row.job_id: (row.start_time_s, row.preemptions) for row in attempts(world)}


def test_easy_backfill_counts_parts_of_gpus_as_parts() -> None:
    """Two halves of one GPU do not make two GPUs: `long` would delay `head`."""
    halves = plain("p", 0.0, 10.0, 1, 500), plain("q", 0.0, 10.0, 1, 500)
    head, long = plain("head", 1.0, 10.0, 3), plain("long", 2.0, 1000.0, 2)
    found = started("easy-backfill", 4, *halves, plain("w", 0.0, 10.0), head, long)
    assert (found["head"], found["long"]) == ((10.0, 0), (20.0, 0))


@pytest.mark.parametrize("select", ["srtf", "las", "gittins"])
def test_preempting_for_parts_of_gpus_preempts_as_few_as_possible(select: str) -> None:
    """A job of two halves fits once `a` is gone."""
    found = started(
        select,
        2,
        plain("a", 0.0, 1e5, 1, 600),
        plain("b", 0.0, 1e5, 1, 500),
        plain("n", 5e4, 1.0, 2, 500),
    )
    assert found["n"][0] == 5e4
    assert found["a"][1] + found["b"][1] == 1


def test_preempting_for_parts_of_gpus_counts_no_whole_ones() -> None:
    """`a` holds parts of two GPUs; without it there is room."""
    found = started("srtf", 2, plain("a", 0.0, 100.0, 2, 600), plain("n", 5.0, 1.0, 2, 500))
    assert found["n"][0] == 5.0
