"""Recorded waits of jobs, of all and by size and queue."""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.traces.arrow import encode, to_floats

SIZES: Final = ((1, "1 GPU"), (4, "2 to 4 GPUs"), (8, "5 to 8 GPUs"), (64, "9 to 64 GPUs"))
"""Size classes of jobs, each with its largest number of GPUs."""
SIZE_NAMES: Final = (*(name for _, name in SIZES), "more than 64 GPUs")
QUEUES: Final = 10
"""Queues with figures of their own: those with the most jobs."""


class JobsPart(NamedTuple):
    """Some jobs of a table.

    Attributes:
        by: ``size`` or ``queue``; empty for all jobs.
        name: The class of sizes, or the queue.
        mask: Which rows, shape (jobs,).
    """

    by: str
    name: str
    mask: Bools


class WaitStatistics(TypedDict):
    """Waits of jobs from submission to start, s."""

    mean_s: float
    median_s: float
    p95_s: float


def read_waits(jobs: pa.Table) -> Floats:
    """Recorded wait of each job, s; NaN where it has no recorded start, or serves."""
    waits: Floats = to_floats(jobs["start_time_s"]) - to_floats(jobs["submit_time_s"])
    waits[jobs["serves"].is_valid().to_numpy()] = np.nan
    return waits


def summarise_waits(waits_s: Floats) -> WaitStatistics:
    """Mean, median and 95th percentile; at least one wait, none NaN."""
    return {
        "mean_s": float(waits_s.mean()),
        "median_s": float(np.median(waits_s)),
        "p95_s": float(np.percentile(waits_s, 95)),
    }


def split_jobs(jobs: pa.Table) -> Iterator[JobsPart]:
    """All jobs; those of each size class; those of each of the largest queues, largest first."""
    yield JobsPart("", "", np.ones(jobs.num_rows, dtype=bool))
    yield from split_sizes(jobs["gpus"].to_numpy())
    codes, queues = encode(jobs["queue"])
    if len(queues) < 2:
        return
    counts: Ints = np.bincount(codes[codes >= 0], minlength=len(queues))
    for code in np.argsort(-counts, kind="stable")[:QUEUES].tolist():
        yield JobsPart("queue", queues[code], codes == code)


def split_sizes(gpus: Ints) -> Iterator[JobsPart]:
    """The jobs of each size class, by their numbers of GPUs, shape (jobs,)."""
    size = np.searchsorted([most for most, _ in SIZES], gpus)
    for index, name in enumerate(SIZE_NAMES):
        if (mask := size == index).any():
            yield JobsPart("size", name, mask)


def label_part(by: str, name: str) -> str:
    """What a part of the jobs is called in a table."""
    return f"{by} {name}" if by == "queue" else name or "all"
