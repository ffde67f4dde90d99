"""Power, busy GPUs and waiting jobs over time, derived from what happened."""

from __future__ import annotations

import math
from itertools import accumulate, compress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wattkeeper.sim.cluster import ClusterSpec
from wattkeeper.sim.recorder import UNITS_PER_WATT, Recorder, whole_units

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
    changed = np.array([time_s for time_s, _ in recorder.power])
    times = np.concatenate([start, finish, submit, start[first], changed])
    order = np.argsort(times, kind="stable")
    times = times[order]
    last = np.append(times[1:] != times[:-1], True)

    def totals(*changes: Ints) -> Ints:
        all_changes = np.concatenate(changes)
        total: Ints = np.cumsum(all_changes[order])[last]
        return total

    jobs = np.ones(len(submit), dtype=np.int64)
    nothing = [np.zeros(len(times), dtype=np.int64)[: len(part)] for part in (start, jobs, changed)]
    busy = totals(gpus, -gpus, nothing[1], nothing[1], nothing[2])
    waiting = totals(nothing[0], nothing[0], jobs, -jobs, nothing[2])
    changes = [0] * (len(times) - len(changed)) + [change for _, change in recorder.power]
    drawn = compress(accumulate(changes[at] for at in order.tolist()), last.tolist())
    idle = whole_units(cluster.idle_power_w)
    power_w = [
        (units + idle * (cluster.gpus - held)) / UNITS_PER_WATT
        for units, held in zip(drawn, busy.tolist(), strict=True)
    ]
    return Timeline(times[last], np.array(power_w), busy, waiting)
