"""Power of jobs whose energy was measured."""

import math

import pyarrow as pa
import pyarrow.compute as pc


def measured_power(jobs: pa.Table | None) -> list[float]:
    """Mean power of all GPUs of each job, W; NaN where none was measured; empty if it never was."""
    if jobs is None or jobs["energy_j"].null_count == jobs.num_rows:
        return []
    time_s = pc.if_else(pc.greater(jobs["duration_s"], 0), jobs["duration_s"], None)
    values: list[float] = pc.divide(jobs["energy_j"], time_s).fill_null(math.nan).to_pylist()
    return values
