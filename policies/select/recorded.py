"""Each job at its recorded start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import ClassVar, Literal

from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.protocols import CapacityView, Context, Job, Selection
from wattkeeper.policies.registry import Point, PolicyConfig
from wattkeeper.policies.select._queueing import NOTHING, Entry, FirstThatFits


class Recorded(FirstThatFits):
    """See `RecordedConfig`."""

    def __init__(self) -> None:
        super().__init__()
        self._early: list[Entry] = []

    def rank(self, ctx: Context, job: Job) -> float:
        """Recorded start, s."""
        return job.recorded_start_s

    def on_submit(self, ctx: Context, job: Job) -> None:
        """Keep the job until its start.

        Raises:
            PolicyError: If it has none.
        """
        if math.isnan(job.recorded_start_s):
            raise PolicyError(f"job {job.job_id} has no recorded start (start_time_s)", "select")
        heappush(self._early, (job.recorded_start_s, job.number, job))

    def select(self, ctx: Context, capacity: CapacityView) -> Selection:
        """The earliest of those whose start has come that fits."""
        now_s = ctx.now_s
        while self._early and self._early[0][0] <= now_s:
            super().on_submit(ctx, heappop(self._early)[2])
        return super().select(ctx, capacity) if self._waiting else NOTHING

    def wake_s(self, ctx: Context) -> float:
        """The next recorded start, s."""
        return self._early[0][0] if self._early else math.inf


class RecordedConfig(PolicyConfig):
    """Each job starts when it started in the log, or as soon as it has a place after that.

    Of those that are late, the one with the earliest recorded start that fits goes first. This is
    what the cluster did, as far as the described one could do it.
    """

    point: ClassVar[Point] = "select"
    kind: Literal["recorded"] = "recorded"
    policy = Recorded

    @property
    def needed_columns(self) -> Mapping[str, str]:
        """Recorded starts."""
        return {"start_time_s": "leave them out (workload.unusable=drop), or choose another policy"}
