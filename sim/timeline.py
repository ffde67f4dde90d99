"""Power, busy GPUs and waiting jobs over time, derived from what happened."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wattkeeper.sim.cluster import ClusterSpec
from wattkeeper.sim.recorder import NANOWATT, Recorder

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Timeline(NamedTuple):
    """Change points; each value holds from its time to the next one.

    Attributes:
        time_s: Ascending, without repetition, shape (points,).
        power_w: What jobs and idle GPUs draw.
        gpus_busy: GPUs that jobs hold.
        jobs_waiting: Submitted jobs that have not started.
    """

    time_s: Floats
    power_w: Floats
    gpus_busy: Ints
    jobs_waiting: Ints

    def energy_j(self) -> float:
        """The integral of power over time, J."""
        return math.fsum(self.power_w[:-1] * np.diff(self.time_s))

    def gpu_seconds(self) -> float:
        """The integral of busy GPUs over time, s."""
        return math.fsum(self.gpus_busy[:-1] * np.diff(self.time_s))


def timeline(recorder: Recorder, cluster: ClusterSpec) -> Timeline:
    """The timeline of a run, from the first submission to the last end.

    It returns to exactly the idle power when all is done, however many jobs came and went.
    """
    rows = recorder.attempts
    gpus = np.array([row.gpus for row in rows], dtype=np.int64)
    start = np.array([row.start_time_s for row in rows])
    finish = np.array([row.finish_time_s for row in rows])
    first = np.array([row.attempt == 1 for row in rows], dtype=bool)
    submit = np.array([row.submit_time_s for row in rows])[first]
    power_time = np.array([time_s for time_s, _ in recorder.power])
    nanowatts = np.array([change for _, change in recorder.power], dtype=np.int64)
    idle = round(cluster.idle_power_w / NANOWATT)
    ones = np.ones(len(submit), dtype=np.int64)
    changes = (
        (power_time, nanowatts, 0, 0),
        (start, -idle * gpus, gpus, 0),
        (finish, idle * gpus, -gpus, 0),
        (submit, 0, 0, ones),
        (start[first], 0, 0, -ones),
    )
    times = np.concatenate([change[0] for change in changes])
    order = np.argsort(times, kind="stable")
    times = times[order]
    last = np.append(times[1:] != times[:-1], True)

    def totals(column: int) -> Ints:
        parts = [np.broadcast_to(change[column], change[0].shape) for change in changes]
        total: Ints = np.cumsum(np.concatenate(parts)[order])[last]
        return total

    all_idle = idle * cluster.gpus
    power_w = (all_idle + totals(1)).astype(np.float64) * NANOWATT
    return Timeline(times[last], power_w, totals(2), totals(3))
