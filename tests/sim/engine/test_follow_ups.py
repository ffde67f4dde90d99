"""Sources hear what came of the jobs that they submitted, and submit others upon that."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from tests.support.worlds import attempts, by_job, run_world, steady
from wattkeeper.policies.arrays import Ints
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import Outcome
from wattkeeper.scenarios.contract.scripted import job
from wattkeeper.sim.engine.sources import Source

KNOWN = by_job(steady(5.0, 2.0))


class Branches(Source):
    """A tree of jobs: each that ends is followed by two, down to a depth."""

    def __init__(self, first: Job, depth: int) -> None:
        self.jobs = [first]
        self.last = 2**depth - 1
        self.heard: list[tuple[float, Outcome]] = []

    def arrivals(self) -> Iterator[list[Job]]:
        yield [self.jobs[0]]

    def follow_up(self, outcome: Outcome, now_s: float) -> Sequence[Job]:
        self.heard.append((now_s, outcome))
        if len(self.jobs) + 2 > self.last:
            return ()
        return [self._next(now_s), self._next(now_s)]

    def _next(self, now_s: float) -> Job:
        number = len(self.jobs)
        follower = self.jobs[0].replace(job_id=str(number), number=number, submit_time_s=now_s)
        self.jobs.append(follower)
        return follower

    def column(self, name: str, numbers: Ints) -> pa.Array:
        return pa.array([getattr(self.jobs[number], name) for number in numbers.tolist()])


@pytest.mark.parametrize("workload", ["cnn", None])
def test_a_source_hears_each_outcome_and_submits_several_jobs(workload: str | None) -> None:
    source = Branches(job("0", duration_s=10.0).replace(workload=workload), 3)
    rows = {row.job_id: row for row in attempts(run_world(source, KNOWN))}
    assert sorted(rows, key=int) == [str(number) for number in range(7)]
    assert len(source.heard) == 7
    for now_s, outcome in source.heard:
        row = rows[outcome.start.job.job_id]
        assert now_s == row.finish_time_s
        assert (outcome.time_s, outcome.reached) == (row.time_s, row.reached_target)
        assert outcome.energy_j == pytest.approx(row.energy_j)
        assert math.isfinite(outcome.cost)
