"""Metrics of a run, from its attempts, timeline and zoo."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Bools, Floats, Ints

LAST = 5
"""Recurrences at the end of a group that show what was learnt; Zeus (NSDI '23), section 6."""


MOST_NAMES = 128
"""Of fewer names, the index fits in a byte."""

ROUNDING = 1e-9
"""A job that ends at its deadline ends later by less, relatively, by rounding."""


Optima = Mapping[tuple[str, int, str], Sequence[float]]
"""Smallest expected cost (J) by workload, number of GPUs and GPU type: of each recurrence, from the
first; the last value holds from then."""


class JobOutcomes(NamedTuple):
    """The outcome of each job: columns in the order in which first attempts end.

    Attributes:
        group: Index of its group.
        recurrence: Its position in the group, from 1.
        workload: Index of its workload in `names`; -1 if unknown.
        gpu_type: Index of its GPU type in `names`.
        replayed: Index in `names` of what determined its duration.
        attempts: Number of attempts.
        queue_delay_s: From submission to start, and while preempted.
        submit_time_s: Submission.
        finish_time_s: End of the last attempt.
        energy_j: Of all attempts.
        time_s: Training time of all attempts.
        cost: Of all attempts.
        regret: Cost less the expected cost of the best configuration.
        reached: Whether an attempt reached the target.
        preemptions: Number of preemptions.
        names: Names that the indices refer to, by column.
    """

    group: Ints
    recurrence: Ints
    workload: Ints
    gpu_type: Ints
    replayed: Ints
    attempts: Ints
    queue_delay_s: Floats
    submit_time_s: Floats
    finish_time_s: Floats
    energy_j: Floats
    time_s: Floats
    cost: Floats
    regret: Floats
    reached: Bools
    preemptions: Ints
    names: dict[str, list[str]]

    def select(self, mask: Bools) -> JobOutcomes:
        """The jobs of a mask, shape (jobs,)."""
        if mask.all():
            return self
        columns: dict[str, Any] = {name: getattr(self, name)[mask] for name in self._fields[:-1]}
        return JobOutcomes(**columns, names=self.names)


def aggregate_attempts(
    columns: Mapping[str, pa.Array],
    number: Ints,
    waits: Sequence[tuple[Ints, Floats, Floats]],
    optima: Optima,
) -> JobOutcomes:
    """Aggregate attempts into jobs.

    Args:
        columns: From `wattkeeper.sim.cluster_results.columns.attempt_columns`, in order of time.
        number: Number of each attempt's job, shape (attempts,); not read where no job waited and
            none had several attempts.
        waits: Preemptions, and waits between attempts: number of the job, begin and end (s), shapes
            (waits,).
        optima: See `Optima`.
    """
    first = columns["attempt"].to_numpy() == 1
    single = bool(first.all())
    of_jobs: Any = slice(None) if single else first
    positions = index = np.zeros(0, dtype=np.int64)
    if not single or any(len(waiting) for waiting, _, _ in waits):
        positions = np.zeros(int(number.max(initial=-1)) + 1, dtype=np.int64)
        positions[number[first]] = np.arange(first.sum())
        index = positions[number]

    def column(name: str) -> Any:
        return columns[name].to_numpy(zero_copy_only=False)

    def few(name: str) -> Ints:
        """A column of whole numbers."""
        return _shrink(total(name).astype(np.int32))

    def total(name: str) -> Any:
        values = column(name)
        return values if single else np.bincount(index, values.astype(float, copy=False))

    codes, names = {}, {}
    for key in ("workload", "gpu_type", "replayed"):
        own = columns[key] if single else columns[key].filter(pa.array(first))
        codes[key], names[key] = _encode(own)
    recurrence = few("recurrence") if single else column("recurrence")[first]
    preemptions = few("preemptions")
    group: Any = np.arange(len(recurrence), dtype=np.int32)
    if recurrence.max(initial=1) > 1:
        groups = columns["group_id"] if single else columns["group_id"].filter(pa.array(first))
        group = groups.dictionary_encode().indices.to_numpy()
    # The longest columns come last, when the copies that the others needed are gone.
    submit = column("submit_time_s")[of_jobs]
    waited = column("start_time_s")[of_jobs] - submit
    for waiting, begun, ended in waits:
        if len(waiting):
            np.add.at(waited, positions[waiting], ended - begun)
    finish = column("finish_time_s")[of_jobs]
    if not single:
        finish[index] = column("finish_time_s")
    cost = total("cost").astype(float, copy=False)
    regret: Floats = np.broadcast_to(np.float64(math.nan), len(submit))
    if optima:
        best = _least_costs(codes, names, column("gpus")[of_jobs], recurrence, optima)
        regret = cost - best * column("time_scale")[of_jobs]
    return JobOutcomes(
        group=group,
        recurrence=recurrence,
        workload=codes["workload"],
        gpu_type=codes["gpu_type"],
        replayed=codes["replayed"],
        attempts=np.broadcast_to(np.int64(1), len(submit)) if single else np.bincount(index),
        queue_delay_s=waited,
        submit_time_s=submit,
        finish_time_s=finish,
        energy_j=total("energy_j"),
        time_s=total("time_s"),
        cost=cost,
        regret=regret,
        reached=total("reached_target") > 0,
        preemptions=preemptions,
        names=names,
    )


def _least_costs(
    codes: Mapping[str, Ints],
    names: Mapping[str, list[str]],
    gpus: Ints,
    recurrence: Ints,
    optima: Optima,
) -> Floats:
    """The smallest expected cost of each job, J; NaN where there is no optimum."""
    best = np.full(len(gpus), math.nan)
    for (workload, number_of_gpus, gpu_type), smallest in optima.items():
        if workload in names["workload"] and gpu_type in names["gpu_type"]:
            matches = codes["workload"] == names["workload"].index(workload)
            matches &= codes["gpu_type"] == names["gpu_type"].index(gpu_type)
            matches &= gpus == number_of_gpus
            last = len(smallest) - 1
            best[matches] = np.array(smallest)[np.minimum(recurrence[matches] - 1, last)]
    return best


def _encode(column: pa.Array) -> tuple[Ints, list[str]]:
    """An index for each value, -1 for null, and the names in alphabetical order."""
    encoded = column.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    present = np.flatnonzero(np.bincount(codes + 1, minlength=len(names) + 1)[1:]).tolist()
    order = sorted(present, key=names.__getitem__)
    rank = np.full(len(names) + 1, -1, np.int8 if len(names) < MOST_NAMES else np.int32)
    rank[order] = np.arange(len(order))
    return _shrink(rank[codes]), [names[index] for index in order]


def _shrink(values: Ints) -> Ints:
    """The same whole numbers; where all are equal, they take no memory."""
    alike = len(values) > 0 and bool((values == values[0]).all())
    return np.broadcast_to(values[0], len(values)) if alike else values


def count_late(columns: Mapping[str, pa.Array], number: Ints) -> float:
    """Number of jobs that ended after their deadline; arguments as of `aggregate_attempts`."""
    finish_s = columns["finish_time_s"].to_numpy()
    due_s = columns["deadline_s"].to_numpy(zero_copy_only=False)
    late = finish_s > due_s * (1 + ROUNDING)
    return float(len(np.unique(number[late])))


def zoo_metrics(models: Mapping[str, pa.Array]) -> dict[str, float]:
    """The metrics of a zoo, over the trained models in columns of `schemas.MODELS`."""
    count = len(models["job_id"])
    saved = models["saved_gpu_s"].to_numpy()
    accuracy = models["accuracy"].to_numpy()
    size = models["zoo_bytes"].to_numpy()
    return {
        "gpu_s_saved": math.fsum(saved.data),
        "with_parent": 1 - models["parent_model"].null_count / count if count else math.nan,
        "mean_accuracy": math.fsum(accuracy.data) / count if count else math.nan,
        "zoo_bytes": float(size[-1]) if count else 0.0,
    }


def job_metrics(jobs: JobOutcomes) -> dict[str, float]:
    """The metrics of jobs of a run."""
    last = _last_recurrences(jobs)
    reached = jobs.select(jobs.reached)
    sums: dict[int, float] = {}

    def total(values: Floats) -> float:
        if id(values) not in sums:
            sums[id(values)] = math.fsum(values.data)
        return sums[id(values)]

    def mean(values: Floats) -> float:
        return total(values) / len(values) if len(values) else math.nan

    jct_s = jobs.finish_time_s - jobs.submit_time_s
    known = jobs.regret[~np.isnan(jobs.regret)]
    mean_jct_s = mean(jct_s)
    p95_jct_s = math.nan
    if len(jct_s):
        p95_jct_s = float(np.quantile(jct_s, 0.95, overwrite_input=True))
    return {
        "jobs": float(len(jobs.group)),
        "attempts": float(jobs.attempts.sum()),
        "gave_up": float((~jobs.reached).sum()),
        "energy_j": total(jobs.energy_j),
        "time_s": total(jobs.time_s),
        "cost": total(jobs.cost),
        "regret": total(known) if len(known) else math.nan,
        "last5_energy_j": mean(last.energy_j),
        "last5_time_s": mean(last.time_s),
        "last5_cost": mean(last.cost),
        "energy_to_accuracy_j": mean(reached.energy_j),
        "time_to_accuracy_s": mean(reached.time_s),
        "jct_s": mean_jct_s,
        "queue_delay_s": mean(jobs.queue_delay_s),
        "p95_jct_s": p95_jct_s,
        "preemptions": float(jobs.preemptions.sum()),
        "makespan_s": (
            float(jobs.finish_time_s.max() - jobs.submit_time_s.min()) if len(jct_s) else math.nan
        ),
    }


def _last_recurrences(jobs: JobOutcomes) -> JobOutcomes:
    """The last `LAST` jobs of each group."""
    if jobs.recurrence.max(initial=1) <= LAST:
        return jobs
    latest = np.zeros(int(jobs.group.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(latest, jobs.group, jobs.recurrence)
    return jobs.select(jobs.recurrence > latest[jobs.group] - LAST)
