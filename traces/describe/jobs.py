"""Report on a trace of kind ``jobs``: its content and the quality of its data.

All computations are columnar: a million jobs take seconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.policies.json_types import Json
from wattkeeper.traces.arrow import encode
from wattkeeper.traces.describe import recorded
from wattkeeper.traces.describe.rhythm import rates
from wattkeeper.traces.estimates import count_outlived
from wattkeeper.traces.gpu_time import held_gpus
from wattkeeper.traces.library.importer import LONG, LONG_S
from wattkeeper.traces.schema import JOBS
from wattkeeper.traces.tables import drop_optional
from wattkeeper.traces.times.origin import origin_of
from wattkeeper.traces.trace import Trace

QUANTILES: Final = (0, 5, 25, 50, 75, 95, 99, 100)
HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0


def report(trace: Trace, gpus: int | None = None) -> Json:
    """What the jobs are, when they come, what they need, what is missing and what is odd.

    GPU time is GPUs, or parts of GPUs, times recorded duration. Shares are in [0, 1].

    `gpus` is the size of a cluster to hold the jobs against.

    Returns:
        ``quality``: counts of the import (`wattkeeper.traces.readers.base.Quality`); empty for a
        trace that was not imported.
        ``jobs``: their number.
        ``span_s``: from the first submission to the last, s.
        ``arrivals``, ``load``, ``cluster``, ``nodes``, ``together``, ``users``, ``fractions``,
        ``estimates``: as the functions below say.
        ``recorded``: waits and load as recorded; see `wattkeeper.traces.describe.recorded.report`.
        ``busy_gpu_s``: GPU time of all jobs, s.
        ``demand``: by ``gpus``: ``jobs``, ``gpu_s`` (GPU time), and their shares.
        ``missing``: by column that may lack a value: ``jobs`` without one, and their ``share``.
        ``gpus``, ``workloads``, ``queues``, ``statuses``, ``gpu_types``: jobs by value; those
        without one under the empty text.
        ``groups``: number, jobs in none, groups of one job, jobs of the largest.
        ``durations_s``, ``time_scale``: quantiles by percent, s and 1.
        ``overlap``: jobs that are submitted while an earlier one of their group runs, by recorded
        durations, and their share of all jobs.
        ``oddities``: what, and how many jobs or groups.
    """
    table = trace.tables["jobs"]
    submit: Floats = np.asarray(table["submit_time_s"])
    duration: Floats = np.asarray(table["duration_s"].cast(pa.float64()).fill_null(np.nan))
    known = np.isfinite(duration)
    width = held_gpus(table)
    gpu_s = width * np.where(known, duration, 0)
    group = encode(table["group_id"])[0]
    sizes = np.bincount(group[group >= 0])
    overlapping = int(_overlaps(group, submit, duration).sum())
    demand = _demand(np.asarray(table["gpus"]), gpu_s)
    return {
        "quality": dict(trace.quality),
        "jobs": table.num_rows,
        "span_s": float(submit.max() - submit.min()),
        "arrivals": _arrivals(submit, trace.quality),
        "busy_gpu_s": float(gpu_s.sum()),
        "load": _load(submit, duration, width, gpu_s),
        "cluster": _cluster(table, gpu_s, gpus),
        "recorded": recorded.report(table, gpus),
        "nodes": _nodes(table, trace.tables["nodes"]) if "nodes" in trace.tables else None,
        "demand": demand,
        "missing": {
            want.name: {"jobs": (n := table[want.name].null_count), "share": n / table.num_rows}
            for want in drop_optional(table, JOBS).schema
            if want.nullable
        },
        "gpus": {str(row["gpus"]): row["jobs"] for row in demand},
        **{
            key: _counts(table[column])
            for key, column in (
                ("workloads", "workload"),
                ("queues", "queue"),
                ("statuses", "status"),
                ("gpu_types", "gpu_type"),
            )
        },
        "users": _users(table["user"], gpu_s),
        "fractions": _fractions(table),
        "groups": {
            "number": len(sizes),
            "without": int((group < 0).sum()),
            "of_one_job": int((sizes == 1).sum()),
            "largest": int(sizes.max(initial=0)),
        },
        "durations_s": _quantiles(duration[known]),
        "estimates": _estimates(table, duration),
        "time_scale": _quantiles(np.asarray(table["time_scale"])),
        "together": _together(table, submit),
        "overlap": {"jobs": overlapping, "share": overlapping / table.num_rows},
        "oddities": _oddities(table, duration, group, trace.quality.get("doubts", {})),
    }


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    """Rows by value, sorted by value; missing values under the empty text."""
    codes, names = encode(column)
    counts = np.bincount(codes + 1, minlength=len(names) + 1).tolist()
    return {name: n for name, n in sorted(zip(["", *names], counts, strict=True)) if n}


def _quantiles(values: Floats) -> Json:
    if not len(values):
        return {}
    percentiles = np.percentile(values, QUANTILES)
    return {f"p{q}": float(value) for q, value in zip(QUANTILES, percentiles, strict=True)}


def _arrivals(submit: Floats, quality: Mapping[str, Any]) -> Json:
    """Arrival rates.

    Returns:
        ``clock``: the text with date and time of time 0, or None if unknown; hours
        and days then count from time 0.
        ``per_h``: mean over the span; None for a span of 0 s.
        ``by_hour``: jobs per hour in each hour of the day; None for a span of less than a day.
        ``by_weekday``: jobs per day, Monday first; None for a span of less than a week.
    """
    span_s = float(submit.max() - submit.min())
    origin, time_s = origin_of(quality), submit
    if origin is not None:
        time_s = submit + origin.of_week_s
    return {
        "clock": str(quality["time_origin"]) if origin is not None else None,
        "per_h": len(submit) / (span_s / HOUR_S) if span_s else None,
        "by_hour": None if (hours := rates(time_s, HOUR_S, 24)) is None else hours.tolist(),
        "by_weekday": None if (days := rates(time_s, DAY_S, 7)) is None else days.tolist(),
    }


def _load(submit: Floats, duration: Floats, width: Floats, gpu_s: Floats) -> Json:
    """Number of busy GPUs if no job ever waited.

    Returns:
        ``mean_gpus``: GPU time over the span; None for a span of 0 s.
        ``peak_gpus``: largest number at one time.
        ``known_share``: share of the jobs with a recorded duration; others count as 0 s.
    """
    span_s = float(submit.max() - submit.min())
    runs = duration > 0
    times = np.concatenate([(submit + duration)[runs], submit[runs]])
    # In whole thousandths sums are exact, and ends go before starts at the same time.
    change = np.rint(1000 * np.concatenate([-width[runs], width[runs]])).astype(np.int64)
    busy = np.cumsum(change[np.argsort(times, kind="stable")])
    return {
        "mean_gpus": float(gpu_s.sum()) / span_s if span_s else None,
        "peak_gpus": int(busy.max(initial=0)) / 1000,
        "known_share": float(np.isfinite(duration).mean()),
    }


def _cluster(table: pa.Table, gpu_s: Floats, gpus: int | None) -> Json | None:
    """The jobs compared with a cluster of `gpus` GPUs; None if that is None.

    Returns:
        ``gpus``: of the cluster. ``too_large``: jobs that request more than it has.
        ``load``: GPU time of the others over the cluster's GPU time in the span; None for a span of
        0 s. ``typed``: jobs that name GPU types, which are ``gpu_types``.
    """
    if gpus is None:
        return None
    codes, names = encode(table["gpu_type"])
    large = np.asarray(table["gpus"]) > gpus
    submit = np.asarray(table["submit_time_s"])
    span_s = float(submit.max() - submit.min())
    return {
        "gpus": gpus,
        "too_large": int(large.sum()),
        "load": float(gpu_s[~large].sum()) / (gpus * span_s) if span_s else None,
        "typed": int((codes >= 0).sum()),
        "gpu_types": sorted({kind for name in names for kind in name.split("|")}),
    }


def _nodes(jobs: pa.Table, nodes: pa.Table) -> Json:
    """The nodes, and the jobs that do not fit on them.

    Returns:
        ``nodes``, ``gpus``: their numbers.
        ``types``: by ``gpu_type``: ``nodes``, ``gpus``, and GPUs of the ``largest`` node.
        ``too_large``: jobs that request more GPUs than there are of their allowed types.
        ``over_a_node``: jobs that fit, though on no single node.
        ``no_such_type``: jobs allowed only on types that no node has; not counted above.
    """
    codes, names = encode(nodes["gpu_type"])
    sizes = np.asarray(nodes["gpus"]).astype(np.int64)
    all_of = np.bincount(codes, sizes, len(names)).astype(np.int64)
    largest: Ints = np.zeros(len(names), dtype=np.int64)
    np.maximum.at(largest, codes, sizes)
    by_name = {name: n for n, name in enumerate(names)}
    code, names_wanted = encode(jobs["gpu_type"])
    total, largest_of = [], []
    for text in names_wanted:
        types = [by_name[name] for name in text.split("|") if name in by_name]
        total.append(int(all_of[types].sum()))
        largest_of.append(int(largest[types].max(initial=0)))
    # The last entry stands for jobs that may run anywhere: their code is -1.
    total_of_job = np.array([*total, int(all_of.sum())])[code]
    largest_of_job = np.array([*largest_of, int(largest.max(initial=0))])[code]
    demand = np.asarray(jobs["gpus"])
    return {
        "nodes": nodes.num_rows,
        "gpus": int(sizes.sum()),
        "types": [
            {
                "gpu_type": name,
                "nodes": int((codes == n).sum()),
                "gpus": int(all_of[n]),
                "largest": int(largest[n]),
            }
            for name, n in sorted(by_name.items())
        ],
        "too_large": int(((demand > total_of_job) & (total_of_job > 0)).sum()),
        "over_a_node": int(((demand > largest_of_job) & (demand <= total_of_job)).sum()),
        "no_such_type": int((total_of_job == 0).sum()),
    }


def _demand(gpus: Ints, gpu_s: Floats) -> list[Json]:
    values, place = np.unique(gpus, return_inverse=True)
    jobs, time = np.bincount(place), np.bincount(place, gpu_s)
    whole = float(gpu_s.sum()) or 1.0
    return [
        {
            "gpus": int(values[n]),
            "jobs": int(jobs[n]),
            "jobs_share": float(jobs[n] / len(gpus)),
            "gpu_s": float(time[n]),
            "gpu_s_share": float(time[n] / whole),
        }
        for n in range(len(values))
    ]


def _users(column: pa.ChunkedArray, gpu_s: Floats) -> Json | None:
    """Concentration of submissions on users; None if no job names a user.

    Returns:
        ``number`` of users; ``jobs_top_one``, ``jobs_top_ten``: share of the user, and of the ten
        users, with most jobs in all jobs with a user; ``gpu_s_top_one``, ``gpu_s_top_ten``: the
        same by GPU time, possibly of other users.
    """
    codes, names = encode(column)
    named = codes >= 0
    if not names or not named.any():
        return None
    shares: Json = {"number": len(names)}
    for key, weights in (("jobs", np.ones(len(codes))), ("gpu_s", gpu_s)):
        sums = np.sort(np.bincount(codes[named], weights[named]))[::-1]
        whole = float(sums.sum()) or 1.0
        shares[f"{key}_top_one"] = float(sums[0]) / whole
        shares[f"{key}_top_ten"] = float(sums[:10].sum()) / whole
    return shares


def _fractions(table: pa.Table) -> Json:
    """``jobs`` on fractions of GPUs, their ``share``, and jobs by thousandths, ``gpu_milli``."""
    milli = np.asarray(table["gpu_milli"])
    values, counts = np.unique(milli[milli < 1000], return_counts=True)
    return {
        "jobs": int(counts.sum()),
        "share": float(counts.sum() / len(milli)),
        "gpu_milli": {str(v): n for v, n in zip(values.tolist(), counts.tolist(), strict=True)},
    }


def _estimates(table: pa.Table, duration: Floats) -> Json | None:
    """Estimated run times compared with recorded ones; None if no job has both.

    Returns:
        ``jobs`` with both; ``outlived``: jobs that ran longer than estimated, and their
        ``share``; ``ratio``: quantiles of duration over estimate.
    """
    counted = count_outlived(table)
    estimate: Floats = np.asarray(table["estimate_s"].cast(pa.float64()).fill_null(np.nan))
    both = np.isfinite(estimate) & np.isfinite(duration)
    if not both.any():
        return None
    return {
        "jobs": counted.jobs,
        "outlived": counted.outlived,
        "share": counted.outlived / counted.jobs,
        "ratio": _quantiles(duration[both] / estimate[both]),
    }


def _together(table: pa.Table, submit: Floats) -> Json:
    """Simultaneous submissions.

    Returns:
        ``jobs``: submitted at the same time as another one, and their ``share``; ``largest``: most
        at one time; ``repeated``: jobs that equal another one in all but their id, not counting
        the first of each.
    """
    _, place, counts = np.unique(submit, return_inverse=True, return_counts=True)
    shared = counts[place] > 1
    rest = table.drop_columns(["job_id"]).filter(pa.array(shared))
    different = rest.group_by(rest.column_names, use_threads=False).aggregate([])
    return {
        "jobs": int(shared.sum()),
        "share": float(shared.mean()),
        "largest": int(counts.max()),
        "repeated": rest.num_rows - different.num_rows,
    }


def _overlaps(group: Ints, submit: Floats, duration: Floats) -> Bools:
    """Which jobs are submitted while an earlier job of their group runs."""
    order = np.lexsort((submit, group))
    group, start = group[order], submit[order]
    ends, rank = np.unique(start + np.nan_to_num(duration[order]), return_inverse=True)
    # Ranks that are offset by group make the latest end so far one running maximum over all rows.
    latest = np.maximum.accumulate(rank.reshape(-1) + (group + 1) * len(ends))
    before = ends[latest[:-1] % len(ends)]
    overlapping: Bools = np.zeros(len(group), dtype=bool)
    overlapping[order[1:]] = (group[1:] == group[:-1]) & (group[1:] >= 0) & (start[1:] < before)
    return overlapping


def _oddities(
    table: pa.Table, duration: Floats, group: Ints, doubts: Mapping[str, int]
) -> list[Json]:
    submit = np.asarray(table["submit_time_s"])
    workload = encode(table["workload"])[0]
    trained = _different([group, workload], (group >= 0) & (workload >= 0))[0]
    moment = np.unique(submit, return_inverse=True)[1].reshape(-1)
    together = _different([group, moment], group >= 0)[1]
    long = int((duration > LONG_S).sum())
    mostly_long = 2 * long > int(np.isfinite(duration).sum())
    counts = {
        **{f"jobs: {what}": count for what, count in doubts.items()},
        "jobs ran longer than 30 days, most of all: milliseconds too?": (
            long if mostly_long and LONG not in doubts else 0
        ),
        "jobs without a recorded duration": int(np.isnan(duration).sum()),
        "jobs of no duration": int((duration == 0).sum()),
        "jobs without a workload": int((workload < 0).sum()),
        "groups of more than one workload": int((np.bincount(trained) > 1).sum()),
        "jobs submitted at the same time as another one of their group": int(
            together[together > 1].sum()
        ),
        "rows not ordered by submission": int((np.diff(submit) < 0).sum()),
    }
    return [{"what": what, "count": count} for what, count in counts.items() if count]


def _different(pair: Sequence[Ints], chosen: Bools) -> tuple[Ints, Ints]:
    """First member, and number of rows, of each distinct pair among the chosen rows."""
    first, second = (codes[chosen] for codes in pair)
    many = int(second.max(initial=0)) + 1
    values, counts = np.unique(first * many + second, return_counts=True)
    return values // many, counts
