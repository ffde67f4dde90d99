"""How the cost of a run grows with its jobs: CPU seconds, memory, and the exponent of growth.

Whole commands, results and page included, of generated jobs: each scheduler at two loads of a pool
of 512 GPUs (at a load above 1 the queue grows with the jobs), and `million-jobs` on 10,000 GPUs.
The exponent is the slope of a line through the logarithms of jobs and CPU seconds, after those of a
run of one job: 1 is a constant cost of a job.

    .venv/bin/python -m benchmarks.growth [JOBS ...]
"""

from __future__ import annotations

import os
import sys
import tempfile

import numpy as np

from benchmarks.schedulers import POLICIES, Cost, run, show, wattkeeper

SIZES = (5_000, 10_000, 20_000, 40_000, 80_000)
LOADS = (0.9, 1.2)
GPUS = 512


def generate(jobs: int, load: float, gpus: int) -> str:
    """Generate a trace into the library; returns its name."""
    name = f"{jobs}-jobs-at-{load}-of-{gpus}"
    wattkeeper("traces", "generate", "jobs", "--jobs", str(jobs), "--load", str(load),
               "--gpus", str(gpus), "--name", name)  # fmt: skip
    return name


def show_exponent(what: str, costs: list[Cost], start_s: float) -> None:
    """The exponent of growth of some runs of one kind."""
    jobs = np.log([cost.jobs for cost in costs])
    cpu_s = np.log([max(cost.cpu_s - start_s, 1e-3) for cost in costs])
    print(f"{what:50} exponent {np.polyfit(jobs, cpu_s, 1)[0]:.2f}")


def main() -> None:
    sizes = tuple(map(int, sys.argv[1:])) or SIZES
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WATTKEEPER_TRACES"] = folder
        one = run("scheduler-pool", f"workload.trace={generate(1, 0.9, GPUS)}")
        show("one job, fifo", one)
        for load in LOADS:
            traces = [generate(jobs, load, GPUS) for jobs in sizes]
            for policy in POLICIES:
                costs = [
                    run("scheduler-pool", f"workload.trace={trace}", f"cluster.gpus={GPUS}",
                        f"policies.select={policy}")
                    for trace in traces
                ]  # fmt: skip
                for cost in costs:
                    show(f"load {load}, {policy}", cost)
                show_exponent(f"load {load}, {policy}", costs, one.cpu_s)
        traces = [generate(20 * jobs, 0.9, 10_000) for jobs in sizes]
        costs = [run("million-jobs", f"workload.trace={trace}") for trace in traces]
        for cost in costs:
            show("million-jobs, fifo", cost)
        show_exponent("million-jobs, fifo", costs, one.cpu_s)


if __name__ == "__main__":
    main()
