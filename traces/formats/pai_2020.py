"""Alibaba's PAI cluster, 2020: the tables of ``cluster-trace-gpu-v2020``, or its simulator's CSV.

Either ``pai_job_table.csv`` and ``pai_task_table.csv``, joined on ``job_name``; they have no
header line, their columns stand in a ``.header`` file beside each or are as published (a header
line is accepted too). A job asks for the GPUs of all its tasks: ``plan_gpu`` (percent of a GPU)
for each of ``inst_num`` instances. It is submitted at the job's ``start_time``, and runs from the
start of its first task with GPUs to the end of the last; tasks without GPUs do not count.

Or the simulator's CSV: ``job_id``, ``num_inst``, ``submit_time``, ``num_gpu`` (for each instance),
``gpu_type``, ``duration``, ``user``. If it has ``group`` and ``user_dur``, these become
``group_id`` and ``estimate_s``: a prediction from the user's jobs, which no user made. Its
``group_dur``, ``group_gpu_dur`` (what jobs of the group took) and ``wait_time`` are left out.

N instances of a share s < 1 of a GPU become ``gpus`` N and ``gpu_milli`` 1000 s. What cannot be
represented is dropped and counted: more than one GPU and a fraction for an instance, tasks of one
job with different shares or different GPU types.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.readers.base import Batch, ConvertedRows, ImportOptions, JobsFormat
from wattkeeper.traces.readers.columns import (
    Wrong,
    add_fault,
    add_faults,
    keep_rows,
    parse_numbers,
    parse_texts,
)
from wattkeeper.traces.readers.textfile import (
    Layout,
    first_line,
    has_header,
    one_path,
    text_batches,
)

JOB: Final = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TASK: Final = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
SIMULATOR: Final = ("job_id", "num_inst", "submit_time", "num_gpu", "gpu_type", "duration", "user")
MOST_GPUS: Final = 2**31 - 1
NO_TIME: Final = ("", "nan", "NaN", "0", "0.0")

REASONS: Final = (
    "",
    "asks for no GPU",
    "asks for less than a thousandth of a GPU",
    "asks for more than one GPU and a fraction for each instance",
    "its number of instances is not recorded",
    "its tasks ask for different shares of a GPU",
    "its tasks were given different GPU types",
    "one of its tasks is malformed",
)
NO_GPU, TOO_SMALL, FRACTION, NO_COUNT, SHARES, TYPES, MALFORMED = range(1, len(REASONS))

_of_simulator = has_header(*SIMULATOR)


class _Tasks(NamedTuple):
    """Sums over the tasks with GPUs of each job; one value per job."""

    names: pa.Array
    gpus: Floats
    milli: Floats
    start_s: Floats
    duration_s: Floats
    gpu_type: pa.Array
    reason: Ints


def sniff(path: Path) -> bool:
    """Whether a file has the simulator's header, or is one of the two tables by name or header."""
    if _of_simulator(path) or has_header(*JOB)(path) or has_header(*TASK)(path):
        return True
    name = {6: "pai_job_table", 10: "pai_task_table"}.get(len(first_line(path).split(",")))
    return name is not None and path.name.startswith(name)


def batches(paths: Sequence[Path], options: ImportOptions) -> Iterator[Batch]:
    """The jobs, in batches of some thousands, after the malformed tasks.

    Paths: the simulator's CSV, or the job and the task table (and .header files, which are found
    without being named); in any order.

    Raises:
        TraceError: If a file is missing, or these are not the files that are needed.
    """
    paths = [path for path in paths if path.suffix != ".header"] or paths
    if packed := [path for path in paths if ".tar" in path.suffixes]:
        text = "is an archive; unpack it, and import the CSV files in it"
        raise TraceError([Problem(text, str(path)) for path in packed])
    if missing := [path for path in paths if not path.is_file()]:
        raise TraceError([Problem("no such file", str(path)) for path in missing])
    if any(_of_simulator(path) for path in paths):
        return text_batches(one_path(paths, "CSV file of the simulator"), Layout(), SIMULATOR)
    tables = {len(first_line(path).split(",")): path for path in paths}
    if len(paths) != 2 or set(tables) != {len(JOB), len(TASK)}:
        text = (
            "needed are pai_job_table.csv (6 columns) and pai_task_table.csv (10 columns), or "
            f"one CSV with {', '.join(SIMULATOR)}"
        )
        raise TraceError(text, ", ".join(map(str, paths)))
    return _join(tables[len(JOB)], tables[len(TASK)])


def _join(jobs: Path, tasks: Path) -> Iterator[Batch]:
    added: list[pa.Table] = []
    for batch in text_batches(tasks, _layout(tasks, TASK), TASK):
        table, wrong = _gpu_tasks(batch)
        added.append(table)
        if wrong:
            yield Batch(tasks, batch.lines[:0], batch.rows.slice(0, 0), wrong)
    context = _by_job(pa.concat_tables(added).combine_chunks() if added else _no_tasks())
    for batch in text_batches(jobs, _layout(jobs, JOB), JOB):
        yield batch._replace(context=context)


def _layout(path: Path, published: tuple[str, ...]) -> Layout:
    """How a table is divided; where it has no header line, with the columns of its .header."""
    if "job_name" in [name.strip().strip('"') for name in first_line(path).split(",")]:
        return Layout()
    beside = path.with_name(path.name.split(".")[0] + ".header")
    columns = tuple(name.strip() for name in first_line(beside).split(","))
    if columns == ("",):
        return Layout(columns=published)
    if sorted(columns) != sorted(published):
        raise TraceError(f"names {', '.join(columns)}; needed are {', '.join(published)}", beside)
    return Layout(columns=columns)


def _no_tasks() -> pa.Table:
    kinds = {"name": pa.string(), "gpu_type": pa.string()}
    names = ("name", "gpu_type", "gpus", "milli", "start", "end", "reason")
    return pa.table({name: pa.array([], kinds.get(name, pa.float64())) for name in names})


def _gpu_tasks(batch: Batch) -> tuple[pa.Table, dict[int, str]]:
    """The tasks with GPUs and the malformed ones, and what is wrong by line."""
    table, wrong = batch.rows, Wrong()
    names = parse_texts(table, "job_name", ("",))
    instances = parse_numbers(table, "inst_num", wrong, whole=True)
    gpus, milli, reason = _demand(
        parse_numbers(table, "plan_gpu", wrong) / 100.0, instances, wrong, ("plan_gpu", "inst_num")
    )
    start, end = (
        parse_numbers(table, key, wrong, absent=NO_TIME) for key in ("start_time", "end_time")
    )
    for row in np.flatnonzero(end < start).tolist():
        add_fault(wrong, row, f"end_time {end[row]:.15g} is before start_time {start[row]:.15g}")
    add_faults(wrong, np.asarray(names.is_null()), "job_name is empty")
    reason[list(wrong)] = MALFORMED
    stay = np.flatnonzero(reason != NO_GPU)
    columns = {
        "name": names,
        "gpu_type": parse_texts(table, "gpu_type"),
        "gpus": gpus,
        "milli": milli,
        "start": start,
        "end": end,
        "reason": reason.astype(float),
    }
    lines = {int(batch.lines[row]): text for row, text in wrong.items()}
    return pa.table(columns).take(pa.array(stay)), {**batch.wrong, **lines}


def _demand(
    each: Floats, instances: Floats, wrong: Wrong, names: tuple[str, str]
) -> tuple[Floats, Floats, Ints]:
    """GPUs, thousandths of each, and why they are unknown (0: known; index into `REASONS`).

    `each`: GPUs of an instance, NaN where there are none; `names`: those of the two columns.
    """
    each = np.nan_to_num(each)
    gpus = instances * np.maximum(each, 1.0)
    checks = (
        (each < 0, f"{names[0]} is negative, must be a number >= 0"),
        (instances < 1, f"{names[1]} is below 1, must be a whole number from 1 on"),
        (gpus > MOST_GPUS, f"{names[0]} times {names[1]} is above {MOST_GPUS} GPUs"),
    )
    for mask, text in checks:
        add_faults(wrong, mask, text)
    milli = np.where(each < 1, np.round(each * 1000), 1000.0)
    reason = np.zeros(len(each), dtype=np.int64)
    reason[np.isnan(instances)] = NO_COUNT
    reason[(each > 1) & (np.floor(each) != each)] = FRACTION
    reason[milli < 1] = TOO_SMALL
    reason[each == 0] = NO_GPU
    return gpus, milli, reason


def _by_job(tasks: pa.Table) -> _Tasks:
    """Sum up the tasks of each job."""
    coded = pc.dictionary_encode(pc.fill_null(tasks["name"], "")).combine_chunks()
    job, count = np.asarray(coded.indices), len(coded.dictionary)
    gpus, milli, start, end, why = (
        np.asarray(tasks[name]) for name in ("gpus", "milli", "start", "end", "reason")
    )
    kinds = pc.dictionary_encode(pc.fill_null(tasks["gpu_type"], "")).combine_chunks()
    kind = np.asarray(kinds.indices)
    reason = _most(job, why, count).astype(np.int64)
    lowest, highest = -_most(job, -milli, count), _most(job, milli, count)
    first, last = -_most(job, -kind, count), _most(job, kind, count)
    reason = np.where((reason == 0) & (lowest != highest), SHARES, reason)
    reason = np.where((reason == 0) & (first != last), TYPES, reason)
    gpu_type = kinds.dictionary.take(pa.array(last.astype(np.int64)))
    started = -_most(job, -start, count)
    return _Tasks(
        names=coded.dictionary,
        gpus=np.bincount(job, weights=gpus, minlength=count).astype(float),
        milli=highest,
        start_s=started,
        duration_s=_most(job, end, count) - started,
        gpu_type=pc.if_else(pc.equal(gpu_type, ""), pa.scalar(None, pa.string()), gpu_type),
        reason=reason,
    )


def _most(job: npt.NDArray[np.int32], values: npt.NDArray[np.generic], count: int) -> Floats:
    """The highest value of each job, NaN if one of them is."""
    highest = np.full(count, -np.inf)
    with np.errstate(invalid="ignore"):
        np.maximum.at(highest, job, values.astype(float))
    return highest


def convert(batch: Batch) -> ConvertedRows:
    """From jobs to canonical columns."""
    table: pa.Table = batch.rows
    if "num_inst" in table.column_names:
        return _from_simulator(table)
    tasks: _Tasks | None = batch.context
    if tasks is None:
        return keep_rows(0, {}, {})
    wrong: Wrong = {}
    names = parse_texts(table, "job_name", ("",))
    submitted = parse_numbers(table, "start_time", wrong, absent=NO_TIME)
    parse_numbers(table, "end_time", wrong, absent=NO_TIME)
    position = pc.index_in(names, value_set=tasks.names)
    row = np.asarray(position.fill_null(0))
    without: Bools = np.asarray(position.is_null())
    reason = np.where(without, NO_GPU, _take(tasks.reason, row))
    columns = {
        "job_id": names,
        "user": parse_texts(table, "user"),
        "submit_time_s": submitted,
        "start_time_s": _take(tasks.start_s, row),
        "duration_s": _take(tasks.duration_s, row),
        "gpus": _take(tasks.gpus, row),
        "gpu_milli": _take(tasks.milli, row),
        "gpu_type": tasks.gpu_type.take(position),
        "status": parse_texts(table, "status"),
    }
    drops = [(REASONS[code], reason == code) for code in range(1, len(REASONS))]
    drops.append(("no submission time recorded", np.isnan(submitted)))
    return keep_rows(table.num_rows, columns, wrong, drops)


def _take(values: npt.NDArray[np.generic], row: Ints) -> Floats:
    return values[row].astype(float) if len(values) else np.zeros(len(row))


def _from_simulator(table: pa.Table) -> ConvertedRows:
    wrong: Wrong = {}
    instances = parse_numbers(table, "num_inst", wrong, whole=True, needed=True)
    gpus, milli, reason = _demand(
        parse_numbers(table, "num_gpu", wrong), instances, wrong, ("num_gpu", "num_inst")
    )
    columns = {
        "job_id": parse_texts(table, "job_id", ("",)),
        "group_id": parse_texts(table, "group"),
        "user": parse_texts(table, "user"),
        "submit_time_s": parse_numbers(table, "submit_time", wrong, needed=True),
        "duration_s": parse_numbers(table, "duration", wrong),
        "estimate_s": parse_numbers(table, "user_dur", wrong, absent=NO_TIME),
        "gpus": gpus,
        "gpu_milli": milli,
        "gpu_type": parse_texts(table, "gpu_type"),
    }
    drops = [(REASONS[code], reason == code) for code in (NO_GPU, TOO_SMALL, FRACTION)]
    return keep_rows(table.num_rows, columns, wrong, drops)


FORMAT: Final = JobsFormat(
    name="pai-2020",
    summary="Alibaba's PAI cluster, 2020: job and task tables, or the simulator's CSV",
    takes="pai_job_table.csv and pai_task_table.csv, or one CSV of its simulator",
    source=(
        "Weng et al., MLaaS in the Wild: Workload Analysis and Scheduling in Large-Scale "
        "Heterogeneous GPU Clusters (NSDI '22); github.com/alibaba/clusterdata, "
        "cluster-trace-gpu-v2020"
    ),
    licence="see the terms of alibaba/clusterdata",
    time_unit="s, shifted by a constant that is not stated",
    cannot_tell=(
        "Dates are fake; only the time of day (UTC+8) and the day of the week are real.",
        "gpu_type is what a job was given, not what it asked for; MISC stands for older GPUs.",
        "estimate_s, where there is one, is the source's prediction from the user's jobs, not "
        "what the user expected.",
        "What a job computes, and whether it trains or infers: the job and task tables do not say.",
        "In the job and task tables, which jobs recur (pai_group_tag_table is not read).",
        "duration_s counts from the start of the first GPU task to the end of the last, also "
        "where instances started later or ended earlier.",
    ),
    sniff=sniff,
    batches=batches,
    convert=convert,
)
