"""Limits of the GPUs of queues and users."""

from __future__ import annotations

from collections import defaultdict
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.select_worlds import Now, Pool, World, make_job, simulate, workloads
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.registry import find_config
from wattkeeper.policies.select.quota import QuotaConfig


def test_a_queue_holds_no_more_than_its_limit_and_others_pass() -> None:
    """Job 1 would fit into the cluster, not into the limit; 2 and 3 do."""
    jobs = [make_job(0, 0, 100, 3, queue="gpu"), make_job(1, 1, 10, 2, queue="gpu")]
    jobs += [make_job(2, 2, 10, 1, queue="gpu"), make_job(3, 3, 10, 4, queue="debug")]
    ran = simulate(QuotaConfig(queues={"gpu": 4}), jobs, Pool(16))
    assert ran.first_start_s == {0: 0, 2: 2, 3: 3, 1: 100}


def test_a_user_has_the_limit_of_each_user_or_an_own_one() -> None:
    jobs = [make_job(n, n, 100, 1, user=user) for n, user in enumerate("aabbbc")]
    jobs.append(make_job(6, 6, 100, 1))
    config = QuotaConfig(each_user=1, users={"b": 2})
    ran = simulate(config, jobs, Pool(16))
    assert ran.first_start_s == {0: 0, 2: 2, 3: 3, 5: 5, 6: 6, 1: 100, 4: 102}


def test_a_job_above_a_limit_is_refused() -> None:
    with pytest.raises(
        PolicyError, match="job 0 asks for 5 GPUs, and jobs of queue gpu may hold 4"
    ):
        simulate(QuotaConfig(queues={"gpu": 4}), [make_job(0, 0, 1, 5, queue="gpu")], Pool(16))


def test_the_order_of_admitted_jobs_is_that_of_the_queue() -> None:
    jobs = [make_job(0, 0, 100, 4, user="a"), make_job(1, 1, 50, 4, user="b")]
    jobs.append(make_job(2, 2, 10, 4, user="c"))
    starts = {
        queue: simulate(QuotaConfig(each_user=4, queue=queue), jobs, Pool(4)).first_start_s
        for queue in ("fifo", "sjf")
    }
    assert starts == {"fifo": {0: 0, 1: 100, 2: 150}, "sjf": {0: 0, 2: 100, 1: 110}}


def test_a_paused_job_gives_its_gpus_back_and_waits_for_them_again() -> None:
    policy, pool, ctx = QuotaConfig(queues={"gpu": 4}).build(), Pool(16), cast("Context", Now())
    first, second = (make_job(n, n, 10, 3, queue="gpu") for n in range(2))
    for job in (first, second):
        policy.on_submit(ctx, job)
    assert policy.select(ctx, pool).start == (first,)
    assert not policy.select(ctx, pool).start
    policy.on_pause(ctx, first)
    assert policy.select(ctx, pool).start == (second,)
    policy.on_resume(ctx, first)
    assert not policy.select(ctx, pool).start
    policy.on_end(ctx, second)
    assert policy.select(ctx, pool).start == (first,)


QUEUES = st.sampled_from(["fifo", "fjf", "easy-backfill", "sjf"])


@given(jobs=workloads(), owners=st.data(), queue=QUEUES, each=st.none() | st.integers(10, 12))
def test_no_limit_is_exceeded_and_all_jobs_end(
    jobs: list[Job], owners: st.DataObject, queue: str, each: int | None
) -> None:
    jobs = [
        job.replace(
            queue=owners.draw(st.sampled_from(["x", "y", None])),
            user=owners.draw(st.sampled_from(["a", "b", None])),
        )
        for job in jobs
    ]
    limits = {("queue", "x"): 10, ("user", "a"): 11}
    if each is not None:
        limits["user", "b"] = each
    config = QuotaConfig.model_validate(
        {"queues": {"x": 10}, "users": {"a": 11}, "each_user": each, "queue": queue}
    )

    def check(world: World) -> None:
        held: dict[tuple[str, str | None], float] = defaultdict(float)
        for _, _, job in world.running.values():
            held["queue", job.queue] += job.gpus_held
            held["user", job.user] += job.gpus_held
        assert all(held[owner] <= limit for owner, limit in limits.items())

    world = World(config.build(), jobs, Pool(20))
    world.after_pass = check
    assert world.run().end_s.keys() == {job.number for job in jobs}


@given(jobs=workloads(), queue=QUEUES)
def test_limits_that_never_bind_change_nothing(jobs: list[Job], queue: str) -> None:
    jobs = [job.replace(user="a", queue="x") for job in jobs]
    config = QuotaConfig.model_validate(
        {"queues": {"x": 10**6}, "each_user": 10**6, "queue": queue}
    )
    plain = simulate(find_config("select", queue), jobs, Pool(10))
    assert simulate(config, jobs, Pool(10)) == plain
