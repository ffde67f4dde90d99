"""What of a log a study covers: the GPU types of its jobs, and the time that is charged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.analysis.consumption import SHORTEST_S
from wattkeeper.scenarios.inputs.job_filter import TYPES
from wattkeeper.scenarios.spec.wording import count
from wattkeeper.traces.gpu_time import gpu_seconds

TRIMMED: Final = 0.005
"""Share of the jobs before whose submission nothing is charged: a log also lists jobs that were
submitted long before it begins."""
MISSPELT: Final = 0.05
"""Share of the GPU hours up to which types that no node has are left out, whatever nodes have: a
few jobs of types that are gone, or of a damaged line."""


def check_types(jobs: pa.Table, described: Collection[str], tell: Callable[[str], None]) -> None:
    """Check that the GPU types of jobs and of the described nodes are the same.

    Types that no node has are told, with their share of the GPU hours.

    Raises:
        InputError: If nodes have a type that no job asks for, while jobs with more than 5 % of the
            GPU hours ask for types that no node has: one of them is misspelt.
    """
    texts = jobs["gpu_type"].to_pylist()
    asked = Counter(text for text in texts if text is not None)
    silent = len(texts) - sum(asked.values())
    if silent and len(described) > 1:
        tell(
            f"Note: {count(silent, 'job')} of the log name no GPU type, and run on any: "
            "--partitions states the types of partitions."
        )
    if not asked:
        return
    absent = {text: number for text, number in asked.items()
              if not set(text.split("|")) & set(described)}  # fmt: skip
    named = {name for text in asked for name in text.split("|")}
    unused = [name for name in described if name not in named]
    if not absent:
        return
    gpu_s = gpu_seconds(jobs)
    of_absent = np.array([text in absent for text in texts])
    share = float(gpu_s[of_absent].sum() / gpu_s.sum()) if gpu_s.sum() > 0 else 0.0
    shown = ", ".join(f"{text!r} ({count(number, 'job')})"
                      for text, number in Counter(absent).most_common(TYPES))  # fmt: skip
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


def charged_from(jobs: pa.Table) -> float | None:
    """When a log begins to show the cluster at work, in whole seconds.

    That is the submission before which 0.5 % of the jobs were submitted. None if too little time is
    left for amounts of a year: then the whole time of all jobs is charged.
    """
    submit_s: Floats = np.sort(jobs["submit_time_s"].to_numpy())
    if not len(submit_s):
        return None
    from_s = float(np.floor(submit_s[int(TRIMMED * len(submit_s))]))
    return from_s if submit_s[-1] - from_s >= SHORTEST_S else None
