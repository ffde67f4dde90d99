"""The least at which jobs could have met their deadlines, with the whole future known."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import InputError, ScenarioError
from wattkeeper.policies.planning.hull import SpeedPoint, locked_points, paused, speed_points
from wattkeeper.policies.planning.optimum import fill, fill_until_done
from wattkeeper.policies.points.job import Job
from wattkeeper.scenarios.inputs.limit_models import unprofiled_power
from wattkeeper.scenarios.inputs.run_inputs import RunInputs
from wattkeeper.scenarios.inputs.signals import read_tariff
from wattkeeper.scenarios.kinds.simulation import source_of
from wattkeeper.scenarios.spec.loading import LoadedScenario
from wattkeeper.sim.kernel.signals import SignalSeries
from wattkeeper.sim.replay.unprofiled import UnprofiledPower
from wattkeeper.traces.electricity.charges import JOULES_PER_KWH
from wattkeeper.traces.gpus.model import Boundness

Weight = Literal["carbon", "price", "energy"]
"""What of a job is to be least."""

Task = tuple[tuple[SpeedPoint, ...], float]
"""Operating points, and the work in their unit."""

JOB_COLUMNS: Final = (
    "job_id",
    "group_id",
    "recurrence",
    "workload",
    "gpus",
    "submit_time_s",
    "time_scale",
    "deadline_s",
)


def check_bound(loaded: LoadedScenario, inputs: RunInputs) -> None:
    """Refuse a bound where there is no deadline, or where the work of a job is drawn at random.

    One bound stands for all variants: none may have a cluster, a workload or rates of its own.

    Raises:
        ScenarioError: It names the place in the scenario.
    """
    if loaded.scenario.bound is None:
        return
    for name, variant in loaded.scenario.variants.items():
        for key in ("cluster", "workload", "electricity"):
            if getattr(variant, key) is not None:
                raise ScenarioError(
                    f"bound: one bound stands for all variants, and {name!r} has its own {key}",
                    loaded.document.where(("variants", name, key)),
                )
    where = loaded.document.where(("bound",))
    jobs = inputs.jobs
    if inputs.slack is None and (jobs is None or jobs["deadline_s"].null_count == len(jobs)):
        raise ScenarioError("bound: no job has a deadline; state workload.slack", where)
    if jobs is None and not inputs.every_s:
        raise ScenarioError(
            "bound: a recurrence is submitted when the one before finishes, at other times in each "
            "variant; state workload.every_s",
            where,
        )
    if any(variant.zoo for variant in loaded.variants.values()):
        raise ScenarioError("bound: what a parent of the zoo saves is not known beforehand", where)
    rate = read_tariff(loaded.scenario.bound, inputs.tariff)
    if rate is not None and rate.value.min() < 0:
        raise ScenarioError(
            f"bound: {loaded.scenario.bound} falls to {rate.value.min():g}; below 0 jobs gain by "
            "what they waste",
            where,
        )
    if inputs.trained:
        raise ScenarioError("bound: nothing is known beforehand of what trains live", where)
    for profile in inputs.profiles.values():
        if profile.fixed_epochs is None:
            raise ScenarioError(
                f"bound: {profile.workload!r} trains to a target after an unknown number of "
                "epochs; state it (workload.epochs)",
                where,
            )


def bound_jobs(
    finished: pa.Table,
    sizes: Collection[int],
    inputs: RunInputs,
    weight: Weight,
    holds: bool,
    cases: Collection[Boundness],
) -> dict[str, float]:
    """The least emissions (g), cost (currency) or energy (J) of jobs with a deadline, by job id.

    Each job alone, from its submission to its deadline, at any power limit or locked clock of any
    GPU type that it has a profile of, and with pauses: a lower bound for every policy that meets
    the deadlines at one of some batch sizes. It is the optimum of a linear program. A job that
    cannot meet its deadline, or whose deadline lies beyond the series, has none.

    Args:
        finished: Jobs that ended, in the schema of the results.
        sizes: The batch sizes.
        inputs: Of the run.
        weight: What is to be least.
        holds: Whether paused jobs hold idle GPUs.
        cases: How far jobs without a profile are bound by compute, in any of the runs.
    """
    series = None if weight == "energy" else read_tariff(weight, inputs.tariff)
    factor = 1.0 if series is None else inputs.cluster.pue / JOULES_PER_KWH
    unprofiled = [unprofiled_power(inputs, case) for case in sorted(cases)]
    least: dict[str, float] = {}
    for job in _jobs(finished, inputs):
        slots = _cut_slots(series, job.submit_time_s, job.deadline_s)
        if slots is None:
            continue
        costs = [
            _least(task, *slots, idle_w if holds else 0.0)
            for power in unprofiled
            for task, idle_w in _tasks(job, sizes, inputs, power)
        ]
        known = [cost for cost in costs if cost is not None]
        if known:
            least[job.job_id] = min(known) * factor
    return least


def _jobs(finished: pa.Table, inputs: RunInputs) -> Iterator[Job]:
    """The jobs of a run that have a deadline."""
    if inputs.jobs is not None:
        ended = set(finished["job_id"].to_pylist())
        for batch in source_of(inputs).arrivals():
            yield from (
                job for job in batch if job.job_id in ended and job.deadline_s > job.submit_time_s
            )
        return
    for row in finished.select(JOB_COLUMNS).to_pylist():
        yield Job(**row)


def _tasks(
    job: Job, sizes: Collection[int], inputs: RunInputs, unprofiled: UnprofiledPower
) -> Iterator[tuple[Task, float]]:
    """What a job may do on each GPU type and at each batch size, and its idle power there, W."""
    cluster = inputs.cluster
    for index in cluster.types_allowed(job.gpu_type):
        name = cluster.gpu_types[index]
        idle_w = cluster.power[name].idle_w * job.gpus_held
        if job.workload is None:
            if unprofiled.is_limited(name):
                yield (speed_points(unprofiled.curve(job, name)), job.duration_s), idle_w
            else:
                power_w = unprofiled.power_w(job, name)
                yield ((SpeedPoint(1.0, power_w, 0.0),), job.duration_s), idle_w
            continue
        profile = inputs.profiles.get((job.workload, job.gpus, name))
        curves = () if profile is None else profile.curves.values()
        for curve in (curve for curve in curves if curve.batch_size in sizes):
            unit_s = 1 / job.time_scale
            points = speed_points(curve, unit_s) + locked_points(curve, unit_s)
            yield (points, float(max(curve.epochs))), idle_w


def _least(task: Task, rates: Floats, lengths_s: Floats, paused_w: float) -> float | None:
    points, work = task
    solve = fill if paused_w == 0 else fill_until_done
    plan = solve((*points, paused(paused_w)), rates, lengths_s, work)
    return None if plan is None else plan.cost


def _cut_slots(
    series: SignalSeries | None, from_s: float, until_s: float
) -> tuple[Floats, Floats] | None:
    """Values of a series and lengths of its slots in a window; None if it does not cover it."""
    if series is None:
        return np.ones(1), np.array([until_s - from_s])
    try:
        first, last = series.slot(from_s), series.slot(np.nextafter(until_s, from_s))
    except InputError:
        return None
    inner = [series.begin_s(slot) for slot in range(first + 1, last + 1)]
    edges = np.array([from_s, *inner, until_s])
    return series.values(first, last + 1), np.diff(edges)
