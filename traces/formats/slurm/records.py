"""Lines of sacct that belong together: steps, and parts of heterogeneous jobs.

``12.batch`` and ``12.0`` are steps of job ``12``, ``12_3`` is a task of an array, ``12+0`` and
``12+1`` are the parts of a heterogeneous job, which start together. sacct writes the steps of a
job behind its line, and the parts of a heterogeneous job one after another.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Bools, Floats
from wattkeeper.traces.formats.slurm.resources import Gpus
from wattkeeper.traces.readers.base import Batch
from wattkeeper.traces.readers.columns import strip_cells
from wattkeeper.traces.readers.gpu_slices import MIXED

MOST_HELD: Final = 200_000
"""Lines of one job that are held back until the next batch."""


def job_numbers(ids: pa.Array) -> pa.Array:
    """Ids without step and part: of jobs and tasks."""
    return pc.replace_substring_regex(ids, r"[.+].*$", "")


def keep_together(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Move the lines of a batch's last job to the next batch, so that no job is divided."""
    held: Batch | None = None
    for batch in batches:
        if held is not None:
            lines = np.concatenate([held.lines, batch.lines])
            batch = batch._replace(lines=lines, rows=pa.concat_tables([held.rows, batch.rows]))
            held = None
        if batch.rows.num_rows:
            numbers = job_numbers(strip_cells(batch.rows, "JobID"))
            other = np.asarray(pc.not_equal(numbers, numbers[-1]))
            cut = int(np.flatnonzero(other)[-1]) + 1 if other.any() else 0
            if batch.rows.num_rows - cut <= MOST_HELD:
                tail = {"lines": batch.lines[cut:], "rows": batch.rows.slice(cut)}
                held = batch._replace(**tail, wrong={})
                batch = batch._replace(lines=batch.lines[:cut], rows=batch.rows.slice(0, cut))
        if batch.rows.num_rows or batch.wrong:
            yield batch
    if held is not None:
        yield held


def unite_parts(
    ids: pa.Array, same: Sequence[Iterable[Any]], gpus: Gpus, joules: Floats
) -> tuple[pa.Array, Bools, Bools]:
    """Add the GPUs and the energy of heterogeneous jobs to the first of their parts with GPUs.

    `gpus` and `joules` are changed in place; energy is absent where a part with GPUs has none. What
    is in the columns `same` is equal in all parts of a job.

    Returns:
        GPU types; which rows are other parts; which jobs have different types of GPU.
    """
    rows = np.flatnonzero(np.asarray(pc.match_substring(ids, "+")))
    others, mixed = np.zeros(len(ids), dtype=bool), np.zeros(len(ids), dtype=bool)
    if not len(rows):
        return gpus.kinds, others, mixed
    numbers = job_numbers(ids.take(pa.array(rows))).to_pylist()
    keys = [[repr(values[row]) for row in rows.tolist()] for values in map(list, same)]
    parts: dict[tuple[str, ...], list[int]] = {}
    for row, *key in zip(rows.tolist(), numbers, *keys, strict=True):
        parts.setdefault(tuple(key), []).append(row)
    types = gpus.kinds.to_pylist()
    for group in parts.values():
        with_gpus = [row for row in group if gpus.total[row] > 0] or group[:1]
        first, rest = with_gpus[0], with_gpus[1:]
        others[[row for row in group if row != first]] = True
        gpus.total[first] = sum(gpus.total[row] for row in with_gpus)
        joules[first] = sum(joules[row] for row in with_gpus)
        for drop in gpus.drops.values():
            drop[first] = drop[with_gpus].any()
        gpus.drops[MIXED][first] |= len({gpus.milli[row] for row in with_gpus}) > 1
        names = {name for row in with_gpus for name in (types[row] or "").split("|") if name}
        mixed[first] = any(types[row] != types[first] for row in rest)
        types[first] = "|".join(sorted(names)) or None
    return pa.array(types, pa.string()), others, mixed
