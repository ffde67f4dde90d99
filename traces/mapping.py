"""Assignment of workloads to the jobs of a trace that names none.

Cluster logs record when a job was submitted, its GPUs and its run time, but not what it
trained. The rule is that of the evaluation of Zeus on a cluster trace (You, Chung and Chowdhury,
"Zeus: Understanding and Optimizing GPU Energy Consumption of DNN Training", NSDI 2023, section
6.3): recurrences of one job form a group; groups are clustered by mean run time with k-means, one
cluster per workload; clusters and workloads are matched in order of mean run time; and a job keeps
the ratio of its run time to the mean. A job may keep its run time instead.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.policies.errors import InputError
from wattkeeper.traces.schema import JOBS, LARGEST

GROUPING: Final = ("user", "queue", "gpus", "gpu_type", "estimate_s", "status")
"""Columns by which jobs may be grouped."""


class Mapped(NamedTuple):
    """Jobs with workloads, and how they were assigned.

    Attributes:
        jobs: A table `JOBS`: the same rows with ``workload``, ``group_id`` and ``time_scale``
            filled where a job was mapped.
        table: One row per cluster, shortest first: ``workload``; ``groups`` and ``jobs``, their
            numbers; ``cluster_mean_s``, mean of the groups' mean run times; ``workload_mean_s``,
            mean run time of the workload.
        left_out: Number of jobs without a workload, by reason; no job is counted twice.
    """

    jobs: pa.Table
    table: tuple[Mapping[str, Any], ...]
    left_out: Mapping[str, int]


def map_workloads(
    jobs: pa.Table,
    mean_time_s: Mapping[str, float],
    by: Sequence[str],
    gpus: Collection[int],
    *,
    keep: bool = False,
) -> Mapped:
    """Assign workloads to the jobs of a trace.

    Jobs are mapped if they run on a number of whole GPUs for which workloads were profiled, have a
    recorded duration > 0, and belong to a group. Others keep workload, group and time scale, and
    thus replay at their recorded duration. A group's mean is that of its mapped jobs, and their
    ``time_scale`` is the job's duration over this mean: in each group it is 1 on average. With
    `keep`, it is the job's duration over the mean run time of its workload instead, so that the job
    keeps its duration.

    The clustering is optimal and deterministic: it minimises the sum of
    squares of the groups' mean run times around their cluster's mean, each group counting once.
    With fewer distinct means than workloads there is one cluster for each, and the workloads with
    the longest run times are not used.

    Args:
        jobs: A valid table `JOBS` without workloads, in any order.
        mean_time_s: Mean run time by workload, s, > 0; ties are taken in order of name.
        by: Some of `GROUPING`, for a trace without any ``group_id``; otherwise ignored.
        gpus: Numbers of GPUs for which profiles were recorded.
        keep: Whether jobs keep their recorded duration.

    Raises:
        InputError: If jobs already have workloads, if an argument is invalid, or if no job
            can be mapped.
    """
    if jobs["workload"].null_count < jobs.num_rows:
        raise InputError("the jobs already have workloads; a trace is mapped once")
    workloads = _order(mean_time_s)
    grouped_by = _grouping(jobs, by)
    duration: Floats = np.asarray(jobs["duration_s"].cast(pa.float64()).fill_null(np.nan))
    mapped, left_out = _choose(jobs, duration, grouped_by, gpus)
    if not mapped.any():
        reasons = "; ".join(f"{count} {why}" for why, count in left_out.items())
        raise InputError(f"no job can be given a workload: {reasons}")

    codes, names = _groups(jobs.filter(pa.array(mapped)), grouped_by)
    chosen = duration[mapped]
    group_jobs = np.bincount(codes)
    means = np.bincount(codes, chosen) / group_jobs
    cluster = cluster_means(means, len(workloads))
    times: Floats = np.array([mean_time_s[workload] for workload in workloads])
    table = tuple(
        {
            "workload": workload,
            "groups": int((cluster == n).sum()),
            "jobs": int(group_jobs[cluster == n].sum()),
            "cluster_mean_s": float(means[cluster == n].mean()),
            "workload_mean_s": mean_time_s[workload],
        }
        for n, workload in enumerate(workloads[: int(cluster.max()) + 1])
    )
    filled = {
        "workload": pa.array(workloads, pa.string()).take(pa.array(cluster[codes])),
        "group_id": names.take(pa.array(codes)),
        "time_scale": pa.array(chosen / (times[cluster[codes]] if keep else means[codes])),
    }
    return Mapped(_fill(jobs, mapped, filled), table, left_out)


def _order(mean_time_s: Mapping[str, float]) -> list[str]:
    """The workloads in ascending order of mean run time."""
    if not mean_time_s:
        raise InputError("there are no workloads to map jobs to")
    for name, time_s in mean_time_s.items():
        if not 0 < time_s <= LARGEST:
            raise InputError(f"mean run time of workload {name!r} is {time_s!r}, must be > 0, in s")
    return sorted(mean_time_s, key=lambda name: (mean_time_s[name], name))


def _grouping(jobs: pa.Table, by: Sequence[str]) -> tuple[str, ...]:
    if jobs["group_id"].null_count < jobs.num_rows:
        return ("group_id",)
    allowed = f"allowed are {', '.join(GROUPING)}"
    if not by:
        raise InputError(f"the trace has no group_id: name columns to group jobs by; {allowed}")
    for name in by:
        if name not in GROUPING or list(by).count(name) > 1:
            raise InputError(f"jobs cannot be grouped by {', '.join(by)}; {allowed}, each once")
    return tuple(by)


def _choose(
    jobs: pa.Table, duration: Floats, grouped_by: Sequence[str], gpus: Collection[int]
) -> tuple[Bools, dict[str, int]]:
    """Which jobs are mapped, and the number of the others by the first reason that applies."""
    recorded = ", ".join(map(str, sorted(gpus))) or "none"
    counts = np.asarray(jobs["gpus"])
    unknown = {
        f"without {name}": np.asarray(jobs[name].is_null())
        for name in grouped_by
        if jobs[name].null_count
    }
    reasons = {
        f"on a number of GPUs without profiles (there are: {recorded})": ~np.isin(
            counts, np.array(sorted(gpus), dtype=np.int64)
        ),
        "on part of a GPU": np.asarray(jobs["gpu_milli"]) != 1000,
        "without a recorded duration": np.isnan(duration),
        "of no duration": duration == 0,
    } | unknown
    mapped = np.ones(jobs.num_rows, dtype=bool)
    left_out = {}
    for why, holds in reasons.items():
        if count := int((mapped & holds).sum()):
            left_out[why] = count
        mapped &= ~holds
    return mapped, left_out


def _groups(jobs: pa.Table, grouped_by: Sequence[str]) -> tuple[Ints, pa.Array]:
    """Group index of each job, and the groups' names. No value may be missing."""
    codes: Ints = np.zeros(jobs.num_rows, dtype=np.int64)
    for name in grouped_by:
        part = jobs[name].combine_chunks().dictionary_encode()
        codes = codes * len(part.dictionary) + np.asarray(part.indices)
        codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    first = np.unique(codes, return_index=True)[1]
    columns = [jobs[name].take(pa.array(first)).to_pylist() for name in grouped_by]
    if list(grouped_by) == ["group_id"]:
        return codes, pa.array(columns[0], pa.string())
    texts = [
        ", ".join(f"{name}={_escape(value)}" for name, value in zip(grouped_by, row, strict=True))
        for row in zip(*columns, strict=True)
    ]
    return codes, pa.array(texts, pa.string())


def _escape(value: object) -> str:
    """A value as text without a bare comma, so that names of groups are unique."""
    return str(value).replace("\\", "\\\\").replace(",", "\\,")


def _fill(jobs: pa.Table, mapped: Bools, filled: Mapping[str, pa.Array]) -> pa.Table:
    """The table with the values of the mapped rows inserted."""
    filled_rows = np.cumsum(mapped) - 1
    # Rows that are not mapped take from behind the filled values: their own.
    own_rows = np.arange(jobs.num_rows) + int(mapped.sum())
    rows = pa.array(np.where(mapped, filled_rows, own_rows))
    columns = {
        name: pa.concat_arrays([filled[name], jobs[name].combine_chunks()]).take(rows)
        if name in filled
        else jobs[name]
        for name in JOBS.names
    }
    return pa.table(columns, schema=JOBS)


def cluster_means(means: Floats, k: int) -> Ints:
    """Exact one-dimensional k-means by dynamic programming.

    Args:
        means: Finite values >= 0, any order.
        k: Number of clusters, >= 1; reduced to the number of distinct values.

    Returns:
        The cluster of each value, 0 for the smallest values. Equal values share a cluster; of
        equally good clusterings, the one whose later clusters begin at smaller values is taken.
    """
    values, inverse, counts = np.unique(means, return_inverse=True, return_counts=True)
    k = min(k, len(values))
    sums = _Sums(values, counts.astype(np.float64))
    n = len(values)
    cost = sums.spread(np.zeros(n, dtype=np.int64), np.arange(n))
    begins = []
    for clusters in range(1, k):
        cost, begin = _add_cluster(cost, sums, clusters)
        begins.append(begin)
    borders = []
    last = n - 1
    for begin in reversed(begins):
        borders.append(int(begin[last]))
        last = borders[-1] - 1
    number = np.searchsorted(np.sort(np.array(borders, dtype=np.int64)), np.arange(n), "right")
    clusters_of_means: Ints = number[inverse.reshape(-1)].astype(np.int64)
    return clusters_of_means


class _Sums:
    """Prefix sums of the values, from which the spread of any range follows."""

    def __init__(self, values: Floats, counts: Floats) -> None:
        self.count = np.concatenate([[0.0], np.cumsum(counts)])
        self.total = np.concatenate([[0.0], np.cumsum(counts * values)])
        self.square = np.concatenate([[0.0], np.cumsum(counts * values**2)])

    def spread(self, first: Ints, last: Ints) -> Floats:
        """Sum of squares around the mean of the values from first to last, both included."""
        count = self.count[last + 1] - self.count[first]
        total = self.total[last + 1] - self.total[first]
        square = self.square[last + 1] - self.square[first]
        return np.asarray(np.maximum(square - total * total / count, 0.0), dtype=np.float64)


def _add_cluster(cost: Floats, sums: _Sums, clusters: int) -> tuple[Floats, Ints]:
    """Extend the least cost of each prefix of the values by one more cluster.

    The optimal start of the last cluster never decreases as values are added. So the start for the
    middle of a range bounds those of both halves (divide and conquer), and all ranges of one depth
    are processed at once: O(n log n) in total.

    Returns:
        The least cost of the values up to each one, and where its last cluster begins.
    """
    n = len(cost)
    best = np.full(n, np.inf)
    begin = np.zeros(n, dtype=np.int64)
    start, stop = np.array([clusters]), np.array([n - 1])
    low, high = np.array([clusters]), np.array([n - 1])
    while len(start):
        middle = (start + stop) // 2
        size = np.minimum(high, middle) - low + 1
        offset = np.cumsum(size) - size
        run = np.repeat(np.arange(len(size)), size)
        tried = np.arange(int(size.sum())) - offset[run] + low[run]
        costs = cost[tried - 1] + sums.spread(tried, middle[run])
        least = np.minimum.reduceat(costs, offset)
        hits = np.flatnonzero(costs == least[run])
        choice = tried[hits[np.unique(run[hits], return_index=True)[1]]]
        best[middle], begin[middle] = least, choice
        start, stop = np.append(start, middle + 1), np.append(middle - 1, stop)
        low, high = np.append(low, choice), np.append(choice, high)
        some = start <= stop
        start, stop, low, high = start[some], stop[some], low[some], high[some]
    return best, begin
