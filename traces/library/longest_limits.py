"""Time limits of jobs that have none: the longest of their partition in the log."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Floats
from wattkeeper.traces.arrow import encode, replace_column, to_floats
from wattkeeper.traces.trace import Trace

HOUR_S: Final = 3600.0
MOST_NAMES: Final = 10
"""Partitions that a note names."""


def fill_limits(trace: Trace) -> Trace:
    """The trace with a limit (``estimate_s``) for each job, and a note on those that had none.

    Such a job gets the longest limit of its partition in the log, else the longest in the log. If a
    job without a limit ran longer than that, all of its partition get the longest recorded run
    time of these, in whole hours: they may run as long as any, and no scheduler knew which would.

    A trace in which all jobs have a limit, or none has, is returned as it is.
    """
    jobs = trace.tables["jobs"]
    limits_s = to_floats(jobs["estimate_s"]).copy()
    without = np.isnan(limits_s)
    if without.all() or not without.any():
        return trace
    durations_s = np.nan_to_num(to_floats(jobs["duration_s"]))
    codes, names = encode(jobs["queue"])
    names = [*names, "no partition"]  # code -1
    lines: list[list[str]] = [[], [], []]
    for code in np.unique(codes[without]).tolist():
        rows = np.flatnonzero(without & (codes == code))
        stated_s = limits_s[(codes == code) & ~without] if code >= 0 else np.empty(0)
        source = 0 if len(stated_s) else 1
        limit_s = float(stated_s.max() if len(stated_s) else np.nanmax(limits_s))
        if (longest_s := _round_up(durations_s[rows])) > limit_s:
            limit_s, source = longest_s, 2
        lines[source].append(_describe(names[code], len(rows), limit_s))
        limits_s[rows] = limit_s
    note = _write_note(int(without.sum()), jobs.num_rows, lines)
    filled = replace_column(jobs, "estimate_s", pa.array(limits_s))
    return replace(trace, tables={**trace.tables, "jobs": filled}, notes=(*trace.notes, note))


def _round_up(durations_s: Floats) -> float:
    """The longest duration, in whole hours."""
    return float(np.ceil(durations_s.max() / HOUR_S) * HOUR_S)


def _describe(name: str, jobs: int, limit_s: float) -> str:
    return f"{name} {limit_s / HOUR_S:,.4g} h ({jobs:,} {'job' if jobs == 1 else 'jobs'})"


def _write_note(without: int, jobs: int, lines: Sequence[Sequence[str]]) -> str:
    sources = (
        "the longest of their partition in the log",
        "the longest in the log, where none of their partition has one",
        "the longest recorded run time of such jobs of their partition, in whole hours, where it "
        "exceeds that",
    )
    parts = [
        f"{source}: {', '.join(listed[:MOST_NAMES])}"
        + (f" and {len(listed) - MOST_NAMES} other partitions" if len(listed) > MOST_NAMES else "")
        for source, listed in zip(sources, lines, strict=True)
        if listed
    ]
    have = f"{without:,} of {jobs:,} jobs have no time limit, and are taken to have"
    return f"{have} {'; '.join(parts)}."
