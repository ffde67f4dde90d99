"""Fits a trace of jobs: from the trace to its statistical description, a `Fit`.

Arrivals are described in three steps. First, relative rates by hour of the day and by day of the
week, which are removed by a change of time scale. Second, the distribution (quantiles) of the
remaining gaps between arrivals. Third, their correlation: short gaps come in bursts, as when a
user submits many jobs at once, and busy days follow busy days. The autocorrelation of the gaps'
normal scores is fitted by a sum of exponentials. Run times are described by GPU demand.
"""

import math
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.arrow import encode
from wattkeeper.traces.fits import (
    DAY_S,
    DAYS,
    HOUR_S,
    HOURS,
    LOWEST,
    Arrivals,
    Demand,
    Fit,
    Groups,
    Memory,
    Quantiles,
    Users,
    round_values,
)
from wattkeeper.traces.times.origin import origin_of
from wattkeeper.traces.trace import Trace

LEVELS: Final = np.array(
    [0, 0.0001, 0.001, 0.0025, 0.005]
    + [percent / 100 for percent in range(1, 100)]
    + [0.9925, 0.995, 0.9975, 0.999, 0.9995, 0.9999, 0.99995, 1]
)
SHORTEST_S: Final = 1e-3
"""Lower bound of a run time or a gap, since logarithms are taken."""

MEMORIES: Final = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)
SMALLEST_WEIGHT: Final = 0.005
SOON_S: Final = 60.0
USERS: Final = 500
LEAST_JOBS: Final = 2
NOT_FITTED: Final = ("queue", "gpu_type", "workload", "status", "estimate_s")


class RhythmClock(NamedTuple):
    """Change of time scale that removes daily and weekly rhythms, and its inverse.

    Attributes:
        offset_s: Time of the week at which the trace begins.
        rates: Relative rate of each hour of the week, 168 of them; their mean is 1.
    """

    offset_s: float
    rates: Floats

    def flatten(self, times_s: Floats) -> Floats:
        """Time, in s, on the scale without rhythms."""
        knots, flat = self._knots()
        week = DAYS * DAY_S
        whole, rest = np.divmod(times_s + self.offset_s, week)
        return whole * week + np.interp(rest, knots, flat)

    def unflatten(self, times_s: Floats) -> Floats:
        """The inverse of `flatten`."""
        knots, flat = self._knots()
        week = DAYS * DAY_S
        whole, rest = np.divmod(times_s, week)
        return whole * week + np.interp(rest, flat, knots) - self.offset_s

    def _knots(self) -> tuple[Floats, Floats]:
        flat = np.zeros(DAYS * HOURS + 1)
        flat[1:] = np.cumsum(self.rates) * HOUR_S
        return np.arange(len(flat), dtype=np.float64) * HOUR_S, flat


def clock_of(arrivals: Arrivals, offset_s: float = 0.0) -> RhythmClock:
    """The time scale of a fit's rhythms.

    `offset_s` is the time of the week at which the trace begins.
    """
    rates = np.outer(arrivals.day_of_week, arrivals.hour_of_day).ravel()
    return RhythmClock(offset_s, rates / rates.mean())


def fit_trace(trace: Trace) -> Fit:
    """Fit a trace of jobs.

    Raises:
        TraceError: If the trace holds no jobs, fewer than two, or no run times.
    """
    if trace.kind != "jobs":
        raise TraceError(f"is a trace of {trace.kind}; a trace of jobs is needed", trace.name)
    jobs = trace.tables["jobs"]
    submit_s = _real(jobs, "submit_time_s")
    order = np.argsort(submit_s, kind="stable")
    jobs, submit_s = jobs.take(pa.array(order)), submit_s[order]
    if len(submit_s) < LEAST_JOBS or submit_s[-1] <= submit_s[0]:
        text = "has no two jobs that were submitted at different times; a rate needs them"
        raise TraceError(text, trace.name)
    duration_s = _real(jobs, "duration_s")
    ran = duration_s > 0
    if not ran.any():
        raise TraceError("no job has a run time above 0; a fit needs them", trace.name)
    absent = _lost(jobs, duration_s)
    whole = bool(np.all(submit_s % 1 == 0) and np.all(duration_s[ran] % 1 == 0))
    arrivals = _arrivals(submit_s, trace, whole, absent)
    users = _users(jobs, submit_s, absent)
    groups = _groups(jobs, ran, duration_s, absent)
    return Fit(
        source=f"{trace.name}: {trace.source}",
        licence=trace.licence,
        jobs=len(submit_s),
        absent=tuple(absent),
        whole_seconds=whole,
        arrivals=arrivals,
        demands=_demands(jobs.filter(pa.array(ran))),
        users=users,
        groups=groups,
    )


def _real(table: pa.Table, name: str) -> Floats:
    return np.asarray(table[name].cast(pa.float64()).fill_null(np.nan), dtype=np.float64)


def _lost(jobs: pa.Table, duration_s: Floats) -> list[str]:
    texts = [
        f"{name}: recorded, and not kept by a fit"
        for name in NOT_FITTED
        if jobs[name].null_count < jobs.num_rows
    ]
    lacking, none = int(np.isnan(duration_s).sum()), int((duration_s == 0).sum())
    if lacking:
        texts.append(f"duration_s: {lacking} jobs have none; run times are those of the others")
    if none:
        texts.append(f"duration_s: {none} jobs took 0 s; run times are those of the others")
    return texts


def quantiles(values: Floats) -> Quantiles:
    """Quantiles of positive values."""
    values_at_levels = np.quantile(np.maximum(values, SHORTEST_S), LEVELS)
    return Quantiles(
        levels=tuple(LEVELS.tolist()), values=round_values(np.maximum.accumulate(values_at_levels))
    )


def _demands(jobs: pa.Table) -> tuple[Demand, ...]:
    gpus = np.asarray(jobs["gpus"]).astype(np.int64)
    milli = np.asarray(jobs["gpu_milli"]).astype(np.int64)
    duration_s = _real(jobs, "duration_s")
    keys, which, counts = np.unique(gpus * 1001 + milli, return_inverse=True, return_counts=True)
    return tuple(
        Demand(
            gpus=int(key) // 1001,
            gpu_milli=int(key) % 1001,
            share=int(count) / len(gpus),
            duration_s=quantiles(duration_s[which == n]),
        )
        for n, (key, count) in enumerate(zip(keys, counts, strict=True))
    )


def spread_ties(submit_s: Floats, whole: bool) -> Floats:
    """Spread ascending times in whole seconds evenly within each second."""
    if not whole:
        return submit_s
    _, first, counts = np.unique(submit_s, return_index=True, return_counts=True)
    place = np.arange(len(submit_s)) - np.repeat(first, counts)
    return submit_s + (place + 0.5) / np.repeat(counts, counts)


def _arrivals(submit_s: Floats, trace: Trace, whole: bool, absent: list[str]) -> Arrivals:
    known_s = start_of_week_s(trace)
    offset_s = known_s or 0.0
    if known_s is None:
        absent.append(
            "time_origin: unknown; hours and days count from the start of the trace, and day_of_"
            "week begins with its first day"
        )
    length_s = float(submit_s[-1] - submit_s[0])
    edges = np.arange((submit_s[0] + offset_s) // HOUR_S, (submit_s[-1] + offset_s) // HOUR_S + 1)
    hours = ((submit_s + offset_s) // HOUR_S).astype(np.int64)
    by_hour = _factors(hours % HOURS, edges.astype(np.int64) % HOURS, HOURS)
    of_week = (hours // HOURS) % DAYS
    by_day = _factors(of_week, (edges.astype(np.int64) // HOURS) % DAYS, DAYS)
    if length_s < 2 * DAY_S:
        absent.append("hour_of_day: flat; the trace is shorter than two days")
        by_hour = np.ones(HOURS)
    if length_s < 2 * DAYS * DAY_S:
        absent.append("day_of_week: flat; the trace is shorter than two weeks")
        by_day = np.ones(DAYS)
    plain = Arrivals(
        jobs_per_day=float(f"{(len(submit_s) - 1) / length_s * DAY_S:.6g}"),
        hour_of_day=round_values(by_hour),
        day_of_week=round_values(by_day),
        first_day="Monday" if known_s is not None else "first day of the trace",
    )
    flat = clock_of(plain, offset_s).flatten(spread_ties(submit_s, whole))
    gaps = np.maximum(np.diff(flat), SHORTEST_S)
    return plain.model_copy(update={"gap_s": quantiles(gaps), "memory": _memory(scores(gaps))})


def start_of_week_s(trace: Trace) -> float | None:
    """Seconds from Monday 00:00 to time 0 of the trace; None if unknown."""
    origin = origin_of(trace.quality)
    return None if origin is None else origin.of_week_s


def _factors(of_job: Ints, of_hour: Ints, size: int) -> Floats:
    """Rate of each class of hours relative to the mean rate of the classes."""
    jobs = np.bincount(of_job, minlength=size)
    exposed = np.bincount(of_hour, minlength=size)
    rates = np.where(exposed, jobs / np.maximum(exposed, 1), np.nan)
    rates = np.where(np.isnan(rates), np.nanmean(rates), rates)
    for _ in range(3):  # lifting what is lowest moves the mean
        rates = np.maximum(rates / rates.mean(), 2 * LOWEST)
    return rates


def scores(values: Floats) -> Floats:
    """Normal scores: ranks as quantiles of the standard normal distribution; ties in order."""
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    grid = np.linspace(-5, 5, 2001)
    normal = NormalDist()
    return np.interp((ranks + 0.5) / len(values), [normal.cdf(x) for x in grid.tolist()], grid)


def _memory(z: Floats) -> tuple[Memory, ...]:
    """Fit the autocorrelation of scores by a sum of exponentials, with least squares."""
    lags = np.unique(np.geomspace(1, max(len(z) // 8, 1), 40).astype(np.int64))
    lags = lags[lags < len(z)]
    if len(z) < 100:
        return ()
    variance = float(z @ z) / len(z)
    correlation = np.array([float(z[lag:] @ z[:-lag]) / (len(z) - lag) for lag in lags]) / variance
    memories = [jobs for jobs in MEMORIES if jobs < len(z) / 8]
    while memories:
        shape = np.exp(-lags[:, None] / np.array(memories))
        weights = np.linalg.lstsq(shape, correlation, rcond=None)[0]
        if weights.min() >= SMALLEST_WEIGHT:
            weights = weights / max(1.0, float(weights.sum()))
            return tuple(
                Memory(jobs=jobs, weight=math.floor(weight * 1e5) / 1e5)
                for jobs, weight in zip(memories, weights.tolist(), strict=True)
            )
        del memories[int(weights.argmin())]
    return ()


def _users(jobs: pa.Table, submit_s: Floats, absent: list[str]) -> Users | None:
    known = np.asarray(pc.is_valid(jobs["user"]))
    if not known.any():
        absent.append("users: the trace names none")
        return None
    if not known.all():
        absent.append(f"users: {int((~known).sum())} jobs name none; theirs are as of the others")
    codes = encode(jobs["user"])[0][known]
    shares = np.sort(np.bincount(codes))[::-1] / len(codes)
    same, gaps = codes[1:] == codes[:-1], np.diff(submit_s[known])
    by_chance = float((shares**2).sum())
    soon, later = (_excess(same[where], by_chance) for where in (gaps <= SOON_S, gaps > SOON_S))
    return Users(
        shares=round_values(shares[:USERS] * (1 - 1e-6))
        if len(shares) > USERS
        else tuple(shares.tolist()),
        others=max(len(shares) - USERS, 0),
        repeat_soon=soon,
        repeat_later=later,
    )


def _excess(same: Bools, by_chance: float) -> float:
    """Frequency with which neighbours agree, beyond chance."""
    if not len(same) or by_chance >= 1:
        return 0.0
    return float(f"{max((float(same.mean()) - by_chance) / (1 - by_chance), 0.0):.5f}")


def _groups(jobs: pa.Table, ran: Any, duration_s: Floats, absent: list[str]) -> Groups | None:
    codes = encode(jobs["group_id"])[0]
    grouped = np.flatnonzero(codes >= 0)
    if not len(grouped):
        absent.append("groups: the trace names none")
        return None
    sizes = np.bincount(codes[grouped])
    order = grouped[np.argsort(codes[grouped], kind="stable")]
    step, same = np.diff(order), codes[order][1:] == codes[order][:-1]
    distances = step[same].astype(np.float64) if same.any() else np.ones(1)
    return Groups(
        share=len(grouped) / len(codes),
        size=quantiles(sizes.astype(np.float64)),
        distance_jobs=quantiles(distances),
        likeness=_likeness(jobs, codes, ran, duration_s),
    )


def _likeness(jobs: pa.Table, codes: Ints, ran: Any, duration_s: Floats) -> float:
    """Share of the variance of scores that is between groups, by analysis of variance."""
    gpus = np.asarray(jobs["gpus"]).astype(np.int64) * 1001 + np.asarray(jobs["gpu_milli"])
    z = np.zeros(len(codes))
    for key in np.unique(gpus):
        here = ran & (gpus == key)
        z[here] = scores(duration_s[here])
    use = ran & (codes >= 0)
    group_of, values = np.unique(codes[use], return_inverse=True)[1], z[use]
    counts = np.bincount(group_of)
    means = np.bincount(group_of, values) / counts
    groups, rows = len(counts), len(values)
    if groups < LEAST_JOBS or rows <= groups:
        return 0.0
    within = float(((values - means[group_of]) ** 2).sum()) / (rows - groups)
    between = float((counts * (means - values.mean()) ** 2).sum()) / (groups - 1)
    typical = (rows - float((counts.astype(float) ** 2).sum()) / rows) / (groups - 1)
    above = max((between - within) / typical, 0.0)
    return float(f"{above / (above + within):.5f}") if above + within > 0 else 1.0
