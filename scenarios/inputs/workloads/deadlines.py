"""Deadlines of jobs: those of the trace, and others by the slack that a scenario states."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Floats
from wattkeeper.scenarios.inputs.workloads.adjusted_profiles import run_time_s
from wattkeeper.sim.replay.backend import Profiles
from wattkeeper.traces.arrow import replace_column


def set_deadlines(
    jobs: pa.Table, slack: float | None, profiles: Profiles, batch_size: int | None
) -> pa.Table:
    """The jobs of a trace; those without a deadline get one by their slack, if that is stated."""
    if slack is None:
        return jobs
    longest_s = longest_run_times(profiles, batch_size)
    workloads, gpus = jobs["workload"].to_pylist(), jobs["gpus"].to_pylist()
    duration_s: Floats = np.asarray(jobs["duration_s"].cast(pa.float64()).fill_null(np.nan))
    scale: Floats = np.asarray(jobs["time_scale"])
    profiled = scale * [longest_s.get(key, np.nan) for key in zip(workloads, gpus, strict=True)]
    run_s = np.where([name is None for name in workloads], duration_s, profiled)
    due_s = np.asarray(jobs["submit_time_s"]) + (1 + slack) * run_s
    return replace_column(
        jobs, "deadline_s", pc.coalesce(jobs["deadline_s"], pa.array(due_s, from_pandas=True))
    )


def longest_run_times(
    profiles: Profiles, batch_size: int | None
) -> Mapping[tuple[str, int], float]:
    """Expected run time on the slowest of its GPU types, s, by workload and number of GPUs."""
    longest: dict[tuple[str, int], float] = {}
    for (name, gpus, _), profile in profiles.items():
        run_s = run_time_s(profile, batch_size)
        longest[name, gpus] = max(longest.get((name, gpus), 0.0), run_s)
    return longest
