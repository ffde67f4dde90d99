"""Jobs of Microsoft's Philly cluster (2017) as one CSV file, in the schema of the Pollux artifact.

``timestamp`` (submission), ``duration`` (s), ``num_gpus``, ``gpu_time`` (s, not read), ``cluster``
(virtual cluster). Rows come in no order; a job is named after its row.
"""

from typing import Final

import numpy as np

from wattkeeper.traces.readers.base import Batch, ConvertedRows, JobsFormat
from wattkeeper.traces.readers.columns import (
    keep_rows,
    number_jobs,
    parse_numbers,
    parse_texts,
    parse_times,
)
from wattkeeper.traces.readers.textfile import has_header, one_log

COLUMNS: Final = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")


def convert(batch: Batch) -> ConvertedRows:
    """Columns by name."""
    table, wrong = batch.rows, dict[int, str]()
    gpus = parse_numbers(table, "num_gpus", wrong, whole=True, needed=True)
    submitted = parse_times(table, "timestamp", wrong, batch.kind, numbers=False, needed=True)
    duration = parse_numbers(table, "duration", wrong, unit="seconds")
    columns = {
        "job_id": number_jobs(batch.lines),
        "queue": parse_texts(table, "cluster"),
        "submit_time_s": submitted.seconds,
        "duration_s": duration,
        "gpus": gpus,
    }
    drops = [("asks for no GPU", gpus == 0), ("has no duration", np.isnan(duration))]
    names = {"submit_time_s": "timestamp", "duration_s": "duration", "gpus": "num_gpus"}
    return keep_rows(table.num_rows, columns, wrong, drops, kinds=submitted.kinds, names=names)


FORMAT: Final = JobsFormat(
    name="philly-csv",
    summary="Philly (2017): timestamp, duration, num_gpus, gpu_time, cluster",
    takes="one CSV file, plain or gzip",
    source=(
        "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training "
        "Workloads, ATC 2019 (msr-fiddle/philly-traces), in the schema of Pollux, OSDI 2021"
    ),
    licence="CC-BY-4.0",
    time_unit="dates without offset; durations in s",
    cannot_tell=(
        "Who submitted a job, how it ended, what it trained, and on which model of GPU.",
        "When a job started: its time in the queue is not recorded.",
        "The zone of its dates.",
    ),
    sniff=has_header(*COLUMNS),
    batches=one_log("CSV file", needed=COLUMNS),
    convert=convert,
    headers=True,
    times=("local", "offset"),
)
