"""Kubernetes: pods, or workloads of Kueue, as ``kubectl get -A -o json`` writes them.

A document with a list of objects, or one object a line, as ``jq -c '.items[]'`` makes of it.
Pods of one job are a gang: one row with all their GPUs. Of an object that stands in the log
several times, as in regular exports, the last state counts. Memory holds what is read of the
objects with GPUs, not their text.
Source: API reference of Kubernetes (core/v1 Pod) and of Kueue (kueue.x-k8s.io, Workload).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from wattkeeper.traces.formats.kubernetes.documents import looks_right, read_objects
from wattkeeper.traces.formats.kubernetes.jobs import KubeJob
from wattkeeper.traces.formats.kubernetes.log import ObjectLog, Row
from wattkeeper.traces.readers.base import Batch, ConvertedRows, ImportOptions, JobsFormat, Kinds
from wattkeeper.traces.schema import JOBS

BATCH_ROWS: Final = 10_000


def batches(paths: Sequence[Path], options: ImportOptions) -> Iterator[Batch]:
    """Read any number of files: first what is no object of a job, then the others.

    Raises:
        TraceError: If a file cannot be read, or is a document that is damaged.
    """
    log = ObjectLog()
    for number, path in enumerate(paths):
        rows: list[Row] = []
        for line, record in read_objects(path):
            try:
                outcome: str | ValueError = log.add(number, line, record)
            except ValueError as error:
                outcome = error
            if outcome:
                rows.append(Row(line, outcome))
            if len(rows) == BATCH_ROWS:
                yield _batch(path, rows)
                rows = []
        yield _batch(path, rows)
    for number, same in groupby(log.rows(), key=lambda each: each[0]):
        rows = []
        for _, row in same:
            rows.append(row)
            if len(rows) == BATCH_ROWS:
                yield _batch(paths[number], rows)
                rows = []
        yield _batch(paths[number], rows)


def _batch(path: Path, rows: list[Row]) -> Batch:
    return Batch(path, np.array([row.line for row in rows], dtype=np.int64), rows)


def convert(batch: Batch) -> ConvertedRows:
    """From jobs, reasons of lines that are none, and faults, to canonical columns."""
    rows: list[Row] = batch.rows
    jobs = {
        number: row.outcome for number, row in enumerate(rows) if isinstance(row.outcome, KubeJob)
    }
    columns = {
        name: pa.array([getattr(job, name) for job in jobs.values()], JOBS.field(name).type)
        for name in KubeJob._fields
    }
    faults = {
        n: str(row.outcome) for n, row in enumerate(rows) if isinstance(row.outcome, ValueError)
    }
    dropped = Counter(row.outcome for row in rows if isinstance(row.outcome, str))
    doubtful: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        for doubt in set(row.doubts):
            doubtful.setdefault(doubt, []).append(number)
    doubts = {doubt: np.array(doubtful[doubt], dtype=np.int64) for doubt in sorted(doubtful)}
    kept = np.array(list(jobs), dtype=np.int64)
    return ConvertedRows(
        columns, kept, faults, dropped, kinds=Kinds(offset=len(kept)), doubts=doubts
    )


FORMAT: Final = JobsFormat(
    name="kubernetes",
    summary="Kubernetes: pods, or workloads of Kueue, as JSON",
    takes="the output of kubectl get pods -A -o json, or of workloads, whole or one object a line; "
    "any number, plain or gzip",
    source="Kubernetes API of a cluster (pods, or workloads of Kueue)",
    licence="as the imported file",
    time_unit="RFC 3339, with a time zone",
    times=("offset",),
    cannot_tell=(
        "Objects that were deleted before the export: finished pods and workloads vanish.",
        "What a job trained, and which jobs recur.",
        "How long a job that still runs will take: it has no duration.",
        "Earlier runs of a container that restarted in its pod, which count as one run.",
        "When a workload of Kueue was admitted before it was last evicted.",
        "Energy.",
    ),
    sniff=looks_right,
    batches=batches,
    convert=convert,
)
