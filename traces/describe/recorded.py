"""Section of a report on jobs: recorded waits, and recorded load over time."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from rich.console import Console

from wattkeeper.policies.json_types import Json
from wattkeeper.traces.describe.recorded_load import mean_values, read_load
from wattkeeper.traces.describe.text import print_list, print_table
from wattkeeper.traces.describe.waits import label_part, read_waits, split_jobs, summarise_waits

UNITS = (("h", 7200.0, 3600.0), ("min", 120.0, 60.0), ("s", 0.0, 1.0))
"""Units of waits: name, shortest wait (s), and size (s)."""


def report(jobs: pa.Table, gpus: int | None) -> Json | None:
    """What was recorded of starts; None if no job has a recorded start.

    `gpus` is the size of a cluster to hold the load against.

    Returns:
        ``jobs`` with a recorded start, of ``of``.
        ``waits``: from submission to start, s, of all jobs (an empty ``by``), by size and by queue:
        ``by``, ``part``, ``jobs``, ``mean_s``, ``median_s``, ``p95_s``.
        ``load``: of the ``jobs`` with start and duration: ``mean_gpus`` in use and ``mean_waiting``
        jobs from the first submission to the last, time-weighted, None for a span of 0 s;
        ``peak_gpus``, ``peak_waiting``: most at one time; ``mean_share``, ``peak_share`` of `gpus`,
        and ``above``, the share of that span in which more were in use, None without. None if no
        job has both.
    """
    waits_s = read_waits(jobs)
    known = np.isfinite(waits_s)
    if not known.any():
        return None
    started, waits_s = jobs.filter(pa.array(known)), waits_s[known]
    return {
        "jobs": started.num_rows,
        "of": jobs.num_rows,
        "waits": [
            {"by": by, "part": name, "jobs": int(mask.sum()), **summarise_waits(waits_s[mask])}
            for by, name, mask in split_jobs(started)
        ],
        "load": _load(jobs, gpus),
    }


def _load(jobs: pa.Table, gpus: int | None) -> Json | None:
    load = read_load(jobs)
    if not load.jobs:
        return None
    submit = jobs["submit_time_s"].to_numpy()
    span = np.array([submit.min(), submit.max()])
    above = (load.gpus_busy > (gpus or np.inf)).astype(np.float64)
    busy, waiting, above_share = (
        float(mean_values(load.time_s, values, span)[0]) if span[1] > span[0] else None
        for values in (load.gpus_busy, load.jobs_waiting, above)
    )
    peak = float(load.gpus_busy.max())
    return {
        "jobs": load.jobs,
        "mean_gpus": busy,
        "peak_gpus": peak,
        "mean_waiting": waiting,
        "peak_waiting": int(load.jobs_waiting.max()),
        "mean_share": None if gpus is None or busy is None else busy / gpus,
        "peak_share": None if gpus is None else peak / gpus,
        "above": None if gpus is None else above_share,
    }


def render(recorded: Json | None, gpus: int | None, console: Console) -> None:
    """Print what `report` says; nothing for None."""
    if recorded is None:
        return
    print_list("Recorded load", _load_lines(recorded, gpus), console)
    rows = (
        (
            label_part(row["by"], row["part"]),
            str(row["jobs"]),
            *(_format_wait(row[key]) for key in ("mean_s", "median_s", "p95_s")),
        )
        for row in recorded["waits"]
    )
    heads = ("jobs", "number", "mean", "median", "95th percentile")
    print_table(console, "Recorded waits, from submission to start", heads, rows)


def _load_lines(recorded: Json, gpus: int | None) -> Iterator[str]:
    if recorded["jobs"] < recorded["of"]:
        yield f"{recorded['jobs']} of {recorded['of']} jobs have a recorded start"
    if (load := recorded["load"]) is None:
        return
    shares = [
        "" if load[key] is None else f" ({100 * load[key]:.1f} % of {gpus})"
        for key in ("mean_share", "peak_share")
    ]
    mean = (
        ""
        if load["mean_gpus"] is None
        else (
            f"{load['mean_gpus']:.1f}{shares[0]} on average from the first submission to the last, "
        )
    )
    waiting = "" if load["mean_waiting"] is None else f"{load['mean_waiting']:.1f} on average, "
    above = (
        f", more than {gpus} for {100 * load['above']:.1f} % of the time" if load["above"] else ""
    )
    yield f"GPUs in use: {mean}{load['peak_gpus']:g}{shares[1]} at most{above}"
    yield f"jobs waiting: {waiting}{load['peak_waiting']} at most"


def _format_wait(wait_s: float) -> str:
    unit, size = next((name, size) for name, shortest, size in UNITS if wait_s >= shortest)
    return f"{wait_s / size:.1f} {unit}"
