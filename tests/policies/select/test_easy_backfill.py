"""The policy `easy-backfill` against its rule over a plain list."""

from __future__ import annotations

import math
from typing import cast

import pytest
from hypothesis import given

from tests.support.select_worlds import Now, Pool, World, make_job, simulate, workloads
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import Select, Selection
from wattkeeper.policies.select.easy_backfill import EasyBackfillConfig


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
