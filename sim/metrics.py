"""Metrics of a run, and their statistics over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wattkeeper.sim.cluster import ClusterSpec
from wattkeeper.sim.timeline import Timeline

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Strings = npt.NDArray[np.str_]

LAST = 5
"""Recurrences at the end of a group that show what was learnt, as in Zeus (NSDI '23), section 6."""

RESAMPLES = 2000


class Metric(NamedTuple):
    """A metric's unit and meaning."""

    unit: str
    doc: str


METRICS: dict[str, Metric] = {
    "jobs": Metric("1", "jobs that ended"),
    "attempts": Metric("1", "attempts, those that never ran among them"),
    "gave_up": Metric("1", "jobs whose every attempt failed"),
    "energy_j": Metric("J", "energy of all attempts"),
    "time_s": Metric("s", "training time of all attempts"),
    "cost": Metric("J", "eta * energy + (1 - eta) * largest power limit * time, of all attempts"),
    "regret": Metric("J", "cost less the expected cost of the best configuration, of all jobs"),
    "last5_energy_j": Metric("J", "energy of a job, mean over the last five of each group"),
    "last5_time_s": Metric("s", "training time of a job, mean over the last five of each group"),
    "last5_cost": Metric("J", "cost of a job, mean over the last five of each group"),
    "energy_to_accuracy_j": Metric("J", "energy of a job that reached its target, with retries"),
    "time_to_accuracy_s": Metric("s", "training time of a job that reached its target"),
    "jct_s": Metric("s", "job completion time: from submission to end, mean"),
    "queue_delay_s": Metric("s", "from submission to start, mean"),
    "makespan_s": Metric("s", "from the first submission to the last end"),
    "gpu_utilisation": Metric("1", "share of GPU time that jobs hold"),
    "cluster_energy_j": Metric("J", "energy of the cluster, idle GPUs included"),
}


COSTS = {"cost", "regret", "last5_cost"}
"""Metrics that mean something only under one eta."""

NOT_COMPARED: dict[str, Any] = {"ratio": None, "ci95": None}


class Jobs(NamedTuple):
    """What became of each job: columns in order of the end of its first attempt.

    Attributes:
        group: Index of its group.
        recurrence: Its place in the group.
        workload: What was trained.
        gpu_type: Where.
        attempts: How many attempts it took.
        queue_delay_s: From submission to start.
        submit_time_s: Submission.
        finish_time_s: End of the last attempt.
        energy_j: Of all attempts.
        time_s: Training time of all attempts.
        cost: Of all attempts.
        regret: Cost less that of the best configuration in expectation.
        reached: Whether an attempt reached the target.
    """

    group: Ints
    recurrence: Ints
    workload: Strings
    gpu_type: Strings
    attempts: Ints
    queue_delay_s: Floats
    submit_time_s: Floats
    finish_time_s: Floats
    energy_j: Floats
    time_s: Floats
    cost: Floats
    regret: Floats
    reached: Bools

    def only(self, kept: Bools) -> Jobs:
        """Some of the jobs."""
        columns: Any = (column[kept] for column in self)
        return Jobs(*columns)


def jobs_of(columns: Mapping[str, Sequence[Any]], optima: Mapping[tuple[str, int], float]) -> Jobs:
    """Gather attempts into jobs.

    Args:
        columns: The fields of `wattkeeper.sim.recorder.AttemptRow`, in order of time.
        optima: Smallest expected cost (J) by workload and number of GPUs.
    """
    index = _numbered(columns["job_id"])
    first = np.array(columns["attempt"]) == 1
    workload = np.array(columns["workload"])[first]
    submit = np.array(columns["submit_time_s"])[first]
    finish = np.zeros(len(submit))
    finish[index] = columns["finish_time_s"]

    def total(name: str) -> Floats:
        return np.bincount(index, np.array(columns[name], dtype=float)).astype(np.float64)

    cost = total("cost")
    scale = np.array(columns["time_scale"])[first]
    gpus = np.array(columns["gpus"])[first]
    kinds = zip(workload.tolist(), gpus.tolist(), strict=True)
    best = np.array([optima.get(kind, math.nan) for kind in kinds])
    return Jobs(
        group=_numbered(columns["group_id"])[first],
        recurrence=np.array(columns["recurrence"])[first],
        workload=workload,
        gpu_type=np.array(columns["gpu_type"])[first],
        attempts=np.bincount(index),
        queue_delay_s=np.array(columns["start_time_s"])[first] - submit,
        submit_time_s=submit,
        finish_time_s=finish,
        energy_j=total("energy_j"),
        time_s=total("time_s"),
        cost=cost,
        regret=cost - best * scale,
        reached=total("reached_target") > 0,
    )


def _numbered(names: Sequence[str]) -> Ints:
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names])


def run_metrics(jobs: Jobs, timeline: Timeline, cluster: ClusterSpec) -> dict[str, float]:
    """The metrics of a whole run."""
    span_s = float(timeline.time_s[-1] - timeline.time_s[0])
    return job_metrics(jobs) | {
        "gpu_utilisation": timeline.gpu_seconds() / (span_s * cluster.gpus) if span_s else 0.0,
        "cluster_energy_j": timeline.energy_j(),
    }


def job_metrics(jobs: Jobs) -> dict[str, float]:
    """The metrics of some of the jobs of a run."""
    latest = np.zeros(int(jobs.group.max()) + 1, dtype=np.int64)
    np.maximum.at(latest, jobs.group, jobs.recurrence)
    last = jobs.only(jobs.recurrence > latest[jobs.group] - LAST)
    reached = jobs.only(jobs.reached)
    return {
        "jobs": float(len(jobs.group)),
        "attempts": float(jobs.attempts.sum()),
        "gave_up": float((~jobs.reached).sum()),
        "energy_j": math.fsum(jobs.energy_j),
        "time_s": math.fsum(jobs.time_s),
        "cost": math.fsum(jobs.cost),
        "regret": math.fsum(jobs.regret),
        "last5_energy_j": _mean(last.energy_j),
        "last5_time_s": _mean(last.time_s),
        "last5_cost": _mean(last.cost),
        "energy_to_accuracy_j": _mean(reached.energy_j),
        "time_to_accuracy_s": _mean(reached.time_s),
        "jct_s": _mean(jobs.finish_time_s - jobs.submit_time_s),
        "queue_delay_s": _mean(jobs.queue_delay_s),
        "makespan_s": float(jobs.finish_time_s.max() - jobs.submit_time_s.min()),
    }


def _mean(values: Floats) -> float:
    return math.fsum(values) / len(values) if len(values) else math.nan


def over_seeds(values: Sequence[float]) -> dict[str, Any]:
    """Mean, sample standard deviation, 95 % interval of the mean, and number of seeds.

    The interval is a percentile bootstrap over seeds. Where a figure does not exist, as an interval
    of one seed, it is None.
    """
    known = np.array([value for value in values if math.isfinite(value)])
    if not len(known):
        return {"mean": None, "std": None, "ci95": None, "n": 0}
    std = float(known.std(ddof=1)) if len(known) > 1 else None
    return {"mean": float(known.mean()), "std": std, "ci95": _ci95(known), "n": len(known)}


def versus(values: Sequence[float], baseline: Sequence[float]) -> dict[str, Any]:
    """Mean of the ratios to the baseline, seed by seed, and its 95 % interval.

    None where one of them does not exist, or a baseline is not above 0.
    """
    if not all(base > 0 for base in baseline) or not all(map(math.isfinite, (*values, *baseline))):
        return NOT_COMPARED
    ratios = np.array(values) / np.array(baseline)
    return {"ratio": float(ratios.mean()), "ci95": _ci95(ratios)}


def _ci95(values: Floats) -> list[float] | None:
    if len(values) < 2:
        return None
    means = values[_resamples(len(values))].mean(axis=1)
    return [float(bound) for bound in np.quantile(means, (0.025, 0.975))]


@cache
def _resamples(size: int) -> Ints:
    return np.random.default_rng(0).integers(size, size=(RESAMPLES, size))
