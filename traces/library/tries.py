"""Jobs from the records that an accounting has of them: tries, and parts of tries.

Slurm writes a record anew when a job is requeued, whose submission is the moment of the requeue,
and when it is resized: the record before has state ``RESIZING``, and the next begins at its end. It
uses the numbers of jobs again, after `MaxJobId` or a reset, and each cluster counts for itself.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wattkeeper.traces.library.repeats import Row

EARLIER: Final = "is an earlier try of a job that was requeued"
AGAIN: Final = "is a job that stands in the log already"
RESIZED: Final = "is an earlier part of a job that was resized, counted in its last"
TRY_COLUMNS: Final = (
    "user",
    "submit_time_s",
    "start_time_s",
    "duration_s",
    "estimate_s",
    "gpus",
    "gpu_milli",
    "energy_j",
    "status",
    "cluster",
    "submitted_s",
    "ended_s",
)
EARLIEST_S: Final = -60.0
"""A requeue is submitted at the end of the try before, but for delays of the accounting."""
LATEST_S: Final = 3600.0
"""And as long after it as the controller knows a job that ended: `MinJobAge`, 5 min by default."""
LONGEST_S: Final = 31 * 86400.0
"""Run time of a try whose end is not recorded, if it has no limit."""
FINAL: Final = ("COMPLETED", "CANCELLED")
"""States of a job that is over; a try that is requeued ends as REQUEUED, NODE_FAIL, and so on."""
JOIN_S: Final = 60.0
"""Largest gap between parts of a job that was resized."""

Part = list[Row]


class Tries(NamedTuple):
    """What becomes of records that share an id.

    Attributes:
        skip: Rows that are left out.
        values: New values of rows that are kept, by column.
        dropped: Number of rows left out, by reason.
        notes: Remarks for the readers of the trace.
    """

    skip: tuple[int, ...] = ()
    values: Mapping[str, Mapping[int, Any]] = MappingProxyType({})
    dropped: Mapping[str, int] = MappingProxyType({})
    notes: tuple[str, ...] = ()


def unite_tries(records: list[list[Row]], *, clusters: bool) -> Tries:
    """Make jobs of the records of each id.

    The last try that started counts; the job is submitted when the first was. Records of equal
    submission and start are the same, as where the files of two months both hold a job. Records of
    another user, of another cluster if there are `clusters`, or of a submission that is no requeue,
    are another job, whose id gets a number.
    """
    united = _United()
    for rows in records:
        owners: dict[tuple[str | None, str | None], list[Row]] = {}
        for row in rows:
            owners.setdefault((row["user"], row["cluster"] if clusters else None), []).append(row)
        jobs = [job for same in owners.values() for job in _split_jobs(united.skip_again(same))]
        jobs.sort(key=lambda job: _first(job)["submit_time_s"])
        seen = Counter[str | None]()
        for job in jobs:
            last = united.unite(job)
            seen[last["cluster"] if clusters else None] += 1
            if (number := seen[last["cluster"] if clusters else None]) > 1:
                united.rename(last, number)
    return united.finish()


def _first(job: list[Part]) -> Row:
    return job[0][0]


def _start(row: Row) -> float:
    start_s = row["start_time_s"]
    return float(row["submit_time_s"] if start_s is None else start_s)


def _end(row: Row) -> float | None:
    if row["ended_s"] is not None:
        return float(row["ended_s"])
    return None if row["duration_s"] is None else _start(row) + float(row["duration_s"])


def _split_jobs(rows: list[Row]) -> list[list[Part]]:
    """Jobs, each a list of tries, of the records of one id and user."""
    jobs: list[list[Part]] = []
    for row in sorted(rows, key=lambda row: (_start(row), row["row"])):
        for job in reversed(jobs):
            before = job[-1][-1]
            if _is_resized(before, row):
                job[-1].append(row)
                break
            if _is_requeued(before, row):
                job.append([row])
                break
        else:
            jobs.append([[row]])
    return jobs


def _is_resized(before: Row, row: Row) -> bool:
    """Whether a record continues the try of the one before, at another size."""
    end_s = _end(before)
    resizing = (before["status"] or "").startswith("RESIZING")
    return resizing and (end_s is None or abs(_start(row) - end_s) <= JOIN_S)


def _is_requeued(before: Row, row: Row) -> bool:
    """Whether a record is a further try of the job of the one before."""
    if row["submitted_s"] == before["submitted_s"]:
        return True
    if before["status"] in FINAL:
        return False
    end_s = _end(before)
    if end_s is not None:
        after_s = float(row["submitted_s"]) - end_s
        return EARLIEST_S <= after_s <= LATEST_S
    after_s = float(row["submitted_s"]) - _start(before)
    return 0 <= after_s <= (before["estimate_s"] or LONGEST_S) + LATEST_S


def _gpus(row: Row) -> float:
    return float(row["gpus"] * row["gpu_milli"] / 1000)


def _gpu_s(rows: Sequence[Row]) -> float:
    return sum(_gpus(row) * (row["duration_s"] or 0.0) for row in rows)


class _United:
    """Collects what becomes of rows."""

    def __init__(self) -> None:
        self._skip: list[int] = []
        self._values: dict[str, dict[int, Any]] = {}
        self._dropped, self._requeued, self._resized, self._renamed = Counter[str](), 0, 0, 0
        self._held_gpu_s = 0.0

    def skip_again(self, rows: list[Row]) -> list[Row]:
        """The rows without those that repeat a record; one that tells of its end is kept."""
        records = dict[tuple[float, float | None], Row]()
        for row in rows:
            key = row["submitted_s"], row["start_time_s"]
            before = records.setdefault(key, row)
            if before is not row:
                stale = row if row["duration_s"] is None else before
                self._drop(AGAIN, [stale])
                records[key] = before if stale is row else row
        return list(records.values())

    def unite(self, job: list[Part]) -> Row:
        """Put the tries of a job together; the row that stands for it."""
        *others, tried = job
        first, last = _first(job), tried[-1]
        if len(tried) > 1:
            self._resized += 1
            self._drop(RESIZED, tried[:-1])
            self._resize(tried)
        if others:
            self._requeued += 1
            earlier = list(chain.from_iterable(others))
            self._drop(EARLIER, earlier)
            self._held_gpu_s += _gpu_s(earlier)
            self._set(last, "tries", len(job))
        if first is not last:
            self._set(last, "submit_time_s", first["submit_time_s"])
        return last

    def _resize(self, tried: Part) -> None:
        """One size for all parts of a try: the largest, with the same GPU time."""
        last, largest = tried[-1], max(tried, key=_gpus)
        self._set(last, "start_time_s", tried[0]["start_time_s"])
        self._set(last, "gpus", largest["gpus"])
        self._set(last, "gpu_milli", largest["gpu_milli"])
        if last["duration_s"] is None:
            return
        self._set(last, "duration_s", _gpu_s(tried) / _gpus(largest))
        energies = [row["energy_j"] for row in tried]
        self._set(last, "energy_j", None if None in energies else sum(energies))

    def rename(self, row: Row, number: int) -> None:
        """Give a job whose id another one has an id of its own."""
        self._renamed += 1
        self._set(row, "job_id", f"{row['job_id']}#{number}")

    def finish(self) -> Tries:
        """What becomes of all rows."""
        notes = []
        if self._requeued:
            notes.append(
                f"{self._requeued} jobs were tried several times; the last try that started "
                "counts, submission is that of the first. The other tries held "
                f"{self._held_gpu_s / 3600:,.1f} GPU hours, which are left out."
            )
        if self._resized:
            notes.append(
                f"{self._resized} jobs were resized while they ran: each is taken as one run on "
                "the most GPUs that it had, with the same GPU time."
            )
        if self._renamed:
            notes.append(
                f"{self._renamed} jobs have a number that an earlier job, or one of another user, "
                "has too: it was used again. They are named NUMBER#2, and so on."
            )
        return Tries(tuple(self._skip), self._values, dict(self._dropped), tuple(notes))

    def _drop(self, reason: str, rows: Sequence[Row]) -> None:
        self._dropped[reason] += len(rows)
        self._skip += map(itemgetter("row"), rows)

    def _set(self, row: Row, column: str, value: Any) -> None:
        self._values.setdefault(column, {})[row["row"]] = value
