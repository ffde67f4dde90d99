"""Recorded waits of jobs against simulated ones: how far a run reproduces what a cluster did."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Bools, Floats, Ints

SIZES: Final = ((1, "1 GPU"), (4, "2 to 4 GPUs"), (8, "5 to 8 GPUs"), (64, "9 to 64 GPUs"))
"""Size classes of jobs, each with its largest number of GPUs."""
LARGEST: Final = "more than 64 GPUs"
QUEUES: Final = 10
"""Queues with figures of their own: those with the most jobs."""
SAME_S: Final = 1.0
"""Difference of starts up to which they count as the same: logs have whole seconds."""


class WaitStatistics(TypedDict):
    """Waits of jobs from submission to first start, s.

    ``mean_s``, ``median_s``, ``p95_s``; of a run also ``median_difference_s`` and
    ``mean_difference_s``, the median and mean absolute difference from the recorded wait of the
    same job, and ``as_recorded``, the share of jobs that start within `SAME_S` of their recorded
    start.
    """

    mean_s: float
    median_s: float
    p95_s: float
    median_difference_s: float
    mean_difference_s: float
    as_recorded: float


class WaitPart(TypedDict):
    """Some jobs, ``by`` size or queue, and their waits; ``runs``: by variant."""

    by: str
    part: str
    jobs: int
    recorded: WaitStatistics
    runs: dict[str, WaitStatistics]


def compare_waits(jobs: pa.Table, attempts: Mapping[str, pa.Table]) -> list[WaitPart]:
    """Recorded and simulated waits of all jobs, and of parts of them by size and queue.

    Args:
        jobs: Of a trace (`wattkeeper.traces.schema.JOBS`); those without a recorded start, or that
            a run never started, do not count.
        attempts: By variant, the attempts of one seed (`wattkeeper.sim.results.schemas.JOBS`).

    Returns:
        The first part, with an empty ``by``, is of all jobs; empty if no job counts.
    """
    recorded = _to_floats(jobs["start_time_s"]) - _to_floats(jobs["submit_time_s"])
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
            "recorded": _statistics(recorded[mask], recorded[mask]),
            "runs": {
                name: _statistics(waits[mask], recorded[mask]) for name, waits in simulated.items()
            },
        }
        for by, part, mask in _parts(jobs)
    ]


def _parts(jobs: pa.Table) -> Iterator[tuple[str, str, Bools]]:
    """All jobs; those of each size class; those of each of the largest queues, largest first."""
    yield "", "", np.ones(jobs.num_rows, dtype=bool)
    names = [name for _, name in SIZES] + [LARGEST]
    size = np.searchsorted([most for most, _ in SIZES], jobs["gpus"].to_numpy())
    for index, name in enumerate(names):
        if (mask := size == index).any():
            yield "size", name, mask
    queues = jobs["queue"].combine_chunks().dictionary_encode()
    if len(queues.dictionary) < 2:
        return
    codes: Ints = queues.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    counts = np.bincount(codes[codes >= 0], minlength=len(queues.dictionary))
    for index in np.argsort(-counts, kind="stable")[:QUEUES].tolist():
        yield "queue", queues.dictionary[index].as_py(), codes == index


def _waits(jobs: pa.Table, attempts: pa.Table) -> Floats:
    """Wait of each job until its first attempt starts, s; NaN where it has none."""
    first = attempts.filter(pc.equal(attempts["attempt"], 1))
    rows = pc.index_in(jobs["job_id"], value_set=first["job_id"].combine_chunks())
    waits = pc.subtract(first["start_time_s"], first["submit_time_s"])
    return _to_floats(waits.take(rows.combine_chunks()))


def _to_floats(column: pa.ChunkedArray) -> Floats:
    floats: Floats = column.to_numpy().astype(np.float64)
    return floats


def _statistics(waits_s: Floats, recorded_s: Floats) -> WaitStatistics:
    difference_s = np.abs(waits_s - recorded_s)
    return {
        "mean_s": float(waits_s.mean()),
        "median_s": float(np.median(waits_s)),
        "p95_s": float(np.percentile(waits_s, 95)),
        "median_difference_s": float(np.median(difference_s)),
        "mean_difference_s": float(difference_s.mean()),
        "as_recorded": float((difference_s <= SAME_S).mean()),
    }


def closest_to_record(parts: Sequence[WaitPart], variants: Sequence[str]) -> str:
    """The variant whose waits differ least from the recorded ones, by median, then by mean.

    The first one of those that are equally close.
    """
    runs = parts[0]["runs"]
    return min(
        variants,
        key=lambda name: (runs[name]["median_difference_s"], runs[name]["mean_difference_s"]),
    )
