"""Metrics of a run, from its attempts, timeline and zoo."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Bools, Floats, Ints

LAST = 5
"""Recurrences at the end of a group that show what was learnt; Zeus (NSDI '23), section 6."""


MOST_NAMES = 128
"""Of fewer names, the index fits in a byte."""

ROUNDING = 1e-9
"""A job that ends at its deadline ends later by less, relatively, by rounding."""


class Metric(NamedTuple):
    """A metric's unit and meaning."""

    unit: str
    doc: str


METRICS: dict[str, Metric] = {
    "jobs": Metric("1", "jobs that ended"),
    "attempts": Metric("1", "attempts, including those that never ran"),
    "gave_up": Metric("1", "jobs whose every attempt failed"),
    "energy_j": Metric("J", "energy of all attempts"),
    "time_s": Metric("s", "training time of all attempts"),
    "cost": Metric(
        "J",
        "eta * energy + (1 - eta) * largest power limit * time of training, without overheads, of "
        "all attempts",
    ),
    "regret": Metric(
        "J",
        "cost of the profiled jobs of the run less the least expected cost of each, in the best "
        "configuration of its profile",
    ),
    "last5_energy_j": Metric("J", "energy of a job, mean over the last five of each group"),
    "last5_time_s": Metric("s", "training time of a job, mean over the last five of each group"),
    "last5_cost": Metric("J", "cost of a job, mean over the last five of each group"),
    "energy_to_accuracy_j": Metric("J", "energy of a job that reached its target, with retries"),
    "time_to_accuracy_s": Metric("s", "training time of a job that reached its target"),
    "jct_s": Metric("s", "job completion time: from submission to end, mean"),
    "p95_jct_s": Metric("s", "job completion time that 95 % of jobs stay below"),
    "preemptions": Metric("1", "how often jobs lost their GPUs"),
    "queue_delay_s": Metric("s", "wait for GPUs: before the start and while preempted, mean"),
    "makespan_s": Metric("s", "from the first submission to the last end"),
    "gpu_utilisation": Metric("1", "share of the GPU time of the window that jobs hold"),
    "cluster_energy_j": Metric(
        "J", "energy of the facility in the window: the four parts below together"
    ),
    "training_energy_j": Metric("J", "of GPUs while jobs train on them, times pue"),
    "held_energy_j": Metric("J", "of GPUs that jobs hold without training, times pue"),
    "idle_energy_j": Metric("J", "of free GPUs that are awake, times pue"),
    "asleep_energy_j": Metric("J", "of GPUs of nodes that sleep, times pue"),
    "electricity_cost": Metric(
        "currency", "with `electricity.price`: cost of the cluster's energy, in its currency"
    ),
    "carbon_g": Metric("g", "with `electricity.carbon`: emissions of the cluster's energy"),
    "year_span_s": Metric(
        "s",
        "where jobs are submitted at given times, over at least seven days: from the first "
        "submission, or the stated begin, to the last, and one mean time between two; or to the "
        "stated end",
    ),
    "year_energy_j": Metric(
        "J",
        "with `year_span_s`: energy of the facility in 365 days in which jobs are submitted as in "
        "that time",
    ),
    "year_electricity_cost": Metric(
        "currency", "with `year_span_s` and `electricity.price`: what that costs"
    ),
    "year_carbon_g": Metric("g", "with `year_span_s` and `electricity.carbon`: what that emits"),
    "node_losses": Metric("1", "with losses of nodes: how often a node went down"),
    "ready_node_losses": Metric(
        "1", "with losses of nodes: how often one went down that did not boot"
    ),
    "lost_attempts": Metric("1", "with losses of nodes: attempts that ended with one"),
    "unable_jobs": Metric(
        "1",
        "with losses of nodes or elastic jobs: jobs that never ended, for want of nodes that "
        "stayed up; elastic jobs that wait for nodes at `until_s`, too",
    ),
    "lost_gpu_s": Metric("s", "with losses of nodes: GPU time of training that was not saved"),
    "lost_energy_j": Metric("J", "with losses of nodes: energy of that"),
    "slow_gpu_s": Metric("s", "with losses of nodes: GPU time that slow nodes added to training"),
    "nodes_up": Metric("1", "with losses of nodes: share of the time of the window, mean"),
    "useful_samples": Metric("1", "with elastic jobs: samples that were committed"),
    "goodput": Metric(
        "1/s",
        "with elastic jobs: samples that a job committed a second, from its first pause to its "
        "end; sum over jobs",
    ),
    "ettr": Metric(
        "1",
        "with elastic jobs: effective training time ratio, the share of the time of a job, from "
        "its first pause to its end, in steps that were committed; mean over jobs",
    ),
    "lost_share": Metric("1", "with elastic jobs: likewise, in steps that were lost"),
    "open_share": Metric(
        "1",
        "with elastic jobs: likewise, in steps that are neither committed nor lost at its end; "
        "where there are any",
    ),
    "pause_share": Metric("1", "with elastic jobs: likewise, in pauses"),
    "checkpoint_share": Metric("1", "with elastic jobs: likewise, in writes of checkpoints"),
    "stopped_share": Metric("1", "with elastic jobs: likewise, without enough nodes"),
    "downtime_s": Metric(
        "s", "with elastic jobs: time from a loss until training goes on, median of all losses"
    ),
    "p99_downtime_s": Metric("s", "with elastic jobs: what 99 % of these stay below"),
    "elastic_energy_j": Metric(
        "J",
        "with elastic jobs: energy of their nodes, from the first pause of a job to its end: the "
        "parts below together",
    ),
    "elastic_useful_j": Metric(
        "J", "with elastic jobs: of steps that were committed, without redundant computation"
    ),
    "elastic_redundant_j": Metric(
        "J", "with redundant shapes (`replan: bamboo`): of redundant computation in these steps"
    ),
    "elastic_lost_j": Metric("J", "with elastic jobs: of steps that were lost"),
    "elastic_open_j": Metric(
        "J", "with elastic jobs: of steps that are neither committed nor lost, where there are any"
    ),
    "elastic_pause_j": Metric("J", "with elastic jobs: of pauses"),
    "elastic_checkpoint_j": Metric("J", "with elastic jobs: of writes of checkpoints"),
    "elastic_waiting_j": Metric(
        "J", "with elastic jobs: of nodes that are too few to train on, that boot, or are free"
    ),
    "useful_sample_j": Metric("J", "with elastic jobs: energy of their nodes, a committed sample"),
    "elastic_rent": Metric(
        "currency", "with `cluster.rent`: rent of the same nodes, in its currency"
    ),
    "lost_rent": Metric("currency", "with `cluster.rent`: of that, of steps that were lost"),
    "redundant_rent": Metric(
        "currency",
        "with `cluster.rent` and redundant shapes: of that, of redundant computation in other "
        "steps",
    ),
    "useful_sample_rent": Metric("currency", "with `cluster.rent`: rent of a committed sample"),
    "on_demand_rent": Metric(
        "currency",
        "with `cluster.rent.on_demand`: what the same samples cost on nodes that are never lost",
    ),
    "late_jobs": Metric("1", "with deadlines: jobs that ended after theirs"),
    "gpu_s_saved": Metric(
        "s", "with a zoo: GPU seconds of training that parents saved, queries not subtracted"
    ),
    "with_parent": Metric("1", "with a zoo: share of the trained models that had a parent"),
    "mean_accuracy": Metric("1", "with a zoo: accuracy of the trained models, mean"),
    "zoo_bytes": Metric("B", "with a zoo: size of its models at the end"),
}


COSTS: Final = frozenset({"cost", "regret", "last5_cost"})
"""Metrics that are comparable only under the same eta."""


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
