"""Rows of a log that repeat the id of an earlier one: mistakes, or tries of one job.

Memory holds a hash of each id, so that only the few ids with equal hashes are compared.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Ints
from wattkeeper.traces.readers.csvfile import quote

EARLIER: Final = "is an earlier try of a job that was requeued"
AGAIN: Final = "is a job that stands in the log already"

Parts = Callable[[Sequence[str]], Iterator[pa.Table]]
"""Reads columns of the scratch file, in parts."""
Row = dict[str, Any]


class Fault(NamedTuple):
    """A row that repeats an id and must not.

    Attributes:
        row: Its number in the scratch file.
        file: Number of its file.
        line: Its line.
        text: What is wrong.
    """

    row: int
    file: int
    line: int
    text: str


class Tries(NamedTuple):
    """Jobs that were tried several times.

    Attributes:
        skip: Rows that are left out.
        submit_s: Submission of the first try, by row of the try that counts.
        tries: Number of tries, by the same row.
        dropped: Number of rows left out, by reason.
        held_gpu_s: GPU time of the tries that do not count, s.
    """

    skip: tuple[int, ...]
    submit_s: dict[int, float]
    tries: dict[int, int]
    dropped: dict[str, int]
    held_gpu_s: float


def find_repeats(hashes: list[Ints], parts: Parts, columns: Sequence[str]) -> list[list[Row]]:
    """Rows of the jobs that have several, by job, each in the order of the log.

    Args:
        hashes: Of the ids of all rows, in parts; emptied.
        parts: Reads the scratch file.
        columns: To be read of these rows, besides ``job_id``, ``file`` and ``line``.
    """
    if not hashes:
        return []
    whole = np.concatenate(hashes)
    hashes.clear()
    ordered = np.sort(whole)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    del ordered
    if not len(twice):
        return []
    candidates = np.isin(whole, twice)
    jobs: dict[str, list[Row]] = {}
    start = 0
    for part in parts(("job_id", "file", "line", *columns)):
        rows = np.flatnonzero(candidates[start : start + part.num_rows])
        for row, values in zip(rows.tolist(), part.take(pa.array(rows)).to_pylist(), strict=True):
            jobs.setdefault(values["job_id"], []).append({**values, "row": start + row})
        start += part.num_rows
    return [rows for rows in jobs.values() if len(rows) > 1]


def refuse_repeats(jobs: list[list[Row]], name: str, files: Sequence[str]) -> list[Fault]:
    """A fault for each row but the first of each job; `name`: the log's name of ``job_id``."""
    return [
        _fault(row, rows[0], f"{name} {quote(row['job_id'])} repeats {{}}; must be unique", files)
        for rows in jobs
        for row in rows[1:]
    ]


def _fault(row: Row, first: Row, text: str, files: Sequence[str]) -> Fault:
    place = f"{files[first['file']]}, line {first['line']}"
    return Fault(row["row"], row["file"], row["line"], text.format(place))


TRY_COLUMNS: Final = (
    "user", "submit_time_s", "start_time_s", "duration_s", "gpus", "gpu_milli",
)  # fmt: skip


def unite_tries(
    jobs: list[list[Row]], name: str, files: Sequence[str]
) -> tuple[Tries, list[Fault]]:
    """Make one job of the tries of each: the last that started counts.

    Rows of equal submission and start are the same record, as where the files of two months both
    hold a job. Rows of another user are another job of that number, and faults.
    """
    skip: list[int] = []
    faults: list[Fault] = []
    submit_s: dict[int, float] = {}
    tries_of: dict[int, int] = {}
    held_gpu_s, again, earlier = 0.0, 0, 0
    for rows in jobs:
        first, records = rows[0], dict[tuple[float, float | None], Row]()
        for row in rows:
            if row["user"] != first["user"]:
                text = (
                    f"{name} {quote(row['job_id'])} is of another user in {{}}; tries of one job "
                    "are of one user"
                )
                faults.append(_fault(row, first, text, files))
                continue
            key = row["submit_time_s"], row["start_time_s"]
            before = records.get(key)
            if before is not None:
                again += 1
                stale = row if row["duration_s"] is None else before
                skip.append(stale["row"])
                row = before if stale is row else row
            records[key] = row
        tries = sorted(records.values(), key=itemgetter("submit_time_s"))
        *others, last = sorted(tries, key=lambda row: row["start_time_s"] or row["submit_time_s"])
        if not others:
            continue
        submit_s[last["row"]] = tries[0]["submit_time_s"]
        tries_of[last["row"]] = len(tries)
        skip += [row["row"] for row in others]
        earlier += len(others)
        held_gpu_s += sum(
            row["gpus"] * row["gpu_milli"] / 1000 * (row["duration_s"] or 0) for row in others
        )
    counts = {AGAIN: again, EARLIER: earlier}
    dropped = {reason: count for reason, count in counts.items() if count}
    return Tries(tuple(skip), submit_s, tries_of, dropped, held_gpu_s), faults
