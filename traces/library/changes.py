"""What an import changes and leaves out once all rows of a log are known."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Bools, Ints
from wattkeeper.traces.arrow import replace_column
from wattkeeper.traces.library.first_pass import FirstPass, read_parts
from wattkeeper.traces.library.repeats import find_repeats, refuse_repeats
from wattkeeper.traces.library.tries import TRY_COLUMNS, Tries, unite_tries
from wattkeeper.traces.library.window import (
    COLUMNS,
    SubmissionWindow,
    check_kind,
    measure_carryover,
)
from wattkeeper.traces.readers.base import ImportOptions, JobsFormat


class Changes(NamedTuple):
    """What the second pass changes, by row of the scratch file.

    Attributes:
        skip: Rows that are left out, ascending.
        values: New values of rows, by column.
        clusters: Whether ids and partitions get the name of their cluster.
    """

    skip: Ints
    values: Mapping[str, Mapping[int, Any]]
    clusters: bool = False

    def apply(self, part: pa.Table, start: int) -> tuple[pa.Table, Bools]:
        """The columns of rows from `start` on with their new values, and which rows are kept."""
        stop = start + part.num_rows
        keep = np.ones(part.num_rows, dtype=bool)
        keep[self.skip[(self.skip >= start) & (self.skip < stop)] - start] = False
        for name in part.column_names:
            changed = self.values.get(name, {})
            if rows := sorted(row for row in changed if start <= row < stop):
                mask = np.zeros(part.num_rows, dtype=bool)
                mask[np.array(rows) - start] = True
                new = pa.array([changed[row] for row in rows], part[name].type)
                column = part[name].combine_chunks()
                part = replace_column(part, name, pc.replace_with_mask(column, pa.array(mask), new))
        if self.clusters and "cluster" in part.column_names:
            for name in {"job_id", "queue"} & set(part.column_names):
                whole = pc.binary_join_element_wise(part["cluster"], part[name], "/")
                part = replace_column(part, name, pc.coalesce(whole, part[name]))
        return part, keep


def leave_out(
    form: JobsFormat,
    options: ImportOptions,
    window: SubmissionWindow,
    result: FirstPass,
    scratch: Path,
) -> Changes:
    """Repeated rows, tries that do not count, and jobs outside of the window."""
    files = [path.name for path in result.paths]
    name = result.names.get("job_id", "job_id")
    columns = TRY_COLUMNS if form.requeues else ()
    repeats = find_repeats(result.hashes, lambda names: read_parts(scratch, names), columns)
    named = [name for name in result.clusters if name is not None]
    several = len(named) > 1
    faults, tries = [], Tries()
    if form.requeues:
        tries = unite_tries(repeats, clusters=several)
    else:
        faults = refuse_repeats(repeats, name, files)
    for fault in faults:
        result.fault(fault.file, fault.line, fault.text)
    result.count(result.dropped, tries.dropped)
    notes = [*tries.notes]
    if several:
        listed = ", ".join(f"{name} ({result.clusters[name]:,} records)" for name in sorted(named))
        notes.append(
            f"The log is of {len(named)} clusters: {listed}. Jobs and partitions are named "
            "CLUSTER/NAME. To study one alone, export it with sacct --clusters NAME."
        )
    if tries.values.get("tries"):
        result.absent.discard("tries")
    skip = np.array(sorted((*tries.skip, *(fault.row for fault in faults))), dtype=np.int64)
    united = changes = Changes(skip, tries.values, several)
    if len(skip) or window.kinds:
        changes = united._replace(skip=_apply_window(options, window, result, united, scratch))
    if window.since_s > -np.inf:
        count, gpu_s = measure_carryover(window, _read_jobs(scratch, united))
        if count:
            notes.append(
                f"{count} jobs that were submitted before {options.since} ran after it, and held "
                f"{gpu_s / 3600:,.1f} GPU hours then; they are left out, so that the trace begins "
                "with an empty cluster."
            )
    result.notes = (*result.notes, *notes)
    return changes


def _read_jobs(scratch: Path, changes: Changes) -> Iterator[pa.Table]:
    """The `COLUMNS` of the scratch file, each job once."""
    start = 0
    for part in read_parts(scratch, COLUMNS):
        part, keep = changes.apply(part, start)
        start += len(keep)
        yield part.filter(pa.array(keep))


def _apply_window(
    options: ImportOptions,
    window: SubmissionWindow,
    result: FirstPass,
    changes: Changes,
    scratch: Path,
) -> Ints:
    """The rows that are left out in the end; the first submission of the others is set."""
    if np.isfinite(result.first_s):
        check_kind(window, result.kind, options.zone)
    skip, start = [], 0
    result.first_s = np.inf
    for part in read_parts(scratch, ["submit_time_s"]):
        part, keep = changes.apply(part, start)
        submit = np.asarray(part["submit_time_s"])
        for reason, outside in window.reasons(options, submit).items():
            if hits := int((keep & outside).sum()):
                result.count(result.dropped, {reason: hits})
                keep &= ~outside
        if keep.any():
            result.first_s = min(result.first_s, float(submit[keep].min()))
        skip.append(start + np.flatnonzero(~keep))
        start += len(keep)
    return np.concatenate(skip).astype(np.int64) if skip else changes.skip
