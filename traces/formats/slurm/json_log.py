"""The output of ``sacct --json``, read as the rows that ``sacct --parsable2`` would have written.

Of each element of ``jobs``, what stands in `row_of_job` is read, and of its ``steps`` the energy.
Numbers are plain, or objects with ``set``, ``infinite`` and ``number``; a state is a text, or a
list of the state and its flags. Times count seconds since 1970. Source: data_parser plug-ins of
Slurm (v0.0.39 to v0.0.44), and openapi/dbv0.0.36 to 38 before them.
"""

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.formats.kubernetes.values import (
    check_text,
    quote,
    read_objects,
    read_text,
    read_value,
)
from wattkeeper.traces.limits import MOST_JSON_BYTES
from wattkeeper.traces.readers.base import Batch
from wattkeeper.traces.readers.csvfile import describe_odd_byte, find_odd_byte, open_plain

Json = dict[str, Any]
Row = dict[str, str]

SNIFFED_BYTES: Final = 1 << 16
BLOCK_BYTES: Final = 1 << 20
BATCH_JOBS: Final = 10_000
NO_VALUE: Final = 0xFFFFFFFD
"""Slurm's 32-bit codes for "not set" and "infinite" are above."""
COLUMNS: Final = (
    "JobID", "Cluster", "User", "Account", "QOS", "Partition", "Submit", "Eligible", "Start", "End",
    "ElapsedRaw", "Suspended", "TimelimitRaw", "State", "AllocTRES", "ReqTRES", "NNodes",
    "ConsumedEnergyRaw", "Lacks", "Fault",
)  # fmt: skip
"""Those of sacct; which of `ALWAYS` a job lacks; and what is wrong with it, alone in its row."""
ALWAYS: Final = ("partition", "time.elapsed", "time.limit")
"""What sacct writes of every job."""
MEMBER: Final = re.compile(rb'\{\s*"(jobs|meta|errors|warnings)"\s*:')
"""How such a file begins."""
SPACE: Final = " \t\r\n"
ADVICE: Final = "write the log with sacct --json or --parsable2 again"


def is_json(path: Path) -> bool:
    """Whether a file looks like the output of ``sacct --json``; never raises."""
    try:
        with open_plain(path) as file:
            head = file.read(SNIFFED_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    except TraceError:
        return False
    return MEMBER.match(head) is not None


def json_batches(path: Path) -> Iterator[Batch]:
    """Read the jobs of a file; memory holds some of them at a time.

    Raises:
        TraceError: If the file is no such JSON.
    """
    with open_plain(path) as file:
        jobs = _Reader(file, path).read_jobs()
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


def rows_of_job(job: object) -> list[Row]:
    """The line of a job, and those of its steps.

    Raises:
        ValueError: If a value is not what sacct writes.
    """
    if not isinstance(job, dict):
        raise ValueError(f"a job is {quote(job)}, must be an object")
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


class _Reader:
    """Reads one JSON object whose member ``jobs`` is a long list, an element at a time."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path = file, path
        self._decoder = json.JSONDecoder()
        self._text, self._at, self._line = "", 0, 1
        self._rest, self._first = b"", True

    def read_jobs(self) -> Iterator[tuple[int, object]]:
        """Yield each job with its line."""
        found = False
        self._take("{")
        while self._peek() != "}":
            mark = self._read_value()[1]
            if not isinstance(mark, str):
                raise self._fault(f"{quote(mark)} is no name of a value")
            self._take(":")
            if mark == "jobs":
                found = True
                yield from self._read_list()
            else:
                self._read_value()
            if self._peek() == ",":
                self._take(",")
        if not found:
            raise TraceError(f"is JSON without 'jobs', as sacct --json writes it; {ADVICE}",
                             self._path)  # fmt: skip

    def _read_list(self) -> Iterator[tuple[int, object]]:
        self._take("[")
        while self._peek() != "]":
            yield self._read_value()
            if self._peek() == ",":
                self._take(",")
        self._take("]")

    def _fault(self, text: str) -> TraceError:
        return TraceError(
            f"is no JSON of sacct: {text}; {ADVICE}", f"{self._path}, line {self._line}"
        )

    def _take(self, mark: str) -> None:
        if (found := self._peek()) != mark:
            raise self._fault(f"found {quote(found)}, must be {mark!r}")
        self._at += 1

    def _peek(self) -> str:
        """The next character that is no white space."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in SPACE:
                self._line += self._text[self._at] == "\n"
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                raise self._fault("it ends early")

    def _read_value(self) -> tuple[int, object]:
        """The value that begins next, with its line."""
        self._peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except RecursionError:
                raise self._fault("it is too deep") from None
            except ValueError as error:
                fault = getattr(error, "msg", str(error))
                if len(self._text) - self._at > MOST_JSON_BYTES:
                    raise self._fault(
                        f"a value is longer than {MOST_JSON_BYTES:,} characters, or {fault}"
                    ) from None
                if not self._fill():
                    raise self._fault(fault) from None
                continue
            if end == len(self._text) and self._fill():  # a number may go on
                continue
            line = self._line
            self._line += self._text.count("\n", self._at, end)
            self._at = end
            return line, value

    def _fill(self) -> bool:
        """Read on; whether there is more."""
        data = self._file.read(BLOCK_BYTES)
        if self._first:
            data, self._first = data.removeprefix(b"\xef\xbb\xbf"), False
        block = self._rest + data
        cut = len(block)
        while data and cut and block[cut - 1] & 0xC0 == 0x80:  # do not divide a letter
            cut -= 1
        if data and cut and block[cut - 1] >= 0xC0:
            cut -= 1
        block, self._rest = block[:cut], block[cut:]
        if (index := find_odd_byte(block)) is not None:
            raise self._fault(describe_odd_byte(block, index))
        self._text, self._at = self._text[self._at :] + block.decode(), 0
        return bool(data)
