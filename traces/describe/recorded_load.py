"""Load of a cluster over time as a log recorded it: GPUs in use, and waiting jobs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.traces.arrow import to_floats


class RecordedLoad(NamedTuple):
    """Change points; each value holds from its time to the next one, the last one is 0.

    Attributes:
        time_s: Ascending, without repetition, shape (points,).
        gpus_busy: GPUs that jobs hold; shared GPUs count in part.
        jobs_waiting: Jobs that were submitted and have not started.
        jobs: How many jobs that is the load of.
    """

    time_s: Floats
    gpus_busy: Floats
    jobs_waiting: Floats
    jobs: int


def read_load(jobs: pa.Table) -> RecordedLoad:
    """The load of the jobs that have a recorded start and a duration."""
    submit_s, start_s, duration_s = (
        to_floats(jobs[name]) for name in ("submit_time_s", "start_time_s", "duration_s")
    )
    known = np.isfinite(start_s) & np.isfinite(duration_s)
    submit_s, start_s, end_s = submit_s[known], start_s[known], (start_s + duration_s)[known]
    milli: Ints = (jobs["gpus"].to_numpy().astype(np.int64) * jobs["gpu_milli"].to_numpy())[known]
    times, slots = np.unique(np.concatenate([submit_s, start_s, end_s]), return_inverse=True)
    submitted, started, ended = np.split(slots.reshape(-1), 3)

    def sum_up(plus: Ints, minus: Ints, amount: Ints) -> Ints:
        change = np.zeros(len(times), dtype=np.int64)
        np.add.at(change, plus, amount)
        np.add.at(change, minus, -amount)
        return np.cumsum(change)

    # In whole thousandths sums are exact.
    busy = sum_up(started, ended, milli) / 1000
    waiting = sum_up(submitted, started, np.ones_like(milli))
    return RecordedLoad(times, busy, waiting.astype(np.float64), int(known.sum()))


def mean_values(time_s: Floats, values: Floats, edges_s: Sequence[float] | Floats) -> Floats:
    """Time-weighted means of a step function between edges.

    Args:
        time_s: Change points, ascending, shape (points,), at least one.
        values: Shape (points,); 0 before the first change point, and from the last one on.
        edges_s: Ascending, without repetition, shape (bins + 1,).
    """
    integral = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(time_s))])
    means: Floats = np.diff(np.interp(edges_s, time_s, integral)) / np.diff(edges_s)
    return means
