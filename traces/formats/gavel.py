"""Traces of Gavel (OSDI 2020): tab-separated lines without header, one a job.

Ten values: ``job_type``, ``command``, ``working_directory``, ``num_steps_arg``,
``needs_data_dir``, ``total_steps``, ``scale_factor`` (GPUs), ``priority_weight``, ``SLO``,
``arrival_time`` (s); nine, without ``working_directory``; or the seven of most published traces:
``job_type``, ``command``, ``num_steps_arg``, ``needs_data_dir``, ``total_steps``,
``arrival_time``, ``scale_factor``. They count steps, not seconds: a second file, Gavel's
throughputs in steps/s as JSON, gives the duration of a job alone on V100s, if it has its type at
its scale.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.limits import MOST_JSON_BYTES
from wattkeeper.traces.readers.base import Batch, ConvertedRows, ImportOptions, JobsFormat
from wattkeeper.traces.readers.columns import (
    Wrong,
    keep_rows,
    number_jobs,
    parse_numbers,
    parse_texts,
)
from wattkeeper.traces.readers.csvfile import read_whole
from wattkeeper.traces.readers.textfile import (
    SNIFFED_BYTES,
    Layout,
    first_line,
    head_lines,
    text_batches,
)

LATEST: Final = (
    "job_type",
    "command",
    "working_directory",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "scale_factor",
    "priority_weight",
    "SLO",
    "arrival_time",
)
WITHOUT_DIRECTORY: Final = tuple(name for name in LATEST if name != "working_directory")
SEVEN: Final = (
    "job_type",
    "command",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "arrival_time",
    "scale_factor",
)
FORMS: Final = {len(names): names for names in (SEVEN, WITHOUT_DIRECTORY, LATEST)}
"""Columns by their number."""
TEXTS: Final = ("job_type", "command", "working_directory", "num_steps_arg")
GPU: Final = "v100"
ALONE: Final = "null"


def batches(paths: Sequence[Path], options: ImportOptions) -> Iterator[Batch]:
    """Read one trace, and throughputs if they are given.

    Raises:
        TraceError: If a file is wrong.
    """
    tables = [path for path in paths if path.suffix == ".json"]
    traces = [path for path in paths if path.suffix != ".json"]
    if len(traces) != 1 or len(tables) > 1:
        text = f"one trace and at most one .json are needed, not {len(traces)} and {len(tables)}"
        raise TraceError(text, ", ".join(map(str, paths)))
    speeds = _speeds(tables[0]) if tables else {}
    layout = Layout(delimiter="\t", columns=_columns(traces[0]), quotes=False)
    for batch in text_batches(traces[0], layout):
        yield batch._replace(context=speeds)


def _columns(path: Path) -> tuple[str, ...]:
    """The columns of a trace: those of the first line with an allowed number of values."""
    lines = list(head_lines(path))
    counts = [len(line.split("\t")) for _, line in lines]
    for count in counts:
        if count in FORMS:
            return FORMS[count]
    if len(lines) > 1 or (lines and len(lines[0][1]) < SNIFFED_BYTES // 2):  # not cut
        must = "must have 7, 9 or 10 with tabs between, as a trace of Gavel"
        raise TraceError(f"has {counts[0]} values, {must}", f"{path}, line {lines[0][0]}")
    return LATEST


def sniff(path: Path) -> bool:
    """Whether its first line has the values of a job."""
    values = first_line(path).split("\t")
    names = FORMS.get(len(values), ())
    numbers = [value for name, value in zip(names, values, strict=False) if name not in TEXTS]
    try:
        return len([float(value) for value in numbers]) > 0
    except ValueError:
        return False


def convert(batch: Batch) -> ConvertedRows:
    """Columns by position."""
    table: pa.Table = batch.rows
    speeds: Mapping[tuple[str, int], float] = batch.context
    wrong: Wrong = {}
    gpus = parse_numbers(table, "scale_factor", wrong, whole=True, needed=True)
    steps = parse_numbers(table, "total_steps", wrong, needed=True)
    kinds = parse_texts(table, "job_type")
    speed = np.array(
        [
            speeds.get((kind, int(count)), np.nan) if count == count else np.nan
            for kind, count in zip(kinds.to_pylist(), gpus.tolist(), strict=True)
        ]
    )
    columns: dict[str, Any] = {
        "job_id": number_jobs(batch.lines, header_lines=0),
        "submit_time_s": parse_numbers(table, "arrival_time", wrong, needed=True),
        "duration_s": steps / speed,
        "gpus": gpus,
        "workload": kinds,
    }
    drops = [("asks for no GPU", gpus == 0)]
    return keep_rows(table.num_rows, columns, wrong, drops)


def _speeds(path: Path) -> dict[tuple[str, int], float]:
    """Steps/s of each job type and number of GPUs, alone; without jobs that cannot run."""
    try:
        data = json.loads(read_whole(path, MOST_JSON_BYTES))
    except (ValueError, RecursionError) as error:
        raise TraceError(f"is no JSON file: {error}", path) from error
    table = data.get(GPU) if isinstance(data, dict) else None
    if not isinstance(table, dict):
        raise TraceError(f"has no throughputs of {GPU!r}", path)
    speeds = {}
    for key, row in table.items():
        kind, _, count = key.removeprefix("('").removesuffix(")").rpartition("', ")
        speed = row.get(ALONE) if isinstance(row, dict) else None
        if not kind or not count.isdecimal() or not isinstance(speed, int | float):
            text = f"{GPU}: {key!r} is no job type and scale with a throughput {ALONE!r} (steps/s)"
            raise TraceError(text, path)
        if speed > 0:
            speeds[kind, int(count)] = float(speed)
    return speeds


FORMAT: Final = JobsFormat(
    name="gavel",
    summary="traces of Gavel (OSDI 2020), tab-separated",
    takes="one .trace file, and the throughputs as .json if durations are wanted",
    source=(
        "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning "
        "Workloads, OSDI 2020 (stanford-futuredata/gavel)"
    ),
    licence="MIT",
    time_unit="s; work in steps",
    cannot_tell=(
        "How long a job runs: only its steps are there. With throughputs given, it is the time "
        "alone on V100s; a type or scale that they lack has no duration.",
        "Who submitted a job and how it ended: the traces are generated.",
    ),
    sniff=sniff,
    batches=batches,
    convert=convert,
    origin="modelled",
)
