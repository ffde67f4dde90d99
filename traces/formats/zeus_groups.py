"""Recurring jobs in the CSV schema of Zeus (NSDI '23) for cluster traces, one row a job.

``group`` (recurrences of one job), ``start_time`` and ``end_time`` (s), ``dataset`` (what it
trains), ``runtime_ratio`` (its run time over the mean of what trains that data set); further
columns are left out. In that schema a job starts when it is submitted.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.files.names import derive_name
from wattkeeper.traces.limits import MOST_FAULTS
from wattkeeper.traces.readers.base import Format
from wattkeeper.traces.readers.csvfile import read_csv
from wattkeeper.traces.readers.textfile import one_path
from wattkeeper.traces.schema import field, table_schema
from wattkeeper.traces.tables import jobs_table
from wattkeeper.traces.trace import Trace

GROUPS: Final = table_schema(
    "groups",
    [],
    [
        field("group", pa.string(), "", "ties recurrences", "not empty"),
        field("start_time", pa.float64(), "s", "submission and start", ">= 0"),
        field("end_time", pa.float64(), "s", "end", ">= 0"),
        field("dataset", pa.string(), "", "what it trains", "not empty"),
        field("runtime_ratio", pa.float64(), "", "run time over the mean", "> 0"),
    ],
)


def read(paths: Sequence[Path]) -> Trace:
    """Read one CSV file, plain or gzip.

    Raises:
        TraceError: If the file is wrong, a job ends before it starts, or the rows of a group are
            not ordered by ``start_time``.
    """
    path = one_path(paths, "CSV file")
    file = read_csv(path, GROUPS)
    job_ids = _check_rows(file.table, path)
    start, end = (np.asarray(file.table[name]) for name in ("start_time", "end_time"))
    jobs = jobs_table(
        {
            "job_id": pa.array(job_ids),
            "group_id": file.table["group"],
            "submit_time_s": pa.array(start),
            "duration_s": pa.array(end - start),
            "gpus": pa.array(np.ones(len(start), dtype=np.int32)),
            "workload": file.table["dataset"],
            "time_scale": file.table["runtime_ratio"],
        }
    ).take(pa.array(np.argsort(start, kind="stable")))
    return Trace(
        name=derive_name(path.name.removesuffix(".gz").removesuffix(".csv")),
        kind="jobs",
        tables={"jobs": jobs},
        format=FORMAT.name,
        origin="modelled",
        source="A CSV file in the schema of Zeus (NSDI 2023) for cluster traces",
        licence="as the imported file",
        inputs={path.name: file.sha256},
        notes=(
            "Which workload a job trains and its run time ratio are assigned by the file's "
            "author; they are not recorded.",
            "Each job is taken to run on one GPU and to start when it is submitted.",
            *([f"Unused columns: {', '.join(file.extra)}."] if file.extra else []),
        ),
    )


def _check_rows(table: pa.Table, path: Path) -> list[str]:
    """Return the job ids after checks across columns and rows."""
    columns = (table[name].to_pylist() for name in ("group", "start_time", "end_time"))
    seen: Counter[str] = Counter()
    last: dict[str, float] = {}
    job_ids, problems = [], []
    for row, (group, start, end) in enumerate(zip(*columns, strict=True), start=1):
        where = f"{path}, row {row}"
        if end < start:
            text = f"end_time {end!r} is before start_time {start!r}"
            problems.append(Problem(text, where))
        if start < last.get(group, start):
            text = (
                f"start_time {start!r} is before {last[group]!r}, an earlier row of group "
                f"{group!r}; the rows of a group must be ordered by start_time"
            )
            problems.append(Problem(text, where))
        last[group] = start
        if len(problems) >= MOST_FAULTS:
            break
        seen[group] += 1
        job_ids.append(f"{group}/{seen[group]}")
    if problems:
        raise TraceError(problems)
    return job_ids


FORMAT: Final = Format(
    name="zeus-groups",
    summary="recurring jobs: group, start_time, end_time, dataset, runtime_ratio",
    takes="one CSV file, plain or gzip",
    read=read,
)
