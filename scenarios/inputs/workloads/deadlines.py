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


def set_deadlines(jobs: pa.Table, slack: float | None, profiles: Profiles) -> pa.Table:
    """The jobs of a trace; those without a deadline get one by their slack, if that is stated."""
    if slack is None:
        return jobs
    longest_s = longest_run_times(profiles)
    workloads = jobs["workload"].to_pylist()
    duration_s: Floats = np.asarray(jobs["duration_s"].cast(pa.float64()).fill_null(np.nan))
    scale: Floats = np.asarray(jobs["time_scale"])
    profiled = np.array([longest_s.get(name, np.nan) for name in workloads]) * scale
    run_s = np.where([name is None for name in workloads], duration_s, profiled)
    due_s = np.asarray(jobs["submit_time_s"]) + (1 + slack) * run_s
    return replace_column(jobs, "deadline_s", pc.coalesce(
        jobs["deadline_s"], pa.array(due_s, from_pandas=True)))  # fmt: skip


def longest_run_times(profiles: Profiles) -> Mapping[str, float]:
    """Expected run time of each workload on the slowest of its GPU types, s."""
    longest: dict[str, float] = {}
    for (name, _, _), profile in profiles.items():
        longest[name] = max(longest.get(name, 0.0), run_time_s(profile))
    return longest
