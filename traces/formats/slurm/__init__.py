"""Slurm's accounting: the output of ``sacct --parsable2`` with its header, a CSV of it, or JSON.

Needed are ``JobID``, ``Submit``, ``Start`` and one of ``AllocTRES``, ``ReqTRES``, ``AllocGRES``,
``ReqGRES``; read besides are ``Cluster``, ``User``, ``Partition``, ``Eligible``, ``End``,
``ElapsedRaw`` (s) or ``Elapsed``, ``Suspended``, ``TimelimitRaw`` (min) or ``Timelimit``,
``State``, ``NNodes``, ``Account``, ``QOS``, energy (`energy`), and where a job ran: ``NodeList``
and ``AdminComment`` (`jobstats`).
Source: sacct(1) of Slurm.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.traces.formats.slurm.energy import find_energy_column, parse_energy, sum_steps
from wattkeeper.traces.formats.slurm.files import batches, sniff
from wattkeeper.traces.formats.slurm.jobstats import parse_gpu_ids
from wattkeeper.traces.formats.slurm.records import unite_parts
from wattkeeper.traces.formats.slurm.resources import parse_gpus
from wattkeeper.traces.readers.base import Batch, ConvertedRows, JobsFormat, TimeKind, WithoutGpus
from wattkeeper.traces.readers.columns import (
    Wrong,
    keep_rows,
    parse_each,
    parse_numbers,
    parse_texts,
    parse_times,
    strip_cells,
)
from wattkeeper.traces.readers.csvfile import ABSENT
from wattkeeper.traces.readers.spans import NO_LIMIT, parse_span

NO_TIME: Final = (*ABSENT, "Unknown", "N/A")
RUNNING: Final = "^(RUNNING|SUSPENDED|COMPLETING|STOPPED)"
MOST_POWER_W: Final = 20_000
"""Mean power for each GPU above which the energy of a job is a fault of its meter."""
LONG_LIMIT_S: Final = 60 * 86400.0
"""A limit in minutes that is as long, in whole hours if it were seconds, may be in seconds."""
NO_GPU: Final = "asks for no GPU"
PART: Final = "is a part of a heterogeneous job, counted in its first part"
KINDS: Final = "heterogeneous job with several GPU types, taken as any of them for all of its GPUs"
SHARES: Final = "gres/mps counted as hundredths of a GPU, as it is configured by default"
LACKS: Final = (
    "JSON without the partition, the run time or the time limit, which sacct writes of every job; "
    "sacct --parsable2 writes them, too"
)
SECONDS: Final = (
    "time limit of 60 days or more, or State TIMEOUT before half of it: seconds, where sacct "
    "writes minutes?"
)
ADVICE: Final = (
    ", as sacct writes them if the environment variable SLURM_TIME_FORMAT is unset or 'standard', "
    "or '%s' for seconds"
)


def convert(batch: Batch) -> ConvertedRows:
    """Columns by name; of the lines of job steps, only energy is read."""
    ids = strip_cells(batch.rows, "JobID")
    step = np.asarray(pc.match_substring(ids, "."))
    steps, jobs = np.flatnonzero(step), np.flatnonzero(~step)
    table, wrong, of_steps = batch.rows, Wrong(), np.full(len(jobs), np.nan)
    if len(steps):
        of_steps = _energy_of_steps(table.take(pa.array(steps)), steps, jobs, ids, wrong)
        table = table.take(pa.array(jobs))
    rows = _convert(table, batch.kind, of_steps)
    dropped = dict(rows.dropped)
    if count := len(steps) - len(wrong):
        dropped["is a step of a job"] = count
    wrong = {int(steps[row]): text for row, text in wrong.items()}
    wrong |= {int(jobs[row]): text for row, text in rows.wrong.items()}
    doubts = {what: jobs[odd] for what, odd in rows.doubts.items()}
    others = rows.without_gpus and rows.without_gpus._replace(rows=jobs[rows.without_gpus.rows])
    return rows._replace(
        kept=jobs[rows.kept], wrong=wrong, dropped=dropped, doubts=doubts, without_gpus=others
    )


def _energy_of_steps(
    table: pa.Table, steps: Ints, jobs: Ints, ids: pa.Array, wrong: Wrong
) -> Floats:
    """Energy of each job by the steps behind its line; `table` has the steps, `ids` all lines."""
    joules = parse_energy(table, wrong)
    if not len(jobs) or np.isnan(joules).all():
        return np.full(len(jobs), np.nan)
    names = ids.take(pa.array(steps))
    owner = np.searchsorted(jobs, steps) - 1
    owners = ids.take(pa.array(jobs)).take(pa.array(np.maximum(owner, 0)))
    strange = pc.not_equal(pc.replace_substring_regex(names, r"\..*$", ""), owners)
    joules[np.asarray(strange) | (owner < 0)] = np.nan
    steps_only = pc.replace_substring_regex(names, r"^[^.]*\.", "")
    return sum_steps(steps_only, joules, np.maximum(owner, 0), len(jobs))


def _convert(table: pa.Table, kind: TimeKind | None, of_steps: Floats) -> ConvertedRows:
    wrong: Wrong = {}
    submit, eligible, start, end = [
        parse_times(table, name, wrong, kind, needed=needed, absent=NO_TIME, advice=ADVICE)
        for name, needed in (
            ("Submit", True),
            ("Eligible", False),
            ("Start", False),
            ("End", False),
        )
    ]
    backwards = end.seconds < start.seconds
    state = parse_texts(table, "State")
    running = np.asarray(pc.match_substring_regex(state, RUNNING).fill_null(False))
    if "End" in table.column_names:
        running |= np.isnan(end.seconds)
    spent = np.where(backwards, np.nan, end.seconds - start.seconds)
    elapsed, contradicted = _elapsed(table, spent, running, wrong)
    limit, in_seconds = _limit(table, state, elapsed, wrong)
    gpus = parse_gpus(table, wrong)
    joules = parse_energy(table, wrong)
    joules = np.where(np.isnan(joules), of_steps, joules)
    ids, user, cluster = (parse_texts(table, name) for name in ("JobID", "User", "Cluster"))
    kinds, parts, mixed = unite_parts(
        ids, (submit.seconds, start.seconds, user, cluster), gpus, joules
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        huge = joules > MOST_POWER_W * gpus.total * np.where(elapsed > 0, elapsed, np.nan)
    queue = parse_texts(table, "Partition")
    columns: dict[str, Any] = {
        "job_id": pc.replace_substring_regex(ids, r"\+.*$", ""),
        "user": user,
        "queue": queue,
        "submit_time_s": submit.seconds,
        "duration_s": np.where(running, np.nan, elapsed),
        "estimate_s": limit,
        "start_time_s": start.seconds,
        "energy_j": np.where(huge | running, np.nan, joules),
        "account": parse_texts(table, "Account"),
        "qos": parse_texts(table, "QOS"),
        "gpus": gpus.total,
        "gpu_milli": gpus.milli,
        "gpu_type": kinds,
        "status": pc.replace_substring_regex(state, r" by \d+$", ""),
    }
    not_started = np.isnan(start.seconds) | (~gpus.granted & ~(elapsed > 0))
    drops = [("never started", not_started), (NO_GPU, gpus.total == 0), (PART, parts)]
    name = _elapsed_name(table)
    doubts = [
        (f"more than {MOST_POWER_W} W for each GPU, so without energy", huge & ~running),
        ("End before Start", backwards & ~np.isnan(elapsed)),
        ("End before Start, so without a duration", backwards & np.isnan(elapsed)),
        (f"{name} is not End - Start (suspended, or clocks changed?); it counts", contradicted),
        (SECONDS, in_seconds),
        (SHARES, gpus.shares),
        (LACKS, np.asarray(parse_texts(table, "Lacks").is_valid())),
        (KINDS, mixed),
    ]
    faults = parse_texts(table, "Fault").to_pylist() if "Fault" in table.column_names else []
    for row, fault in enumerate(faults):
        if fault:
            wrong[row] = fault
    rows = keep_rows(
        table.num_rows,
        columns,
        wrong,
        [*drops, *gpus.drops.items()],
        doubts=doubts,
        kinds=submit.kinds | eligible.kinds | start.kinds | end.kinds,
        names={
            "job_id": "JobID",
            "submit_time_s": "Submit",
            "start_time_s": "Start",
            "eligible_s": "Eligible",
            "ended_s": "End",
            "duration_s": name,
            "energy_j": find_energy_column(table.column_names),
        },
    )
    identity = {
        "cluster": cluster,
        "eligible_s": pa.array(eligible.seconds, from_pandas=True),
        "ended_s": pa.array(np.where(running, np.nan, end.seconds), from_pandas=True),
        "nodes": parse_texts(table, "NodeList"),
        "gpu_ids": parse_gpu_ids(table),
    }
    none = ~not_started & (gpus.total == 0)
    none[list(wrong)] = False
    without = np.flatnonzero(none)
    clusters, queues = (values.take(pa.array(without)) for values in (cluster, queue))
    return rows._replace(
        identity={key: values.take(pa.array(rows.kept)) for key, values in identity.items()},
        without_gpus=WithoutGpus(without, clusters, queues, submit.seconds[without]),
    )


def _elapsed_name(table: pa.Table) -> str:
    """The column of durations."""
    return next((name for name in ("ElapsedRaw", "Elapsed") if name in table.column_names), "End")


def _elapsed(table: pa.Table, spent: Floats, running: Bools, wrong: Wrong) -> tuple[Floats, Bools]:
    """Run time, and whether it contradicts the time from start to end, `spent`."""
    name = _elapsed_name(table)
    if name == "End":
        return spent, np.zeros(len(spent), dtype=bool)
    if name == "ElapsedRaw":
        elapsed = parse_numbers(table, name, wrong, absent=NO_TIME, unit="seconds")
    else:
        elapsed = parse_each(table, name, lambda text: parse_span(text, NO_TIME), wrong)
    suspended = parse_each(table, "Suspended", lambda text: parse_span(text, NO_TIME), {})
    other = ~running & (np.abs(elapsed + np.nan_to_num(suspended) - spent) > 1)
    return np.where(np.isnan(elapsed), spent, elapsed), other


def _limit(table: pa.Table, state: pa.Array, elapsed: Floats, wrong: Wrong) -> tuple[Floats, Bools]:
    """Time limits, and which of them may be in seconds where sacct writes minutes."""
    raw = "TimelimitRaw" in table.column_names
    if raw:
        limit = 60 * parse_numbers(table, "TimelimitRaw", wrong, absent=NO_LIMIT, unit="minutes")
    else:
        limit = parse_each(table, "Timelimit", lambda text: parse_span(text, NO_LIMIT), wrong)
    limit = np.where(limit > 0, limit, np.nan)
    timeout = np.asarray(pc.equal(state, "TIMEOUT").fill_null(False))
    long = (limit >= LONG_LIMIT_S) & (limit % 3600 == 0) & raw
    return limit, (timeout & (elapsed < limit / 2)) | long


FORMAT: Final = JobsFormat(
    name="slurm",
    summary="Slurm's accounting: sacct --parsable2, or --json",
    takes="the output of sacct --allusers --parsable2 with its header, or of sacct --allusers "
    "--json, plain or gzip; any number",
    source="Slurm accounting of a cluster (sacct)",
    licence="as the imported file",
    time_unit="dates without offset; spans as D-HH:MM:SS or s",
    cannot_tell=(
        "What a job trained, and which jobs recur.",
        "How long a job that still runs will take: it has no duration.",
        "Which other types of GPU a job could have run on: the type is what it asked for or got.",
        "The zone of its dates.",
        "Whether measured energy is that of a job alone: Slurm's meters count whole nodes, so "
        "it is only of a job that had its nodes for itself.",
    ),
    sniff=sniff,
    batches=batches,
    convert=convert,
    times=("since-1970", "local", "offset"),
    headers=True,
    requeues=True,
)
