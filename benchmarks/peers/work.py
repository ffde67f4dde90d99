"""The work that all peers do: jobs in order of submission, on one pool of GPUs, first in first out.

A job runs as soon as the jobs before it have started and its GPUs are free. So there is one right
schedule, and a peer's figures count only if it makes that one.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple


class Work(NamedTuple):
    """The jobs, in order of submission, and the pool.

    Attributes:
        gpus: GPUs of the pool.
        submit_s: Times of submission, whole seconds.
        run_s: Run times, whole seconds.
        demand: GPUs of each job.
    """

    gpus: int
    submit_s: Sequence[int]
    run_s: Sequence[int]
    demand: Sequence[int]


class Answer(NamedTuple):
    """What a peer found.

    Attributes:
        wait_s: Mean time between submission and start.
        end_s: Time of the last completion.
        loop_s: CPU seconds of the simulation alone.
    """

    wait_s: float
    end_s: float
    loop_s: float


def write_work(path: Path, work: Work) -> None:
    """Write the jobs as a table that wattkeeper imports, too."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["job_id", "submit_time_s", "duration_s", "gpus"])
        numbers = range(len(work.submit_s))
        rows.writerows(zip(numbers, work.submit_s, work.run_s, work.demand, strict=True))


def read_work(path: Path, gpus: int) -> Work:
    """Read the jobs that `write_work` wrote, for a pool of so many GPUs."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        _, *columns = zip(*([int(cell) for cell in row] for row in rows), strict=True)
        return Work(gpus, *columns)


def answer(simulate: Callable[[Work], Sequence[float]]) -> None:
    """Do the work of the command line (file, GPUs), and print the answer as JSON.

    `simulate` returns the start times of all jobs, in order of submission.
    """
    work = read_work(Path(sys.argv[1]), int(sys.argv[2]))
    began = time.process_time()
    starts = simulate(work)
    loop_s = time.process_time() - began
    waits = [start - submit for start, submit in zip(starts, work.submit_s, strict=True)]
    ends = [start + run for start, run in zip(starts, work.run_s, strict=True)]
    print(json.dumps(Answer(sum(waits) / len(waits), max(ends), loop_s)._asdict()))
