"""`srtf` ends each job when Tiresias's `shortest` does, on the jobs of its simulator."""

from __future__ import annotations

from csv import DictReader
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import Command

POOLS = (8, 12, 16, 20, 24, 32, 48, 64, 128)
"""GPUs of the pools, counted as one pool each (the simulator's scheme `count`)."""


def shortest(jobs: list[dict[str, str]], gpus: int) -> dict[str, tuple[int, int]]:
    """First start and end of each job, as the simulator's rule has them.

    At each end and arrival, first all ends, then all arrivals, GPUs are given anew to the jobs in
    the order of the time that they still have to run, ties in their order so far; a job that does
    not fit gets none, and loses those that it has. Times are whole seconds.
    """
    arrivals = sorted((int(job["submit_time"]), job["job_id"]) for job in jobs)
    left = {job["job_id"]: int(job["duration"]) for job in jobs}
    needs = {job["job_id"]: int(job["num_gpu"]) for job in jobs}
    queue: list[str] = []
    running: set[str] = set()
    first: dict[str, int] = {}
    ended: dict[str, int] = {}
    now = 0
    while len(ended) < len(left):
        next_end = min((now + left[name] for name in running), default=None)
        next_arrival = arrivals[0][0] if arrivals else None
        then = min(time for time in (next_end, next_arrival) if time is not None)
        for name in running:
            left[name] -= then - now
        now = then
        for name in [name for name in queue if name in running and left[name] == 0]:
            ended[name] = now
            queue.remove(name)
        while arrivals and arrivals[0][0] == now:
            queue.append(arrivals.pop(0)[1])
        queue.sort(key=left.__getitem__)
        free = gpus
        running = set()
        for name in queue:
            if needs[name] <= free:
                free -= needs[name]
                running.add(name)
                first.setdefault(name, now)
    return {name: (first[name], ended[name]) for name in left}


@pytest.mark.parametrize("gpus", POOLS)
def test_every_job_of_tiresias(inside: Command, shared: Path, tmp_path: Path, gpus: int) -> None:
    file = shared / "data/tiresias/60_job.csv"
    maps = {"submit_time_s": "submit_time", "duration_s": "duration", "gpus": "num_gpu"}
    words = [word for name, own in maps.items() for word in ("--map", f"{name}={own}")]
    inside("traces", "import", "csv", file, "--name", "jobs", *words)
    sets = ("workload.trace=jobs", f"cluster.gpus={gpus}", "policies.select=srtf")
    inside("run", "scheduler-pool", *(x for s in sets for x in ("--set", s)), "--out", "out")
    found = pd.read_parquet(tmp_path / "out/jobs.parquet")
    found = found.groupby("job_id").agg({"start_time_s": "min", "finish_time_s": "max"})
    with file.open(encoding="utf-8", newline="") as lines:
        expected = shortest(list(DictReader(lines)), gpus)
    assert len(expected) == len(found) == 60
    got = {str(row.Index): (row.start_time_s, row.finish_time_s) for row in found.itertuples()}
    assert {name: got[name] for name in expected} == expected
