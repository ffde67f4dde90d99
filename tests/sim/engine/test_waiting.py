"""Jobs that wait are asked about again whenever they may fit, and no longer than they wait."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.messages import assert_states
from tests.support.worlds import (
    Asked,
    attempts,
    attempts_by_job,
    build_world,
    caps,
    chosen,
    clusters,
    job_lists,
    run_world,
    spec,
    starts,
    stub,
)
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import NEW, Job
from wattkeeper.policies.points.select import Selection
from wattkeeper.policies.registry import PolicyConfig, policies
from wattkeeper.scenarios.contract.scripted import example as example_of
from wattkeeper.scenarios.contract.scripted import job
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec

SELECT = {kind: example_of(config) for kind, config in policies("select").items()}


def runs(job_id: str, submit_s: float = 0.0, duration_s: float = 0.0, gpus: int = 1) -> Job:
    """A job without a workload."""
    return job(job_id, submit_s, duration_s=duration_s, gpus=gpus).replace(workload=None)


@st.composite
def settings_without_workloads(draw: st.DrawFn) -> tuple[ClusterSpec, tuple[Job, ...]]:
    """Clusters of up to three GPU types, under a cap or not; jobs of durations down to 0.

    Many jobs are submitted at one time, and some may run on any GPU type.
    """
    cluster = draw(clusters(most_types=3))
    asked: list[Asked] = []
    for _ in range(draw(st.integers(1, 4))):
        gpu_type = draw(st.sampled_from([None, None, *cluster.gpu_types]))
        gpus = draw(st.integers(1, cluster.most_gpus(gpu_type)))
        asked.append(Asked(None, gpus, draw(st.sampled_from([1000, 1000, 250, 500])), gpu_type))
    cap_w = draw(caps(cluster, asked, []))
    seconds = st.sampled_from([0.0, 0.0, 1.0, 5.0])
    return replace(cluster, power_cap_w=cap_w), draw(job_lists(asked, seconds=seconds))


def one_of_two() -> tuple[ClusterSpec, tuple[Job, ...]]:
    """Four GPUs under a power cap that lets one of two jobs run."""
    cluster = spec(gpus_per_node=4)
    cap_w = cluster.idle_power_w + 240.0
    return replace(cluster, power_cap_w=cap_w), (runs("a"), runs("b").replace(number=1))


@pytest.mark.parametrize("kind", SELECT)
@example(place="first-fit", setting=one_of_two())
@given(place=st.sampled_from(sorted(policies("place"))), setting=settings_without_workloads())
def test_whatever_fits_the_empty_cluster_ends(
    kind: str, place: str, setting: tuple[ClusterSpec, tuple[Job, ...]]
) -> None:
    cluster, jobs = setting
    world = run_world(jobs, {}, cluster, chosen(select=SELECT[kind], place=place))
    assert set(attempts_by_job(world)) == {each.job_id for each in jobs}


def test_a_refused_job_is_asked_about_again_when_another_ends_at_once() -> None:
    cluster, jobs = one_of_two()
    world = run_world(jobs, {}, cluster, chosen(select="dlas-gpu"))
    assert starts(world) == {"a": 0.0, "b": 0.0}


def test_a_job_may_not_be_started_again_at_the_time_of_its_refusal() -> None:
    """It would be refused without end."""
    waiting: list[Job] = []
    select = stub(
        "select",
        on_submit=lambda ctx, job: waiting.append(job),
        on_refuse=lambda ctx, job: None,
        select=lambda ctx, capacity: Selection(tuple(waiting)),
    )
    place = stub("place", place=lambda ctx, job, cluster: ())
    with pytest.raises(PolicyError) as refused:
        run_world([runs("a")], {}, None, chosen(select=select, place=place))
    assert_states(str(refused.value), "job a", "started again", "refused")


# --- a `Place` that accepts later


def patient(wake_s: Callable[..., float], **more: Any) -> PolicyConfig:
    """Node 1 at once, but any other node only for a job that has waited for 60 s."""

    def place(ctx: Any, job: Job, cluster: Any) -> Any:
        nodes = (1, 0) if ctx.now_s - job.submit_time_s >= 60 else (1,)
        return next((((n, job.gpus, NEW),) for n in nodes if cluster.free[n] >= job.gpus), ())

    config: PolicyConfig = stub("place", place=place, wake_s=staticmethod(wake_s), **more)
    return config


@pytest.mark.parametrize("kind", SELECT)
def test_a_place_that_accepts_later_is_asked_again_when_it_wants(kind: str) -> None:
    """Until then the jobs behind wait, too; the answer depends on the job, not on its demand."""
    jobs = [runs("long", 0.0, 300.0), runs("b", 10.0, 500.0), runs("c", 20.0, 500.0)]
    woken: list[float] = []

    def wake_s(ctx: Any) -> float:
        woken.append(ctx.now_s)
        return float(ctx.now_s + 7.0)

    policy_set = chosen(select=SELECT[kind], place=patient(wake_s))
    world = run_world(jobs, {}, spec(nodes=2), policy_set)
    found = starts(world)
    assert found["long"] == 0.0
    assert 70.0 <= found["b"] < 77.0
    assert found["c"] >= 80.0
    assert len(woken) < 200, "it was woken after the last job"
    assert len(attempts(world)) == 3


def test_a_time_that_is_over_is_refused_with_the_point_that_wants_it() -> None:
    policy_set = chosen(select=SELECT["fifo"], place=patient(lambda ctx: ctx.now_s))
    with pytest.raises(PolicyError) as refused:
        run_world([runs("a", 0.0, 9.0)], {}, spec(nodes=2), policy_set)
    assert refused.value.point == "place"
    assert_states(str(refused.value), "place", "woken", "0.0 s")


def test_a_place_is_not_asked_again_unless_it_says_so() -> None:
    """What does not fit on an idle cluster then never fits."""
    with pytest.raises(PolicyError) as never:
        run_world(
            [runs("a")],
            {},
            spec(nodes=2),
            chosen(place=stub("place", place=lambda ctx, job, cluster: ())),
        )
    assert_states(str(never.value), "job a", "never placed", "2 of 2 GPUs")


# --- waking


def test_a_policy_that_wants_to_be_woken_for_ever_ends_with_the_last_job() -> None:
    """Nor is it woken between jobs, when nothing waits or runs."""
    woken: list[float] = []
    fifo = chosen().select.build()

    def wake_s(ctx: Any) -> float:
        woken.append(ctx.now_s)
        return float(ctx.now_s + 4.0)

    select = stub(
        "select", on_submit=fifo.on_submit, select=fifo.select, on_end=fifo.on_end, wake_s=wake_s
    )
    world = build_world(
        [runs("a", 0.0, 10.0), runs("b", 100.0, 10.0)], {}, None, chosen(select=select)
    )
    world.run()
    assert woken == [0.0, 4.0, 8.0, 100.0, 104.0, 108.0]
    assert world.env.now == 110.0
    assert world.env.peek() == math.inf


@pytest.mark.slow
def test_a_policy_that_never_starts_a_job_is_not_woken_for_ever() -> None:
    select = stub(
        "select", select=lambda ctx, capacity: Selection(), wake_s=lambda ctx: ctx.now_s + 1.0
    )
    with pytest.raises(PolicyError) as never:
        run_world([runs("a")], {}, None, chosen(select=select))
    assert_states(str(never.value), "job a", "never placed", "1,000,000 times")
