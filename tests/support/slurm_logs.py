"""A made-up Slurm log of a small cluster, as sacct prints it, and the schedule that it records."""

from __future__ import annotations

import heapq
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

GPUS = 32
HEADER = "JobID|User|Account|QOS|Partition|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|AllocTRES"
ORIGIN = datetime(2024, 3, 4)


class LoggedJob(NamedTuple):
    """A job; times in s since `ORIGIN`."""

    number: int
    submit_s: int
    gpus: int
    duration_s: int
    limit_min: int
    partition: str


def draw_jobs(count: int, load: float = 1.0) -> list[LoggedJob]:
    """Jobs of eight sizes in bursts; at load 1 they just fill `GPUS` GPUs."""
    draw = random.Random(7)
    jobs, now_s = [], 0.0
    for number in range(count):
        gpus = draw.choice((1, 1, 1, 2, 4, 8, 16))
        duration_s = 60 + int(min(86400.0, draw.lognormvariate(8, 1.1)))
        limit_min = duration_s // 60 + draw.choice((5, 60, 600))
        partition = draw.choice(("gpu", "gpu", "long", "debug"))
        jobs.append(LoggedJob(number, int(now_s), gpus, duration_s, limit_min, partition))
        now_s += draw.expovariate(1 / (gpus * duration_s / GPUS / load))
    return jobs


def first_that_fits(jobs: list[LoggedJob]) -> list[int]:
    """Start of each job, s, if the first one of the queue that fits into `GPUS` GPUs starts."""
    starts = [0] * len(jobs)
    free, queue = GPUS, list[LoggedJob]()
    events = [(job.submit_s, 1, job.number) for job in jobs]
    heapq.heapify(events)
    while events:
        now_s = events[0][0]
        while events and events[0][0] == now_s:
            _, is_submission, number = heapq.heappop(events)
            if is_submission:
                queue.append(jobs[number])
            else:
                free += jobs[number].gpus
        for job in list(queue):
            if job.gpus <= free:
                queue.remove(job)
                free -= job.gpus
                starts[job.number] = now_s
                heapq.heappush(events, (now_s + job.duration_s, 0, job.number))
    return starts


def write_sacct(
    path: Path, jobs: list[LoggedJob], starts: list[int], *, limits: bool = True
) -> None:
    """The log with steps, a cancelled job and one that still runs; lines end as on Windows."""
    lines = [HEADER]
    for job, start_s in zip(jobs, starts, strict=True):
        submit, start, end = (
            (ORIGIN + timedelta(seconds=seconds)).isoformat()
            for seconds in (job.submit_s, start_s, start_s + job.duration_s)
        )
        limit = str(job.limit_min) if limits or job.number % 3 else "UNLIMITED"
        common = f"{submit}|{start}|{end}|{job.duration_s}"
        tres = f"billing=8,cpu=8,gres/gpu:a100={job.gpus},mem=64G,node={-(-job.gpus // 8)}"
        lines += [
            f"{1000 + job.number}|u{job.number % 9}|lab|normal|{job.partition}|{common}|{limit}|"
            f"COMPLETED|{tres}",
            f"{1000 + job.number}.batch||lab|||{common}||COMPLETED|cpu=8,mem=64G,node=1",
        ]
    last = (ORIGIN + timedelta(seconds=jobs[-1].submit_s)).isoformat()
    lines += [
        f"9001|u1|lab|normal|gpu|{last}|None|{last}|0|60|CANCELLED by 12|",
        f"9002|u1|lab|normal|gpu|{last}|{last}|Unknown|900|60|RUNNING|gres/gpu:a100=1,node=1",
    ]
    path.write_bytes("\r\n".join([*lines, ""]).encode())
