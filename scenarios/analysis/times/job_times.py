"""Who pays with time: wait and run of jobs against a baseline, by size, queue and user."""

from collections.abc import Iterator, Mapping
from typing import Final, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.sim.cluster_results.attribution import PERSONS, find_owner_column
from wattkeeper.traces.arrow import encode, to_floats
from wattkeeper.traces.describe.waits import split_jobs

LOSERS: Final = 5


class RunTimes(TypedDict):
    """Time of jobs from submission to end in a run, s: mean and 95th percentile.

    ``extra_mean_s`` and ``extra_p95_s``: less those of the same jobs under the run's baseline.
    """

    mean_s: float
    p95_s: float
    extra_mean_s: float
    extra_p95_s: float


class TimesPart(TypedDict):
    """Some jobs, ``by`` size or queue, and their times; ``runs``: by variant."""

    by: str
    part: str
    jobs: int
    runs: dict[str, RunTimes]


class Loser(TypedDict):
    """A user or account, and how much longer their jobs take altogether, s."""

    name: str
    jobs: int
    extra_s: float


class JobTimes(TypedDict):
    """Times of all jobs, then by size and queue; who loses most, by variant.

    ``owner``: the column of the trace that names them; empty if it has none.
    """

    parts: list[TimesPart]
    owner: str
    losers: dict[str, list[Loser]]


def compare_times(
    jobs: pa.Table, attempts: Mapping[str, pa.Table], baselines: Mapping[str, str]
) -> JobTimes | None:
    """Times of jobs under each variant and their differences to its baseline.

    Args:
        jobs: Of a trace (`wattkeeper.traces.schema.JOBS`).
        attempts: By variant, the attempts of one seed
            (`wattkeeper.sim.cluster_results.schemas.JOBS`), with
            the trace's submissions.
        baselines: The baseline of each variant; variants without a run of it do not count.

    Returns:
        None if no job ended under all variants, or there is nothing to compare.
    """
    names = [name for name in attempts if baselines[name] in attempts]
    times = {name: _read_times(jobs, attempts[name]) for name in names}
    ended = ~np.isnan(np.array([*times.values()])).any(axis=0) if times else np.zeros(0, bool)
    if len(times) < 2 or not ended.any():
        return None
    jobs, times = jobs.filter(pa.array(ended)), {name: own[ended] for name, own in times.items()}
    owner, losers = _find_losers(jobs, times, baselines)
    return {
        "parts": [
            {
                "by": by,
                "part": part,
                "jobs": int(mask.sum()),
                "runs": dict(_summarise(times, baselines, mask)),
            }
            for by, part, mask in split_jobs(jobs)
        ],
        "owner": owner,
        "losers": losers,
    }


def _read_times(jobs: pa.Table, attempts: pa.Table) -> Floats:
    """Time of each job until its last attempt ends, s; NaN where it has none, or serves."""
    rows = pc.index_in(attempts["job_id"], value_set=jobs["job_id"].combine_chunks())
    known = rows.is_valid()
    finish_s = np.full(jobs.num_rows, -np.inf)
    ends = to_floats(attempts["finish_time_s"].filter(known))
    np.maximum.at(finish_s, rows.filter(known).to_numpy(), ends)
    finish_s[np.isinf(finish_s) | jobs["serves"].is_valid().to_numpy()] = np.nan
    times: Floats = finish_s - to_floats(jobs["submit_time_s"])
    return times


def _summarise(
    times: Mapping[str, Floats], baselines: Mapping[str, str], mask: Bools
) -> Iterator[tuple[str, RunTimes]]:
    figures = {
        name: (float(own[mask].mean()), float(np.percentile(own[mask], 95)))
        for name, own in times.items()
    }
    for name, (mean_s, p95_s) in figures.items():
        usual_mean_s, usual_p95_s = figures[baselines[name]]
        yield (
            name,
            {
                "mean_s": mean_s,
                "p95_s": p95_s,
                "extra_mean_s": mean_s - usual_mean_s,
                "extra_p95_s": p95_s - usual_p95_s,
            },
        )


def _find_losers(
    jobs: pa.Table, times: Mapping[str, Floats], baselines: Mapping[str, str]
) -> tuple[str, dict[str, list[Loser]]]:
    """Those whose jobs take longer altogether, the most first; by variant."""
    owner = find_owner_column(jobs, PERSONS)
    if not owner:
        return "", {}
    codes, names = encode(jobs[owner])
    known = codes >= 0
    counts: Ints = np.bincount(codes[known], minlength=len(names))
    losers: dict[str, list[Loser]] = {}
    for variant, own in times.items():
        if baselines[variant] == variant:
            continue
        extra_s = (own - times[baselines[variant]])[known]
        sums = np.bincount(codes[known], weights=extra_s, minlength=len(names))
        most = np.argsort(-sums, kind="stable")[:LOSERS].tolist()
        losers[variant] = [
            {"name": names[code], "jobs": int(counts[code]), "extra_s": float(sums[code])}
            for code in most
            if sums[code] >= 1
        ]
    return owner, losers
