"""The recorded load over time in bins, to be held against that of runs."""

from typing import Final, TypedDict

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Floats

BINS: Final = 240


class BinnedLoad(TypedDict):
    """Time-weighted means of the recorded load in bins of equal width.

    ``jobs`` of the scenario's ``of`` have a recorded start and duration; bins go from ``from_s`` to
    ``until_s``, s since the start of the trace; ``gpus_busy`` and ``jobs_waiting`` as in a run's
    timeline.
    """

    jobs: int
    of: int
    from_s: float
    until_s: float
    gpus_busy: list[float]
    jobs_waiting: list[float]


def bin_load(jobs: pa.Table, until_s: float) -> BinnedLoad | None:
    """The recorded load from the first submission to a time, or to its last end if that is later.

    None if no job has a recorded start and a duration, or nothing takes any time.
    """
    from wattkeeper.traces.describe.recorded_load import mean_values, read_load

    load = read_load(jobs)
    from_s = float(jobs["submit_time_s"].to_numpy().min())
    until_s = max([until_s, *load.time_s[-1:].tolist()])
    if not load.jobs or until_s <= from_s:
        return None
    edges = edges_of(from_s, until_s)
    gpus, waiting = (
        [float(f"{mean:.5g}") for mean in mean_values(load.time_s, values, edges).tolist()]
        for values in (load.gpus_busy, load.jobs_waiting)
    )
    return {
        "jobs": load.jobs,
        "of": jobs.num_rows,
        "from_s": from_s,
        "until_s": until_s,
        "gpus_busy": gpus,
        "jobs_waiting": waiting,
    }


def edges_of(from_s: float, until_s: float) -> Floats:
    """Edges of the bins, shape (BINS + 1,)."""
    return np.linspace(from_s, until_s, BINS + 1)
