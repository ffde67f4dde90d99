"""Recorded waits of jobs against simulated ones: how far a run reproduces what a cluster did."""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Floats
from wattkeeper.traces.arrow import to_floats
from wattkeeper.traces.describe.waits import WaitStatistics, read_waits, split_jobs, summarise_waits

SAME_S: Final = 1.0
"""Difference of starts up to which they count as the same: logs have whole seconds."""


class RunWaits(WaitStatistics):
    """Waits of jobs from submission to first start in a run, against the recorded ones.

    ``median_difference_s`` and ``mean_difference_s``: absolute difference from the recorded wait of
    the same job; ``as_recorded``: share of jobs that start within `SAME_S` of their recorded start.
    """

    median_difference_s: float
    mean_difference_s: float
    as_recorded: float


class WaitPart(TypedDict):
    """Some jobs, ``by`` size or queue, and their waits; ``runs``: by variant."""

    by: str
    part: str
    jobs: int
    recorded: WaitStatistics
    runs: dict[str, RunWaits]


def compare_waits(jobs: pa.Table, attempts: Mapping[str, pa.Table]) -> list[WaitPart]:
    """Recorded and simulated waits of all jobs, and of parts of them by size and queue.

    Args:
        jobs: Of a trace (`wattkeeper.traces.schema.JOBS`); those without a recorded start, or that
            a run never started, do not count.
        attempts: By variant, the attempts of one seed
            (`wattkeeper.sim.cluster_results.schemas.JOBS`).

    Returns:
        The first part, with an empty ``by``, is of all jobs; empty if no job counts.
    """
    recorded = read_waits(jobs)
    simulated = {name: _waits(jobs, table) for name, table in attempts.items()}
    known = ~np.isnan(np.array([recorded, *simulated.values()])).any(axis=0)
    if not known.any():
        return []
    jobs, recorded = jobs.filter(pa.array(known)), recorded[known]
    simulated = {name: waits[known] for name, waits in simulated.items()}
    return [
        {
            "by": by,
            "part": part,
            "jobs": int(mask.sum()),
            "recorded": summarise_waits(recorded[mask]),
            "runs": {
                name: _compare(waits[mask], recorded[mask]) for name, waits in simulated.items()
            },
        }
        for by, part, mask in split_jobs(jobs)
    ]


def _waits(jobs: pa.Table, attempts: pa.Table) -> Floats:
    """Wait of each job until its first attempt starts, s; NaN where it has none."""
    known = attempts.select(["job_id", "attempt", "submit_time_s", "start_time_s"])
    first = known.filter(pc.equal(known["attempt"], 1))
    rows = pc.index_in(jobs["job_id"], value_set=first["job_id"].combine_chunks())
    waits = pc.subtract(first["start_time_s"], first["submit_time_s"])
    return to_floats(waits.take(rows.combine_chunks()))


def _compare(waits_s: Floats, recorded_s: Floats) -> RunWaits:
    difference_s = np.abs(waits_s - recorded_s)
    return {
        **summarise_waits(waits_s),
        "median_difference_s": float(np.median(difference_s)),
        "mean_difference_s": float(difference_s.mean()),
        "as_recorded": float((difference_s <= SAME_S).mean()),
    }


def closest_to_log(parts: Sequence[WaitPart], variants: Sequence[str]) -> str:
    """The variant whose waits differ least from the recorded ones, by median, then by mean.

    The first one of those that are equally close.
    """
    runs = parts[0]["runs"]
    return min(
        variants,
        key=lambda name: (runs[name]["median_difference_s"], runs[name]["mean_difference_s"]),
    )
