"""Samples a trace with any number of jobs from a fit.

Each column has its own random stream, derived from the seed. Gaps between arrivals are
quantiles at the ranks of a sum of autoregressive series, one for each `Memory` of the fit,
transformed by the daily and weekly rhythms. Drawn independently: GPU demands, run times within
a demand, users and groups; the jobs of a group share user and demand, and their run times are
correlated.
"""

import hashlib
import math
import zlib
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.errors import InputError
from wattkeeper.policies.numerics import portable
from wattkeeper.traces.fits import DAY_S, Demand, Fit, Groups, Users, to_json
from wattkeeper.traces.generate.fit import SHORTEST_S, SOON_S, clock_of
from wattkeeper.traces.schema import LARGEST
from wattkeeper.traces.tables import jobs_table
from wattkeeper.traces.trace import Trace

MOST_JOBS: Final = 100_000_000
DECIMALS: Final = 6
REACH: Final = 200.0
"""Length, in memories, of the blocks in which an autoregressive series is summed without
overflow."""


class _Grouping(NamedTuple):
    """Group index of each job, -1 for none, and the number of groups."""

    of_job: Ints
    groups: int


def sample(
    fit: Fit, name: str, jobs: int, seed: int = 1, rate_scale: float = 1.0, fit_name: str = ""
) -> Trace:
    """Sample a trace of jobs; the same arguments give the same bytes.

    Args:
        fit: The fit.
        name: The trace's name.
        jobs: Number of jobs; at the fit's rate, more jobs make a longer trace.
        seed: Of all random streams, at least 0.
        rate_scale: Factor of the fit's arrival rate; daily and weekly rhythms keep their period.
        fit_name: Name of the fit in the trace's parameters; by default the fit's source.

    Raises:
        InputError: If a number or the name is not allowed.
        TraceError: If times overflow.
    """
    if not 1 <= jobs <= MOST_JOBS:
        raise InputError(f"{jobs} jobs; allowed are 1 to {MOST_JOBS}")
    if seed < 0 or not 0 < rate_scale <= LARGEST:
        raise InputError(f"seed {seed}, rate scale {rate_scale}; must be >= 0 and > 0")
    submit_s = _submit_times(fit, jobs, seed, rate_scale)
    grouping = _grouping(fit.groups, jobs, seed)
    which = _choose([demand.share for demand in fit.demands], _uniform(jobs, grouping, seed, "gpu"))
    duration_s = _durations(fit, which, grouping, seed)
    columns = {
        "job_id": _number_texts("job", np.arange(jobs)),
        "submit_time_s": pa.array(submit_s),
        "duration_s": pa.array(duration_s),
        "gpus": pa.array(_of(fit.demands, "gpus")[which].astype(np.int32)),
        "gpu_milli": pa.array(_of(fit.demands, "gpu_milli")[which].astype(np.int32)),
    }
    if fit.users is not None:
        columns["user"] = _number_texts("user", _users(fit.users, submit_s, grouping, seed))
    if fit.groups is not None:
        columns["group_id"] = _number_texts("group", grouping.of_job)
    return Trace(
        name=name,
        kind="jobs",
        tables={"jobs": jobs_table(columns)},
        format="fit",
        origin="synthetic",
        source=f"sampled from a fit of: {fit.source}",
        licence=fit.licence,
        notes=(
            f"Time 0 is 00:00 of a {fit.arrivals.first_day}."
            if fit.arrivals.first_day == "Monday"
            else "Time 0 is the hour of day and the weekday of the fitted trace's start.",
            *(f"Absent from the fit: {text}." for text in fit.absent),
        ),
        parameters={
            "fit": fit_name or fit.source,
            "fit_sha256": hashlib.sha256(to_json(fit).encode()).hexdigest(),
            "jobs": jobs,
            "seed": seed,
            "rate_scale": rate_scale,
        },
    )


def rate_for_load(fit: Fit, load: float, gpus: int) -> float:
    """The rate scale at which jobs request a given share of a cluster, on average.

    `load` is requested GPU-seconds over available ones; `gpus` are those of the cluster.
    """
    return load * gpus * DAY_S / (fit.arrivals.jobs_per_day * fit.mean_gpu_s)


def _stream(seed: int, name: str) -> np.random.Generator:
    sequence = np.random.SeedSequence([seed, zlib.crc32(name.encode())])
    return np.random.Generator(np.random.PCG64(sequence))


def _of(demands: tuple[Demand, ...], name: str) -> Ints:
    return np.array([getattr(demand, name) for demand in demands], dtype=np.int64)


def _number_texts(word: str, codes: Ints) -> pa.Array:
    """Texts ``word1``, ``word2``, ...; null where the code is negative."""
    texts = pc.binary_join_element_wise(word, pa.array(codes + 1).cast(pa.string()), "")
    return pc.if_else(pa.array(codes >= 0), texts, pa.scalar(None, pa.string()))


def normal_cdf(z: Floats) -> Floats:
    """Standard normal distribution function, error below 1e-7 (Abramowitz and Stegun 7.1.26).

    In [0, 1).
    """
    x = np.abs(z) * np.sqrt(0.5)
    t = 1 / (1 + 0.3275911 * x)
    terms = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    poly = np.zeros_like(t)
    for term in terms:
        poly = (poly + term) * t
    tail = 0.5 * poly * portable.exp(-x * x)
    probability: Floats = np.clip(np.where(z >= 0, 1 - tail, tail), 0.0, 1 - 1e-9)
    return probability


def autoregressive(noise: Floats, memory_jobs: float) -> Floats:
    """Stationary series from standard normal noise, with correlation 1/e at lag `memory_jobs`."""
    decay = math.exp(-1 / memory_jobs)
    length = min(max(int(REACH * memory_jobs), 1), len(noise))
    blocks = -(-len(noise) // length)
    steps = np.zeros(blocks * length)
    steps[: len(noise)] = noise * np.sqrt(1 - decay**2)
    steps[0] = noise[0]
    powers = portable.exp(-np.arange(1, length + 1) / memory_jobs)
    sums = np.cumsum(steps.reshape(blocks, length) / powers, axis=1)
    last, carry = 0.0, np.empty(blocks)
    for block, end in enumerate((sums[:, -1] * powers[-1]).tolist()):
        carry[block] = last
        last = end + last * float(powers[-1])
    series: Floats = ((sums + carry[:, None]) * powers).ravel()[: len(noise)]
    return series


def _submit_times(fit: Fit, jobs: int, seed: int, rate_scale: float) -> Floats:
    arrivals = fit.arrivals
    stream = _stream(seed, "gap")
    if arrivals.memory:
        left = max(1 - sum(part.weight for part in arrivals.memory), 0.0)
        z = np.sqrt(left) * stream.standard_normal(jobs)
        for n, part in enumerate(arrivals.memory):
            noise = _stream(seed, f"memory {n}").standard_normal(jobs)
            z += np.sqrt(part.weight) * autoregressive(noise, part.jobs)
        ranks = normal_cdf(z)
    else:
        ranks = stream.random(jobs)
    mean_s = DAY_S / arrivals.jobs_per_day / rate_scale
    if arrivals.gap_s is None:
        gaps = -portable.log(1 - ranks) * mean_s
    else:
        gaps = arrivals.gap_s.evaluate(ranks) * (mean_s / arrivals.gap_s.mean)
    times = clock_of(arrivals).unflatten(np.cumsum(gaps))
    return np.floor(times) if fit.whole_seconds else np.round(times, DECIMALS)


def _grouping(groups: Groups | None, jobs: int, seed: int) -> _Grouping:
    """Draw group sizes, then a position for each recurrence: a start, and distances from it."""
    of_job = np.full(jobs, -1, dtype=np.int64)
    grouped = 0 if groups is None else round(groups.share * jobs)
    if groups is None or not grouped:
        return _Grouping(of_job, 0)
    stream = _stream(seed, "group")
    sizes = np.zeros(0, dtype=np.int64)
    while sizes.sum() < grouped:
        more = int(grouped / groups.size.mean) + 16
        drawn = np.rint(groups.size.evaluate(stream.random(more))).astype(np.int64)
        sizes = np.concatenate([sizes, np.maximum(drawn, 1)])
    count = int(np.searchsorted(np.cumsum(sizes), grouped)) + 1
    member = np.repeat(np.arange(count), sizes[:count])[:grouped]
    steps = groups.distance_jobs.evaluate(stream.random(grouped))
    first = np.flatnonzero(np.diff(member, prepend=-1))
    steps[first] = 0.0
    along = np.cumsum(steps)
    begin = stream.random(count) * jobs
    places = np.mod(begin[member] + along - along[first][member], jobs)
    every = np.concatenate([places, stream.random(jobs - grouped) * jobs])
    of_job[:grouped] = member
    of_job = of_job[np.argsort(every, kind="stable")]
    seen, firsts = np.unique(of_job[of_job >= 0], return_index=True)
    names = np.empty(count, dtype=np.int64)
    names[seen[np.argsort(firsts)]] = np.arange(count)
    return _Grouping(np.where(of_job >= 0, names[of_job], -1), count)


def _uniform(jobs: int, grouping: _Grouping, seed: int, name: str) -> Floats:
    """A number in [0, 1) for each job; the same for all jobs of a group."""
    values = _stream(seed, name).random(jobs)
    if not grouping.groups:
        return values
    shared = _stream(seed, f"{name} of group").random(grouping.groups)
    return np.where(grouping.of_job >= 0, shared[grouping.of_job], values)


def _choose(shares: list[float] | Floats, levels: Floats) -> Ints:
    bounds = np.cumsum(np.asarray(shares))
    return np.searchsorted(bounds[:-1] / bounds[-1], levels, side="right").astype(np.int64)


def _durations(fit: Fit, which: Ints, grouping: _Grouping, seed: int) -> Floats:
    if fit.groups is None or not grouping.groups:
        ranks = _stream(seed, "duration").random(len(which))
    else:
        like = np.where(grouping.of_job >= 0, fit.groups.likeness, 0.0)
        shared = _stream(seed, "duration of group").standard_normal(grouping.groups)
        own = _stream(seed, "duration").standard_normal(len(which))
        ranks = normal_cdf(np.sqrt(like) * shared[grouping.of_job] + np.sqrt(1 - like) * own)
    duration_s = np.empty(len(which))
    for n, demand in enumerate(fit.demands):
        chosen = which == n
        duration_s[chosen] = demand.duration_s.evaluate(ranks[chosen])
    if fit.whole_seconds:
        return np.maximum(np.rint(duration_s), 1.0)
    return np.maximum(np.round(duration_s, DECIMALS), SHORTEST_S)


def _users(users: Users, submit_s: Floats, grouping: _Grouping, seed: int) -> Ints:
    jobs = len(submit_s)
    shares = np.asarray(users.shares)
    if users.others:
        rest = max(1 - float(shares.sum()), 0.0)
        shares = np.concatenate([shares, np.full(users.others, rest / users.others)])
    drawn = _choose(shares, _uniform(jobs, grouping, seed, "user"))
    if grouping.groups:
        return drawn
    soon = np.diff(submit_s, prepend=-np.inf) <= SOON_S
    chance = np.where(soon, users.repeat_soon, users.repeat_later)
    fresh = _stream(seed, "repeat").random(jobs) >= chance
    fresh[0] = True
    return drawn[np.maximum.accumulate(np.where(fresh, np.arange(jobs), 0))]
