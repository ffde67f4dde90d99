"""Sources of jobs: a trace, or jobs that recur."""

from __future__ import annotations

import heapq
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from mypy_extensions import i64, mypyc_attr
from typing_extensions import override

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.points.job import Job
from wattkeeper.policies.points.views import Outcome
from wattkeeper.sim.kernel.packed import read_f64_le, read_i64_le
from wattkeeper.traces.arrow import replace_column

CHUNK = 1 << 11

_ASKED_TEXTS = ("job_id", "workload", "gpu_type", "user")
_ASKED_FLOATS = (
    "submit_time_s",
    "duration_s",
    "time_scale",
    "estimate_s",
    "start_time_s",
    "deadline_s",
)
_ASKED = (*_ASKED_TEXTS, *_ASKED_FLOATS, "gpus", "gpu_milli", "group_id")
"""Columns that the world needs of a job."""

KNOWN = (
    "job_id",
    "group_id",
    "recurrence",
    "workload",
    "gpus",
    "gpu_milli",
    "submit_time_s",
    "time_scale",
)
"""Columns of the results that a source gives."""

_ALIKE = ("gpus", "gpu_milli", "time_scale")
"""Columns that are the same for all jobs that recur."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Source:
    """Submits jobs: at given times, and when other jobs finish."""

    @abstractmethod
    def arrivals(self) -> Iterator[list[Job]]:
        """Jobs with a given submission time, in order of it, in batches."""
        raise NotImplementedError

    def follow_up(self, outcome: Outcome, now_s: float) -> Sequence[Job]:
        """The jobs that are submitted now because one ended, with the outcome of its last attempt.

        By default none. A job that ended for want of nodes has an outcome without any training,
        which did not reach its target.
        """
        return ()

    @abstractmethod
    def column(self, name: str, numbers: Ints) -> pa.Array:
        """A column of `KNOWN`, `deadline_s` or `serves` for some of its jobs, by `Job.number`."""
        raise NotImplementedError

    @property
    def has_deadlines(self) -> bool:
        """Whether any job has a deadline."""
        return False

    @property
    def has_services(self) -> bool:
        """Whether any job serves: its column `serves` tells."""
        return False


class TraceSource(Source):
    """The jobs of a trace at their recorded times; jobs of one group id are recurrences.

    Args:
        jobs: A table of the schema `wattkeeper.traces.schema.JOBS`.
        models: The model that a job trains, by the job's id; other jobs do not use the zoo.
        reserved_w: `Job.reserved_w` by row; empty: 0 for all.
        names_queues: Whether jobs know their queues.
    """

    def __init__(
        self,
        jobs: pa.Table,
        models: Mapping[str, str] = MappingProxyType({}),
        reserved_w: Sequence[float] = (),
        names_queues: bool = False,
    ) -> None:
        self._models = models
        self._names_queues = names_queues
        self._reserved_w = list(reserved_w)
        self._order = _submission_order(jobs["submit_time_s"].to_numpy())
        self._recur = jobs["group_id"].null_count < len(jobs)
        group = pc.coalesce(jobs["group_id"], jobs["job_id"]) if self._recur else jobs["job_id"]
        self._jobs = replace_column(jobs, "group_id", group)
        self._recurrence = _recurrences(jobs["group_id"], self._order)

    def arrivals(self) -> Iterator[list[Job]]:
        """In order of submission; ties in the order of the trace."""
        table = self._jobs.select([*_ASKED, *["queue"] * self._names_queues])
        for begin in range(0, len(table), CHUNK):
            if self._order is None:
                part = table.slice(begin, CHUNK)
                numbers = np.arange(begin, begin + len(part))
            else:
                numbers = self._order[begin : begin + CHUNK]
                part = table.take(pa.array(numbers))
            yield self._jobs_of(part, numbers)

    def _jobs_of(self, part: pa.Table, numbers: Ints) -> list[Job]:
        job_id, workload, kind, user = (_texts(part[name]) for name in _ASKED_TEXTS)
        gpus, milli = (_whole_numbers(part[name].to_numpy()) for name in ("gpus", "gpu_milli"))
        submit, duration, scale, estimate, start, due = (
            _floats(part[name]) for name in _ASKED_FLOATS
        )
        group = _texts(part["group_id"]) if self._recur else job_id
        number, recurrence = _whole_numbers(numbers), _whole_numbers(self._recurrence[numbers])
        models, reserved_w, jobs = self._models, self._reserved_w, []
        queue = _texts(part["queue"]) if self._names_queues else [None] * len(job_id)
        row: i64 = 0
        for row in range(len(job_id)):
            at = 8 * row
            index = read_i64_le(number, at)
            jobs.append(
                Job(
                    job_id[row],
                    group[row],
                    read_i64_le(recurrence, at),
                    workload[row],
                    read_i64_le(gpus, at),
                    read_f64_le(submit, at),
                    read_f64_le(duration, at),
                    read_f64_le(scale, at),
                    index,
                    read_i64_le(milli, at),
                    kind[row],
                    user[row],
                    read_f64_le(estimate, at),
                    models.get(job_id[row]) if models else None,
                    read_f64_le(start, at),
                    reserved_w[index] if reserved_w else 0.0,
                    read_f64_le(due, at),
                    queue[row],
                )
            )
        return jobs

    @property
    @override
    def has_deadlines(self) -> bool:
        return bool(self._jobs["deadline_s"].null_count < len(self._jobs))

    @property
    @override
    def has_services(self) -> bool:
        return bool(self._jobs["serves"].null_count < len(self._jobs))

    @override
    def column(self, name: str, numbers: Ints) -> pa.Array:
        if name == "recurrence":
            return pa.array(self._recurrence[numbers], pa.int32())
        values = self._jobs[name].take(pa.array(numbers))
        return values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)


def _texts(column: pa.ChunkedArray) -> list[Any]:
    """The texts of a column; None where one is missing."""
    if column.null_count == len(column):
        return [None] * len(column)
    values: list[Any] = column.to_numpy().tolist()
    return values


def _floats(column: pa.ChunkedArray) -> bytes:
    """The numbers of a column, eight bytes each; NaN where one is missing."""
    filled = column.fill_null(math.nan) if column.null_count else column
    values: Floats = filled.to_numpy()
    return values.astype("<f8", copy=False).tobytes()


def _whole_numbers(values: Ints) -> bytes:
    """Whole numbers, eight bytes each."""
    return values.astype("<i8", copy=False).tobytes()


def _submission_order(submit_s: Floats) -> Ints | None:
    """The rows of jobs in the order of their submission; None where that is their own order."""
    if (submit_s[1:] >= submit_s[:-1]).all():
        return None
    return np.argsort(submit_s, kind="stable")


def _recurrences(groups: pa.ChunkedArray, order: Ints | None) -> Ints:
    """Number of each job within its group by submission, from 1; 1 for jobs without a group.

    `order`: of `_submission_order`.
    """
    if groups.null_count == len(groups):
        return np.broadcast_to(np.int64(1), len(groups))
    recurrence = np.ones(len(groups), dtype=np.int64)
    order = np.arange(len(groups)) if order is None else order
    codes = groups.combine_chunks().dictionary_encode()
    codes = codes if not isinstance(codes, pa.ChunkedArray) else codes.combine_chunks()
    group = codes.indices.fill_null(-1).to_numpy(zero_copy_only=False)[order]
    by_group = np.argsort(group, kind="stable")
    sorted_group = group[by_group]
    begins = np.flatnonzero(np.append(True, sorted_group[1:] != sorted_group[:-1]))
    place = np.arange(len(group)) - np.repeat(begins, np.diff(np.append(begins, len(group))))
    recurrence[order[by_group]] = np.where(sorted_group >= 0, place + 1, 1)
    return recurrence


def recurring_id(workload: str, recurrence: int) -> str:
    """The id of a recurring job; recurrences are counted from 1."""
    return f"{workload}/{recurrence}"


class RecurringSource(Source):
    """Recurring jobs: each recurrence is submitted when the one before it finishes, or on time.

    Args:
        recurrences: How often each workload recurs; each is a group of its own.
        gpus: GPUs of each job.
        allowed_s: Time from submission to deadline, by workload; others have no deadline.
        every_s: Time from one submission to the next, s, by workload; the next recurrence of others
            follows when the one before finishes.
        models: The model that a job trains, by the job's id; other jobs do not use the zoo.
    """

    def __init__(
        self,
        recurrences: Mapping[str, int],
        gpus: int = 1,
        allowed_s: Mapping[str, float] = MappingProxyType({}),
        every_s: Mapping[str, float] = MappingProxyType({}),
        models: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._recurrences = recurrences
        self._gpus = gpus
        self._allowed_s = allowed_s
        self._every_s = every_s
        self._models = models
        self._jobs: list[Job] = []

    def arrivals(self) -> Iterator[list[Job]]:
        """The first recurrence of each workload at time 0, and all that have a fixed time."""
        yield [self._job(workload, 1, 0.0) for workload in self._recurrences]
        times = heapq.merge(*map(self._submissions, range(len(self._recurrences))))
        names = list(self._recurrences)
        for at_s, together in groupby(times, key=itemgetter(0)):
            yield [self._job(names[index], number, at_s) for _, index, number in together]

    def _submissions(self, index: int) -> Iterator[tuple[float, int, int]]:
        """Time, index of the workload and recurrence of the submissions after the first one."""
        name, recurrences = list(self._recurrences.items())[index]
        if name in self._every_s:
            every_s = self._every_s[name]
            for number in range(2, recurrences + 1):
                yield (number - 1) * every_s, index, number

    @override
    def follow_up(self, outcome: Outcome, now_s: float) -> Sequence[Job]:
        """The next recurrence; none where it has a fixed time."""
        job = outcome.start.job
        if job.group_id in self._every_s or job.recurrence == self._recurrences[job.group_id]:
            return ()
        return (self._job(job.group_id, job.recurrence + 1, now_s),)

    @property
    @override
    def has_deadlines(self) -> bool:
        return bool(self._allowed_s)

    @override
    def column(self, name: str, numbers: Ints) -> pa.Array:
        if name in _ALIKE and self._jobs:
            return pa.array(np.full(len(numbers), getattr(self._jobs[0], name)))
        jobs = map(self._jobs.__getitem__, numbers.tolist())
        return pa.array(list(map(attrgetter(name), jobs)))

    def _job(self, workload: str, recurrence: int, now_s: float) -> Job:
        job_id = recurring_id(workload, recurrence)
        number = len(self._jobs)
        deadline_s = now_s + self._allowed_s.get(workload, math.nan)
        job = Job(
            job_id,
            workload,
            recurrence,
            workload,
            self._gpus,
            now_s,
            number=number,
            model=self._models.get(job_id),
            deadline_s=deadline_s,
        )
        self._jobs.append(job)
        return job
