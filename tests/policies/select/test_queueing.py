"""Strict queues."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from tests.support.select_worlds import Pool, make_job
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.scheduling.queueing import InOrder

NOBODY = cast("Context", None)


class ByGpus(InOrder):
    def rank(self, ctx: Context, job: Job) -> float:
        return float(job.gpus)


@given(st.lists(st.integers(1, 9) | st.none()))
def test_the_head_is_the_job_of_the_least_rank(steps: list[int | None]) -> None:
    """Whatever order jobs come in: a number is a job of such a rank, None asks for the head."""
    queue, waiting = ByGpus(), list[Job]()
    for number, gpus in enumerate(steps):
        if gpus is not None:
            waiting.append(make_job(number, 0.0, 1.0, gpus))
            queue.on_submit(NOBODY, waiting[-1])
            continue
        head = min(waiting, key=lambda job: (job.gpus, job.number), default=None)
        fits = head is not None and head.gpus < 9
        assert queue.select(NOBODY, Pool(8)).start == ((head,) if fits else ())
        if head is not None and fits:
            waiting.remove(head)
