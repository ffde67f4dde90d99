"""Microsoft's Philly cluster, 2017: ``cluster_job_log`` of msr-fiddle/philly-traces.

One JSON array of jobs: ``status``, ``vc``, ``jobid``, ``attempts`` (each with ``start_time``,
``end_time`` and ``detail``: the GPUs by server), ``submitted_time``, ``user``. It is decoded
object by object, never whole. The GPUs of a job are those of its first attempt; its run time is
the sum over the attempts that have both times, and absent if none has; it starts with the first.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.readers.base import Batch, ConvertedRows, ImportOptions, JobsFormat, Kinds
from wattkeeper.traces.readers.csvfile import open_plain
from wattkeeper.traces.readers.json_window import JsonWindow
from wattkeeper.traces.readers.textfile import one_path
from wattkeeper.traces.schema import JOBS

BATCH_JOBS: Final = 10_000
BATCH_CHARACTERS: Final = 1 << 24
SNIFFED_BYTES: Final = 4096
SHOWN: Final = 40
TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}")
NO_TIME: Final = (None, "", "None")
NO_SUBMISSION: Final = "no submission time recorded"
NO_ATTEMPT: Final = "no attempt recorded, so its GPUs are unknown"
NO_GPU: Final = "its first attempt lists no GPU"


class _Job(NamedTuple):
    job_id: str
    user: str | None
    queue: str | None
    submit_time_s: float
    duration_s: float | None
    start_time_s: float | None
    tries: int
    gpus: int
    status: str | None


def batches(paths: Sequence[Path], options: ImportOptions) -> Iterator[Batch]:
    """The jobs of one file as records, in batches of some thousands.

    One path is needed, of a JSON file, plain or gzip.

    Raises:
        TraceError: If the file cannot be read or is no JSON array of objects.
    """
    path = one_path(paths, "JSON file")
    lines: list[int] = []
    records: list[object] = []
    is_empty, characters = True, 0
    for line, record, length in _objects(path):
        is_empty = False
        lines.append(line)
        records.append(record)
        characters += length
        if len(records) == BATCH_JOBS or characters >= BATCH_CHARACTERS:
            yield Batch(path, np.array(lines, dtype=np.int64), records)
            lines, records, characters = [], [], 0
    if records:
        yield Batch(path, np.array(lines, dtype=np.int64), records)
    if is_empty:
        raise TraceError("holds no jobs: the JSON array is empty", path)


def _objects(path: Path) -> Iterator[tuple[int, object, int]]:
    """The elements of a JSON array, each with its first line and its number of characters."""
    text = JsonWindow(path, "job")
    yield from text.elements()
    if rest := text.peek():
        text.fail(f"text after the end of the array: {rest!r}")


def convert(batch: Batch) -> ConvertedRows:
    """From job records to canonical columns; times count from 1970, on the cluster's clock."""
    jobs: list[_Job] = []
    kept: list[int] = []
    wrong: dict[int, str] = {}
    dropped: Counter[str] = Counter()
    for row, record in enumerate(batch.rows):
        try:
            job = _job(record)
        except ValueError as error:
            wrong[row] = str(error)
            continue
        if isinstance(job, str):
            dropped[job] += 1
        else:
            kept.append(row)
            jobs.append(job)
    arrays = {
        name: pa.array([getattr(job, name) for job in jobs], JOBS.field(name).type)
        for name in _Job._fields
    }
    return ConvertedRows(
        arrays, np.array(kept, dtype=np.int64), wrong, dropped, kinds=Kinds(local=len(kept))
    )


def _job(record: object) -> _Job | str:
    """Convert a job, or say why it is dropped; raises `ValueError` if it is malformed."""
    if not isinstance(record, dict):
        raise ValueError(f"is {_quote(record)}, must be an object")
    job_id = _text(record, "jobid")
    if job_id is None:
        raise ValueError("jobid is absent; every job needs one")
    attempts = _list(record, "attempts")
    submitted = _time(record, "submitted_time", "")
    spans = [_span(attempt, f"attempts[{n}]") for n, attempt in enumerate(attempts)]
    known = [end - start for start, end in spans if start is not None and end is not None]
    start = min((start for start, _ in spans if start is not None), default=None)
    user, queue, status = (_text(record, key) for key in ("user", "vc", "status"))
    if submitted is None:
        return NO_SUBMISSION
    if not attempts:
        return NO_ATTEMPT
    gpus = _gpus(attempts[0])
    if not gpus:
        return NO_GPU
    duration = sum(known) if known else None
    return _Job(job_id, user, queue, submitted, duration, start, len(attempts), gpus, status)


def _gpus(attempt: dict[str, Any]) -> int:
    count = 0
    for n, server in enumerate(_list(attempt, "detail")):
        if not isinstance(server, dict):
            raise ValueError(f"attempts[0].detail[{n}] is {_quote(server)}, must be an object")
        count += len(_list(server, "gpus"))
    return count


def _span(attempt: object, where: str) -> tuple[float | None, float | None]:
    """Start and end of an attempt, where they are known."""
    if not isinstance(attempt, dict):
        raise ValueError(f"{where} is {_quote(attempt)}, must be an object")
    start, end = (_time(attempt, key, where + ".") for key in ("start_time", "end_time"))
    if start is not None and end is not None and end < start:
        times = f"{attempt['end_time']} is before its start {attempt['start_time']}"
        raise ValueError(f"{where}.end_time {times}")
    return start, end


def _time(record: dict[str, Any], key: str, where: str) -> float | None:
    text = record.get(key)
    if text in NO_TIME:
        return None
    try:
        if isinstance(text, str) and TIME.fullmatch(text):
            return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        pass
    must = "a time YYYY-MM-DD HH:MM:SS, null or 'None'"
    raise ValueError(f"{where}{key} is {_quote(text)}, must be {must}")


def _text(record: dict[str, Any], key: str) -> str | None:
    text = record.get(key)
    if text is None or text == "":
        return None
    if isinstance(text, str) and not re.search("[\ud800-\udfff]", text):
        return text
    raise ValueError(f"{key} is {_quote(text)}, must be a text")


def _list(record: dict[str, Any], key: str) -> list[Any]:
    value = record.get(key)
    if not isinstance(value, list):
        state = "absent" if key not in record else _quote(value)
        raise ValueError(f"{key} is {state}, must be a list")
    return value


def _quote(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def sniff(path: Path) -> bool:
    """Whether a file starts as a JSON array whose first object has keys of the job log."""
    try:
        with open_plain(path) as file:
            start = file.read(SNIFFED_BYTES).decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    except TraceError:
        return False
    keys = ("jobid", "attempts", "submitted_time", "vc")
    return start.startswith("[") and sum(f'"{key}"' in start for key in keys) >= 2


FORMAT: Final = JobsFormat(
    name="philly-json",
    summary="Microsoft's Philly cluster, 2017: the original job log",
    takes="cluster_job_log (JSON), plain or gzip",
    source=(
        "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training "
        "Workloads (ATC '19); github.com/msr-fiddle/philly-traces"
    ),
    licence="CC-BY-4.0",
    time_unit="YYYY-MM-DD HH:MM:SS, without a time zone",
    cannot_tell=(
        "The job log names no time zone; every day is taken to have 24 hours, so a run over the "
        "end of daylight saving time may be an hour off.",
        "What a job asked for is not recorded; gpus counts those of its first attempt, and a later "
        "attempt may have had others.",
        "duration_s is the sum over the attempts that have both times: too short where a time was "
        "not logged, or the last attempt was still running.",
        "The GPU models, what a job trains, and how long its user expected it to run.",
    ),
    sniff=sniff,
    batches=batches,
    convert=convert,
    times=("local",),
)
