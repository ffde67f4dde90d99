"""A made-up Slurm log of several partitions, as sacct prints it."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

HEADER = "JobID|User|Partition|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|AllocTRES|NNodes"
ORIGIN = datetime(2024, 3, 4)


class PartitionJob(NamedTuple):
    """A job; times in s since `ORIGIN`. `gpu_type`: as its log names it; empty if it does not."""

    number: int
    partition: str
    gpu_type: str
    gpus: int
    submit_s: int
    duration_s: int
    limit_min: int


def draw_jobs(
    partitions: Sequence[tuple[str, str, int]], count: int, seed: int = 5
) -> list[PartitionJob]:
    """Jobs of partitions, each given by name, GPU type and GPUs, which are busy in bursts.

    Some exceed their time limit, and several are submitted at one time.
    """
    draw = random.Random(seed)
    jobs, now_s = [], 0
    for number in range(count):
        name, gpu_type, gpus = draw.choice(partitions)
        size = min(gpus, draw.choice((1, 1, 2, 4, 8)))
        duration_s = 60 + int(min(40_000.0, draw.lognormvariate(7, 1.2)))
        limit_min = max(1, duration_s // 60 + draw.choice((-20, -1, 0, 5, 60, 600)))
        jobs.append(PartitionJob(number, name, gpu_type, size, now_s, duration_s, limit_min))
        now_s += draw.choice((0, 0, 60, 120, 300))
    return jobs


def write_log(path: Path, jobs: Collection[PartitionJob]) -> None:
    """The log; each job started when it was submitted."""
    lines = [HEADER]
    for job in jobs:
        submit, end = (
            (ORIGIN + timedelta(seconds=seconds)).isoformat()
            for seconds in (job.submit_s, job.submit_s + job.duration_s)
        )
        typed = f"gres/gpu:{job.gpu_type}={job.gpus}," if job.gpu_type else ""
        lines.append(
            f"{1000 + job.number}|u{job.number % 5}|{job.partition}|{submit}|{submit}|{end}|"
            f"{job.duration_s}|{job.limit_min}|COMPLETED|cpu=8,{typed}gres/gpu={job.gpus},node=1|1"
        )
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
