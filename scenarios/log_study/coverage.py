"""What of a log a study covers: the GPU types of its jobs, and when it begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.inputs.job_filter import TYPES
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.sim.cluster_results.accounting import SHORTEST_S
from wattkeeper.traces.arrow import replace_column, to_floats
from wattkeeper.traces.gpu_time import gpu_seconds
from wattkeeper.traces.trace import Trace

TRIMMED: Final = 0.005
"""Share of the jobs before whose submission a study does not begin: a log also lists jobs that were
submitted long before it begins."""
MISSPELT: Final = 0.05
"""Share of the GPU hours up to which types that no node has are left out, whatever nodes have: a
few jobs of types that are gone, or of a damaged line."""


def check_types(
    jobs: pa.Table,
    described: Collection[str],
    tell: Callable[[str], None],
    partitions: Collection[str] = (),
) -> None:
    """Check that the GPU types of jobs and of the described nodes are the same.

    Types that no node has are told, with their share of the GPU hours, and so are jobs that name
    none. `partitions`: those whose types are known.

    Raises:
        InputError: If nodes have a type that no job asks for, while jobs with more than 5 % of the
            GPU hours ask for types that no node has: one of them is misspelt.
    """
    texts = jobs["gpu_type"].to_pylist()
    asked = Counter(text for text in texts if text is not None)
    names = zip(jobs["queue"].to_pylist(), texts, strict=True)
    silent = sum(text is None and (name in partitions or not partitions) for name, text in names)
    if silent and len(described) > 1:
        tell(
            f"Note: {count(silent, 'job')} of the log name no GPU type, and run on "
            f"{'those of their partition' if partitions else 'any'}: --partitions states the types "
            "of partitions."
        )
    if not asked:
        return
    absent = {
        text: number for text, number in asked.items() if not set(text.split("|")) & set(described)
    }
    named = {name for text in asked for name in text.split("|")}
    unused = [name for name in described if name not in named]
    if not absent:
        return
    gpu_s = gpu_seconds(jobs)
    of_absent = np.array([text in absent for text in texts])
    share = float(gpu_s[of_absent].sum() / gpu_s.sum()) if gpu_s.sum() > 0 else 0.0
    shown = ", ".join(
        f"{text!r} ({count(number, 'job')})" for text, number in Counter(absent).most_common(TYPES)
    )
    what = (
        f"jobs of the log ask for GPU types that no node has: {shown}, {100 * share:.3g} % of "
        "the GPU hours"
    )
    if unused and None not in texts and share > MISSPELT:
        raise InputError(
            f"{what}; and no job asks for {', '.join(map(repr, unused))}, which nodes have: name "
            "the types in the file of --nodes as the log does"
        )
    tell(f"Note: {what}. These jobs are left out, and all amounts are without them.")


def begin_with_log(trace: Trace) -> Trace:
    """The trace from when its log begins to show the cluster at work, and a note on what changes.

    That is the submission before which 0.5 % of the jobs were submitted, in whole seconds. Jobs
    submitted before count as submitted then; those that started before are left out, but for
    services, which run on. So all variants do the same work in the time that is charged. The trace
    is returned as it is where that would leave too little time for amounts of a year.
    """
    jobs = trace.tables["jobs"]
    submit_s = to_floats(jobs["submit_time_s"])
    ordered = np.sort(submit_s)
    begin_s = float(np.floor(ordered[int(TRIMMED * len(ordered))]))
    early = submit_s < begin_s
    if ordered[-1] - begin_s < SHORTEST_S or not early.any():
        return trace
    serves = pc.is_valid(jobs["serves"]).to_numpy()
    started = early & (to_floats(jobs["start_time_s"]) < begin_s) & ~serves
    held, gpu_s = int((early & ~started & ~serves).sum()), gpu_seconds(jobs)
    texts = []
    if held:
        texts.append(
            f"{count(held, 'job')} that waited when the log begins ({begin_s:,.0f} s after its "
            "first submission, when 0.5 % of the jobs were submitted) "
            f"{'count' if held > 1 else 'counts'} as submitted then."
        )
    if started.any():
        share = float(gpu_s[started].sum() / gpu_s.sum()) if gpu_s.sum() > 0 else 0.0
        texts.append(
            f"{count(int(started.sum()), 'job')} that had started {begin_s:,.0f} s after the first "
            f"submission, when 0.5 % of the jobs were submitted, with {100 * share:.3g} % of the "
            "GPU hours, "
            f"{'are' if started.sum() > 1 else 'is'} left out: the log has only part of their runs."
        )
    moved = replace_column(jobs, "submit_time_s", pa.array(np.maximum(submit_s, begin_s)))
    if serves.any():  # they go on until the log ends
        start_s, duration_s = (to_floats(jobs[name]) for name in ("start_time_s", "duration_s"))
        later_s = np.where(serves, np.maximum(begin_s - start_s, 0.0), 0.0)
        moved = replace_column(moved, "start_time_s", _absent_if_nan(start_s + later_s))
        moved = replace_column(moved, "duration_s", _absent_if_nan(duration_s - later_s))
    kept = moved.filter(pa.array(~started))
    return replace(trace, tables={**trace.tables, "jobs": kept}, notes=(*trace.notes, *texts))


def _absent_if_nan(values: Floats) -> pa.Array:
    return pa.array(values, from_pandas=True)
