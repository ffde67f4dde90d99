"""Each job at its recorded start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Literal

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.points.job import Job, Key
from wattkeeper.policies.points.policy import Context
from wattkeeper.policies.points.select import CapacityView, Select, Selection
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.policies.scheduling.queueing import NOTHING

Entry = tuple[float, float, int, Job]
"""Recorded start and duration (s), number, and the job: of jobs that started at the same time, the
shorter one goes first, since one without duration leaves its GPUs to the others."""


class Recorded(Select):
    """See `RecordedConfig`."""

    def __init__(self) -> None:
        self._early: list[Entry] = []
        self._due: dict[Key, list[Entry]] = {}

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Keep the job until its start.

        Raises:
            PolicyError: If it has none.
        """
        if math.isnan(job.recorded_start_s):
            raise PolicyError(f"job {job.job_id} has no recorded start (start_time_s)", "select")
        duration_s = math.inf if math.isnan(job.duration_s) else job.duration_s
        heappush(self._early, (job.recorded_start_s, duration_s, job.number, job))

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """The earliest of those whose start has come that fits."""
        while self._early and self._early[0][0] <= ctx.now_s:
            entry = heappop(self._early)
            heappush(self._due.setdefault(entry[3].key, []), entry)
        heads = [line[0] for line in self._due.values() if capacity.fits(line[0][3])]
        if not heads:
            return NOTHING
        job = min(heads)[3]
        line = self._due[job.key]
        heappop(line)
        if not line:
            del self._due[job.key]
        return Selection((job,))

    def wake_s(self, ctx: Context) -> float:
        """The next recorded start, s."""
        return self._early[0][0] if self._early else math.inf


class RecordedConfig(PolicyConfig):
    """Each job starts when it started in the log, or as soon as it has a place after that.

    Of those that are late, the one with the earliest recorded start that fits goes first. This is
    what the cluster did, as far as the described one could do it.
    """

    kind: Literal["recorded"] = "recorded"
    policy = Recorded
    plain = "as it was"

    @property
    def needed_columns(self) -> Mapping[str, str]:
        """Recorded starts."""
        return {"start_time_s": "leave them out (workload.unusable=drop), or choose another policy"}
