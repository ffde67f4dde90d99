"""Comparison of a sample from a fit with the fitted trace, in numbers.

The Kolmogorov-Smirnov distance is the largest difference of two empirical distribution functions: 0
for the same distribution, at most 1. The index of dispersion is the variance of the arrivals in
equal intervals over their mean: 1 for a Poisson process, more for bursty arrivals.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.traces.describe.rhythm import rates
from wattkeeper.traces.fits import DAY_S, DAYS, HOUR_S, HOURS
from wattkeeper.traces.generate.fit import start_of_week_s
from wattkeeper.traces.gpu_time import held_gpus
from wattkeeper.traces.trace import Trace

DIGITS: Final = 6


class JobColumns(NamedTuple):
    """The compared columns, in order of submission.

    Attributes:
        submit_s: Submission times in seconds since 00:00 of the first day of the week.
        duration_s: Run times in seconds; NaN where missing.
        gpus: GPU demands, fractions included.
    """

    submit_s: Floats
    duration_s: Floats
    gpus: Floats


def columns(trace: Trace) -> JobColumns:
    """The compared columns of a trace of jobs."""
    jobs = trace.tables["jobs"]
    submit_s = np.asarray(jobs["submit_time_s"], dtype=np.float64)
    order = np.argsort(submit_s, kind="stable")
    duration_s = np.asarray(jobs["duration_s"].fill_null(np.nan), dtype=np.float64)
    gpus = held_gpus(jobs)
    offset_s = start_of_week_s(trace) or 0.0
    return JobColumns(submit_s[order] + offset_s, duration_s[order], gpus[order])


def ks_distance(a: Floats, b: Floats) -> float:
    """Kolmogorov-Smirnov distance of two samples, both not empty."""
    a, b = np.sort(a), np.sort(b)
    values = np.concatenate([a, b])
    below = np.searchsorted(a, values, side="right") / len(a)
    return _round(np.abs(below - np.searchsorted(b, values, side="right") / len(b)).max())


def dispersion(submit_s: Floats, interval_s: float) -> float | None:
    """Index of dispersion of arrivals in intervals; None if they span fewer than two.

    `submit_s` are ascending times, `interval_s` is the length of an interval, both in seconds.
    """
    counts = np.bincount(((submit_s - submit_s[0]) // interval_s).astype(np.int64))
    return _round(counts.var() / counts.mean()) if len(counts) > 1 else None


def hourly_rates(submit_s: Floats) -> Floats | None:
    """Arrival rate in each hour of the day relative to the mean of the 24 rates.

    In local time of the trace. None if the trace is shorter than a day.
    """
    return _over_mean(rates(submit_s, HOUR_S, HOURS))


def daily_rates(submit_s: Floats) -> Floats | None:
    """The same for each day of the week; None if the trace is shorter than a week."""
    return _over_mean(rates(submit_s, DAY_S, DAYS))


def _over_mean(rhythm: Floats | None) -> Floats | None:
    return None if rhythm is None else rhythm / rhythm.mean()


def compare(real: Trace, sampled: Trace) -> dict[str, Any]:
    """Compare two traces of jobs with run times.

    Returns:
        Distances, and the same statistics of both traces, JSON-ready. A distance is None if one of
        the traces has no such job, or is shorter than the period of the rhythm.
    """
    left, right = columns(real), columns(sampled)
    both = (left, right)
    demands = sorted({float(g) for side in both for g in np.unique(side.gpus)})
    return {
        "ks": {
            "duration_s": _ks(left.duration_s, right.duration_s),
            "duration_s_by_gpus": {
                f"{gpus:g}": _ks(*(side.duration_s[side.gpus == gpus] for side in both))
                for gpus in demands
            },
            "inter_arrival_s": _ks(*(np.diff(side.submit_s) for side in both)),
            "hour_of_day": _largest_gap(*(hourly_rates(side.submit_s) for side in both)),
            "day_of_week": _largest_gap(*(daily_rates(side.submit_s) for side in both)),
        },
        "trace": _figures(left, demands),
        "sample": _figures(right, demands),
    }


def _ks(a: Floats, b: Floats) -> float | None:
    a, b = a[~np.isnan(a)], b[~np.isnan(b)]
    return ks_distance(a, b) if len(a) and len(b) else None


def _largest_gap(a: Floats | None, b: Floats | None) -> float | None:
    """Kolmogorov-Smirnov distance of two rhythms, taken as distributions."""
    if a is None or b is None:
        return None
    return _round(np.abs(np.cumsum(a / a.sum()) - np.cumsum(b / b.sum())).max())


def _figures(side: JobColumns, demands: list[float]) -> dict[str, Any]:
    ran_s = side.duration_s[~np.isnan(side.duration_s)]
    days = float(side.submit_s[-1] - side.submit_s[0]) / DAY_S
    return {
        "jobs": len(side.submit_s),
        "days": _round(days),
        "jobs_per_day": _round(len(side.submit_s) / days) if days else None,
        "gpu_hours": _round(np.nansum(side.duration_s * side.gpus) / HOUR_S),
        "duration_s": {
            "mean": _round(ran_s.mean()),
            **{
                f"p{level:g}": _round(np.quantile(ran_s, level / 100))
                for level in (1, 10, 50, 90, 99)
            },
        },
        "dispersion_1h": dispersion(side.submit_s, HOUR_S),
        "dispersion_1d": dispersion(side.submit_s, DAY_S),
        "same_time": _round(np.mean(np.diff(side.submit_s) == 0)),
        "share_by_gpus": {f"{gpus:g}": _round(np.mean(side.gpus == gpus)) for gpus in demands},
        "hour_of_day": _to_list(hourly_rates(side.submit_s)),
        "day_of_week": _to_list(daily_rates(side.submit_s)),
    }


def _to_list(rhythm: Floats | None) -> list[float] | None:
    return None if rhythm is None else [_round(rate) for rate in rhythm]


def _round(value: Any) -> float:
    return float(f"{float(value):.{DIGITS}g}")
