"""The Standard Workload Format, version 2.2 (Feitelson), of the Parallel Workloads Archive.

Lines of 18 numbers with white space between, -1 for unknown; comments start with ``;``. Processors
become GPUs: those requested, or else those allocated.
"""

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from wattkeeper.traces.readers.base import Batch, ConvertedRows, JobsFormat
from wattkeeper.traces.readers.columns import Wrong, keep_rows, parse_numbers, parse_texts
from wattkeeper.traces.readers.textfile import Layout, first_line, one_log

COLUMNS: Final = (
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "application",
    "queue",
    "partition",
    "preceding job",
    "think time",
)
LAYOUT: Final = Layout(delimiter="", columns=COLUMNS, quotes=False, comment=";")
UNKNOWN: Final = ("-1", "-1.0", "-1.00")
STATUS: Final = {0: "failed", 1: "completed", 5: "cancelled"}
PARTS: Final = (2, 3, 4)
"""Of a job that was swapped out: its sum has a line of its own."""


def sniff(path: Path) -> bool:
    """Whether the first line that is no comment has 18 numbers."""
    values = first_line(path, ";").split()
    try:
        return len([float(value) for value in values]) == len(COLUMNS)
    except ValueError:
        return False


def convert(batch: Batch) -> ConvertedRows:
    """Columns by position."""
    table: pa.Table = batch.rows
    wrong: Wrong = {}
    wait, run, asked_s = (
        parse_numbers(table, name, wrong, absent=UNKNOWN)
        for name in ("wait time", "run time", "requested time")
    )
    submit = parse_numbers(table, "submit time", wrong, needed=True, absent=UNKNOWN)
    status, asked, got = (
        parse_numbers(table, name, wrong, whole=True, absent=UNKNOWN)
        for name in ("status", "requested processors", "allocated processors")
    )
    gpus = np.where(asked > 0, asked, got)
    words = [STATUS.get(int(code)) if code == code else None for code in status]
    columns = {
        "job_id": parse_texts(table, "job number"),
        "user": parse_texts(table, "user", UNKNOWN),
        "queue": parse_texts(table, "queue", UNKNOWN),
        "submit_time_s": submit,
        "start_time_s": submit + wait,
        "duration_s": run,
        "estimate_s": np.where(asked_s > 0, asked_s, np.nan),
        "gpus": gpus,
        "status": pa.array(words, pa.string()),
    }
    drops = [
        ("is a part of a job that was swapped out", np.isin(status, PARTS)),
        ("never started", np.isnan(run) & (status == 5)),
        ("has no number of processors", np.isnan(gpus) | (gpus == 0)),
    ]
    return keep_rows(table.num_rows, columns, wrong, drops)


FORMAT: Final = JobsFormat(
    name="swf",
    summary="Standard Workload Format 2.2 of the Parallel Workloads Archive",
    takes="one .swf file, plain or gzip",
    source="A log in the Standard Workload Format (Parallel Workloads Archive)",
    licence="as the imported file",
    time_unit="s",
    cannot_tell=(
        "GPUs: its processors are taken as GPUs, one for one.",
        "What a job computed: few logs of the archive are of training.",
    ),
    sniff=sniff,
    batches=one_log("SWF file", LAYOUT),
    convert=convert,
)
