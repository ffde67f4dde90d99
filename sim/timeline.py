"""Power, busy GPUs and waiting jobs over time, derived from what happened."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wattkeeper.policies.errors import InputError
from wattkeeper.policies.protocols import WHOLE
from wattkeeper.sim.cluster import ClusterSpec
from wattkeeper.sim.recorder import UNITS_PER_WATT, Recorder, whole_units

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Timeline(NamedTuple):
    """Change points; each value holds from its time to the next one.

    Attributes:
        time_s: Ascending, without repetition, shape (points,).
        power_w: What the facility draws: jobs and idle GPUs, times power usage effectiveness.
        gpus_busy: GPUs that jobs hold, parts of them counted as such.
        jobs_waiting: Submitted or preempted jobs that do not run.
    """

    time_s: Floats
    power_w: Floats
    gpus_busy: Floats
    jobs_waiting: Ints

    def energy_j(self) -> float:
        """The integral of power over time, J."""
        return math.fsum(self.power_w[:-1] * np.diff(self.time_s))

    def gpu_seconds(self) -> float:
        """The integral of busy GPUs over time, s."""
        return math.fsum(self.gpus_busy[:-1] * np.diff(self.time_s))


def timeline(
    recorder: Recorder, cluster: ClusterSpec, submit_s: Floats, thousandths: Ints
) -> Timeline:
    """The timeline of a run, from the first submission to the last end.

    It returns to exactly the idle power when all is done, however many jobs came and went.

    Args:
        recorder: What happened.
        cluster: Where.
        submit_s: When the job of each attempt was submitted, shape (attempts,).
        thousandths: Of GPUs that it holds, shape (attempts,).

    Raises:
        InputError: If jobs draw more power than can be counted.
    """
    begun = recorder.column("begun_s").astype(np.float64)
    ended = recorder.column("ended_s").astype(np.float64)
    first = recorder.column("attempt") == 1
    try:
        changed, change = recorder.changes()
    except OverflowError as error:
        raise InputError(f"the jobs draw {error}: check the profiles") from None
    pauses = np.array(recorder.pauses, dtype=float).reshape(-1, 3)
    paused, resumed = pauses[:, 1], pauses[:, 2]
    held = dict(zip(recorder.column("number").tolist(), thousandths.tolist(), strict=True)) if (
        len(pauses)) else {}  # fmt: skip
    lost = np.array([held[number] for number in pauses[:, 0].astype(int).tolist()], dtype=np.int64)
    submitted, started = submit_s[first], begun[first]
    parts = (begun, ended, paused, resumed, submitted, started, changed)
    times = np.concatenate(parts)
    order = np.argsort(times, kind="stable")
    times = times[order]
    last = np.append(times[1:] != times[:-1], True)

    def totals(*changes: Ints | int) -> Ints:
        filled = [np.broadcast_to(np.int64(0) + x, len(at)) for x, at in
                  zip(changes, parts, strict=True)]  # fmt: skip
        total: Ints = np.cumsum(np.concatenate(filled)[order])[last]
        return total

    busy = totals(thousandths, -thousandths, -lost, lost, 0, 0, 0)
    waiting = totals(0, 0, 1, -1, 1, -1, 0)
    drawn = totals(0, 0, 0, 0, 0, 0, change)
    idle = whole_units(cluster.idle_power_w)
    power_w = (drawn + idle) / UNITS_PER_WATT * cluster.pue
    times, kept = times[last], slice(None)
    if len(ended):
        begin, end = np.searchsorted(times, [submitted.min(), ended.max()]).tolist()
        kept = slice(begin, end + 1)
    return Timeline(times[kept], power_w[kept], busy[kept] / WHOLE, waiting[kept])
