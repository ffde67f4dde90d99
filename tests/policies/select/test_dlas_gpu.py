"""The policy `dlas-gpu` against its published rule and published results."""

from __future__ import annotations

import csv
import gzip
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.select_worlds import Pool, Ran, make_job, simulate, workloads
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.select.dlas_gpu import DlasGpuConfig


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
