"""Slurm's accounting: the output of ``sacct --parsable2`` with its header, or a CSV of it.

Needed are ``JobID``, ``Submit``, ``Start`` and one of ``AllocTRES``, ``ReqTRES``, ``AllocGRES``,
``ReqGRES``; read besides are ``User``, ``Partition``, ``End``, ``ElapsedRaw`` (s) or ``Elapsed``,
``TimelimitRaw`` (min) or ``Timelimit``, ``State``, ``NNodes``, ``Account``, ``QOS``, and
energy (`energy`).
Source: sacct(1) of Slurm.
"""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.formats.slurm.energy import find_energy_column, parse_energy, sum_steps
from wattkeeper.traces.formats.slurm.records import keep_together, unite_parts
from wattkeeper.traces.readers.base import Batch, ImportOptions, JobsFormat, Rows, TimeKind
from wattkeeper.traces.readers.columns import (
    WHOLE_BELOW,
    Wrong,
    add_coded_faults,
    add_fault,
    keep_rows,
    parse_each,
    parse_numbers,
    parse_texts,
    parse_times,
    strip_cells,
)
from wattkeeper.traces.readers.csvfile import ABSENT, quote
from wattkeeper.traces.readers.spans import NO_LIMIT, parse_span
from wattkeeper.traces.readers.textfile import Layout, first_line, name_columns, text_batches

LAYOUT: Final = Layout(delimiter="|", quotes=False)
COMMAS: Final = Layout(delimiter=",")
NEEDED: Final = ("JobID", "Submit", "Start")
GPU_COLUMNS: Final = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
NO_TIME: Final = (*ABSENT, "Unknown", "N/A")
RUNNING: Final = "^(RUNNING|SUSPENDED|COMPLETING|STOPPED)"
TRES: Final = re.compile(r"(gres/gpu(?::([^=]+))?)(?:=(.*))?")
GRES: Final = re.compile(r"((?:gres[:/])?gpu(?::([A-Za-z][^:=]*|[^:=]+(?=[:=])))?)(?:[:=](.*))?")
MOST_POWER_W: Final = 20_000
"""Mean power for each GPU above which the energy of a job is a fault of its meter."""
MIXED: Final = "heterogeneous job with several GPU types, taken as any of them for all of its GPUs"
ADVICE: Final = (
    ", as sacct writes them if the environment variable SLURM_TIME_FORMAT is unset or 'standard', "
    "or '%s' for seconds"
)
PLACES: Final = re.compile(r"\([^()]*\)")
TOO_MANY_LISTS: Final = (
    "; it cannot be told where each of several lists of resources ends: keep one of them, or let "
    "sacct separate values by |"
)
COUNT: Final = re.compile(r"[0-9]{1,15}")


def batches(paths: Sequence[Path], options: ImportOptions) -> Iterator[Batch]:
    """Read any number of logs; no job is divided between two batches.

    Raises:
        TraceError: If a file is wrong, or has no column that tells of GPUs.
    """
    for path in paths:
        layout = _layout_of(path)
        header = set(options.columns or _split_header(path))
        if header.issuperset(NEEDED) and header.isdisjoint(GPU_COLUMNS):
            text = f"no column tells of GPUs; one of {', '.join(GPU_COLUMNS)} is needed"
            raise TraceError(text, f"{path}, header")
        lists = [name for name in header if "TRES" in name or "GRES" in name]
        if layout.delimiter == "," and len(lists) == 1:
            layout = layout._replace(listing=lists[0])
        read = text_batches(path, name_columns(layout, options), NEEDED)
        if layout.delimiter == "," and len(lists) > 1:
            read = _explain_lists(read)
        yield from keep_together(read)


def _explain_lists(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Add to faults of the number of values that several lists of resources may hold commas."""
    for batch in batches:
        wrong = {line: text + TOO_MANY_LISTS if " values, must have " in text else text
                 for line, text in batch.wrong.items()}  # fmt: skip
        yield batch._replace(wrong=wrong)


def _layout_of(path: Path) -> Layout:
    """Values are separated by commas where the first line has no other mark."""
    line = first_line(path)
    return COMMAS if "|" not in line and "," in line else LAYOUT


def _split_header(path: Path) -> list[str]:
    line = first_line(path)
    if _layout_of(path) is LAYOUT:
        return line.split("|")
    return [name.strip().strip('"') for name in line.split(",")]


def sniff(path: Path) -> bool:
    """Whether its first line is a header of sacct."""
    return set(NEEDED) <= set(_split_header(path))


def convert(batch: Batch) -> Rows:
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
    return rows._replace(kept=jobs[rows.kept], wrong=wrong, dropped=dropped)


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


def _convert(table: pa.Table, kind: TimeKind | None, of_steps: Floats) -> Rows:
    wrong: Wrong = {}
    submit, start, end = (
        parse_times(table, name, wrong, kind, needed=needed, absent=NO_TIME, advice=ADVICE)
        for name, needed in (("Submit", True), ("Start", False), ("End", False))
    )
    backwards = end.seconds < start.seconds
    state = parse_texts(table, "State")
    elapsed = _elapsed(table, start.seconds, end.seconds, wrong)
    gpus, kinds, granted = _gpus(table, wrong)
    joules = parse_energy(table, wrong)
    joules = np.where(np.isnan(joules), of_steps, joules)
    ids = parse_texts(table, "JobID")
    kinds, parts, mixed = unite_parts(ids, submit.seconds, start.seconds, gpus, joules, kinds)
    with np.errstate(divide="ignore", invalid="ignore"):
        huge = joules > MOST_POWER_W * gpus * np.where(elapsed > 0, elapsed, np.nan)
    running = np.asarray(pc.match_substring_regex(state, RUNNING).fill_null(False))
    if "End" in table.column_names:
        running |= np.isnan(end.seconds)
    columns: dict[str, Any] = {
        "job_id": pc.replace_substring_regex(ids, r"\+.*$", ""),
        "user": parse_texts(table, "User"),
        "queue": parse_texts(table, "Partition"),
        "submit_time_s": submit.seconds,
        "duration_s": np.where(running, np.nan, elapsed),
        "estimate_s": _limit(table, wrong),
        "start_time_s": start.seconds,
        "energy_j": np.where(huge | running, np.nan, joules),
        "account": parse_texts(table, "Account"),
        "qos": parse_texts(table, "QOS"),
        "gpus": gpus,
        "gpu_type": kinds,
        "status": pc.replace_substring_regex(state, r" by \d+$", ""),
    }
    drops = [
        ("never started", np.isnan(start.seconds) | (~granted & ~(elapsed > 0))),
        ("asks for no GPU", gpus == 0),
        ("is a part of a heterogeneous job, counted in its first part", parts),
    ]
    doubts = [
        (f"more than {MOST_POWER_W} W for each GPU, so without energy", huge & ~running),
        ("End before Start", backwards & ~np.isnan(elapsed)),
        ("End before Start, so without a duration", backwards & np.isnan(elapsed)),
    ]
    rows = keep_rows(
        table.num_rows,
        columns,
        wrong,
        drops,
        doubts=doubts,
        kinds=submit.kinds | start.kinds | end.kinds,
        names={
            "job_id": "JobID",
            "submit_time_s": "Submit",
            "start_time_s": "Start",
            "duration_s": _elapsed_name(table),
            "energy_j": find_energy_column(table.column_names),
        },
    )
    return rows._replace(doubts={**rows.doubts, MIXED: mixed}) if mixed else rows


def _elapsed_name(table: pa.Table) -> str:
    """The column of durations."""
    return next((name for name in ("ElapsedRaw", "Elapsed") if name in table.column_names), "End")


def _elapsed(table: pa.Table, start: Floats, end: Floats, wrong: Wrong) -> Floats:
    name = _elapsed_name(table)
    if name == "ElapsedRaw":
        return parse_numbers(table, name, wrong, absent=NO_TIME, unit="seconds")
    if name == "Elapsed":
        return parse_each(table, name, lambda text: parse_span(text, NO_TIME), wrong)
    return np.where(end < start, np.nan, end - start)


def _limit(table: pa.Table, wrong: Wrong) -> Floats:
    if "TimelimitRaw" in table.column_names:
        limit = 60 * parse_numbers(table, "TimelimitRaw", wrong, absent=NO_LIMIT, unit="minutes")
    else:
        limit = parse_each(table, "Timelimit", lambda text: parse_span(text, NO_LIMIT), wrong)
    return np.where(limit > 0, limit, np.nan)


def _gpus(table: pa.Table, wrong: Wrong) -> tuple[Floats, pa.Array, np.ndarray[Any, Any]]:
    """GPUs of each job (allocated, else requested), types, and whether any were allocated.

    Where no column tells of an allocation, all count as allocated.
    """
    rows = table.num_rows
    nodes = parse_numbers(table, "NNodes", wrong, whole=True)
    nodes = np.where(nodes > 0, nodes, 1)
    gpus, kinds = np.full(rows, np.nan), pa.nulls(rows, pa.string())
    granted, told = np.zeros(rows, dtype=bool), False
    for name in GPU_COLUMNS:
        if name not in table.column_names:
            continue
        coded = strip_cells(table, name).dictionary_encode()
        codes = np.asarray(coded.indices)
        parsed, faults, filled_in = [], {}, coded.dictionary.to_pylist()
        for code, text in enumerate(filled_in):
            total, kind, fault = parse_request(text, name)
            parsed.append((total, kind))
            if fault:
                faults[code] = f"{name}: {fault}"
        add_coded_faults(wrong, codes, faults)
        count = np.array([count for count, _ in parsed] or [0.0], dtype=float)[codes]
        filled = np.array([bool(text) for text in filled_in] or [False])[codes]
        if name.endswith("GRES"):
            count = count * nodes
        gpus = np.where(np.isnan(gpus) & filled, count, gpus)
        types = pa.array([kind for _, kind in parsed], pa.string())
        kinds = pc.coalesce(kinds, types.take(coded.indices))
        if name.startswith("Alloc"):
            told, granted = True, granted | filled
    granted |= not told
    for row in np.flatnonzero(gpus >= WHOLE_BELOW).tolist():
        add_fault(wrong, row, f"the job has {gpus[row]:.15g} GPUs, must be fewer than 2147483648")
    return np.where(np.isnan(gpus), 0.0, gpus), kinds, granted


def parse_request(text: str, column: str) -> tuple[float, str | None, str]:
    """GPUs in a list of resources, of all nodes (TRES) or each (GRES); types; fault, if any."""
    total, typed, kinds = 0.0, 0.0, []
    tres = column.endswith("TRES")
    for item in PLACES.sub("", text).split(","):
        match = (TRES if tres else GRES).fullmatch(item)
        if match is None:
            continue
        name, kind, number = match.groups()
        number = "1" if number is None and not tres else number or ""
        if not COUNT.fullmatch(number):
            must = "must be a whole number > 0, or 0 for none"
            return math.nan, None, f"{name} is {quote(number)}, {must}"
        if kind:
            kinds.append(kind)
            typed += float(number)
        else:
            total += float(number)
    return total or typed, "|".join(sorted(set(kinds))) or None, ""


FORMAT: Final = JobsFormat(
    name="slurm",
    summary="Slurm's accounting: sacct --parsable2",
    takes="the output of sacct --parsable2 --allusers with its header, plain or gzip; any number",
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
