"""Alibaba's GPU-sharing cluster, 2023: pods and nodes of ``cluster-trace-gpu-v2023``.

The list of pods has ``name``, ``num_gpu``, ``gpu_milli``, ``gpu_spec``, ``qos``, ``pod_phase``,
``creation_time``, ``deletion_time`` and ``scheduled_time`` (s); the list of nodes ``sn``, ``gpu``
and ``model``. Each pod is a job: it is submitted when it is created and runs from its scheduling
to its deletion. Its class of service stands in ``queue``, the phase that it was last seen in in
``status``. CPUs and memory are left out.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.errors import Problem, TraceError
from wattkeeper.traces.limits import MOST_FAULTS
from wattkeeper.traces.readers.base import Batch, ConvertedRows, ImportOptions, JobsFormat
from wattkeeper.traces.readers.columns import (
    Wrong,
    add_fault,
    keep_rows,
    parse_numbers,
    parse_texts,
)
from wattkeeper.traces.readers.csvfile import read_csv
from wattkeeper.traces.readers.textfile import Layout, has_header, one_path, text_batches
from wattkeeper.traces.schema import NODES, field, table_schema

SIZES: Final = ("name", "num_gpu", "gpu_milli")
TIMES: Final = ("creation_time", "deletion_time", "scheduled_time")
REST: Final = ("gpu_spec", "qos", "pod_phase")

SERVERS: Final = table_schema(
    "node list",
    ["sn"],
    [
        field("sn", pa.string(), "", "one host", "not empty"),
        field("gpu", pa.int32(), "", "GPUs on it", ">= 0"),
        field("model", pa.string(), "", "model of its GPUs", "not empty", null=True),
    ],
)

_lists_pods, _lists_nodes = has_header(*SIZES), has_header("sn", "gpu", "model")
_has_times = has_header(*TIMES)


def sniff(path: Path) -> bool:
    """Whether a file has the header of a list of pods or of nodes."""
    return _lists_pods(path) or _lists_nodes(path)


def batches(paths: Sequence[Path], options: ImportOptions) -> Iterator[Batch]:
    """The pods, in batches of some thousands.

    Paths: the list of pods and, if wanted, the list of nodes; in any order.

    Raises:
        TraceError: If a file is missing, or there is not one list of pods, or it has no times.
    """
    if missing := [path for path in paths if not path.is_file()]:
        raise TraceError([Problem("no such file", str(path)) for path in missing])
    pods = [path for path in paths if not _lists_nodes(path)]
    if not pods:
        text = "is a list of nodes; the list of pods is needed too"
        raise TraceError(text, ", ".join(map(str, paths)))
    path = one_path(pods, "list of pods")
    if _lists_pods(path) and not _has_times(path):
        text = (
            f"has no times: it is one of the lists that were sampled for sizes only; needed are "
            f"the columns {', '.join(TIMES)}, as in openb_pod_list_default.csv"
        )
        raise TraceError(text, f"{path}, line 1")
    return text_batches(path, Layout(), (*SIZES, *REST, *TIMES))


def convert(batch: Batch) -> ConvertedRows:
    """From pods to canonical columns."""
    table: pa.Table = batch.rows
    wrong: Wrong = {}
    names = parse_texts(table, "name", ("",))
    gpus, milli = (parse_numbers(table, key, wrong, whole=True, needed=True) for key in SIZES[1:])
    created = parse_numbers(table, TIMES[0], wrong, needed=True)
    deleted, scheduled = (parse_numbers(table, key, wrong) for key in TIMES[1:])
    duration = deleted - scheduled
    for row in np.flatnonzero(duration < 0).tolist():
        text = f"deletion_time {deleted[row]:g} is before scheduled_time {scheduled[row]:g}"
        add_fault(wrong, row, text)
    for row in np.flatnonzero(scheduled < created).tolist():
        text = f"scheduled_time {scheduled[row]:g} is before creation_time {created[row]:g}"
        add_fault(wrong, row, text)
    columns = {
        "job_id": names,
        "queue": parse_texts(table, "qos"),
        "submit_time_s": created,
        "start_time_s": scheduled,
        "duration_s": duration,
        "gpus": gpus,
        "gpu_milli": milli,
        "gpu_type": parse_texts(table, "gpu_spec"),
        "status": parse_texts(table, "pod_phase"),
    }
    return keep_rows(table.num_rows, columns, wrong, [("asks for no GPU", gpus == 0)])


def nodes(paths: Sequence[Path]) -> pa.Table | None:
    """The GPU nodes, if one of the paths lists them; nodes without GPUs are left out.

    Raises:
        TraceError: If the list is wrong, a node has GPUs of no model, or no node has a GPU.
    """
    lists = [path for path in paths if _lists_nodes(path)]
    if not lists:
        return None
    path = one_path(lists, "list of nodes")
    table = read_csv(path, SERVERS).table
    with_gpus = pc.greater(table["gpu"], 0)
    bare = np.flatnonzero(np.asarray(pc.and_(with_gpus, table["model"].is_null())))
    if len(bare):
        text = "model is absent, must be that of its GPUs"
        raise TraceError([Problem(text, f"{path}, row {row + 1}") for row in bare[:MOST_FAULTS]])
    table = table.filter(with_gpus)
    if not table.num_rows:
        raise TraceError("lists no node with a GPU", path)
    return pa.table([table["sn"], table["model"], table["gpu"]], schema=NODES)


FORMAT: Final = JobsFormat(
    name="openb-2023",
    summary="Alibaba's GPU-sharing cluster, 2023: pods and nodes",
    takes="openb_pod_list_default.csv (or _gpuspecNN), optionally openb_node_list_gpu_node.csv",
    source=(
        "Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with "
        "Fragmentation Gradient Descent (ATC '23); github.com/alibaba/clusterdata, "
        "cluster-trace-gpu-v2023"
    ),
    licence="see the terms of alibaba/clusterdata",
    time_unit="s from an origin that is not stated",
    cannot_tell=(
        "A pod may be part of a larger job, or serve requests rather than train: the list does "
        "not say; each pod is taken to be one job.",
        "duration_s is the time from scheduling to deletion. Many pods were deleted at the very "
        "end of the trace or still ran then; they might have run longer.",
        "Pods that never were scheduled have no duration.",
        "Who submitted a pod, what it computes, and how long it was expected to run.",
        "gpu_spec lists the GPU types that a pod may run on; empty means any, and the type that "
        "it did run on is not recorded.",
        "What the GPU types G1, G2 and G3 are.",
    ),
    sniff=sniff,
    batches=batches,
    convert=convert,
    nodes=nodes,
)
