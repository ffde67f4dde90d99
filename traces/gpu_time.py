"""GPUs that jobs hold, and their GPU time."""

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.points.job import WHOLE
from wattkeeper.traces.arrow import to_floats


def held_gpus(jobs: pa.Table) -> Floats:
    """GPUs that each job holds; shared GPUs count in part."""
    held: Floats = np.asarray(jobs["gpus"]) * (np.asarray(jobs["gpu_milli"]) / WHOLE)
    return held


def gpu_seconds(jobs: pa.Table, column: str = "duration_s") -> Floats:
    """Seconds in a column times the GPUs held, by job; 0 where they are not known."""
    seconds: Floats = np.nan_to_num(to_floats(jobs[column])) * held_gpus(jobs)
    return seconds
