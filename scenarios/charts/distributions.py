"""Charts of the distributions of job completion times and queue delays."""

from collections.abc import Iterator

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.scenarios.analysis.run_columns import RunColumns
from wattkeeper.scenarios.analysis.vocabulary import TIMES, choose_unit
from wattkeeper.scenarios.charts.chart import Chart, Line, data_axis, to_numbers
from wattkeeper.scenarios.charts.downsample import distribution
from wattkeeper.sim.cluster_results.metrics import JobOutcomes

JOB_TIMES = {
    "jct": ("Job completion", "from submission to end"),
    "delay": ("Queue delay", "wait for GPUs, before the start and while preempted"),
}


def draw_distributions(
    outcomes: list[tuple[RunColumns, JobOutcomes]], variants: list[str]
) -> Iterator[Chart]:
    """The distribution of each of `JOB_TIMES`; none where all times are 0."""
    for key, (title, meaning) in JOB_TIMES.items():
        quantiles = [distribution(_job_times(outcomes, name, key)) for name in variants]
        longest = max((float(values[-1]) for values, _ in quantiles if len(values)), default=0.0)
        if longest <= 0:
            continue
        unit, size = choose_unit([longest], TIMES)
        shortest = min(float(v[v > 0].min()) for v, _ in quantiles if (v > 0).any())
        shortest = min(1.0, longest / 10) if key == "delay" else max(shortest, longest / 1e7)
        log = longest > 30 * shortest  # otherwise the axis would not have two powers of ten
        shortest *= log
        lines = [
            _cumulative_line(v, values, shares, shortest, size)
            for v, (values, shares) in enumerate(quantiles)
            if len(values)
        ]
        clips = any(len(values) and values[0] < shortest for values, _ in quantiles)
        clipped = f" Shorter ones are drawn at {shortest:.3g} s." if clips else ""
        yield Chart(
            key,
            f"{title}: distribution",
            f"{title} ({meaning}), {unit}{', on a logarithmic axis' * log}: the share of jobs that "
            "stay below, over all jobs of all seeds. Drawn are each half per cent and the tail."
            f"{clipped}",
            {
                "panels": [
                    {
                        "x": {**data_axis(f"{title.lower()}, {unit}"), "log": log},
                        "y": {"name": "share of jobs", "percent": True, "min": 0, "max": 1},
                        "lines": lines,
                    }
                ]
            },
        )


def _job_times(outcomes: list[tuple[RunColumns, JobOutcomes]], variant: str, key: str) -> Floats:
    """Times (s) of all jobs of a variant, over all seeds, that are known."""
    times = [
        jobs.queue_delay_s if key == "delay" else jobs.finish_time_s - jobs.submit_time_s
        for run, jobs in outcomes
        if run.variant == variant
    ]
    joined = np.concatenate(times) if times else np.empty(0)
    return joined[np.isfinite(joined)]


def _cumulative_line(v: int, values: Floats, shares: Floats, shortest: float, size: float) -> Line:
    """The cumulative distribution as steps, from 0; of equal values only the last is drawn."""
    drawn = np.maximum(values, shortest)
    last = np.append(np.flatnonzero(np.diff(drawn)), len(drawn) - 1)
    x, y = drawn[[last[0], *last]], np.append(0.0, shares[last])
    return {"v": v, "x": to_numbers(x / size), "y": to_numbers(y), "step": "end"}
