"""How the cost of a run grows with its jobs: CPU seconds, memory, and the exponent of growth.

Whole commands, results and page included, of generated jobs: each scheduler at two loads of a pool
of 512 GPUs (at a load above 1 the queue grows with the jobs), and `million-jobs` on 10,000 GPUs.
Each size is run three times, and the least cost is taken. The exponent is that of the curve
`start + cost * jobs ** exponent` with the least squares of relative errors: 1 is a constant cost of
a job. Beside it stands the exponent of events: where it is as large, an event costs the same, and a
scheduler makes more of them for a job (it preempts more often).

    .venv/bin/python -m benchmarks.growth [JOBS ...]
"""

from __future__ import annotations

import os
import sys
import tempfile

import numpy as np
import numpy.typing as npt
from scipy.optimize import curve_fit

from benchmarks.schedulers import POLICIES, run, show, wattkeeper

SIZES = (5_000, 10_000, 20_000, 40_000, 80_000)
LOADS = (0.9, 1.2)
GPUS = 512
RUNS = 3

Floats = npt.NDArray[np.float64]


def generate(jobs: int, load: float, gpus: int) -> str:
    """Generate a trace into the library; returns its name."""
    name = f"{jobs}-jobs-at-{load}-of-{gpus}"
    wattkeeper(
        "traces",
        "generate",
        "jobs",
        "--jobs",
        str(jobs),
        "--load",
        str(load),
        "--gpus",
        str(gpus),
        "--name",
        name,
    )
    return name


def show_growth(what: str, *, scenario: str, settings: tuple[str, ...], traces: list[str]) -> None:
    """Run a scenario with each trace; its costs, and the exponents of growth."""
    costs = [
        min(run(scenario, f"workload.trace={trace}", *settings) for _ in range(RUNS))
        for trace in traces
    ]
    for cost in costs:
        show(what, cost)
    jobs, events = np.array([(cost.jobs, cost.events) for cost in costs], float).T
    cpu_s = np.array([cost.cpu_s for cost in costs])

    def predict(size: Floats, start_s: float, most_s: float, exponent: float) -> Floats:
        return start_s + most_s * size**exponent

    begin = (cpu_s[0], cpu_s[-1] - cpu_s[0], 1.0)
    found, _ = curve_fit(predict, jobs / jobs[-1], cpu_s, begin, cpu_s, bounds=(0, np.inf))
    of_events = np.polyfit(np.log(jobs), np.log(events), 1)[0]
    print(f"{what:50} exponent {found[2]:.2f}, of events {of_events:.2f}")


def main() -> None:
    sizes = tuple(map(int, sys.argv[1:])) or SIZES
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WATTKEEPER_TRACES"] = folder
        show("one job, fifo", run("scheduler-pool", f"workload.trace={generate(1, 0.9, GPUS)}"))
        for load in LOADS:
            traces = [generate(jobs, load, GPUS) for jobs in sizes]
            for policy in POLICIES:
                show_growth(
                    f"load {load}, {policy}",
                    scenario="scheduler-pool",
                    traces=traces,
                    settings=(f"cluster.gpus={GPUS}", f"policies.select={policy}"),
                )
        traces = [generate(20 * jobs, 0.9, 10_000) for jobs in sizes]
        show_growth("million-jobs, fifo", scenario="million-jobs", traces=traces, settings=())


if __name__ == "__main__":
    main()
