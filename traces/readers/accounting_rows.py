"""Common columns of the published logs of Helios and Acme: CSV exports of Slurm's accounting."""

from typing import Final

import numpy as np

from wattkeeper.traces.readers.base import Batch, ConvertedRows
from wattkeeper.traces.readers.columns import keep_rows, parse_numbers, parse_texts, parse_times

COLUMNS: Final = (
    "job_id",
    "user",
    "gpu_num",
    "state",
    "submit_time",
    "start_time",
    "end_time",
    "duration",
)


def convert(batch: Batch) -> ConvertedRows:
    """Columns by name; ``vc`` is the queue where there is one."""
    table, wrong = batch.rows, dict[int, str]()
    gpus = parse_numbers(table, "gpu_num", wrong, whole=True, needed=True)
    submitted, started = (
        parse_times(table, name, wrong, batch.kind, numbers=False, needed=needed)
        for name, needed in (("submit_time", True), ("start_time", False))
    )
    columns = {
        "job_id": parse_texts(table, "job_id"),
        "user": parse_texts(table, "user"),
        "queue": parse_texts(table, "vc"),
        "submit_time_s": submitted.seconds,
        "start_time_s": started.seconds,
        "duration_s": parse_numbers(table, "duration", wrong, unit="seconds"),
        "gpus": gpus,
        "status": parse_texts(table, "state"),
    }
    drops = [("asks for no GPU", gpus == 0), ("never started", np.isnan(started.seconds))]
    names = {"submit_time_s": "submit_time", "duration_s": "duration", "gpus": "gpu_num"}
    return keep_rows(
        table.num_rows, columns, wrong, drops, kinds=submitted.kinds | started.kinds, names=names
    )
