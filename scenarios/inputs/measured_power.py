"""Power of jobs whose energy was measured."""

import math
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Bools, Floats
from wattkeeper.traces.gpu_time import held_gpus

STEP_W: Final = 10.0
"""Step of what a GPU of such a job counts with under a power cap: jobs of one demand and step are
equal for schedulers, which consider them together."""


def measured_power(jobs: pa.Table | None) -> list[float]:
    """Mean power of all GPUs of each job, W; NaN where none was measured; empty if it never was.

    Jobs with a workload draw the power of their profile.
    """
    if jobs is None or jobs["energy_j"].null_count == jobs.num_rows:
        return []
    is_known = pc.and_(pc.is_null(jobs["workload"]), pc.greater(jobs["duration_s"], 0))
    time_s = pc.if_else(is_known, jobs["duration_s"], None)
    values: list[float] = pc.divide(jobs["energy_j"], time_s).fill_null(math.nan).to_pylist()
    return values


def is_measured(jobs: pa.Table) -> Bools:
    """Whether each job draws measured power."""
    power_w: Floats = np.array(measured_power(jobs) or [math.nan] * len(jobs), np.float64)
    return np.isfinite(power_w)


def reserved_power(jobs: pa.Table) -> list[float]:
    """Measured power rounded up, W; 0 where none was measured; empty if it never was."""
    measured_w: Floats = np.array(measured_power(jobs))
    if not len(measured_w):
        return []
    step_w = STEP_W * held_gpus(jobs)
    rounded: list[float] = (np.ceil(np.nan_to_num(measured_w) / step_w) * step_w).tolist()
    return rounded
