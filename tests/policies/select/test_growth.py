"""How the work of `Select` grows with a queue that never empties: by what it asks, not by time."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pytest

from tests.support.select_worlds import Pool, World, make_job
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.registry import PolicyConfig, find_config

FEW, MANY = 400, 1600
GPUS = 16


@dataclass
class CountingPool(Pool):
    """Counts the questions that are asked of it."""

    asked: int = 0

    def fits(self, job: Job, without: Collection[Job] = ()) -> bool:
        self.asked += 1
        return super().fits(job, without)


def overload(jobs: int) -> list[Job]:
    """Jobs that come half again as fast as they can be run: the queue grows with their number."""
    rng = np.random.default_rng(1)
    gpus = rng.choice([1, 2, 4, 8], jobs, p=[0.5, 0.2, 0.2, 0.1]).tolist()
    runs_s = np.ceil(rng.exponential(60.0, jobs)).tolist()
    work = sum(size * run_s for size, run_s in zip(gpus, runs_s, strict=True))
    submits_s = np.floor(np.sort(rng.uniform(0, work / GPUS / 1.5, jobs))).tolist()
    rows = enumerate(zip(submits_s, runs_s, gpus, strict=True))
    return [make_job(number, *row, user=f"user {number % 5}") for number, row in rows]


CONFIGS = (
    find_config("select", "fifo"),
    find_config("select", "fjf"),
    find_config("select", "sjf"),
    find_config("select", "fair-share"),
    find_config("select", "easy-backfill", {"estimates": "perfect"}),
    find_config("select", "dlas-gpu", {"limits_gpu_s": (60, 240)}),
    find_config("select", "srtf"),
    find_config("select", "las", {"quantum_gpu_s": 60.0}),
    find_config("select", "gittins", {"limits_gpu_s": (60.0, 120.0, 240.0, 480.0)}),
)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.kind)
def test_questions_grow_as_the_jobs(config: PolicyConfig) -> None:
    asked = []
    for jobs in (FEW, MANY):
        room = CountingPool(GPUS)
        World(config.build(), overload(jobs), room).run()
        asked.append(room.asked)
    assert math.log(asked[1] / asked[0]) / math.log(MANY / FEW) < 1.2
