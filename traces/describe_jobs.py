"""The report on a trace of kind ``jobs``."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

QUANTILES: Final = (0, 5, 25, 50, 75, 95, 99, 100)

Json = dict[str, Any]
Floats = npt.NDArray[np.float64]


def report(table: pa.Table) -> Json:
    """Number, span, groups, GPU demand, durations, overlap and oddities.

    Returns:
        ``jobs``: their number.
        ``span_s``: from the first submission to the last, s.
        ``busy_gpu_s``: sum of GPUs times recorded duration, s.
        ``gpus``: jobs by number of GPUs. ``workloads``: jobs by workload.
        ``groups``: number, jobs in none, groups of one job, jobs of the largest.
        ``durations_s``, ``time_scale``: quantiles by percent, s and 1.
        ``overlap``: jobs that are submitted while an earlier one of their group runs, by recorded
        durations, and their share of all jobs.
        ``oddities``: what, and how many jobs or groups.
    """
    submit: Floats = np.asarray(table["submit_time_s"])
    duration: Floats = np.asarray(table["duration_s"].cast(pa.float64()).fill_null(np.nan))
    gpus = np.asarray(table["gpus"])
    known = np.isfinite(duration)
    groups = table["group_id"].to_pylist()
    sizes = Counter(group for group in groups if group is not None)
    overlapping = int(_overlaps(groups, submit, duration).sum())
    names = Counter(name if name is not None else "" for name in table["workload"].to_pylist())
    return {
        "jobs": table.num_rows,
        "span_s": float(submit.max() - submit.min()),
        "busy_gpu_s": float((gpus * np.where(known, duration, 0)).sum()),
        "gpus": {str(n): c for n, c in sorted(Counter(gpus.tolist()).items())},
        "workloads": dict(sorted(names.items())),
        "groups": {
            "number": len(sizes),
            "without": groups.count(None),
            "of_one_job": sum(size == 1 for size in sizes.values()),
            "largest": max(sizes.values(), default=0),
        },
        "durations_s": _quantiles(duration[known]),
        "time_scale": _quantiles(np.asarray(table["time_scale"])),
        "overlap": {"jobs": overlapping, "share": overlapping / table.num_rows},
        "oddities": _oddities(table, duration, groups),
    }


def _quantiles(values: Floats) -> Json:
    if not len(values):
        return {}
    found = np.percentile(values, QUANTILES)
    return {f"p{q}": float(value) for q, value in zip(QUANTILES, found, strict=True)}


def _overlaps(groups: list[str | None], submit: Floats, duration: Floats) -> npt.NDArray[np.bool_]:
    """Which jobs are submitted while an earlier one of their group runs."""
    found = np.zeros(len(groups), dtype=bool)
    busy_until: dict[str, float] = {}
    ends = submit + np.where(np.isfinite(duration), duration, 0)
    for row in np.argsort(submit, kind="stable").tolist():
        group = groups[row]
        if group is None:
            continue
        until = busy_until.get(group, -np.inf)
        found[row] = submit[row] < until
        busy_until[group] = max(until, float(ends[row]))
    return found


def _oddities(table: pa.Table, duration: Floats, groups: list[str | None]) -> list[Json]:
    workloads = table["workload"].to_pylist()
    submits = table["submit_time_s"].to_pylist()
    trained: dict[str, set[str]] = {}
    for group, workload in zip(groups, workloads, strict=True):
        if group is not None and workload is not None:
            trained.setdefault(group, set()).add(workload)
    together = Counter((g, at) for g, at in zip(groups, submits, strict=True) if g is not None)
    counts = {
        "jobs without a recorded duration": int(np.isnan(duration).sum()),
        "jobs of no duration": int((duration == 0).sum()),
        "jobs without a workload": workloads.count(None),
        "groups of more than one workload": sum(len(names) > 1 for names in trained.values()),
        "jobs submitted at the same time as another one of their group": sum(
            count for count in together.values() if count > 1
        ),
        "rows not ordered by submission": int((np.diff(submits) < 0).sum()),
    }
    return [{"what": what, "count": count} for what, count in counts.items() if count]
