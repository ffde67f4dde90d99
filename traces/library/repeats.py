"""Rows of a log that repeat the id of an earlier one.

Memory holds a hash of each id, so that only the few ids with equal hashes are compared.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Ints
from wattkeeper.traces.readers.csvfile import quote

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
        Fault(
            row["row"],
            row["file"],
            row["line"],
            f"{name} {quote(row['job_id'])} repeats {files[rows[0]['file']]}, "
            f"line {rows[0]['line']}; must be unique",
        )
        for rows in jobs
        for row in rows[1:]
    ]
