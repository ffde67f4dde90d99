"""The output of ``sacct --json``, read as the rows that ``sacct --parsable2`` would have written.

Of each element of ``jobs``, what stands in `row_of_job` is read, and of its ``steps`` the energy.
Numbers are plain, or objects with ``set``, ``infinite`` and ``number``; a state is a text, or a
list of the state and its flags. Times count seconds since 1970. Source: data_parser plug-ins of
Slurm (v0.0.39 to v0.0.44), and openapi/dbv0.0.36 to 38 before them.
"""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.limits import MOST_JSON_BYTES
from wattkeeper.traces.readers.base import Batch
from wattkeeper.traces.readers.csvfile import open_plain
from wattkeeper.traces.readers.json_values import (
    Json,
    check_text,
    quote,
    read_objects,
    read_text,
    read_value,
)
from wattkeeper.traces.readers.json_window import JsonWindow
from wattkeeper.traces.readers.textfile import SNIFFED_BYTES

Row = dict[str, str]

BATCH_JOBS: Final = 10_000
NO_VALUE: Final = 0xFFFFFFFD
"""Slurm's 32-bit codes for "not set" and "infinite" are above."""
COLUMNS: Final = (
    "JobID",
    "Cluster",
    "User",
    "Account",
    "QOS",
    "Partition",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "ElapsedRaw",
    "Suspended",
    "TimelimitRaw",
    "State",
    "AllocTRES",
    "ReqTRES",
    "NNodes",
    "NodeList",
    "AdminComment",
    "ConsumedEnergyRaw",
    "Lacks",
    "Fault",
)
"""Those of sacct; which of `ALWAYS` a job lacks; and what is wrong with it, alone in its row."""
ALWAYS: Final = ("partition", "time.elapsed", "time.limit")
"""What sacct writes of every job."""
MARKS: Final = (
    re.compile(rb'\{\s*"(jobs|meta|errors|warnings)"\s*:|"jobs"\s*:\s*\['),
    re.compile(
        rb'"job_id"\s*:.*"(allocation_nodes|association|time)"\s*:'
        rb'|"(allocation_nodes|association|time)"\s*:.*"job_id"\s*:',
        re.DOTALL,
    ),
)
"""Of which one is at the beginning of such a file, or of its jobs alone."""
ADVICE: Final = "write the log with sacct --json or --parsable2 again"


def is_json(path: Path) -> bool:
    """Whether a file begins as JSON; never raises."""
    return _head(path)[:1] in (b"{", b"[")


def looks_right(path: Path) -> bool:
    """Whether a file looks like the output of ``sacct --json``, or its jobs; never raises."""
    head = _head(path)
    return head[:1] in (b"{", b"[") and any(mark.search(head) for mark in MARKS)


def _head(path: Path) -> bytes:
    try:
        with open_plain(path) as file:
            return file.read(SNIFFED_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    except TraceError:
        return b""


def json_batches(path: Path) -> Iterator[Batch]:
    """Read the jobs of a file; memory holds some of them at a time.

    Outputs of sacct may follow each other, and so may lists of jobs, and jobs.

    Raises:
        TraceError: If the file is no such JSON.
    """
    jobs = _read_jobs(path)
    while True:
        rows, lines = list[Row](), list[int]()
        for line, job in islice(jobs, BATCH_JOBS):
            try:
                read = rows_of_job(job)
            except ValueError as error:
                read = [{"Fault": str(error)}]
            rows += read
            lines += [line] * len(read)
        if not rows:
            return
        columns = {
            name: pa.array([row.get(name, "") for row in rows], pa.string()) for name in COLUMNS
        }
        yield Batch(path, np.array(lines, dtype=np.int64), pa.table(columns))


def _read_jobs(path: Path) -> Iterator[tuple[int, Json]]:
    text = JsonWindow(path, "job", longest=MOST_JSON_BYTES, advice=f"; {ADVICE}")
    for line, job, _ in text.records("jobs"):
        if not isinstance(job, dict) or job.keys().isdisjoint(("job_id", "time")):
            where = f"{path}, line {line}"
            raise TraceError(f"is JSON without 'jobs', as sacct --json writes it; {ADVICE}", where)
        yield line, job


def rows_of_job(job: Json) -> list[Row]:
    """The line of a job, and those of its steps.

    Raises:
        ValueError: If a value is not what sacct writes.
    """
    row = row_of_job(job)
    steps = [
        {
            **{name: row[name] for name in ("Cluster", "Submit")},
            "JobID": f"{row['JobID']}.{_step_name(step)}",
            "ConsumedEnergyRaw": _number(step, "statistics.energy.consumed"),
        }
        for step in read_objects(job, "steps")
    ]
    return [row, *steps]


def row_of_job(job: Json) -> Row:
    """The line of a job without its steps."""
    if read_value(job, "time") is None:
        raise ValueError(
            "time is absent, which sacct --json writes of each job, and squeue does not"
        )
    return {
        "JobID": _job_id(job),
        "Cluster": _text(job, "cluster") or _text(job, "association.cluster"),
        "User": _text(job, "user") or _text(job, "association.user"),
        "Account": _text(job, "account") or _text(job, "association.account"),
        "QOS": _text(job, "qos"),
        "Partition": _text(job, "partition"),
        "Submit": _time(job, "time.submission"),
        "Eligible": _time(job, "time.eligible"),
        "Start": _time(job, "time.start"),
        "End": _time(job, "time.end"),
        "ElapsedRaw": _number(job, "time.elapsed"),
        "Suspended": f"00:{_number(job, 'time.suspended') or '0'}",
        "TimelimitRaw": _number(job, "time.limit"),
        "State": _state(job),
        "AllocTRES": _resources(job, "tres.allocated"),
        "ReqTRES": _resources(job, "tres.requested"),
        "NNodes": _number(job, "allocation_nodes"),
        "NodeList": _text(job, "nodes"),
        "AdminComment": _text(job, "comment.administrator"),
        "Lacks": ", ".join(path for path in ALWAYS if read_value(job, path) is None),
    }


def _job_id(job: Json) -> str:
    """As in a column ``JobID``: of a task its array's, of a part its heterogeneous job's."""
    array, het = _number(job, "array.job_id"), _number(job, "het.job_id")
    if array not in ("", "0"):
        if task := _number(job, "array.task_id"):
            return f"{array}_{task}"
        if tasks := _text(job, "array.task"):
            return f"{array}_[{tasks}]"
    if het not in ("", "0") and (part := _number(job, "het.job_offset")):
        return f"{het}+{part}"
    return _number(job, "job_id")


def _text(record: Json, path: str) -> str:
    return read_text(record, path) or ""


def _number(record: Json, path: str) -> str:
    """A whole number as a text; empty where it is not set."""
    value = read_value(record, path)
    if isinstance(value, dict):
        if value.get("infinite"):
            return "UNLIMITED"
        value = value.get("number") if value.get("set", True) else None
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{path} is {quote(value)}, must be a number")
    return "" if NO_VALUE <= value <= NO_VALUE + 2 else str(value)


def _time(record: Json, path: str) -> str:
    """Seconds since 1970; `Unknown` for 0, as sacct writes."""
    text = _number(record, path)
    return "Unknown" if text == "0" else text


def _state(job: Json) -> str:
    """The state, or the last of its flags: ``RESIZING`` and ``REQUEUED`` are flags."""
    value = read_value(job, "state.current")
    last = value[-1] if isinstance(value, list) and value else value
    return check_text(last, "state.current") or ""


def _resources(job: Json, path: str) -> str:
    """As in a column of TRES, such as ``cpu=4,gres/gpu:a100=2``."""
    entries = []
    for entry in read_objects(job, path):
        name = _text(entry, "name")
        kind = _text(entry, "type") + (f"/{name}" if name else "")
        count = _number(entry, "count")
        if count and not count.startswith("-"):  # codes for "not set"
            entries.append(f"{kind}={count}")
    return ",".join(entries)


def _step_name(step: Json) -> str:
    """``batch``, ``extern`` or a number."""
    value = read_value(step, "step.id")
    if isinstance(value, dict):
        value = value.get("step_id")
        value = value.get("number") if isinstance(value, dict) else value
    return str(value).rpartition(".")[2]
