"""Where jobs come from."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from wattkeeper.policies.protocols import Job

if TYPE_CHECKING:
    import pyarrow as pa


class Source(Protocol):
    """Submits jobs: by the clock, and upon what finished."""

    def arrivals(self) -> Iterator[Job]:
        """The jobs that are submitted whatever happens, by time of submission."""

    def finished(self, job: Job, now_s: float) -> Job | None:
        """The job that is submitted now because this one finished."""


class Trace:
    """The jobs of a trace, each at its recorded time; those with one group id are its recurrences.

    Args:
        jobs: A table of the schema `wattkeeper.traces.schema.JOBS`.
    """

    def __init__(self, jobs: pa.Table) -> None:
        self._jobs = jobs.take(np.argsort(jobs["submit_time_s"].to_numpy(), kind="stable"))

    def arrivals(self) -> Iterator[Job]:
        """In order of submission; ties in the order of the trace."""
        recurrences = defaultdict[str, int](int)
        names = ("job_id", "group_id", "workload", "gpus", "submit_time_s", "duration_s")
        columns = [self._jobs[name].to_pylist() for name in (*names, "time_scale")]
        for job_id, group_id, workload, gpus, submit_s, duration_s, scale in zip(
            *columns, strict=True
        ):
            group = job_id if group_id is None else group_id
            recurrences[group] += 1
            duration = math.nan if duration_s is None else duration_s
            recurrence = recurrences[group]
            yield Job(job_id, group, recurrence, workload, gpus, submit_s, duration, scale)

    def finished(self, job: Job, now_s: float) -> Job | None:
        """Nothing follows."""
        return None


class Recurring:
    """Jobs that recur, each recurrence submitted when the one before it finished.

    Args:
        recurrences: How often each workload recurs; each is a group of its own.
        gpus: GPUs that every job holds.
    """

    def __init__(self, recurrences: Mapping[str, int], gpus: int = 1) -> None:
        self._recurrences = recurrences
        self._gpus = gpus

    def arrivals(self) -> Iterator[Job]:
        """The first recurrence of each workload, at time 0."""
        for workload in self._recurrences:
            yield self._job(workload, 1, 0.0)

    def finished(self, job: Job, now_s: float) -> Job | None:
        """The next recurrence."""
        if job.recurrence == self._recurrences[job.group_id]:
            return None
        return self._job(job.group_id, job.recurrence + 1, now_s)

    def _job(self, workload: str, recurrence: int, now_s: float) -> Job:
        job_id = f"{workload}/{recurrence}"
        return Job(job_id, workload, recurrence, workload, self._gpus, now_s)
