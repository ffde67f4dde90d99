"""What whole commands cost that replay real and generated clusters, results written.

All jobs of the trace `philly` (imported by that name; generated ones in its absence) on 512 GPUs,
and 100 thousand and a million generated jobs on 10,000 GPUs in 1,250 nodes. CPU seconds are of the
command, start-up included; beside them stand the events that it counted, and what the same machine
takes for as many jobs in a plain SimPy loop without any bookkeeping.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from simpy import Environment, Event

from wattkeeper.traces.library import store

PHILLY_JOBS = 82_247
POLICIES = (
    "fifo",
    "fjf",
    "sjf",
    "dlas-gpu",
    "srtf",
    "las",
    "gittins",
    "fair-share",
    "{kind: easy-backfill, estimates: perfect}",
)


class Cost(NamedTuple):
    """What a command cost: CPU seconds, peak memory in MiB, jobs, events."""

    cpu_s: float
    peak_mib: float
    jobs: int
    events: int


def wattkeeper(*arguments: str) -> tuple[float, float]:
    """CPU seconds and peak memory (MiB) of a command."""
    process = subprocess.Popen(
        [sys.executable, "-m", "wattkeeper.scenarios", *arguments], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"wattkeeper {' '.join(arguments)}: exit status {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def run(scenario: str, *settings: str) -> Cost:
    """A scenario from the command line."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results"
        options = [part for setting in settings for part in ("--set", setting)]
        cpu_s, peak_mib = wattkeeper("run", scenario, *options, "--out", str(out))
        manifest = json.loads((out / "manifest.json").read_text())
    return Cost(cpu_s, peak_mib, manifest["jobs"], manifest["events"])


def plain_loop(jobs: int) -> float:
    """CPU seconds of arrivals, one queue, one pool and completions in SimPy, and nothing else."""
    rng = np.random.default_rng(1)
    between_s = rng.exponential(1.0, jobs).tolist()
    runs_s = rng.exponential(900.0, jobs).tolist()
    began = time.process_time()
    env, waiting, free = Environment(), deque[int](), 1000

    def start() -> None:
        nonlocal free
        while free and waiting:
            free -= 1
            env.timeout(runs_s[waiting.popleft()]).callbacks.append(end)

    def end(_: Event) -> None:
        nonlocal free
        free += 1
        start()

    def arrive(event: Event) -> None:
        job = cast("int", event.value)
        waiting.append(job)
        start()
        submit(job + 1)

    def submit(job: int) -> None:
        if job < jobs:
            env.timeout(between_s[job], job).callbacks.append(arrive)

    submit(0)
    env.run()
    return time.process_time() - began


def show(what: str, cost: Cost) -> None:
    """A row of the table."""
    print(
        f"{what:50} {cost.jobs:>9,} jobs {cost.events:>10,} events {cost.cpu_s:7.2f} s "
        f"{cost.cpu_s / cost.jobs * 1e6:6.1f} us a job {cost.peak_mib:6.0f} MiB"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        name = "philly"
        if name not in store.names():
            os.environ["WATTKEEPER_TRACES"] = folder
            wattkeeper(
                "traces",
                "generate",
                "jobs",
                "--jobs",
                str(PHILLY_JOBS),
                "--load",
                "1",
                "--gpus",
                "512",
                "--name",
                name,
            )
        for policy in POLICIES:
            select = f"policies.select={policy}"
            cost = run("scheduler-pool", f"workload.trace={name}", "cluster.gpus=512", select)
            show(f"{name}, {policy}", cost)
        print(f"plain SimPy loop of as many: {plain_loop(PHILLY_JOBS):.2f} s")
        os.environ["WATTKEEPER_TRACES"] = folder
        a_job = []
        for jobs in (100_000, 1_000_000):
            wattkeeper(
                "traces",
                "generate",
                "jobs",
                "--jobs",
                str(jobs),
                "--load",
                "0.9",
                "--gpus",
                "10000",
                "--name",
                f"generated-{jobs}",
            )
            cost = run("million-jobs", f"workload.trace=generated-{jobs}")
            show("million-jobs, fifo", cost)
            a_job.append(cost.cpu_s / cost.jobs)
        print(f"cost of a job, a million over 100 thousand: {a_job[1] / a_job[0]:.2f}")
        print(f"plain SimPy loop of a million: {plain_loop(1_000_000):.2f} s")


if __name__ == "__main__":
    main()
