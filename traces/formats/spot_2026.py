"""Alibaba's spot GPUs, 2026: jobs and nodes of ``cluster-trace-v2026-spot-gpu``.

``job_info_df.csv`` has ``job_name``, ``organization``, ``gpu_model``, ``cpu_request``,
``gpu_request``, ``worker_num``, ``submit_time``, ``duration`` (s) and ``job_type`` (``HP`` or
``Spot``); ``node_info_df.csv`` has ``node_name``, ``gpu_model``, ``gpu_capacity_num`` and
``cpu_num``. A job asks for ``gpu_request`` GPUs for each of its ``worker_num`` workers. That
``gpu_request`` counts for each worker is an assumption: the description says "number of GPU
requested by the job", and gives examples of one GPU with 16 and with 94 workers. The columns of
the job table are those of its published description; the table itself was not at hand.

The organization stands in ``user``, the job type in ``queue``.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.readers.base import Batch, ConvertedRows, ImportOptions, JobsFormat
from wattkeeper.traces.readers.columns import (
    Wrong,
    add_faults,
    keep_rows,
    parse_numbers,
    parse_texts,
)
from wattkeeper.traces.readers.csvfile import read_csv
from wattkeeper.traces.readers.textfile import Layout, has_header, one_path, text_batches
from wattkeeper.traces.schema import NODES, field, table_schema

COLUMNS: Final = (
    "job_name",
    "organization",
    "gpu_model",
    "gpu_request",
    "worker_num",
    "submit_time",
    "duration",
    "job_type",
)
MOST_GPUS: Final = 2**31 - 1

SERVERS: Final = table_schema(
    "node list",
    ["node_name"],
    [
        field("node_name", pa.string(), "", "one host", "not empty"),
        field("gpu_model", pa.string(), "", "model of its GPUs", "not empty"),
        field("gpu_capacity_num", pa.int32(), "", "GPUs on it", "> 0"),
    ],
)

_lists_jobs = has_header("job_name", "gpu_request", "worker_num")
_lists_nodes = has_header("node_name", "gpu_capacity_num")


def sniff(path: Path) -> bool:
    """Whether a file has the header of the job table or of the node table."""
    return _lists_jobs(path) or _lists_nodes(path)


def batches(paths: Sequence[Path], options: ImportOptions) -> Iterator[Batch]:
    """The jobs, in batches of some thousands.

    Paths: the job table and, if wanted, the node table; in any order.

    Raises:
        TraceError: If a file is missing, or there is not one job table.
    """
    if missing := [path for path in paths if not path.is_file()]:
        raise TraceError([Problem("no such file", str(path)) for path in missing])
    jobs = [path for path in paths if not _lists_nodes(path)]
    if not jobs:
        text = "is the node table; the job table job_info_df.csv is needed too"
        raise TraceError(text, ", ".join(map(str, paths)))
    return text_batches(one_path(jobs, "job table"), Layout(), COLUMNS)


def convert(batch: Batch) -> ConvertedRows:
    """From jobs to canonical columns."""
    table: pa.Table = batch.rows
    wrong: Wrong = {}
    each = parse_numbers(table, "gpu_request", wrong, needed=True)
    workers = parse_numbers(table, "worker_num", wrong, whole=True, needed=True)
    whole = np.floor(each) == each
    total = workers * np.maximum(each, 1.0)
    checks = (
        (each < 0, "gpu_request is negative, must be a number >= 0"),
        (workers < 1, "worker_num is below 1, must be a whole number from 1 on"),
        (total > MOST_GPUS, "gpu_request times worker_num is above 2147483647"),
    )
    for mask, text in checks:
        add_faults(wrong, mask, text)
    columns = {
        "job_id": parse_texts(table, "job_name", ("",)),
        "user": parse_texts(table, "organization"),
        "queue": parse_texts(table, "job_type"),
        "submit_time_s": parse_numbers(table, "submit_time", wrong, needed=True),
        "duration_s": parse_numbers(table, "duration", wrong),
        "gpus": total,
        "gpu_milli": np.where(each < 1, np.round(each * 1000), 1000.0),
        "gpu_type": parse_texts(table, "gpu_model"),
    }
    drops = [
        ("asks for no GPU", each == 0),
        ("asks for less than a thousandth of a GPU", (each > 0) & (each < 0.0005)),
        ("asks for more than one GPU and a fraction for each worker", (each > 1) & ~whole),
    ]
    return keep_rows(table.num_rows, columns, wrong, drops)


def nodes(paths: Sequence[Path]) -> pa.Table | None:
    """The nodes, if one of the paths lists them.

    Raises:
        TraceError: If the list is wrong.
    """
    lists = [path for path in paths if _lists_nodes(path)]
    if not lists:
        return None
    table = read_csv(one_path(lists, "node table"), SERVERS).table
    columns = [table[name] for name in ("node_name", "gpu_model", "gpu_capacity_num")]
    return pa.table(columns, schema=NODES)


FORMAT: Final = JobsFormat(
    name="spot-2026",
    summary="Alibaba's spot and high-priority GPU jobs, 2026",
    takes="job_info_df.csv, optionally node_info_df.csv",
    source=(
        "Duan et al., GFS: A Preemptive Scheduling Framework for GPU Clusters with Predictive "
        "Spot Management (ASPLOS '26); github.com/alibaba/clusterdata, "
        "cluster-trace-v2026-spot-gpu"
    ),
    licence="not stated in its folder of alibaba/clusterdata",
    time_unit="s from the first submission",
    cannot_tell=(
        "gpu_request is taken to count for each of worker_num workers: the description does not "
        "say so outright.",
        "Whether a job was preempted, how it ended, and how long it waited: duration_s is as "
        "recorded, and does not say whether it counts restarts.",
        "What a job computes, who in its organization submitted it, and how long it was expected "
        "to run.",
        "What the GPU models GPU-series-1 and GPU-series-2 are.",
    ),
    sniff=sniff,
    batches=batches,
    convert=convert,
    nodes=nodes,
)
