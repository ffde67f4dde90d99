"""Kubernetes: pods, or workloads of Kueue, one JSON object a line.

``kubectl get pods -A -o json | jq -c '.items[]'`` (or ``workloads``). Pods of one job are a gang:
one row with all their GPUs. Of an object that stands in the log several times, as in regular
exports, the last state counts. Memory holds what is read of the objects with GPUs, not their text.
Source: API reference of Kubernetes (core/v1 Pod) and of Kueue (kueue.x-k8s.io, Workload).
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.traces.formats._slices import MIXED
from wattkeeper.traces.formats.kubernetes.objects import (
    NOT_STARTED,
    KubeObject,
    read_pod,
    read_workload,
)
from wattkeeper.traces.formats.kubernetes.values import quote
from wattkeeper.traces.readers.base import Batch, ImportOptions, JobsFormat, Rows
from wattkeeper.traces.readers.textfile import Layout, first_line, text_batches
from wattkeeper.traces.schema import JOBS

LAYOUT: Final = Layout(delimiter="\x01", columns=("object",), quotes=False)
"""JSON has no such character, so each line is one value."""
ADVICE: Final = "one object a line is needed, as jq -c '.items[]' writes"
READERS: Final = {"Pod": read_pod, "Workload": read_workload}
AGAIN: Final = "is another state of an object that stands in the log already"
PART: Final = "is a further pod of a job, counted in its first"
BATCH_JOBS: Final = 10_000


class _Gang(NamedTuple):
    """A job: where its first object stands, and the last states of its objects by uid."""

    path: Path
    line: int
    parts: dict[str, KubeObject]


class _Job(NamedTuple):
    job_id: str
    user: str | None
    queue: str
    account: str
    qos: str | None
    submit_time_s: float
    start_time_s: float
    duration_s: float | None
    estimate_s: float | None
    tries: int
    gpus: int
    gpu_milli: int
    gpu_type: str | None
    status: str | None


def batches(paths: Sequence[Path], options: ImportOptions) -> Iterator[Batch]:
    """Read any number of files: first what is no first object of a job, then the jobs.

    Raises:
        TraceError: If a file cannot be read.
    """
    gangs: dict[str, _Gang] = {}
    kind = ""
    for path in paths:
        for batch in text_batches(path, LAYOUT):
            wrong, lines, reasons = dict(batch.wrong), [], []
            for line, text in zip(batch.lines.tolist(), batch.rows["object"], strict=True):
                try:
                    kind, outcome = _read_line(text.as_py(), kind)
                except ValueError as error:
                    wrong[line] = str(error)
                    continue
                if isinstance(outcome, KubeObject):
                    outcome = _join(outcome, gangs, path, line)
                if outcome:
                    lines.append(line)
                    reasons.append(outcome)
            yield Batch(path, np.array(lines, dtype=np.int64), reasons, wrong)
    names = Counter(_first(gang).job_id for gang in gangs.values())
    for path, same in groupby(gangs.values(), key=attrgetter("path")):
        of_path = list(same)
        for start in range(0, len(of_path), BATCH_JOBS):
            part = of_path[start : start + BATCH_JOBS]
            lines = [gang.line for gang in part]
            rows = [_unite(gang, names) for gang in part]
            yield Batch(path, np.array(lines, dtype=np.int64), rows)


def _read_line(text: str, kind: str) -> tuple[str, KubeObject | str]:
    """The kind of the log's objects, and the object of a line or why it is left out."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        fault = getattr(error, "msg", "too deep")
        column = getattr(error, "colno", 1)
        raise ValueError(f"column {column}: is no JSON ({fault}); {ADVICE}") from None
    found = record.get("kind") if isinstance(record, dict) else record
    if not isinstance(found, str) or found not in READERS:
        raise ValueError(f"kind is {quote(found)}, must be {' or '.join(READERS)}; {ADVICE}")
    if kind not in ("", found):
        raise ValueError(f"kind is {found}, but the log began with a {kind}: one kind a trace")
    return found, READERS[found](record)


def _join(part: KubeObject, gangs: dict[str, _Gang], path: Path, line: int) -> str:
    """Add an object to its job; why its line is no job of its own, if so."""
    gang = gangs.get(part.gang)
    if gang is None:
        gangs[part.gang] = _Gang(path, line, {part.uid: part})
        return ""
    seen = part.uid in gang.parts
    gang.parts[part.uid] = part
    return AGAIN if seen else PART


def _first(gang: _Gang) -> KubeObject:
    return next(iter(gang.parts.values()))


def _unite(gang: _Gang, names: Counter[str]) -> _Job | str:
    """The job of a gang, or why it is left out.

    Its last try counts: pods that run after a failure and after all others ended are a new try.
    """
    started = [part for part in gang.parts.values() if part.start_s is not None]
    if not started:
        return NOT_STARTED
    if len({part.gpu_milli for part in started}) > 1:
        return MIXED
    last, tries = _last_try(started)
    first = _first(gang)
    start = min(_start(part) for part in last)
    ends = [part.end_s for part in last]
    end = None if None in ends else max(end for end in ends if end is not None)
    types = {name for part in last for name in (part.gpu_type or "").split("|") if name}
    worst = next((part for part in last if part.failed), last[-1])
    limits = [part.estimate_s for part in last if part.estimate_s is not None]
    name = first.job_id if names[first.job_id] == 1 else f"{first.job_id}/{first.uid}"
    return _Job(
        name,
        first.user,
        first.queue,
        first.account,
        first.qos,
        min(part.submit_s for part in gang.parts.values()),
        start,
        None if end is None else end - start,
        max(limits, default=None),
        tries,
        _most_at_once(last),
        first.gpu_milli,
        "|".join(sorted(types)) or None,
        worst.status,
    )


def _start(part: KubeObject) -> float:
    return np.inf if part.start_s is None else part.start_s


def _end(part: KubeObject) -> float:
    return np.inf if part.end_s is None else part.end_s


def _last_try(parts: list[KubeObject]) -> tuple[list[KubeObject], int]:
    """The objects of the last try in the order of their starts, and the number of tries."""
    current: list[KubeObject] = []
    tries, until = 0, -np.inf
    for part in sorted(parts, key=lambda part: (_start(part), part.uid)):
        if current and _start(part) >= until and any(each.failed for each in current):
            tries += max(each.tries for each in current)
            current, until = [], -np.inf
        current.append(part)
        until = max(until, _end(part))
    return current, tries + max(each.tries for each in current)


def _most_at_once(parts: list[KubeObject]) -> int:
    """GPUs that were held at the same time; ends come before starts, if they coincide."""
    changes = [(_start(part), 1, part.gpus) for part in parts]
    changes += [(_end(part), 0 if _end(part) > _start(part) else 2, -part.gpus) for part in parts]
    held = most = 0
    for _, _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most


def convert(batch: Batch) -> Rows:
    """From united jobs, and reasons of lines that are none, to canonical columns."""
    rows: list[Any] = batch.rows
    kept = [row for row, job in enumerate(rows) if not isinstance(job, str)]
    columns = {
        name: pa.array([getattr(rows[row], name) for row in kept], JOBS.field(name).type)
        for name in _Job._fields
    }
    dropped = Counter(job for job in rows if isinstance(job, str))
    return Rows(columns, np.array(kept, dtype=np.int64), {}, dropped, absolute=True)


def sniff(path: Path) -> bool:
    """Whether the first line is a pod or a workload of Kubernetes."""
    try:
        record = json.loads(first_line(path))
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and record.get("kind") in tuple(READERS)


FORMAT: Final = JobsFormat(
    name="kubernetes",
    summary="Kubernetes: pods, or workloads of Kueue, as JSON lines",
    takes="the output of kubectl get pods -A -o json | jq -c '.items[]', or of workloads; any "
    "number, plain or gzip",
    source="Kubernetes API of a cluster (pods, or workloads of Kueue)",
    licence="as the imported file",
    time_unit="RFC 3339, with a time zone",
    cannot_tell=(
        "Objects that were deleted before the export: finished pods and workloads vanish.",
        "What a job trained, and which jobs recur.",
        "How long a job that still runs will take: it has no duration.",
        "Earlier runs of a container that restarted in its pod, which count as one run.",
        "When a workload of Kueue was admitted before it was last evicted.",
        "Energy.",
    ),
    sniff=sniff,
    batches=batches,
    convert=convert,
)
