"""What an import changes and leaves out once all rows of a log are known."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Bools, Floats, Ints
from wattkeeper.traces.arrow import replace_column
from wattkeeper.traces.library.first_pass import FirstPass, read_parts
from wattkeeper.traces.library.repeats import (
    TRY_COLUMNS,
    Tries,
    find_repeats,
    refuse_repeats,
    unite_tries,
)
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
        submit_s: Submissions of jobs with several tries.
        tries: Their numbers of tries.
    """

    skip: Ints
    submit_s: Mapping[int, float]
    tries: Mapping[int, int]

    def apply(self, submit: Floats, start: int) -> tuple[Floats, Bools]:
        """Submissions of rows from `start` on, and which rows are kept."""
        keep = np.ones(len(submit), dtype=bool)
        keep[self.skip[(self.skip >= start) & (self.skip < start + len(submit))] - start] = False
        submit = submit.copy()
        for row, time_s in self.submit_s.items():
            if start <= row < start + len(submit):
                submit[row - start] = time_s
        return submit, keep


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
    if form.requeues:
        tries, faults = unite_tries(repeats, name, files)
    else:
        tries, faults = Tries((), {}, {}, {}, 0.0), refuse_repeats(repeats, name, files)
    for fault in faults:
        result.fault(fault.file, fault.line, fault.text)
    result.count(result.dropped, tries.dropped)
    notes = []
    if tries.tries:
        result.absent.discard("tries")
        notes.append(
            f"{len(tries.tries)} jobs were tried several times; the last try that started counts, "
            "submission is that of the first. The other tries held "
            f"{tries.held_gpu_s / 3600:,.1f} GPU hours, which are left out."
        )
    skip = np.array(sorted((*tries.skip, *(fault.row for fault in faults))), dtype=np.int64)
    united = changes = Changes(skip, tries.submit_s, tries.tries)
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
        submit, keep = changes.apply(np.asarray(part["submit_time_s"]), start)
        start += part.num_rows
        yield replace_column(part, "submit_time_s", pa.array(submit)).filter(pa.array(keep))


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
        submit, keep = changes.apply(np.asarray(part["submit_time_s"]), start)
        for reason, outside in window.reasons(options, submit).items():
            if hits := int((keep & outside).sum()):
                result.count(result.dropped, {reason: hits})
                keep &= ~outside
        if keep.any():
            result.first_s = min(result.first_s, float(submit[keep].min()))
        skip.append(start + np.flatnonzero(~keep))
        start += part.num_rows
    return np.concatenate(skip).astype(np.int64) if skip else changes.skip
